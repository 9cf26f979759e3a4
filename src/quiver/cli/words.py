"""Rows of the ledger in plain words."""

from datetime import datetime
from typing import Any

from quiver.cli.output import visible


def happened(row: dict[str, Any]) -> str:
    """What a row of the ledger says, for people."""
    match row["event"]:
        case "sent":
            due = f", to be delivered from {clock(row['until'], row)} on" if row["until"] else ""
            return f"sent to {_place(row)}{due}"
        case "duplicate":
            return "sent again, known by its dedup id or producer: not stored again"
        case "leased":
            return f"leased by {_who(row)}{_attempt(row)}, until {clock(row['until'], row)}"
        case "reserved":
            return f"reserved for {_who(row)}, until {clock(row['until'], row)}"
        case "released":
            later = row["until"] is not None and row["until"] > row["time"]
            again = f"; again from {clock(row['until'], row)} on" if later else ""
            return f"given back by {_who(row)}, not counted{_reason(row)}{again}"
        case "delivered":
            return f"delivered to {_who(row)}, which is at-most-once: settled with that"
        case "extended":
            return f"extended by {_who(row)}, until {clock(row['until'], row)}"
        case "acked":
            return f"acked by {_who(row)}{_attempt(row)}"
        case "nacked":
            again = f"; again from {clock(row['until'], row)} on" if row["until"] else ""
            return f"nacked by {_who(row)}{_attempt(row)}{_reason(row)}{again}"
        case "timed_out":
            return f"timed out: the lease of {_who(row)}{_attempt(row)} ended unsettled"
        case "expired":
            return f"expired{' for ' + _who(row) if row['group'] else ''}: its time to live is over"
        case "dead_lettered":
            return f"given up by {_who(row)}{_attempt(row)}{_reason(row)}; moved to {_target(row)}"
        case "redriven":
            whom = f"group {row['group']}" if row["group"] else "every group"
            return f"redriven from {row['topic']} to {_target(row)}, for {whom}"
        case "published":
            return f"published from {row['topic']} to {_target(row)}"
        case "discarded":
            return f"discarded from {row['topic']}"
        case "purged":
            return f"purged, with all of {row['topic']}"
        case "compacted":
            return f"compacted away from {row['topic']}: a newer message has its key"
        case "dropped":
            return f"dropped from {row['topic']}: older than its retention, or too much"
        case "lost":
            return f"lost to {_who(row)}, which had not settled it: retention drops it"
        case "sought":
            return f"group {row['group']} was put at offset {row['offset']:,}; its leases ended"
        case "group_deleted":
            return f"group {row['group']} of {row['topic']} was deleted"
        case "topic_deleted":
            return f"topic {row['topic']} was deleted"
        case other:  # of a newer version
            return str(other).replace("_", " ")


def clock(time: datetime, row: dict[str, Any]) -> str:
    """A time of day in UTC; with the date if it is not that of the row."""
    text = f"{time:%H:%M:%S}.{time.microsecond // 1000:03}"
    return text if time.date() == row["time"].date() else f"{time:%Y-%m-%d} {text}"


def _place(row: dict[str, Any]) -> str:
    return f"{row['topic']}, partition {row['partition']}, {_offsets(row['offset'], row['count'])}"


def _target(row: dict[str, Any]) -> str:
    offsets = _offsets(row["to_offset"], row["count"])
    return f"{row['to_topic']}, partition {row['to_partition']}, {offsets}"


def _offsets(first: int, count: int) -> str:
    return f"offset {first:,}" if count == 1 else f"offsets {first:,} to {first + count - 1:,}"


def _who(row: dict[str, Any]) -> str:
    consumer = f" (consumer {visible(row['consumer'])})" if row["consumer"] else ""
    return f"group {row['group']}{consumer}"


def _attempt(row: dict[str, Any]) -> str:
    return f", attempt {row['attempt']:,}" if row["attempt"] else ""


def _reason(row: dict[str, Any]) -> str:
    return f": {visible(row['reason'])}" if row["reason"] else ""
