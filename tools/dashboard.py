"""Write deploy/dashboard.json, the Grafana dashboard, from the table of its panels below.

python tools/dashboard.py             write it anew
python tools/dashboard.py --check     change nothing; end with 1 if it is out of date
"""

import json
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

TARGET = Path(__file__).resolve().parents[1] / "deploy" / "dashboard.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NODE = 'job=~"$job",instance=~"$instance"'
TOPIC = NODE + ',topic=~"$topic"'
SENDS = NODE + ',operation=~"send|send_batch|SendMessage|SendMessageBatch"'
COLUMNS = 24  # of Grafana's grid
HEIGHT = 8


@dataclass(frozen=True)
class Panel:
    """A title, a unit, and queries with the names of their lines."""

    title: str
    unit: str
    queries: dict[str, str]
    meaning: str = ""
    kind: Literal["timeseries", "stat", "bargauge"] = "timeseries"
    width: int = 12
    height: int = HEIGHT


def quantile(q: float, metric: str, by: str, labels: str = NODE) -> str:
    """Of a histogram, over the last minutes."""
    kept = ", ".join(filter(None, [by, "le"]))
    return f"histogram_quantile({q}, {rate(metric + '_bucket', kept, labels)})"


def now(metric: str, labels: str = NODE) -> str:
    """As it was read last."""
    return f"{metric}{{{labels}}}"


def rate(metric: str, by: str, labels: str = TOPIC) -> str:
    """A second, summed."""
    return f"sum by ({by}) (rate({now(metric, labels)}[$__rate_interval]))"


def stat(title: str, unit: str, query: str) -> Panel:
    """One number."""
    return Panel(title, unit, {"": query}, kind="stat", width=4, height=4)


def threshold(measure: str) -> dict[str, str]:
    """The numbers that the alerts compare with."""
    return {"{{severity}}": f'quiver:threshold{{measure="{measure}"}}'}


ROWS: dict[str, list[Panel]] = {
    "At a glance": [
        stat("Unsettled messages", "short", f"sum({now('quiver_topic_depth_messages')})"),
        stat("Sent a second", "mps", rate("quiver_messages_sent_total", "", NODE)),
        stat("Delivered a second", "mps", rate("quiver_messages_delivered_total", "", NODE)),
        stat("Dead letters", "short", f"sum({now('quiver_dead_letter_messages')})"),
        stat("Connections", "short", f"sum({now('quiver_connections')})"),
        stat(
            "Disk used",
            "percentunit",
            f"max(1 - {now('quiver_disk_free_bytes')} / {now('quiver_disk_bytes')})",
        ),
    ],
    "Flow": [
        Panel(
            "Lag",
            "short",
            {
                "{{topic}} / {{group}}": now("quiver_group_lag_messages", TOPIC),
                **threshold("lag_messages"),
            },
            "What each group has not settled. Watch this rather than depth.",
        ),
        Panel(
            "Throughput",
            "mps",
            {
                "{{topic}} in": rate("quiver_messages_sent_total", "topic"),
                "{{topic}} / {{group}} out": rate(
                    "quiver_messages_delivered_total", "topic, group"
                ),
                "{{topic}} / {{group}} acked": rate("quiver_messages_acked_total", "topic, group"),
            },
        ),
        Panel(
            "Queue depth",
            "short",
            {"{{topic}}": now("quiver_topic_depth_messages", TOPIC)},
            "Now, by topic.",
            kind="bargauge",
        ),
        Panel(
            "In flight and delayed",
            "short",
            {
                "{{topic}} / {{group}} in flight": now("quiver_group_in_flight_messages", TOPIC),
                "{{topic}} / {{group}} delayed": now("quiver_group_delayed_messages", TOPIC),
            },
        ),
        Panel(
            "Oldest unsettled message",
            "s",
            {"{{topic}} / {{group}}": now("quiver_group_oldest_age_seconds", TOPIC)},
        ),
        Panel(
            "Age at delivery",
            "s",
            {
                "{{topic}} p50": quantile(0.5, "quiver_message_age_seconds", "topic", TOPIC),
                "{{topic}} p99": quantile(0.99, "quiver_message_age_seconds", "topic", TOPIC),
                **threshold("age_seconds"),
            },
            "End to end: from stored to delivered.",
        ),
    ],
    "Failures": [
        Panel(
            "Error rate by consumer",
            "percentunit",
            {
                "{{topic}} / {{group}}": now("quiver:group_error_ratio", TOPIC),
                **threshold("error_ratio"),
            },
            "Attempts that were given back or timed out, of all.",
        ),
        Panel(
            "Attempts that failed",
            "mps",
            {
                "{{topic}} / {{group}} nacked": rate(
                    "quiver_messages_nacked_total", "topic, group"
                ),
                "{{topic}} / {{group}} timed out": rate(
                    "quiver_messages_timed_out_total", "topic, group"
                ),
                "{{topic}} / {{group}} again": rate(
                    "quiver_messages_redelivered_total", "topic, group"
                ),
            },
        ),
        Panel(
            "Dead letters by topic",
            "short",
            {"{{topic}}": now("quiver_dead_letter_messages"), **threshold("dead_letter_messages")},
        ),
        Panel(
            "Dead letters by reason",
            "mps",
            {"{{reason}}": rate("quiver_dead_letter_reasons_total", "reason", NODE)},
        ),
        Panel(
            "Refused requests by code",
            "reqps",
            {
                "{{door}} {{code}}": rate(
                    "quiver_requests_total", "door, code", NODE + ',code!="ok"'
                )
            },
        ),
        Panel(
            "Expired, dropped, lost",
            "mps",
            {
                "{{topic}} / {{group}} expired": rate(
                    "quiver_messages_expired_total", "topic, group"
                ),
                "{{topic}} dropped": rate("quiver_messages_dropped_total", "topic"),
                "{{topic}} / {{group}} lost": rate("quiver_messages_lost_total", "topic, group"),
            },
        ),
    ],
    "Requests": [
        Panel(
            "Requests",
            "reqps",
            {"{{door}} {{operation}}": rate("quiver_requests_total", "door, operation", NODE)},
        ),
        Panel(
            "Duration of requests, p99",
            "s",
            {
                "{{door}} {{operation}}": quantile(
                    0.99, "quiver_request_duration_seconds", "door, operation"
                )
            },
            "Of sends, receives (with their wait), acks and all others.",
        ),
        Panel(
            "Traffic",
            "Bps",
            {
                "{{door}} in": rate("quiver_request_bytes_total", "door", NODE),
                "{{door}} out": rate("quiver_response_bytes_total", "door", NODE),
            },
        ),
        Panel(
            "Messages a send",
            "short",
            {
                "": rate("quiver_messages_sent_total", "", NODE)
                + " / "
                + rate("quiver_requests_total", "", SENDS)
            },
            "How large batches are, on average.",
        ),
    ],
    "Node and files": [
        Panel(
            "Sync of the log",
            "s",
            {
                "p50": quantile(0.5, "quiver_log_sync_duration_seconds", ""),
                "p99": quantile(0.99, "quiver_log_sync_duration_seconds", ""),
                **threshold("sync_seconds"),
            },
        ),
        Panel(
            "Files",
            "bytes",
            {
                "{{instance}} log": now("quiver_log_bytes"),
                "{{instance}} segments": now("quiver_segment_bytes"),
            },
        ),
        Panel(
            "Number of files",
            "short",
            {
                "{{instance}} log files": now("quiver_log_files"),
                "{{instance}} segments": now("quiver_segments"),
            },
        ),
        Panel("Stored by topic", "bytes", {"{{topic}}": now("quiver_topic_stored_bytes", TOPIC)}),
        Panel("Memory", "bytes", {"{{instance}}": now("process_resident_memory_bytes")}),
        Panel(
            "Processor",
            "percentunit",
            {"{{instance}}": rate("process_cpu_seconds_total", "instance", NODE)},
        ),
    ],
}
VARIABLES = {
    "job": "label_values(quiver_build_info, job)",
    "instance": 'label_values(quiver_build_info{job=~"$job"}, instance)',
    "topic": f"label_values(quiver_topic_depth_messages{{{NODE}}}, topic)",
}


def dashboard() -> dict[str, Any]:
    """All of it."""
    ids = count(1)
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append({"id": next(ids), "type": "row", "title": title, "collapsed": False,
                       "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}, "panels": []})  # fmt: skip
        y, x = y + 1, 0
        for panel in row:
            if x + panel.width > COLUMNS:
                x, y = 0, y + panel.height
            panels.append(drawn(panel, next(ids), x, y))
            x += panel.width
        y += row[-1].height
    return {
        "uid": "quiver", "title": "Quiver", "tags": ["quiver"], "schemaVersion": 39, "version": 1,
        "editable": True, "graphTooltip": 1, "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [data_source(), *map(variable, VARIABLES)]},
        "panels": panels,
    }  # fmt: skip


def drawn(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    """A panel as Grafana keeps it."""
    targets = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
        for at, (legend, expr) in enumerate(panel.queries.items())
    ]
    return {
        "id": number, "type": panel.kind, "title": panel.title, "description": panel.meaning,
        "datasource": SOURCE, "targets": targets,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {},
    }  # fmt: skip


def data_source() -> dict[str, Any]:
    """Which Prometheus."""
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}}


def variable(name: str) -> dict[str, Any]:
    """One that is chosen from what there is; all of it at first."""
    return {
        "name": name, "type": "query", "datasource": SOURCE, "refresh": 2, "sort": 1,
        "query": {"query": VARIABLES[name], "refId": name}, "definition": VARIABLES[name],
        "includeAll": True, "multi": True, "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def main(argv: list[str]) -> int:
    """Write it, or with --check say whether it is current."""
    made = json.dumps(dashboard(), indent=2) + "\n"
    if argv == ["--check"]:
        return 0 if TARGET.exists() and TARGET.read_text(encoding="utf-8") == made else 1
    TARGET.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
