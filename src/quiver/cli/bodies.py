"""Messages as lines: for people, for machines, or byte for byte."""

import base64
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from quiver.cli.output import duration, visible

if TYPE_CHECKING:
    from quiver.client.results import Record
    from quiver.model.replies import Origin

Style = Literal["text", "verbose", "json", "raw"]

DIM: Final = "\x1b[2m"
PLAIN: Final = "\x1b[0m"


class BodyWriter:
    """Turns messages into bytes for stdout."""

    def __init__(self, style: Style, *, terminal: bool, receipts: bool = False) -> None:
        self._style = style
        self._terminal = terminal
        self._receipts = receipts  # for those who will settle later

    def line(self, record: "Record") -> bytes:
        """One message."""
        match self._style:
            case "raw":
                return record.body
            case "json":
                return json.dumps(self._fields(record), ensure_ascii=False).encode() + b"\n"
            case "verbose":
                return self._headline(record) + self._body(record)
            case "text":
                return self._body(record)

    def _body(self, record: "Record") -> bytes:
        if self._terminal:
            return readable(record.body).encode() + b"\n"
        return record.body.decode(errors="backslashreplace").encode() + b"\n"

    def _fields(self, record: "Record") -> dict[str, Any]:
        fields = message(record)
        if self._receipts:
            fields["receipt"] = record.receipt  # type: ignore[attr-defined]  # only for deliveries
        return fields

    def _headline(self, record: "Record") -> bytes:
        parts = [f"{record.topic}/{record.partition}/{record.offset}", f"id {record.id}"]
        if (attempt := getattr(record, "attempt", None)) is not None:
            parts.append(f"attempt {attempt}")
        if record.key is not None:
            parts.append(f"key {visible(record.key)}")
        if record.priority:
            parts.append(f"priority {record.priority}")
        parts.append(f"age {duration(age_of(record))}")
        parts += [f"{visible(name)}={visible(value)}" for name, value in record.headers.items()]
        text = " · ".join(parts)
        return (f"{DIM}{text}{PLAIN}\n" if self._terminal else f"{text}\n").encode()


def message(record: "Record") -> dict[str, Any]:
    """Everything about a message, for JSON. A body that is not text comes as body_base64."""
    fields: dict[str, Any] = {"id": record.id, "topic": record.topic,
                              "partition": record.partition, "offset": record.offset}  # fmt: skip
    for name in ("group", "attempt"):
        if hasattr(record, name):
            fields[name] = getattr(record, name)
    fields |= {"key": record.key, "headers": dict(record.headers), "priority": record.priority,
               "created_at": record.created_at.isoformat(timespec="milliseconds")}  # fmt: skip
    if record.origin is not None:
        fields["origin"] = origin(record.origin)
    return fields | content("body", record.body)


def content(name: str, value: bytes) -> dict[str, str]:
    """Bytes as a field for JSON: as text if they are text, or else under another name as base64."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def origin(found: "Origin") -> dict[str, Any]:
    """Where a dead letter came from, for JSON."""
    return {"topic": found.topic, "partition": found.partition, "offset": found.offset,
            "group": found.group, "attempts": found.attempts, "reason": found.reason,
            "time": moment(found.time_ms).isoformat(timespec="milliseconds")}  # fmt: skip


def readable(body: bytes) -> str:
    """A body as text that is safe on a terminal; what is not text is shown as \\x00."""
    return visible(body.decode(errors="backslashreplace"), keep="\n\t")


def moment(time_ms: int) -> datetime:
    """A stored time."""
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def age_of(record: "Record") -> float:
    """Seconds since a message was made."""
    return seconds_since(record.created_at)


def seconds_since(then: datetime) -> float:
    """Seconds from then to now, at least 0."""
    return max((datetime.now(UTC) - then).total_seconds(), 0.0)
