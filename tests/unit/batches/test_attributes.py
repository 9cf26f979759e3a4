"""What the core is told about single messages."""

import struct

import pyarrow as pa

from quiver.batches.attributes import attributes_of
from quiver.batches.keys import key_hash
from quiver.batches.rows import make_row, pack
from quiver.batches.schema import TIME, assemble
from quiver.model.commands import Attributes

NOW = 1_700_000_000_000


def unsigned(*numbers):
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def test_plain_messages_have_none():
    batch = pack([make_row(b"a"), make_row(b"b", headers={"a": "b"})], NOW)
    assert attributes_of(batch, keyed=True) is None


def test_keys_are_told_only_where_they_matter():
    batch = pack([make_row(b"", key="a"), make_row(b""), make_row(b"", key="b")], NOW)
    assert attributes_of(batch, keyed=False) is None
    assert attributes_of(batch, keyed=True) == Attributes(
        keys=unsigned(key_hash("a"), 0, key_hash("b"))
    )


def test_tenants_are_told_if_a_key_has_one():
    batch = pack([make_row(b"", key="t/a"), make_row(b""), make_row(b"", key="b")], NOW)
    found = attributes_of(batch, keyed=True)
    assert found is not None
    assert found.keys == unsigned(key_hash("t/a"), 0, key_hash("b"))
    assert found.tenants == unsigned(key_hash("t"), 0, key_hash("b"))


def test_every_column_has_a_value_for_every_row():
    rows = [make_row(b""), make_row(b"", priority=9, delay=1, ttl=2, dedup_id="d")]
    assert attributes_of(pack(rows, NOW), keyed=True) == Attributes(
        priorities=b"\0\x09",
        deliver_at=unsigned(0, NOW + 1_000),
        expires_at=unsigned(0, NOW + 2_000),
        dedup_ids=(None, "d"),
    )


def test_a_slice_tells_of_its_own_rows():
    rows = [make_row(b"", key=str(n), priority=n, delay=n, dedup_id=str(n)) for n in range(1, 9)]
    part = pack(rows, NOW).slice(3, 2)
    assert attributes_of(part, keyed=True) == Attributes(
        keys=unsigned(key_hash("4"), key_hash("5")),
        priorities=bytes([4, 5]),
        deliver_at=unsigned(NOW + 4_000, NOW + 5_000),
        dedup_ids=("4", "5"),
    )


def test_columns_that_say_nothing_in_a_slice_are_left_out():
    batch = assemble(
        {
            "body": pa.array([b"", b""]),
            "key": pa.array(["k", None]),
            "priority": pa.array([5, 0], pa.int8()),
            "deliver_at": pa.array([NOW, None], TIME),
            "dedup_id": pa.array(["d", None]),
        }
    )
    assert attributes_of(batch.slice(1), keyed=True) is None
