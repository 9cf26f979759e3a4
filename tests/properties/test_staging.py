"""A job that publishes dies at any operation on the disk and starts again: each batch is there once."""

from random import Random

import pytest

from quiver.batches.codec import encode_whole
from quiver.batches.rows import make_row, pack
from quiver.core.delivery import DeliveryCore
from quiver.model.commands import CreateTopic, Entry, Pick, Publish, Receive, Run, Send
from quiver.model.replies import Published, Received, SentMany, SentReply
from quiver.model.topic import TopicPolicy, staging_name
from quiver.node.engine import Engine, Proposal
from quiver.node.peer import Peer
from quiver.storage import codec
from quiver.testing import MemoryFiles, SimulatedCrash
from tests.properties.workload import SECRET, START_MS

SIZES = {"file_bytes": 1_500, "allocate_bytes": 1_024, "reserve_bytes": 256}
ORDERS, STAGED = 1, 2
BATCHES, PARTS, ROWS = 3, 2, 6
POLICY = TopicPolicy(2)


class Job:
    """Publishes batches in order; one that starts again goes on where it believes it was."""

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.peer = Peer.open(files, now_ms=START_MS, secret=SECRET, **SIZES)
        self.engine = self.peer.engine
        self.told: list[int] = []  # batches of which it was told that they are published

    def do(self, command, proposal: Proposal | None = None):
        [outcome] = self.peer.commit([proposal or Proposal(command)], now_ms=START_MS)
        assert not isinstance(outcome.reply, Exception), outcome.reply
        return outcome.reply

    def run(self, first: int = 0) -> None:
        self.do(CreateTopic("orders", POLICY))
        self.do(CreateTopic(staging_name("orders"), POLICY.staging()))
        for number in range(first, BATCHES):
            self.publish(number)
            if number == 1:
                assert self.publish(number).duplicate  # a zombie does it, too
        self.snapshot()
        self.engine.close()

    def publish(self, number: int) -> Published:
        parts = [self.stage(number, part) for part in range(PARTS)]
        picks = tuple(Pick(at, tuple(part[at] for part in parts)) for at in (0, 1))
        done = self.do(Publish(ORDERS, STAGED, picks, "job", number, "run", 7))
        assert isinstance(done, Published)
        self.told.append(number)
        return done

    def stage(self, number: int, part: int) -> dict[int, tuple[int, int]]:
        batch = pack([make_row(body, key="k") for body in rows_of(number, part)], START_MS)
        command = Send(STAGED, (Run(0, 4, 240), Run(1, 2, 120)), (2,), staged=True)
        reply = self.do(command, Proposal(command, batch, encode_whole(batch, None)))
        assert isinstance(reply, SentMany)
        if number:
            self.snapshot()  # so that what is staged is sealed before it is published
        (sent,) = reply.answers
        assert isinstance(sent, SentReply)
        return {one.partition: (one.offset, one.offset + one.count) for one in sent.placed}

    def snapshot(self) -> None:
        made = self.peer.begin_snapshot(START_MS)
        made.save()
        self.engine.snapshots.finish(made)


def rows_of(number: int, part: int) -> list[bytes]:
    return [b"%d-%d-%d " % (number, part, at) + bytes([at]) * 60 for at in range(ROWS)]


def expected() -> dict[int, list[bytes]]:
    """What each partition has in the end."""
    parts = [rows_of(number, part) for number in range(BATCHES) for part in range(PARTS)]
    return {0: [row for part in parts for row in part[:4]],
            1: [row for part in parts for row in part[4:]]}  # fmt: skip


def stored(engine: Engine) -> dict[int, list[bytes]]:
    slices, _ = engine.core.browse(ORDERS, {0: 0, 1: 0}, 10_000)
    found: dict[int, list[bytes]] = {0: [], 1: []}
    for batch, at, part in engine.source(ORDERS, slices).pieces():
        found[part.partition] += batch.column(0).slice(at, part.count).to_pylist()
    return found


def test_the_script_itself():
    job = Job(MemoryFiles())
    job.run()
    peer = Peer.open(job.files, now_ms=START_MS, secret=SECRET, **SIZES)
    engine = peer.engine
    assert stored(engine) == expected()
    assert engine.core.topics[STAGED].unsettled() == PARTS * ROWS  # the zombie's


def dies(files: MemoryFiles) -> list[int]:
    """A job that does not come to its end; what it was told before."""
    told: list[int] = []
    try:
        job = Job(files)
        told = job.told
        job.run()
    except SimulatedCrash:
        return told
    raise AssertionError("it was to die")


@pytest.mark.parametrize("late", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize(
    "step",
    [199, pytest.param(83, marks=pytest.mark.check), pytest.param(2, marks=pytest.mark.slow)],
)
def test_a_crash_at_any_operation_publishes_each_batch_once(step, late):
    job = Job(MemoryFiles())
    job.run()
    total = job.files.operations
    assert total > 100
    for crash_at in range(1, total + 1, step):
        for survival in ("none", "all", Random(crash_at)):
            files = MemoryFiles(crash_at=crash_at, crash_late=late)
            told = dies(files)
            after = Job(files.crash(survival))
            after.engine.core.check()
            where = f"operation {crash_at}, {survival}"
            if "orders" in after.engine.core.names:
                there = stored(after.engine)
                whole = [len(there[0]) // (4 * PARTS), len(there[1]) // (2 * PARTS)]
                assert whole[0] == whole[1] >= len(set(told)), where
                assert there == {
                    at: rows[: whole[0] * size * PARTS]
                    for (at, rows), size in zip(expected().items(), (4, 2), strict=True)
                }, where
            after.run(first=max(len(set(told)) - 1, 0))  # it does the last one again, to be sure
            assert stored(after.engine) == expected(), where


def test_the_log_replays_to_the_same_state():
    job = Job(MemoryFiles())
    core = DeliveryCore()
    commands = []
    append = job.engine.wal.append

    def recorded(records, **options):
        commands.extend(records)
        return append(records, **options)

    job.engine.wal.append = recorded  # type: ignore[method-assign]
    founded = job.engine.core.dump()
    job.run()
    core = DeliveryCore.load(founded)
    for record in commands:
        core.apply(Entry(record.index, record.now_ms, codec.decode(record.kind, record.command)))
    assert core.dump() == job.engine.core.dump()
    assert core.topics[ORDERS].applications["job"] == ("run", BATCHES - 1, PARTS * ROWS, 7)
    assert codec.decode_state(codec.encode_state(core.dump())) == codec.decode_state(
        codec.encode_state(
            DeliveryCore.load(codec.decode_state(codec.encode_state(core.dump()))).dump()
        )
    )


def test_published_messages_are_received_like_any_others():
    job = Job(MemoryFiles())
    job.do(CreateTopic("orders", POLICY))
    job.do(CreateTopic(staging_name("orders"), POLICY.staging()))
    job.do(Receive(ORDERS, "g", 1, 1_000))  # a group that is there before
    job.publish(0)
    got = job.do(Receive(ORDERS, "g", 100, 1_000))
    assert isinstance(got, Received)
    assert sum(part.count for part in got.slices) == PARTS * ROWS
    job.engine.core.check()
