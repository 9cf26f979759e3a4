"""Columns, masks, and batches that become one."""

import pyarrow as pa
import pytest

from quiver import limits
from quiver.batches.rows import make_row, pack
from quiver.batches.schema import FIELDS, MASK_ALL, assemble, column, concat, mask_of, schema_of
from quiver.errors import MessageTooLarge

NOW = 1_700_000_000_000


def test_the_columns_are_the_format():
    assert [f"{field.name}: {field.type}" for field in FIELDS] == [
        "body: binary",
        "key: string",
        "headers: map<string, string>",
        "priority: int8",
        "deliver_at: timestamp[ms, tz=UTC]",
        "expires_at: timestamp[ms, tz=UTC]",
        "dedup_id: string",
        "created_at: timestamp[ms, tz=UTC]",
    ]
    assert [field.nullable for field in FIELDS] == [False] + [True] * 7


def test_every_mask_has_its_schema():
    for mask in range(1, MASK_ALL + 1, 2):
        schema = schema_of(mask)
        assert schema is schema_of(mask)
        assert mask_of(schema.empty_table().combine_chunks()) == mask
    assert schema_of(MASK_ALL) == pa.schema(FIELDS)


@pytest.mark.parametrize("mask", [0, 2, MASK_ALL + 2])
def test_a_mask_without_a_body_or_with_more_is_a_bug(mask):
    with pytest.raises(AssertionError):
        schema_of(mask)


def test_columns_are_put_in_order():
    batch = assemble({"key": pa.array(["k"]), "body": pa.array([b"b"])})
    assert batch.schema == schema_of(3)
    assert batch.column(1).equals(column(batch, "key"))
    assert column(batch, "headers") is None


def test_batches_of_different_columns_become_one():
    plain = pack([make_row(b"a"), make_row(b"b")], NOW)
    keyed = pack([make_row(b"c", key="k", headers={"x": "y"})], NOW)
    urgent = pack([make_row(b"d", priority=5)], NOW)
    one = concat([plain, keyed, urgent])
    one.validate(full=True)
    assert mask_of(one) == 0b1111
    assert one.to_pydict() == {
        "body": [b"a", b"b", b"c", b"d"],
        "key": [None, None, "k", None],
        "headers": [None, None, [("x", "y")], None],
        "priority": [None, None, None, 5],
    }
    assert concat([plain]).equals(plain)
    assert concat([plain, plain]).schema == plain.schema


def test_batches_together_are_held_to_the_limits_of_one(monkeypatch):
    batch = pack([make_row(b"a")], NOW)
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 2 * batch.nbytes)
    assert concat([batch] * 2).num_rows == 2
    with pytest.raises(MessageTooLarge, match="send several"):
        concat([batch] * 3)
    monkeypatch.setattr(limits, "BATCH_ROWS_MAX", 1)
    with pytest.raises(MessageTooLarge, match="at most 1 messages, not 2"):
        concat([batch] * 2)
