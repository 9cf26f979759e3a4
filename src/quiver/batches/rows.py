"""Messages one by one: checked when they are handed over, packed into a batch when they are sent.

This is the only per-message code of the package. Checking happens in `make_row`, so that a bad
message is refused where its sender stands; `pack` trusts its rows and only turns them into columns.
"""

from collections.abc import Mapping, Sequence
from sys import modules
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from quiver import limits
from quiver.batches import schema
from quiver.batches.bounds import check_bytes, check_rows
from quiver.errors import InvalidRequest, MessageTooLarge
from quiver.model.message import Message
from quiver.model.units import Duration, milliseconds, shown
from quiver.tracing import LOADED, carried

CONTENT_TYPE: Final = "content-type"
JSON: Final = "application/json"
_AS_IT_IS: Final = (str, bytes, bytearray, memoryview)
PRIORITY: Final = 0  # that of a message which says none: `is` it, as False and 0.0 are not


class Row(msgspec.Struct, gc=False):
    """One checked message. `delay_ms` and `ttl_ms` 0 mean none; `nbytes` counts all its bytes.

    Python's collector need not look for cycles through it: it has texts and numbers only.
    """

    body: bytes
    key: str | None
    headers: dict[str, str] | None
    priority: int
    delay_ms: int
    ttl_ms: int
    dedup_id: str | None
    nbytes: int

    @property
    def plain(self) -> bool:
        """Whether there is nothing but a body."""
        return not (
            self.key
            or self.headers
            or self.priority
            or self.delay_ms
            or self.ttl_ms
            or self.dedup_id
        )


Checked: TypeAlias = Row | bytes  # a message that has nothing but a body is that


def message_of(row: Checked) -> Message:
    """The message again, as a sender would make it."""
    if isinstance(row, bytes):
        return Message(row)
    return Message(
        row.body,
        row.key,
        row.headers or {},
        row.priority,
        row.delay_ms / 1000 if row.delay_ms else None,
        row.ttl_ms / 1000 if row.ttl_ms else None,
        row.dedup_id,
    )


def make_row(
    body: Any,
    *,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    priority: int = 0,
    delay: Duration | None = None,
    ttl: Duration | None = None,
    dedup_id: str | None = None,
) -> Row:
    """Check one message; bytes and text are sent as they are, anything else as JSON."""
    if type(body) is bytes:
        content = body
    elif isinstance(body, _AS_IT_IS):
        content = _content(body)
    else:
        content, headers = _json(body), as_json(headers)
    nbytes = len(content)
    if nbytes > limits.BODY_BYTES_MAX:
        _check_body_bytes(nbytes)
    if key is not None:
        nbytes += _text_bytes(key, "key", limits.KEY_BYTES_MAX)
    if dedup_id is not None:
        nbytes += _text_bytes(dedup_id, "dedup_id", limits.DEDUP_ID_BYTES_MAX)
    if LOADED in modules:
        headers = carried(headers)
    if headers is not None:
        headers = _own(headers)
        nbytes += _headers_bytes(headers)
    if priority is not PRIORITY:
        _check_priority(priority)
    return Row(
        content,
        key,
        headers or None,
        priority,
        0 if delay is None else milliseconds(delay, "delay"),
        0 if ttl is None else _ttl_ms(ttl),
        dedup_id,
        nbytes,
    )


def pack(rows: Sequence[Checked], now_ms: int) -> pa.RecordBatch:
    """The batch of these rows. Delays and lives count from `now_ms`, the moment of sending."""
    check_rows(len(rows))
    bodies: Any = rows
    if {*map(type, rows)} == {bytes}:
        check_bytes(sum(map(len, bodies)))
        return schema.assemble({"body": pa.array(bodies, schema.BODY)})
    full = [_bare(row) if isinstance(row, bytes) else row for row in rows]
    check_bytes(sum([row.nbytes for row in full]))
    columns = {"body": pa.array([row.body for row in full], schema.BODY)}

    def add(name: str, values: list[Any]) -> None:
        if values.count(None) < len(values):
            columns[name] = pa.array(values, schema.TYPES[name])

    add("key", [row.key for row in full])
    add("headers", [row.headers for row in full])
    add("priority", [row.priority or None for row in full])
    add("deliver_at", [now_ms + row.delay_ms if row.delay_ms else None for row in full])
    add("expires_at", [now_ms + row.ttl_ms if row.ttl_ms else None for row in full])
    add("dedup_id", [row.dedup_id for row in full])
    return schema.assemble(columns)


def _bare(body: bytes) -> Row:
    return Row(body, None, None, 0, 0, 0, None, len(body))


def _content(body: str | bytes | bytearray | memoryview) -> bytes:
    if isinstance(body, str):
        _check_body_bytes(len(body))  # a character is at least a byte: refuse before the work
        return _encoded(body, "the body")
    _check_body_bytes(memoryview(body).nbytes)
    return bytes(body)


def _json(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest(
            f"the body, of type {type(body).__name__}, cannot be sent as JSON ({error}): "
            "send bytes, str, or plain dicts, lists and numbers"
        ) from error


def as_json(headers: Any) -> Any:  # anything: headers are checked afterwards
    """The headers of a message whose body is JSON."""
    if headers is None:
        return {CONTENT_TYPE: JSON}
    if isinstance(headers, Mapping) and CONTENT_TYPE not in {str(name).lower() for name in headers}:
        return {**headers, CONTENT_TYPE: JSON}
    return headers


def _check_body_bytes(nbytes: int) -> None:
    if nbytes > limits.BODY_BYTES_MAX:
        raise MessageTooLarge(
            f"a body may have at most {limits.BODY_BYTES_MAX:,} bytes, not {nbytes:,}: "
            "keep large content in a file store and send its address"
        )


def _own(headers: Mapping[str, str]) -> dict[str, str]:
    """A copy of the headers, so that what is checked is what is kept."""
    if type(headers) is not dict and not isinstance(headers, Mapping):
        raise InvalidRequest(f"headers must be a mapping, not {type(headers).__name__}")
    return dict(headers)


def _headers_bytes(headers: dict[str, str]) -> int:
    if len(headers) > limits.HEADERS_MAX:
        raise InvalidRequest(
            f"a message may have at most {limits.HEADERS_MAX} headers, not {len(headers):,}"
        )
    parts = [*headers, *headers.values()]
    try:
        nbytes = len("".join(parts).encode())
    except (TypeError, UnicodeEncodeError):
        nbytes = sum(map(_part_bytes, parts))  # says which part is wrong
    if nbytes > limits.HEADERS_BYTES_MAX:
        raise InvalidRequest(
            f"the headers of a message may have at most {limits.HEADERS_BYTES_MAX:,} bytes, "
            f"not {nbytes:,}: put content in the body"
        )
    return nbytes


def _part_bytes(part: str) -> int:
    if not isinstance(part, str):
        raise InvalidRequest(
            f"names and values of headers must be str, not {type(part).__name__}: "
            "convert them with str()"
        )
    return len(_encoded(part, "a header"))


def _text_bytes(text: str, name: str, limit: int) -> int:
    if not isinstance(text, str):
        raise InvalidRequest(f"{name} must be a str, not {type(text).__name__}")
    nbytes = len(text) if text.isascii() else len(_encoded(text, name))
    if not 1 <= nbytes <= limit:
        raise InvalidRequest(f"{name} must have 1 to {limit:,} bytes of UTF-8, not {nbytes:,}")
    return nbytes


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{name} has a lone surrogate at character {error.start}, which is not text: "
            "send such content as bytes"
        ) from None


def _check_priority(priority: int) -> None:
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InvalidRequest(f"priority must be an int, not {type(priority).__name__}")
    if not 0 <= priority <= limits.PRIORITY_MAX:
        raise InvalidRequest(
            f"priority must be between 0 and {limits.PRIORITY_MAX}, not {shown(priority)}"
        )


def _ttl_ms(ttl: Duration) -> int:
    ttl_ms = milliseconds(ttl, "ttl")
    if ttl_ms == 0:
        raise InvalidRequest("ttl must be more than 0: a message with no life is never delivered")
    return ttl_ms
