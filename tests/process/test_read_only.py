"""A directory is read while nobody, or another process, owns it; and reading changes nothing."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver.client.threads import run
from quiver.errors import CorruptLog, InvalidRequest, ProducerFailed, QueueClosed, ReadOnly
from quiver.node.receipts import Receipt, text
from tests.inside import Inside
from tests.server.nodes import start_node

pytestmark = pytest.mark.process

PATIENCE_SECONDS = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def owner(path: Path) -> Iterator[quiver.Queue]:
    with quiver.connect(path) as queue:
        queue.create_topic("orders", partitions=2, retention="forever", max_attempts=1)
        yield queue


@pytest.fixture
def reader(owner: quiver.Queue, path: Path) -> Iterator[quiver.Queue]:
    with quiver.connect(path, read_only=True) as queue:
        yield queue


def content(path: Path) -> dict[str, tuple[bytes, int]]:
    """All files, byte for byte, and when they were changed."""
    return {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in path.iterdir()}


def bodies(queue: quiver.Queue, topic: str = "orders") -> list[bytes]:
    return sorted(message.body for message in queue.read(topic))


def test_it_sees_what_is_confirmed_at_once_and_what_was_sealed_too(owner, reader):
    assert reader.topics() == ["orders", "orders.dlq"]
    for step in range(5):
        owner.send("orders", f"{step}", key=f"{step}")
        assert bodies(reader) == [str(at).encode() for at in range(step + 1)]
        if step in (2, 3):
            owner.seal()
            assert bodies(reader) == [str(at).encode() for at in range(step + 1)]


def test_all_verbs_that_read_say_what_the_owner_says(owner, reader):
    for at in range(20):
        owner.send("orders", f"{at}", key=f"{at % 3}", headers={"n": f"{at}"}, priority=at % 10)
    owner.seal()
    owner.receive("orders", max_messages=3)[0].dead_letter(reason="no such customer")
    sent = owner.send("orders", "last")
    for ask in (
        lambda queue: queue.topics(),
        lambda queue: queue.policy("orders"),
        lambda queue: queue.stats("orders").groups.keys(),
        lambda queue: queue.stats("orders").stored,
        lambda queue: queue.overview().topics.keys(),
        lambda queue: [message.id for message in queue.read("orders", offset=3)],
        lambda queue: [message.origin for message in queue.read("orders.dlq")],
        lambda queue: [*queue.read_arrow("orders", partition=1)],
        lambda queue: queue.sql("select count(*), max(headers) from orders where pending"),
        lambda queue: queue.ledger(),
        lambda queue: queue.trace(sent.id),
        lambda queue: queue.redrive("orders.dlq", dry_run=True),
    ):
        assert ask(reader) == ask(owner)


def test_reading_changes_no_file(owner, reader, path):
    owner.send_batch("orders", [f"{at}" for at in range(100)])
    owner.seal()
    owner.send("orders", "after")
    owner.close()
    before = content(path)
    assert len(bodies(reader)) == 101
    reader.overview()
    reader.ledger()
    reader.sql("select * from orders")
    reader.close()
    assert content(path) == before


CHANGES: dict[str, Callable[[quiver.Queue], Any]] = {
    "create_topic": lambda queue: queue.create_topic("new"),
    "alter_topic": lambda queue: queue.alter_topic("orders", max_backlog=1),
    "delete_topic": lambda queue: queue.delete_topic("orders"),
    "purge": lambda queue: queue.purge("orders"),
    "seal": lambda queue: queue.seal(),
    "send": lambda queue: queue.send("orders", "1"),
    "send_batch": lambda queue: queue.send_batch("orders", ["1"]),
    "send_batches": lambda queue: queue.send_batches("orders", [["1"]], name="me"),
    "named producer": lambda queue: queue.producer("orders", name="me"),
    "receive": lambda queue: queue.receive("orders", wait=1),
    "receive_arrow": lambda queue: queue.receive_arrow("orders"),
    "ack": lambda queue: queue.ack(text(Receipt(1, 2, 0, 0, 5), bytes(16))),
    "create_group": lambda queue: queue.create_group("orders", "g"),
    "delete_group": lambda queue: queue.delete_group("orders", "g"),
    "seek": lambda queue: queue.seek("orders", "g", "latest"),
    "pause": lambda queue: queue.pause("orders", "g"),
    "join": lambda queue: queue.join("orders", "g", "me"),
    "redrive": lambda queue: queue.redrive("orders.dlq"),
    "discard": lambda queue: queue.discard("orders"),
}


@pytest.mark.parametrize("verb", CHANGES)
def test_what_would_change_something_is_refused(owner, reader, path, verb):
    owner.send("orders", "1")
    owner.receive("orders", max_messages=1)[0].dead_letter()
    owner.send("orders", "2")
    before = content(path)
    with pytest.raises(ReadOnly, match="read_only=True"):
        CHANGES[verb](reader)
    assert content(path) == before


def test_transactions_and_producers_are_refused_when_they_send(reader):
    with pytest.raises(ReadOnly), reader.transaction() as transaction:
        transaction.send("orders", "1")
    producer = reader.producer("orders")
    producer.send("1")
    with pytest.raises(ProducerFailed, match="read_only=True"):
        producer.close()


def test_event_loops_have_the_same(owner, path):
    owner.send("orders", "1")

    async def read() -> list[bytes]:
        async with quiver.connect_async(path, read_only=True) as queue:
            with pytest.raises(ReadOnly):
                await queue.send("orders", "2")
            return [message.body async for message in queue.read("orders")]

    assert asyncio.run(read()) == [b"1"]


def test_a_directory_without_a_queue_is_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="there is no queue in"):
        quiver.connect(tmp_path / "none", read_only=True)
    with pytest.raises(InvalidRequest, match="there is no queue in"):
        quiver.connect(tmp_path, read_only=True)
    assert not list(tmp_path.iterdir())
    (tmp_path / "wal-00000000000000000001.log.tmp").touch()  # somebody is about to make one
    with pytest.raises(InvalidRequest, match="there is no queue in"):
        quiver.connect(tmp_path, read_only=True)


def test_a_queue_that_is_removed_is_said_to_be_gone(reader, owner, path):
    owner.close()
    for file in path.iterdir():
        file.unlink()
    with pytest.raises(CorruptLog, match="There is no log"):
        reader.topics()


def test_a_node_that_is_only_read_is_asked_for_nothing_else(tmp_path):
    with start_node(tmp_path) as node:
        with quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
            queue.create_topic("read", retention="forever")
            queue.send("read", "1")
        with quiver.connect(f"quiver://127.0.0.1:{node.port}", read_only=True) as queue:
            assert bodies(queue, "read") == [b"1"]
            assert queue.sql('select count(*) as n from "read"')["n"].to_pylist() == [1]
            assert queue.ledger().num_rows == 1
            for change in (
                lambda: queue.send("read", "2"),
                lambda: queue.receive("read"),
                lambda: queue.delete_topic("read"),
                lambda: queue.purge("read"),
            ):
                with pytest.raises(ReadOnly):
                    change()
            assert queue.stats("read").depth == 1


@pytest.mark.parametrize("count", [1, 5])
def test_another_directory_that_has_taken_its_place_is_seen(path, count):
    with quiver.connect(path) as first:
        first.create_topic("orders", retention="forever")
        first.send("orders", "old")
    with quiver.connect(path, read_only=True) as reader:
        assert bodies(reader) == [b"old"]
        shutil.rmtree(path)
        with quiver.connect(path) as second:
            second.create_topic("orders", retention="forever")
            for _ in range(count):
                second.send("orders", "new")
        assert bodies(reader) == [b"new"] * count


def test_closed_is_closed(reader):
    reader.close()
    with pytest.raises(QueueClosed):
        reader.topics()


def test_what_is_not_confirmed_is_not_seen_until_it_is(owner, reader):
    owner.send("orders", "1", durability="memory")
    assert bodies(reader) == []
    owner.send("orders", "2")
    assert bodies(reader) == [b"1", b"2"]


LOSER = """
import os, signal, sys, quiver
queue = quiver.connect(sys.argv[1], durability="memory")
queue.create_topic("orders", retention="forever")
for at in range(10):
    queue.send("orders", f"{at}")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_dead_owner_left_counts_as_it_will_for_the_next_one(path):
    subprocess.run([sys.executable, "-c", LOSER, path], check=False, timeout=PATIENCE_SECONDS)
    before = content(path)
    with quiver.connect(path, read_only=True) as reader:
        assert len(bodies(reader)) == 10
        assert content(path) == before
        with quiver.connect(path) as owner:
            assert bodies(owner) == bodies(reader)
            owner.send("orders", "next")
            assert len(bodies(reader)) == 11
            owner.send("orders", "never synced", durability="memory")
            copy = Path(shutil.copytree(path, path.parent / "copy"))
    (copy / "quiver.lock").unlink()
    with quiver.connect(copy, read_only=True) as reader:
        assert len(bodies(reader)) == 12
    log = max(copy.glob("wal-*"))
    with log.open("ab") as file:  # a write that the machine has not finished
        file.write(b"QVfr and no more")
    before = content(copy)
    with quiver.connect(copy, read_only=True) as reader:
        assert len(bodies(reader)) == 12
    assert content(copy) == before


WRITER = """
import sys, quiver
from tests.process.workers import make_small
make_small(entries=20, file_bytes=20_000)
with quiver.connect(sys.argv[1]) as queue:
    queue.create_topic("orders", retention="forever")
    for at in range(int(sys.argv[2])):
        queue.send_batch("orders", [f"{row}" for row in range(10 * at, 10 * at + 10)])
        if at % 50 == 49:
            queue.seal()
        if at == 0:
            print("begun", flush=True)
"""


def test_an_owner_that_seals_and_removes_files_all_the_time_disturbs_nobody(path):
    batches = 300
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path, f"{batches}"],
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as writer:  # fmt: skip
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        seen = 0
        with quiver.connect(path, read_only=True) as reader:
            while seen < 10 * batches:
                ended = writer.poll() is not None
                found = [int(message.body) for message in reader.read("orders")]
                assert found == list(range(len(found)))
                assert len(found) >= seen
                seen = len(found)
                assert reader.ledger(topic="orders").num_rows >= 1
                assert not ended or seen == 10 * batches
    assert writer.returncode == 0


def test_the_state_is_the_owners_state(path, monkeypatch):
    """Step by step: with files that end soon, snapshots, and messages that are sealed and dropped."""
    monkeypatch.setattr("quiver.limits.SNAPSHOT_LOG_ENTRIES", 10)
    monkeypatch.setattr("quiver.limits.SEGMENTS_SMALL_MAX", 1)
    with quiver.connect(path) as owner, quiver.connect(path, read_only=True) as reader:
        owner.create_topic("orders", partitions=3, order="key", max_attempts=2)
        for turn in range(20):
            owner.send_batch("orders", [quiver.Message(f"{turn}", key=f"{at}") for at in range(9)])
            for at, delivery in enumerate(owner.receive("orders", max_messages=5)):
                (delivery.ack, delivery.nack, delivery.dead_letter)[(turn + at) % 3]()
            if turn % 7 == 6:
                owner.seal()
            assert_same_state(reader, owner)
            assert bodies(reader) == bodies(owner)


def assert_same_state(reader: quiver.Queue, owner: quiver.Queue) -> None:
    """A snapshot makes an entry at any moment: what counts is a look with none in between."""
    for _ in range(100):
        before, seen, after = state_of(owner), state_of(reader), state_of(owner)
        if before == after:
            assert seen == before
            return
    raise AssertionError("the owner's state never rests")


def state_of(queue: quiver.Queue) -> Any:
    return run(queue._flows.ask(Inside(lambda engine: engine.digest_state())))
