"""Batches keep what they are given, and bytes that are not batches do no harm."""

from itertools import accumulate, chain

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from quiver.batches.arrow_input import accept
from quiver.batches.attributes import attributes_of
from quiver.batches.codec import HEADER, decode, encode, peek
from quiver.batches.keys import Partitioner, key_hash, tenant_hash
from quiver.batches.output import Piece, columns, table
from quiver.batches.rows import make_row, pack
from quiver.batches.schema import concat
from quiver.errors import CorruptLog
from quiver.model.replies import Slice
from quiver.model.topic import TopicPolicy

NOW = 1_700_000_000_000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = texts.filter(bool)
rows = st.builds(
    make_row,
    st.binary(max_size=50),
    key=st.none() | names,
    headers=st.none() | st.dictionaries(texts, texts, max_size=3),
    priority=st.integers(0, 9),
    delay=st.none() | st.integers(0, 10**6),
    ttl=st.none() | st.integers(1, 10**6),
    dedup_id=st.none() | names,
)
plain_rows = st.builds(make_row, st.binary(max_size=50))
row_lists = st.lists(rows, min_size=1, max_size=20) | st.lists(plain_rows, min_size=1, max_size=20)
keys = st.lists(st.none() | st.sampled_from("abcdefgh") | names, min_size=1, max_size=40)
compressions = st.sampled_from([None, "lz4", "zstd"])


def joined(batch, compression):
    return b"".join(map(bytes, encode(batch, compression)))


def listed(values, count, default=None):
    return [default] * count if values is None else values


@given(st.lists(rows | st.binary(max_size=50), min_size=1, max_size=20))
def test_a_bare_body_is_packed_as_a_row_without_anything_else(sent):
    made = [make_row(row) if isinstance(row, bytes) else row for row in sent]
    assert pack(sent, NOW).equals(pack(made, NOW))


@given(row_lists, compressions)
def test_what_is_sent_is_what_is_read(sent, compression):
    data = joined(pack(sent, NOW), compression)
    batch = decode(data)
    assert peek(data)[0] == len(sent)
    read = columns(batch)
    count = len(sent)
    assert batch.column("body").to_pylist() == [row.body for row in sent]
    assert listed(read["key"], count) == [row.key for row in sent]
    assert [found or {} for found in listed(read["headers"], count)] == [
        row.headers or {} for row in sent
    ]
    assert listed(read["priority"], count, 0) == [row.priority for row in sent]
    assert listed(read["dedup_id"], count) == [row.dedup_id for row in sent]
    delays = [NOW + row.delay_ms if row.delay_ms else None for row in sent]
    lives = [NOW + row.ttl_ms if row.ttl_ms else None for row in sent]
    for name, moments in (("deliver_at", delays), ("expires_at", lives)):
        known = (
            batch.column(name).cast(pa.int64()).to_pylist() if name in batch.schema.names else None
        )
        assert listed(known, count) == moments
    assert sum(row.nbytes for row in sent) <= batch.nbytes


@given(row_lists, st.data())
def test_any_part_is_read_alike_as_lists_and_as_a_table(sent, data):
    batch = pack(sent, NOW)
    row = data.draw(st.integers(0, len(sent) - 1))
    count = data.draw(st.integers(1, len(sent) - row))
    part = batch.slice(row, count)
    read = columns(part)
    made = table([Piece(batch, row, Slice(0, 7, count, 1, row, NOW))])
    assert part.column("body").to_pylist() == made.column("body").to_pylist()
    assert listed(read["key"], count) == made.column("key").to_pylist()
    assert [found or {} for found in listed(read["headers"], count)] == [
        dict(pairs or ()) for pairs in made.column("headers").to_pylist()
    ]
    assert made.column("offset").to_pylist() == list(range(7, 7 + count))


@given(row_lists)
def test_what_we_pack_is_acceptable_and_stays_the_same(sent):
    batch = pack(sent, NOW)
    assert accept(batch).equals(batch)
    assert accept(pa.Table.from_batches([batch])).equals(batch)


@given(st.lists(row_lists, min_size=1, max_size=4))
def test_batches_joined_are_the_batch_of_all_rows(parts):
    assert concat([pack(part, NOW) for part in parts]).equals(pack(list(chain(*parts)), NOW))


policies = st.integers(1, 9).flatmap(
    lambda count: st.one_of(
        st.just(TopicPolicy(partitions=count)),
        st.just(TopicPolicy(partitions=count, partition_by="round-robin")),
        st.builds(
            lambda splits: TopicPolicy(
                partitions=count, partition_by="range", split_keys=tuple(sorted(splits))
            ),
            st.sets(st.sampled_from("abcdefghijkl"), min_size=count - 1, max_size=count - 1),
        ),
    )
)


@given(policies, keys, st.integers(0, 10**6))
def test_a_split_is_what_one_by_one_gives(policy, sent, turn):
    batch = pack([make_row(b"%d" % number, key=key) for number, key in enumerate(sent)], NOW)
    partitioner = Partitioner(policy)
    split, runs = partitioner.split(batch, turn)
    assert sum(run.rows for run in runs) == len(sent)
    assert sum(run.nbytes for run in runs) == batch.nbytes
    assert len({run.partition for run in runs}) == len(runs)
    order = [int(body) for body in split.column(0).to_pylist()]
    for run, end in zip(runs, accumulate(run.rows for run in runs), strict=True):
        numbers = order[end - run.rows : end]
        assert numbers == sorted(numbers)
        assert {partitioner.one(sent[number], turn) for number in numbers} == {run.partition}


@given(keys)
def test_the_core_is_told_of_every_key(sent):
    found = attributes_of(pack([make_row(b"", key=key) for key in sent], NOW), keyed=True)
    if not any(sent):
        assert found is None
        return

    def numbers(hash_of):
        return b"".join((hash_of(key) if key else 0).to_bytes(8, "little") for key in sent)

    assert found is not None
    assert found.keys == numbers(key_hash)
    tenanted = any("/" in key for key in sent if key)
    assert found.tenants == (numbers(tenant_hash) if tenanted else b"")


def harmless(data):
    """Decoding gives a batch that can be read from end to end, or says that the log is damaged."""
    try:
        batch = decode(data)
    except CorruptLog:
        return
    rows = batch.num_rows
    assert len(batch.column("body").to_pylist()) == rows
    for name in batch.schema.names[1:]:
        assert len(columns(batch)[name] or [None] * rows) == rows
    assert table([Piece(batch, 0, Slice(0, 0, rows, 1, 0, NOW))]).num_rows == rows


@given(st.binary(max_size=300))
@example(b"")
@example(HEADER.pack(1, 0, 1, 1, 8) + bytes(8))
def test_random_bytes_do_no_harm(data):
    harmless(data)


@given(
    st.integers(0, 2),
    st.integers(0, 127).map(lambda bits: bits * 2 + 1),
    st.integers(1, 2**32 - 1),
    st.binary(min_size=8, max_size=300),
)
def test_random_payloads_behind_a_good_header_do_no_harm(codec, mask, count, payload):
    harmless(HEADER.pack(1, codec, mask, count, len(payload)) + payload)
    harmless(HEADER.pack(1, codec, mask, 1, len(payload)) + payload)


@given(row_lists, compressions, st.data())
def test_damaged_bytes_do_no_harm(sent, compression, data):
    stored = bytearray(joined(pack(sent, NOW), compression))
    places = st.integers(0, len(stored) - 1)
    for place, value in data.draw(
        st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=5)
    ):
        stored[place] = value
    harmless(stored)
    harmless(stored[: data.draw(places)])
