"""Arrow data that others made: what is taken, what is refused, and that lies cost nothing."""

import struct
import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from quiver import limits
from quiver.batches import schema
from quiver.batches.arrow_input import accept
from quiver.errors import InvalidBatch, MessageTooLarge

MAP = schema.HEADERS
MOMENT = datetime(2026, 11, 1, 12, tzinfo=UTC)


def batch(rows=1, **columns):
    """A batch of empty bodies with these columns."""
    return pa.record_batch({"body": pa.array([b""] * rows, pa.binary()), **columns})


def through_ipc(data):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write(data)
    return sink.getvalue()


# -- what is taken ---------------------------------------------------------------------------------


def test_canonical_columns_are_not_copied():
    given = pa.record_batch(
        [pa.array([b"a", b"b"]), pa.array(["k", None])], schema=schema.schema_of(3)
    ).replace_schema_metadata({"made": "by somebody"})
    taken = accept(given)
    assert taken.schema.equals(schema.schema_of(3), check_metadata=True)
    for mine, theirs in zip(taken.columns, given.columns, strict=True):
        assert [b and b.address for b in mine.buffers()] == [
            b and b.address for b in theirs.buffers()
        ]


def test_text_bodies_are_not_copied_either():
    given = pa.record_batch({"body": pa.array(["a", "b"])})
    assert accept(given).column(0).buffers()[2].address == given.column(0).buffers()[2].address


def test_columns_come_in_any_order_and_field_metadata_goes():
    field = pa.field("key", pa.string(), nullable=False, metadata={"a": "b"})
    given = pa.record_batch(
        [pa.array(["k"]), pa.array([b"a"])], schema=pa.schema([field, ("body", pa.binary())])
    )
    assert accept(given).schema.equals(schema.schema_of(3), check_metadata=True)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), "string")]
)
def test_text_comes_in_many_types(kind):
    given = pa.array(["skipped", "é", "long enough to leave its view"]).cast(kind)
    data = pa.record_batch({"body": given, "key": given, "dedup_id": given}).slice(1)
    taken = accept(data)
    texts = ["é", "long enough to leave its view"]
    assert taken.column("key").to_pylist() == taken.column("dedup_id").to_pylist() == texts
    assert taken.column("body").to_pylist() == [text.encode() for text in texts]
    assert taken.schema == schema.schema_of(0b1000011)


@pytest.mark.parametrize(
    "kind",
    [pa.large_binary(), pa.binary_view(), pa.dictionary(pa.uint16(), pa.large_binary())],
)
def test_bodies_come_in_many_types(kind):
    given = pa.record_batch({"body": pa.array([b"a", b"\xff" * 30, b""]).cast(kind)})
    assert accept(given.slice(1)).column("body").to_pylist() == [b"\xff" * 30, b""]


def test_a_dictionary_of_views_is_taken():
    words = pa.array(["a", "b" * 40, None]).cast(pa.string_view())
    keys = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 2], pa.int8()), words)
    assert accept(batch(4, key=keys)).column("key").to_pylist() == ["b" * 40, "a", None, None]


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (pa.string(), pa.string()),
        (pa.large_string(), pa.string_view()),
        (pa.string(), pa.dictionary(pa.int32(), pa.string())),
    ],
)
def test_headers_come_in_many_types_and_slices(names, values):
    rows = [[("skipped", "x")], None, [("a", "b"), ("c", "d" * 20)], []]
    given = pa.array(rows, pa.map_(pa.string(), pa.string()))
    entries = pa.StructArray.from_arrays(
        [given.keys.cast(names), given.items.cast(values)],
        fields=[pa.field("k", names, nullable=False), pa.field("v", values)],
    )
    kind = pa.map_(pa.field("k", names, nullable=False), pa.field("v", values))
    data = pa.Array.from_buffers(kind, 4, given.buffers()[:2], children=[entries])
    taken = accept(batch(4, headers=data).slice(1))
    taken.validate(full=True)
    assert taken.column("headers").type == MAP
    assert taken.column("headers").to_pylist() == rows[1:]


def test_headers_without_a_single_entry_are_taken():
    empty = pa.array([[], None], pa.map_(pa.string(), pa.null()))
    assert accept(batch(2, headers=empty)).column("headers").to_pylist() == [[], None]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int16(), pa.int64(), pa.uint64()])
def test_priorities_come_in_many_types(kind):
    taken = accept(batch(3, priority=pa.array([0, 9, None], kind)))
    assert taken.column("priority").equals(pa.array([0, 9, None], pa.int8()))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "+00:00", "Europe/Berlin"])
def test_times_come_in_any_unit_and_zone_and_without_one_are_utc(unit, zone):
    seconds = int(MOMENT.timestamp())
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    extra = {"us": 999, "ns": 999_999}.get(unit, 0)
    given = pa.array([seconds * scale + extra, None], pa.timestamp(unit, zone))
    taken = accept(batch(2, deliver_at=given)).column("deliver_at")
    assert taken.type == schema.TIME
    assert taken.view(pa.int64()).to_pylist() == [seconds * 1000, None]


def test_columns_that_say_nothing_are_dropped():
    given = batch(
        2,
        key=pa.nulls(2),
        headers=pa.nulls(2, MAP),
        priority=pa.array([0, None], pa.int64()),
        created_at=pa.nulls(2, schema.TIME),
    )
    assert accept(given).schema == schema.schema_of(1)


def test_a_table_of_several_chunks_becomes_one_batch():
    one = pa.table({"body": pa.array(["a"]).dictionary_encode(), "key": ["x"]})
    two = pa.table({"body": pa.array(["b", "c"]).dictionary_encode(), "key": [None, "y"]})
    taken = accept(pa.concat_tables([one, two.slice(0, 0), two]))
    assert taken.to_pydict() == {"body": [b"a", b"b", b"c"], "key": ["x", None, "y"]}
    assert accept(one.combine_chunks()).num_rows == 1


# -- what is refused -------------------------------------------------------------------------------


def strings(*lengths):
    return pa.array(["x" * length for length in lengths])


def headers(*rows):
    return pa.array(rows, MAP)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([b"a"], "must be a pyarrow RecordBatch or Table, not list"),
        (batch(0), "a batch needs at least one message"),
        (pa.table({"body": pa.array([], pa.binary())}), "a batch needs at least one message"),
        (pa.record_batch({"key": ["a"]}), "needs a column body"),
        (batch(offset=pa.array([1])), "no column 'offset': leave it out, or put it .*body, key"),
        (pa.record_batch([pa.array([b""])] * 2, ["body"] * 2), "every column at most once"),
        (pa.record_batch({"body": [1]}), "column body must be binary, not int64: cast it"),
        (batch(key=pa.array([b"k"])), "column key must be string, not binary"),
        (batch(key=pa.array([5]).dictionary_encode()), "column key must be string, not dictionary"),
        (batch(headers=pa.array([{"a": "b"}])), "column headers must be map<string, string>, not"),
        (batch(headers=pa.array([[("a", 1)]], pa.map_("string", "int8"))), "column headers must"),
        (batch(priority=pa.array([1.0])), "column priority must be int8, not double"),
        (batch(deliver_at=pa.array([5])), "column deliver_at must be timestamp.*, not int64"),
        (batch(key=pa.array(["a" * 16]).cast(pa.binary()).view(pa.binary())), "column key must"),
        (pa.record_batch({"body": pa.nulls(1)}), "the body of row 0 is null"),
        (pa.record_batch({"body": [b"a", b"b", None]}).slice(1), "the body of row 1 is null"),
        (batch(2, key=strings(5, 1_025)), "key of row 1 must be 1 to 1,024 bytes, not 1,025"),
        (batch(2, key=strings(0, 3)), "key of row 0 must be 1 to 1,024 bytes, not 0"),
        (batch(dedup_id=strings(257)), "dedup_id of row 0 must be 1 to 256 bytes, not 257"),
        (
            batch(2, headers=headers(None, [(str(i), "") for i in range(65)])),
            "the number of headers of row 1 must be 0 to 64, not 65",
        ),
        (
            batch(
                3, headers=headers([("a", "b")], [("a", "x" * 2_097_146), ("b", "123456")], None)
            ),
            "headers of row 1 must be 0 to 2,097,152 bytes, not 2,097,154",
        ),
        (batch(headers=headers([("a", None)])), "a header is null: leave it out"),
        (batch(priority=pa.array([10])), "priority of row 0 must be 0 to 9, not 10"),
        (batch(priority=pa.array([-1], pa.int8())), "not -1"),
        (batch(priority=pa.array([300])), "column priority cannot become int8: .*300"),
        (batch(expires_at=pa.array([0], schema.TIME)), "expires_at of row 0 must be 1 to .* 0"),
        (
            batch(created_at=pa.array([2**60], pa.timestamp("ms"))),
            "created_at of row 0 must be 1 to",
        ),
        (batch(created_at=pa.array([2**62], pa.timestamp("s"))), "created_at cannot become"),
        (batch(created_at=pa.array([-(2**62)], pa.timestamp("us"))), "created_at of row 0 must"),
    ],
)
def test_what_is_not_a_batch_of_messages_is_refused(data, sentence):
    with pytest.raises(InvalidBatch, match=sentence):
        accept(data)
    if isinstance(data, pa.RecordBatch) and data.num_rows:
        with pytest.raises(InvalidBatch, match=sentence):
            accept(pa.Table.from_batches([data]))


def test_nulls_outside_of_a_slice_are_nobodys_fault():
    rows = headers([("a", None)], [("b", "c")], [("d", None)])
    assert accept(batch(3, headers=rows).slice(1, 1)).column("headers").to_pylist() == [
        [("b", "c")]
    ]


def test_a_large_body_is_refused_and_named():
    data = pa.record_batch({"body": [b"", bytes(limits.BODY_BYTES_MAX + 1)]})
    with pytest.raises(MessageTooLarge, match="body of row 1 must be 0 to 16,777,216 bytes"):
        accept(data)


def test_extension_types_are_refused():
    with pytest.raises(InvalidBatch, match="column body must be binary, not extension"):
        accept(pa.record_batch({"body": pa.array([b"x" * 16], pa.uuid())}))
    with pytest.raises(InvalidBatch, match="column key must be string, not extension"):
        accept(batch(key=pa.array(["{}"], pa.json_())))


def test_rows_and_bytes_have_a_limit(monkeypatch):
    monkeypatch.setattr(limits, "BATCH_ROWS_MAX", 2)
    with pytest.raises(MessageTooLarge, match="at most 2 messages, not 3: send several"):
        accept(batch(3))
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 100)
    with pytest.raises(MessageTooLarge, match="at most 100 bytes, not 109: send several"):
        accept(pa.record_batch({"body": [bytes(100), b"x"]}).slice(0, 2))


# -- lies ------------------------------------------------------------------------------------------


def quickly(data, error, sentence):
    """The refusal takes no time and no memory to speak of."""
    before, started = pa.total_allocated_bytes(), time.perf_counter()
    with pytest.raises(error, match=sentence):
        accept(data)
    assert time.perf_counter() - started < 1
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_a_stream_that_claims_two_thousand_million_rows():
    claim = pa.record_batch({"body": pa.nulls(2_000_000_000)})
    stream = through_ipc(claim)
    assert stream.size == 224
    quickly(pa.ipc.open_stream(stream).read_next_batch(), MessageTooLarge, "2,000,000,000")
    quickly(pa.ipc.open_stream(stream).read_all(), MessageTooLarge, "2,000,000,000")


def test_a_dictionary_that_stands_for_a_terabyte():
    words = pa.array([b"x" * 1_000_000])
    indices = pa.repeat(pa.scalar(0, pa.int8()), 1_000_000)
    bomb = pa.DictionaryArray.from_arrays(indices, words)
    quickly(pa.record_batch({"body": bomb}), MessageTooLarge, "not 1,000,000,000,000")


def test_a_dictionary_in_many_chunks_or_columns_is_counted_altogether():
    words = pa.array(["x" * 1_000])
    part = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), 30_000), words)
    quickly_enough = pa.table({"body": pa.chunked_array([part] * 2)})
    assert accept(quickly_enough).num_rows == 60_000
    with pytest.raises(MessageTooLarge, match="not 90,000,000"):
        accept(pa.table({"body": pa.chunked_array([part] * 3)}))
    with pytest.raises(MessageTooLarge, match="not 90,000,000"):
        accept(pa.record_batch({"body": part, "key": part, "dedup_id": part}))


def test_a_dictionary_inside_of_headers_is_counted():
    words = pa.DictionaryArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int8()), 1_000), pa.array(["x" * 1_000_000])
    )
    rows = pa.MapArray.from_arrays(
        pa.arange(0, 1_001).cast(pa.int32()), strings(*[1] * 1_000), words
    )
    quickly(batch(1_000, headers=rows), MessageTooLarge, "not 1,000,000,000")


def views(kind, count, length):
    """An array of `count` views of the same `length` bytes."""
    view = struct.pack("<i4sii", length, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(view * count), pa.py_buffer(b"x" * max(length, 0))]
    return pa.Array.from_buffers(kind, count, buffers)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()])
def test_views_that_stand_for_a_terabyte(kind):
    quickly(
        pa.record_batch({"body": views(kind, 1_000_000, 1_000_000)}),
        MessageTooLarge,
        "not 1,000,000,000,000",
    )


def test_views_with_negative_lengths():
    quickly(pa.record_batch({"body": views(pa.binary_view(), 9, -5)}), InvalidBatch, "negative")


def test_views_inside_of_dictionaries_and_headers_are_counted():
    words = views(pa.string_view(), 1_000, 1_000_000)
    keys = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), words)
    quickly(batch(1, key=keys), MessageTooLarge, "not 1,000,000,000")
    rows = pa.MapArray.from_arrays(pa.array([0, 1_000], pa.int32()), strings(*[1] * 1_000), words)
    quickly(batch(1, headers=rows), MessageTooLarge, "not 1,000,000,000")


def forged(data, old, new):
    """What a peer sends that changes the bytes of its stream: reading it does not validate it."""
    stream = through_ipc(data).to_pybytes()
    assert old in stream
    return pa.ipc.open_stream(stream.replace(old, new)).read_next_batch()


def offsets(*numbers):
    return struct.pack(f"<{len(numbers)}i", *numbers)


THREE = pa.record_batch({"body": [b"aaaaa", b"bbbbbb", b"ccccccc"]})


@pytest.mark.parametrize(
    "data",
    [
        forged(THREE, offsets(0, 5, 11, 18), offsets(0, 5, 11, 2**30)),
        forged(THREE, offsets(0, 5, 11, 18), offsets(0, 5, 11, -(2**30))),
        forged(THREE, offsets(0, 5, 11, 18), offsets(-(2**30), 5, 11, 18)),
        forged(THREE, offsets(0, 5, 11, 18), offsets(0, 2**30, 11, 18)),
        forged(THREE, offsets(0, 5, 11, 18), offsets(0, 11, 5, 18)),
        forged(batch(77), struct.pack("<q", 77), struct.pack("<q", 999_999)),
        forged(
            batch(77, key=strings(*[9] * 77)).drop_columns("body").rename_columns(["body"]),
            struct.pack("<q", 77),
            struct.pack("<q", 999_999),
        ),
        forged(batch(key=strings(9)), b"xxxxxxxxx", b"xxxxxxxx\xff"),
        forged(
            batch(3, headers=headers(*([("a", "b")] * count for count in (2, 1, 3)))),
            offsets(0, 2, 3, 6),
            offsets(0, 2, 3, 2**30),
        ),
        forged(
            batch(4, key=pa.array(["a", "b", "a", "b"]).dictionary_encode()),
            offsets(0, 1, 0, 1),
            offsets(0, 1, 0, 2**30),
        ),
        forged(
            pa.record_batch({"body": pa.array(["x" * 20] * 77, pa.string_view())}),
            struct.pack("<q", 77),
            struct.pack("<q", 999_999),
        ),
        forged(
            pa.record_batch({"body": pa.array(["x" * 20], pa.string_view())}),
            struct.pack("<i4sii", 20, b"xxxx", 0, 0),
            struct.pack("<i4sii", 20, b"xxxx", 0, 2**30),
        ),
    ],
)
def test_malformed_arrays_are_refused(data):
    quickly(data, InvalidBatch, "Arrow finds the batch malformed")
    quickly(pa.Table.from_batches([data]), InvalidBatch, "Arrow finds the batch malformed")
