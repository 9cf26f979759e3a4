"""The alert rules and the dashboard: right by promtool, about metrics that a real node has."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from typer.main import get_command

from quiver.cli.app import app
from tests.observe.prometheus import program, promtool
from tests.observe.scraping import samples, scrape
from tests.server.api.test_api import Api
from tests.server.nodes import Node, start_node
from tools import dashboard

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/alerts.yaml"
DASHBOARD = ROOT / "deploy/dashboard.json"
NAME = re.compile(r"\b(?:quiver|process)_[a-z_]+\b")
GRAFANA = {"$__rate_interval": "5m", "$job": ".*", "$instance": ".*", "$topic": ".*"}
START_SECONDS = 60

rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
alerts = [rule for rule in rules if "alert" in rule]


def queries() -> list[str]:
    """Every query of the dashboard, as Grafana would send it."""
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            for name, value in GRAFANA.items():
                query = query.replace(name, value)
            found.append(query)
    return found


# -- about what there is ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node on which something has happened: messages in every state, an error."""
    with start_node(tmp_path_factory.mktemp("node")) as started:
        api = Api(started)
        api("PUT", "/v1/topics/orders", {"max_attempts": 1})
        for body in ("one", "two", "three"):
            api("POST", "/v1/topics/orders/messages", {"body": body})
        found = api("POST", "/v1/topics/orders/groups/billing/receive", {"max_messages": 2})[1]
        first, second = [message["receipt"] for message in found["messages"]]
        api("POST", "/v1/settle", {"action": "ack", "receipts": [first]})
        api("POST", "/v1/settle", {"action": "nack", "receipts": [second], "reason": "Timeout: x"})
        assert api("POST", "/v1/topics/nothing/messages", {"body": "x"})[0] == 404
        yield started


@pytest.mark.process
def test_every_metric_that_is_named_is_there(node: Node):
    there = {sample.name for sample in samples(scrape(node.url)[0])}
    named = {name for rule in rules for name in NAME.findall(str(rule))}
    named |= {name for query in queries() for name in NAME.findall(query)}
    assert len(named) > 30
    assert named <= there, f"not in /metrics: {sorted(named - there)}"


@pytest.mark.process
def test_what_the_node_counts_is_what_happened(node: Node):
    found = {
        (s.labels["operation"], s.labels["code"]): s.value
        for s in samples(scrape(node.url)[0])
        if s.name == "quiver_requests_total" and s.labels["door"] == "api"
    }
    assert found["send", "ok"] == 3
    assert found["send", "topic_not_found"] == 1
    assert found["receive", "ok"] == 1
    assert (found["ack", "ok"], found["nack", "ok"]) == (1, 1)
    Api(node)("GET", "/v1/nowhere")
    text = scrape(node.url)[0]
    refused = 'quiver_requests_total{code="invalid_request",door="node",operation="refuse"} 1.0'
    assert refused in text
    assert 'quiver_message_age_seconds_count{topic="orders"} 2.0' in text
    assert 'quiver_dead_letter_reasons_total{reason="Timeout"} 1.0' in text
    assert re.search(r"^quiver_connections [1-9]", text, re.MULTILINE)


def test_every_recorded_series_that_is_used_is_recorded():
    recorded = {rule["record"] for rule in rules if "record" in rule}
    used = set(re.findall(r"quiver:[a-z0-9_:]+", RULES.read_text() + DASHBOARD.read_text()))
    assert used == recorded


def test_every_threshold_is_compared_with_and_nothing_else_is():
    said = {
        (rule["labels"]["measure"], rule["labels"]["severity"])
        for rule in rules
        if rule.get("record") == "quiver:threshold"
    }
    pattern = r'quiver:threshold\{measure="(\w+)",severity="(\w+)"\}'
    used = {pair for rule in alerts for pair in re.findall(pattern, rule["expr"])}
    assert used == said


@pytest.mark.parametrize("rule", alerts, ids=lambda rule: f"{rule['alert']}-{rule['labels']}")
def test_an_alert_says_what_it_means_and_what_to_do(rule: dict[str, Any]):
    assert set(rule["annotations"]) == {"summary", "description", "action"}
    commands: Any = get_command(app)
    for line in re.findall(r"`quiver ([^`]+)`", str(rule["annotations"])):
        words = line.split()
        command = commands.commands[words[0]]
        if hasattr(command, "commands") and len(words) > 1 and words[1] in command.commands:
            command = command.commands[words[1]]
        options = {
            name for param in command.params for name in (*param.opts, *param.secondary_opts)
        }
        assert {word for word in words if word.startswith("--")} <= options, line


def test_the_dashboard_is_what_its_table_says():
    assert dashboard.main(["--check"]) == 0, "run: .venv/bin/python tools/dashboard.py"


def test_no_panel_is_above_another():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < dashboard.COLUMNS


# -- by Prometheus ---------------------------------------------------------------------------------

QUIET: list[tuple[str, str]] = [  # series and values of a node that is well
    ('up{job="quiver"}', "1x120"),
    ('quiver_group_lag_messages{topic="t",group="g"}', "1000x120"),
    ('quiver_group_ready_messages{topic="t",group="g"}', "10x120"),
    ('quiver_group_paused{topic="t",group="g"}', "0x120"),
    ('quiver_messages_sent_total{topic="t"}', "0+1000x120"),
    ('quiver_messages_delivered_total{topic="t",group="g"}', "0+1000x120"),
    ('quiver_messages_acked_total{topic="t",group="g"}', "0+1000x120"),
    ('quiver_messages_nacked_total{topic="t",group="g"}', "0x120"),
    ('quiver_messages_timed_out_total{topic="t",group="g"}', "0x120"),
    ('quiver_messages_lost_total{topic="t",group="g"}', "7x120"),
    ('quiver_topic_depth_messages{topic="t"}', "10000x120"),
    ('quiver_dead_letter_messages{topic="t.dlq"}', "100x120"),
    ('quiver_requests_total{door="api",operation="send",code="ok"}', "0+1000x120"),
    ('quiver_message_age_seconds_bucket{topic="t",le="0.5"}', "0+10x120"),
    ('quiver_message_age_seconds_bucket{topic="t",le="1"}', "0+10x120"),
    ('quiver_message_age_seconds_bucket{topic="t",le="5"}', "0+10x120"),
    ('quiver_message_age_seconds_bucket{topic="t",le="+Inf"}', "0+10x120"),
    ('quiver_log_sync_duration_seconds_bucket{le="0.5"}', "0+10x120"),
    ('quiver_log_sync_duration_seconds_bucket{le="1"}', "0+10x120"),
    ('quiver_log_sync_duration_seconds_bucket{le="+Inf"}', "0+10x120"),
    ("quiver_disk_bytes", "100x120"),
    ("quiver_disk_free_bytes", "20x120"),
]
G = '{topic="t",group="g"}'
CASES: list[tuple[dict[str, str], str, str]] = [  # what is different, and which alert that is
    ({'up{job="quiver"}': "0x120"}, "QuiverDown", "critical"),
    ({f"quiver_group_lag_messages{G}": "1001x120"}, "QuiverLag", "warning"),
    ({f"quiver_group_lag_messages{G}": "10001x120"}, "QuiverLag", "critical"),
    (
        {
            f"quiver_messages_delivered_total{G}": "5x120",
            f"quiver_messages_acked_total{G}": "5x120",
        },
        "QuiverNoConsumers",
        "critical",
    ),
    ({'quiver_dead_letter_messages{topic="t.dlq"}': "101x120"}, "QuiverDeadLetters", "warning"),
    ({'quiver_dead_letter_messages{topic="t.dlq"}': "1001x120"}, "QuiverDeadLetters", "critical"),
    ({'quiver_topic_depth_messages{topic="t"}': "10001x120"}, "QuiverDepth", "info"),
    ({'quiver_topic_depth_messages{topic="t"}': "50001x120"}, "QuiverDepth", "warning"),
    ({f"quiver_messages_nacked_total{G}": "0+2x120"}, "QuiverConsumerErrors", "info"),
    ({f"quiver_messages_timed_out_total{G}": "0+11x120"}, "QuiverConsumerErrors", "warning"),
    (
        {'quiver_requests_total{door="api",operation="send",code="overloaded"}': "0+11x120"},
        "QuiverRequestErrors",
        "warning",
    ),
    (
        {
            'quiver_message_age_seconds_bucket{topic="t",le="0.5"}': "0+9x120",
            'quiver_message_age_seconds_bucket{topic="t",le="1"}': "0+9x120",
        },
        "QuiverAge",
        "warning",
    ),
    ({'quiver_log_sync_duration_seconds_bucket{le="0.5"}': "0+9x120"}, "QuiverSyncSlow", "warning"),
    ({f"quiver_messages_lost_total{G}": "0+1x120"}, "QuiverMessagesLost", "warning"),
    ({"quiver_disk_free_bytes": "19x120"}, "QuiverDiskFull", "warning"),
    ({"quiver_disk_free_bytes": "4x120"}, "QuiverDiskFull", "critical"),
    # A group that settles a third of what is sent has a lag, too.
    (
        {
            f"quiver_messages_acked_total{G}": "0+333x120",
            f"quiver_group_lag_messages{G}": "2000x120",
        },
        "QuiverLag QuiverProcessingSlow",
        "warning",
    ),
    # And these are nothing to worry about.
    (
        {
            f"quiver_messages_delivered_total{G}": "5x120",
            f"quiver_messages_acked_total{G}": "5x120",
            f"quiver_group_paused{G}": "1x120",
        },
        "",
        "",
    ),
    ({'quiver_group_lag_messages{topic="other",group="other"}': "1000000x120"}, "", ""),
    ({'quiver_topic_depth_messages{topic="other"}': "1000000x120"}, "", ""),
    ({'quiver_topic_depth_messages{topic="t.dlq"}': "60000x120"}, "", ""),
    ({}, "", ""),
]


def case(different: dict[str, str], names: str, severity: str) -> dict[str, Any]:
    """A test as promtool wants it: after half an hour these alerts are firing, and no others."""
    series = {**dict(QUIET), **different}
    fired = [
        {"labels": f'{{alertname="{name}", severity="{severity}"}}', "value": 1}
        for name in names.split()
    ]
    return {
        "name": f"{different}",
        "interval": "15s",
        "input_series": [{"series": name, "values": given} for name, given in series.items()],
        "promql_expr_test": [
            {
                "expr": 'sum by (alertname, severity) (ALERTS{alertstate="firing"})',
                "eval_time": "29m",
                "exp_samples": fired,
            }
        ],
    }


@pytest.mark.slow
@pytest.mark.process
def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path):
    assert {name for _, names, _ in CASES for name in names.split()} == {
        rule["alert"] for rule in alerts
    }
    tests = tmp_path / "tests.yaml"
    tests.write_text(
        json.dumps({
            "rule_files": [str(RULES)],
            "evaluation_interval": "15s",
            "tests": [case(*one) for one in CASES],
        })
    )  # fmt: skip
    promtool("test", "rules", tests)


@pytest.mark.slow
@pytest.mark.process
def test_promtool_finds_nothing_wrong(tmp_path: Path, node: Node):
    promtool("check", "rules", RULES)
    asked = tmp_path / "queries.yaml"
    made = [{"record": f"q:{at}", "expr": query} for at, query in enumerate(queries())]
    asked.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": made}]}))
    promtool("check", "rules", asked)
    done = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=scrape(node.url)[0], capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
@pytest.mark.process
def test_a_real_prometheus_scrapes_a_node_and_answers_the_dashboard(tmp_path: Path, node: Node):
    config = tmp_path / "prometheus.yml"
    job = {"job_name": "quiver", "static_configs": [{"targets": [f"127.0.0.1:{node.port}"]}]}
    config.write_text(
        json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [job],
        })
    )  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"), f"--config.file={config}", "--web.listen-address=127.0.0.1:0",
                f"--storage.tsdb.path={tmp_path / 'tsdb'}", "--log.format=json",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        server = f"http://{_address(tmp_path / 'log')}"
        _until(lambda: _ask(server, 'quiver_messages_sent_total{topic="orders"}'))
        _until(lambda: _ask(server, "quiver:threshold"))
        for query in queries():
            _ask(server, query)  # raises if it is refused
        (lag,) = _ask(server, 'quiver_group_lag_messages{group="billing"}')
        assert lag["value"][1] == "1"
        with urlopen(f"{server}/api/v1/rules", timeout=30) as answer:
            groups = json.load(answer)["data"]["groups"]
        ill = [rule for group in groups for rule in group["rules"] if rule["health"] == "err"]
        assert not ill
    finally:
        process.kill()
        process.wait()


def _address(log: Path) -> str:
    """Where it listens, which it only tells its log."""

    def told() -> str:
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
        found = [line["address"] for line in lines if line.get("msg") == "Listening on"]
        return str(found[0]) if found else ""

    return _until(told)


def _ask(server: str, query: str) -> Any:
    with urlopen(f"{server}/api/v1/query?{urlencode({'query': query})}", timeout=30) as answer:
        return json.load(answer)["data"]["result"]


def _until(question: Any) -> Any:
    deadline = time.monotonic() + START_SECONDS
    while not (answer := question()):
        assert time.monotonic() < deadline, f"no answer to {question}"
        time.sleep(0.2)
    return answer
