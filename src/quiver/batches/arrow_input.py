"""Arrow batches that others made: held against every limit, and brought to the canonical types.

Arrow data can lie. A 224-byte stream may claim two thousand million rows; a dictionary or a view
may name the same megabytes a million times; an offset may point outside its buffer. So the order
matters:

1. rows and types, which the claim itself shows;
2. Arrow's shallow validation, after which buffers are as long as they must be; then bytes;
3. what views refer to, because even validating it would take as long as it claims to be;
4. Arrow's full validation: offsets, dictionary indices, UTF-8;
5. conversion, where the size of what a dictionary stands for is known before it is written out;
6. the limits on messages.

Columns that have the canonical type already are not copied. Whatever is wrong is InvalidBatch, or
MessageTooLarge if sending less is the remedy.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from quiver import limits
from quiver.batches import schema
from quiver.batches.bounds import check_bytes, check_rows
from quiver.errors import InvalidBatch, MessageTooLarge, RequestError

TEXTS: Final = (pa.string(), pa.large_string(), pa.string_view())
BODIES: Final = (*TEXTS, pa.binary(), pa.large_binary(), pa.binary_view())
VIEWS: Final = (pa.string_view(), pa.binary_view())
VIEW_BYTES: Final = 16  # of which the first four are the length


def accept(data: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    """The canonical batch of what a sender hands over, with all that it says checked."""
    if not isinstance(data, pa.RecordBatch | pa.Table):
        raise InvalidBatch(
            f"a batch must be a pyarrow RecordBatch or Table, not {type(data).__name__}"
        )
    check_rows(data.num_rows)
    bare = isinstance(data, pa.RecordBatch) and data.schema.equals(schema.BARE, check_metadata=True)
    if not bare:
        check_schema(data.schema)
    try:
        data.validate()
        nbytes = data.nbytes
        check_bytes(nbytes)
        if bare:  # nothing but bodies, which are what is sent most: there is nothing to convert
            data.validate(full=True)
            _check_values("body", data.column(0), nbytes)
            return data
        chunked = {name: _chunks(data.column(name)) for name in data.schema.names}
        check_bytes(sum(_view_bytes(leaf) for leaf in _leaves(chunked)))
        data.validate(full=True)
        converter = _Converter()
        columns = {name: converter.column(name, chunks) for name, chunks in chunked.items()}
        nbytes = sum(column.nbytes for column in columns.values())
        check_bytes(nbytes)
        for name, values in columns.items():
            _check_values(name, values, nbytes)
    except pa.ArrowException as error:
        raise InvalidBatch(f"Arrow finds the batch malformed: {error}") from error
    return schema.assemble({name: column for name, column in columns.items() if _says(column)})


# -- before the data is looked at ------------------------------------------------------------------


def check_schema(given: pa.Schema) -> None:
    """Refuse a batch whose columns are not those of messages."""
    for field in given:
        if field.name not in schema.TYPES:
            raise InvalidBatch(
                f"a batch of messages has no column {field.name[:80]!r}: leave it out, or put it "
                f"into headers or the body; the columns are {', '.join(schema.NAMES)}"
            )
        target = schema.TYPES[field.name]
        if not _fits(field.type, target):
            raise InvalidBatch(f"column {field.name} must be {target}, not {field.type}: cast it")
    if len(set(given.names)) < len(given.names):
        raise InvalidBatch("a batch of messages has every column at most once")
    if "body" not in given.names:
        raise InvalidBatch("a batch of messages needs a column body")


def _fits(kind: pa.DataType, target: pa.DataType) -> bool:
    """Whether a column of this type can be brought to the target type without loss of meaning."""
    if kind == target or pa.types.is_null(kind):
        return True
    if target == schema.HEADERS:
        return pa.types.is_map(kind) and all(
            _fits(part, schema.TEXT) for part in (kind.key_type, kind.item_type)
        )
    if target == schema.PRIORITY:
        return bool(pa.types.is_integer(kind))
    if target == schema.TIME:
        return bool(pa.types.is_timestamp(kind))
    written = kind.value_type if pa.types.is_dictionary(kind) else kind
    return written in (BODIES if target == schema.BODY else TEXTS)


# -- what views refer to ---------------------------------------------------------------------------


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def _leaves(chunked: dict[str, list[pa.Array]]) -> Iterator[pa.Array]:
    waiting = [chunk for chunks in chunked.values() for chunk in chunks]
    while waiting:
        array = waiting.pop()
        if pa.types.is_dictionary(array.type):
            waiting.append(array.dictionary)
        elif pa.types.is_map(array.type):
            waiting += (array.keys, array.items)
        else:
            yield array


def _view_bytes(array: pa.Array) -> int:
    if array.type not in VIEWS or len(array) == 0:
        return 0
    views = array.buffers()[1].slice(array.offset * VIEW_BYTES, len(array) * VIEW_BYTES)
    lengths = memoryview(views).cast("i")[:: VIEW_BYTES // 4].tolist()
    if min(lengths) < 0:
        raise InvalidBatch("Arrow finds the batch malformed: a view has a negative length")
    return sum(lengths)


# -- to the canonical types ------------------------------------------------------------------------


class _Converter:
    """Brings columns to their canonical types, within what dictionaries may become altogether."""

    def __init__(self) -> None:
        self._decoded_bytes = 0

    def column(self, name: str, chunks: list[pa.Array]) -> pa.Array:
        target = schema.TYPES[name]
        try:
            converted = [self._convert(chunk, target) for chunk in chunks]
        except pa.ArrowInvalid as error:
            raise InvalidBatch(f"column {name} cannot become {target}: {error}") from error
        return converted[0] if len(converted) == 1 else pa.concat_arrays(converted)

    def _convert(self, array: pa.Array, target: pa.DataType) -> pa.Array:
        kind = array.type
        if kind == target:
            return array
        if pa.types.is_map(kind):
            return self._headers(array)
        if pa.types.is_dictionary(kind):
            return self._decoded(array, target)
        # Finer times are cut to milliseconds; everything else must fit as it is.
        finer = pa.types.is_timestamp(kind) and kind.unit in {"us", "ns"}
        return array.cast(target, safe=not finer)

    def _headers(self, array: pa.Array) -> pa.Array:
        texts = [self._convert(part, schema.TEXT) for part in (array.keys, array.items)]
        fields = [schema.HEADERS.key_field, schema.HEADERS.item_field]
        entries = pa.StructArray.from_arrays(texts, fields=fields)
        return pa.Array.from_buffers(
            schema.HEADERS, len(array), array.buffers()[:2], offset=array.offset, children=[entries]
        )

    def _decoded(self, array: pa.Array, target: pa.DataType) -> pa.Array:
        values = self._convert(array.dictionary, target)
        lengths = pc.binary_length(values).take(array.indices)
        self._decoded_bytes += pc.sum(lengths).as_py() or 0
        check_bytes(self._decoded_bytes)
        return values.take(array.indices)


# -- the limits on messages ------------------------------------------------------------------------


def _says(column: pa.Array) -> bool:
    """Whether any message has a value here that is not the default."""
    if column.type == schema.PRIORITY:
        return any(pc.min_max(column).as_py().values())
    return bool(column.null_count < len(column))


def _check_values(name: str, column: pa.Array, nbytes: int) -> None:
    """Hold a column of a batch of `nbytes` against the limits."""
    match name:
        case "body":
            if column.null_count:
                row = pc.index(column.is_null(), pa.scalar(True)).as_py()
                raise InvalidBatch(f"the body of row {row} is null: every message needs a body")
            if nbytes <= limits.BODY_BYTES_MAX:
                return  # so no single one can be too large
            lengths = pc.binary_length(column)
            _check_range(
                name, lengths, 0, limits.BODY_BYTES_MAX, unit=" bytes", error=MessageTooLarge
            )
        case "key":
            _check_range(name, pc.binary_length(column), 1, limits.KEY_BYTES_MAX, unit=" bytes")
        case "dedup_id":
            _check_range(
                name, pc.binary_length(column), 1, limits.DEDUP_ID_BYTES_MAX, unit=" bytes"
            )
        case "headers":
            _check_headers(column)
        case "priority":
            _check_range(name, column, 0, limits.PRIORITY_MAX)
        case _:
            moments = column.view(pa.int64())
            _check_range(name, moments, 1, limits.TIME_MS_MAX, unit=" milliseconds since 1970")


def _check_headers(column: pa.Array) -> None:
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    names, values = (part.slice(first, last - first) for part in (column.keys, column.items))
    if names.null_count or values.null_count:
        raise InvalidBatch("a header is null: leave it out instead")
    counts = pc.pairwise_diff(column.offsets)[1:]
    _check_range("the number of headers", counts, 0, limits.HEADERS_MAX)
    lengths = pc.add(pc.binary_length(names), pc.binary_length(values))
    before = pa.concat_arrays([pa.array([0], lengths.type), pc.cumulative_sum(lengths)])
    ends = before.take(pc.subtract(column.offsets, column.offsets[0]))
    nbytes = pc.pairwise_diff(ends)[1:]
    _check_range("headers", nbytes, 0, limits.HEADERS_BYTES_MAX, unit=" bytes")


def _check_range(
    name: str,
    numbers: pa.Array,
    low: int,
    high: int,
    *,
    unit: str = "",
    error: type[RequestError] = InvalidBatch,
) -> None:
    found = pc.min_max(numbers).as_py()
    for number in found.values():
        if number is not None and not low <= number <= high:
            row = pc.index(numbers, pa.scalar(number, numbers.type)).as_py()
            raise error(f"{name} of row {row} must be {low:,} to {high:,}{unit}, not {number:,}")
