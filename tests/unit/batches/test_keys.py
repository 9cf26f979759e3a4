"""Partitions of messages, and the numbers of keys."""

import pyarrow as pa
import pytest

from quiver.batches.keys import Partitioner, key_hash, tenant_hash
from quiver.batches.rows import make_row, pack
from quiver.model.commands import Run
from quiver.model.topic import TopicPolicy

NOW = 1_700_000_000_000


def batch_of(*keys):
    return pack([make_row(b"%d" % row, key=key) for row, key in enumerate(keys)], NOW)


def bodies(batch):
    return b" ".join(batch.column(0).to_pylist()).decode()


def test_hashes_are_the_format():
    assert key_hash("user-42") == 0xA6EFE67B4DCAA06F
    assert key_hash("") == 0xB4B2797457A0A6E4
    assert all(0 < key_hash(str(number)) < 2**64 for number in range(1_000))


def test_a_tenant_is_what_stands_before_the_first_slash():
    assert tenant_hash("acme/user/1") == key_hash("acme")
    assert tenant_hash("acme") == key_hash("acme")
    assert tenant_hash("/x") == key_hash("")


@pytest.mark.parametrize(
    "policy",
    [
        TopicPolicy(),
        TopicPolicy(partitions=4, partition_by="round-robin"),
        TopicPolicy(partition_by="range"),
    ],
)
def test_where_keys_do_not_matter_a_batch_stays_whole(policy):
    batch = batch_of("a", "b", None)
    partitioner = Partitioner(policy)
    for turn in range(6):
        expected = turn % policy.partitions
        assert partitioner.one("a", turn) == partitioner.one(None, turn) == expected
        same, runs = partitioner.split(batch, turn)
        assert same is batch
        assert runs == (Run(expected, 3, batch.nbytes),)


def test_messages_without_keys_take_turns():
    batch = batch_of(None, None)
    partitioner = Partitioner(TopicPolicy(partitions=4))
    assert [partitioner.one(None, turn) for turn in range(5)] == [0, 1, 2, 3, 0]
    assert partitioner.split(batch, 6) == (batch, (Run(2, 2, batch.nbytes),))


def test_a_batch_is_sorted_by_partition_and_keeps_its_order():
    policy = TopicPolicy(partitions=3, partition_by="range", split_keys=("g", "p"))
    batch = batch_of("z", "a", None, "g", "z", "b", "f", None, "o", "p")
    split, runs = Partitioner(policy).split(batch, 1)
    assert bodies(split) == "1 5 6 2 3 7 8 0 4 9"
    assert [(run.partition, run.rows) for run in runs] == [(0, 3), (1, 4), (2, 3)]
    assert sum(run.nbytes for run in runs) == batch.nbytes
    assert all(run.nbytes > 0 for run in runs)


@pytest.mark.parametrize(("key", "place"), [("a", 0), ("f\uffff", 0), ("g", 1), ("o", 1), ("p", 2)])
def test_a_split_key_begins_the_next_partition(key, place):
    policy = TopicPolicy(partitions=3, partition_by="range", split_keys=("g", "p"))
    assert Partitioner(policy).one(key, 5) == place


def test_one_partition_for_all_keys_leaves_the_batch_as_it_is():
    batch = batch_of("same", "same")
    same, runs = Partitioner(TopicPolicy(partitions=7)).split(batch, 0)
    assert same is batch
    assert runs == (Run(key_hash("same") % 7, 2, batch.nbytes),)


def test_all_columns_move_with_their_row():
    rows = [
        make_row(b"", key=key, headers={"key": key}, priority=number, dedup_id=key)
        for number, key in enumerate("zyxw")
    ]
    policy = TopicPolicy(partitions=2, partition_by="range", split_keys=("y",))
    split, _ = Partitioner(policy).split(pack(rows, NOW), 0)
    assert split.column("key").to_pylist() == ["x", "w", "z", "y"]
    assert split.column("headers").to_pylist() == [[("key", key)] for key in "xwzy"]
    assert split.column("dedup_id").to_pylist() == list("xwzy")
    assert split.column("priority").to_pylist() == [2, 3, None, 1]


def test_a_slice_of_a_batch_is_split_alike():
    batch = pa.concat_batches([batch_of("x", "y"), batch_of("a", "b", "a")])
    policy = TopicPolicy(partitions=16)
    assert (
        Partitioner(policy)
        .split(batch.slice(2), 0)[0]
        .equals(Partitioner(policy).split(batch_of("a", "b", "a"), 0)[0])
    )
