"""Messages that leave the log: every crash on the way, every damaged byte, and letters astray."""

from collections.abc import Iterator
from random import Random

import pytest

from quiver import limits
from quiver.batches.codec import encode_whole
from quiver.batches.rows import make_row, pack
from quiver.errors import CorruptSegment, UnreadableMessages
from quiver.model.commands import (
    CreateTopic,
    Held,
    Pick,
    Receive,
    Redrive,
    Run,
    Send,
    Settle,
)
from quiver.model.replies import Received
from quiver.model.topic import TopicPolicy
from quiver.node.engine import Engine, Proposal
from quiver.node.peer import Peer
from quiver.node.source import Source
from quiver.storage import doctor, segment
from quiver.testing import MemoryFiles, SimulatedCrash
from tests.properties.conftest import shrink
from tests.properties.workload import SECRET, START_MS

SIZES = {"file_bytes": 1_500, "allocate_bytes": 1_024, "reserve_bytes": 256}
ORDERS, LETTERS = 1, 2
HOUR_MS = 3_600_000


class Script:
    """Sends, acks, burials, redrives and snapshots that seal and rewrite; `done` are the commits.

    `states` is what is pending after each of them.
    """

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.done = 0
        self.states: list[dict[int, list[bytes]]] = []
        self.peer = Peer.open(files, now_ms=START_MS, secret=SECRET, **SIZES)
        self.engine = self.peer.engine

    def run(self) -> None:
        self.run_until(7)
        self.settle("ack", 30)
        self.snapshot(99)
        self.engine.close()

    def run_until(self, turns: int) -> None:
        self.do(CreateTopic("orders", TopicPolicy(2, dead_letter="letters")))
        for turn in range(turns):
            self.send(turn)
            self.settle("ack", 2)
            if turn in (2, 4):
                self.settle("dead_letter", 1)
            if turn == 5:
                self.do(Redrive(LETTERS, (Pick(0, ((0, 1),)),)))
            if turn > 1:
                self.snapshot(turn)

    def send(self, turn: int) -> None:
        bodies = [b"%d-%d " % (turn, at) + bytes([at]) * 60 for at in range(6)]
        batch = pack([make_row(body, key="k") for body in bodies], START_MS)
        command = Send(ORDERS, (Run(0, 4, 240), Run(1, 2, 120)), (2,))
        self.do(command, Proposal(command, batch, encode_whole(batch, None)))

    def settle(self, action, count: int) -> None:
        got = self.do(Receive(ORDERS, "g", count, HOUR_MS))
        assert isinstance(got, Received)
        held = tuple(
            Held(part.partition, got.epoch, ((part.offset, part.offset + part.count),))
            for part in got.slices
        )
        self.do(Settle(ORDERS, got.group, action, held))

    def do(self, command, proposal: Proposal | None = None):
        [outcome] = self.peer.commit([proposal or Proposal(command)], now_ms=START_MS)
        assert not isinstance(outcome.reply, Exception), outcome.reply
        self.done += 1
        if self.files.crash_at is None:
            self.states.append(pending(self.engine))
        return outcome.reply

    def snapshot(self, turn: int) -> None:
        made = self.peer.begin_snapshot(START_MS + turn, seal_all=turn % 3 == 2)
        made.save()
        self.engine.snapshots.finish(made)


def pending(engine: Engine) -> dict[int, list[bytes]]:
    """What somebody still has to deal with, by topic, each message once for each time it is there."""
    return {number: bodies(source) for number, source in sources(engine).items()}


def sources(engine: Engine) -> dict[int, Source]:
    """Where that is, by topic."""
    found = {}
    for number, topic in engine.core.topics.items():
        starts = {part.number: 0 for part in topic.partitions}
        slices, ahead = engine.core.browse(number, starts, 1_000_000, pending=True)
        assert ahead == {part.number: part.end for part in topic.partitions}
        found[number] = engine.source(number, slices)
    return found


def bodies(source: Source) -> list[bytes]:
    return [
        body
        for batch, at, part in source.readable(some=True)
        for body in batch.column(0).slice(at, part.count).to_pylist()
    ]


@pytest.fixture(scope="module")
def whole() -> Iterator[Script]:
    """The script without a crash."""
    patch = pytest.MonkeyPatch()
    shrink(patch)
    script = Script(MemoryFiles())
    script.run()
    yield script
    patch.undo()


def confirmed_before_the_crash(files: MemoryFiles) -> int:
    script = None
    try:
        script = Script(files)
        script.run()
    except SimulatedCrash:
        return script.done if script is not None else 0
    raise AssertionError("it did not crash")


@pytest.mark.parametrize("late", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize(
    "step", [29, pytest.param(9, marks=pytest.mark.check), pytest.param(1, marks=pytest.mark.slow)]
)
def test_a_crash_at_any_operation_of_sealing_loses_nothing_and_doubles_nothing(whole, late, step):
    total = whole.files.operations
    sealed_at = 0
    for crash_at in range(1 + late, total + 1, step):
        files = MemoryFiles(crash_at=crash_at, crash_late=late)
        done = confirmed_before_the_crash(files)
        for survival in ("none" if crash_at % 2 else "all", Random(crash_at)):
            after = files.crash(survival)
            findings = doctor.inspect(after)
            named = {one.file for one in findings} | {"confirmed"}
            assert not set(after.names()) - named, f"operation {crash_at}"
            assert all(one.severity != "error" for one in findings), f"operation {crash_at}"
            sealed_at += bool(segment.names(after))
            peer = Peer.open(after, now_ms=START_MS, secret=SECRET, **SIZES)
            engine = peer.engine
            engine.core.check()
            told = whole.states[done - 1] if done else {}
            underway = whole.states[done] if done < len(whole.states) else told
            got = pending(engine)
            assert {n: sorted(b) for n, b in got.items()} in (
                {n: sorted(b) for n, b in told.items()},
                {n: sorted(b) for n, b in underway.items()},
            ), f"operation {crash_at}, {survival}"
            assert set(segment.names(after)) == {one.name for one in engine.locator.segments}
    assert sealed_at > 100 // step, "the script seals"


def test_small_segments_are_rewritten_together(monkeypatch):
    monkeypatch.setattr(limits, "SEGMENT_BYTES", 1_000_000)
    script = Script(MemoryFiles())
    script.do(CreateTopic("orders", TopicPolicy(2)))
    counts = []
    for turn in range(8):
        script.send(turn)
        seal(script)
        counts.append(len(segment.names(script.files)))
    assert counts == [2, 4, 6, 2, 4, 6, 2, 4], "three small ones are one too many"
    assert len(pending(script.engine)[ORDERS]) == 48


def test_a_segment_that_is_mostly_settled_is_rewritten_and_a_dead_one_goes(monkeypatch):
    monkeypatch.setattr(limits, "SEGMENT_BYTES", 1_000_000)
    script = Script(MemoryFiles())
    script.do(CreateTopic("orders", TopicPolicy(2)))
    script.send(0)
    seal(script)
    before = segment.names(script.files)
    script.settle("ack", 5)
    seal(script)
    assert len(segment.names(script.files)) == 1
    assert not set(before) & set(segment.names(script.files))
    assert len(pending(script.engine)[ORDERS]) == 1
    script.settle("ack", 1)
    seal(script)
    assert not segment.names(script.files)


def sealed_directory() -> tuple[dict[str, bytes], list[bytes]]:
    files = MemoryFiles()
    script = Script(files)
    script.do(CreateTopic("orders", TopicPolicy(2)))
    for turn in range(3):
        script.send(turn)
    made = script.peer.begin_snapshot(START_MS, seal_all=True)
    made.save()
    script.engine.snapshots.finish(made)
    script.engine.close()
    contents = {name: files.open(name).read(0, files.open(name).size()) for name in files.names()}
    assert len(segment.names(files)) > 2
    return contents, pending(script.engine)[ORDERS]


def opened(contents: dict[str, bytes]) -> Engine:
    files = MemoryFiles()
    for name, data in contents.items():
        files.create(name).write(0, [data])
    return Peer.open(files.crash("all"), now_ms=START_MS, secret=SECRET, **SIZES).engine


def readable(engine: Engine) -> list[bytes]:
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)
            return pending(engine)[ORDERS]
    except CorruptSegment:
        return []


@pytest.mark.parametrize(
    "step",
    [211, pytest.param(67, marks=pytest.mark.check), pytest.param(13, marks=pytest.mark.slow)],
)
def test_a_flipped_bit_of_a_segment_hides_its_messages_and_no_others(step):
    contents, stored = sealed_directory()
    chance = Random(1)
    name = next(name for name in contents if "@" in name)
    data = contents[name]
    assert len(data) > 3_000
    for at in range(0, len(data), step):
        flipped = bytearray(data)
        flipped[at] ^= 1 << chance.randrange(8)
        got = readable(opened({**contents, name: bytes(flipped)}))
        assert set(got) < set(stored), f"byte {at}"
        assert len(got) == len(set(got)) >= len(stored) // 2


def test_a_missing_or_cut_segment_hides_its_messages_and_doctor_names_them():
    contents, stored = sealed_directory()
    for name in [name for name in contents if "@" in name]:
        without = {one: data for one, data in contents.items() if one != name}
        for changed in (without, {**contents, name: contents[name][:-20]}):
            engine = opened(changed)
            got = readable(engine)
            assert 0 < len(got) < len(stored)
            engine.close()
            [error] = [one for one in doctor.inspect(engine._files) if one.severity == "error"]
            assert error.file == name
            assert "partition" in error.text


def test_messages_that_lie_beside_damaged_ones_come_with_a_warning():
    contents, stored = sealed_directory()
    name = next(name for name in contents if "@" in name)
    engine = opened({one: data for one, data in contents.items() if one != name})
    with pytest.warns(UnreadableMessages, match="cannot be read"):
        assert 0 < len(pending(engine)[ORDERS]) < len(stored)


def test_a_letter_buried_after_its_message_was_sealed_is_read_and_gets_its_own_place(whole):
    script = Script(MemoryFiles())
    script.do(CreateTopic("orders", TopicPolicy(2, dead_letter="letters")))
    script.send(0)
    seal(script)
    script.settle("dead_letter", 3)
    assert len(pending(script.engine)[LETTERS]) == 3, "from the segments of orders"
    seal(script)
    script.settle("ack", 3)
    seal(script)
    assert {name.partition("@")[0] for name in segment.names(script.files)} == {"letters"}
    letters = pending(script.engine)[LETTERS]
    assert len(letters) == 3
    assert all(letter.startswith(b"0-") for letter in letters)


def seal(script: Script) -> None:
    made = script.peer.begin_snapshot(START_MS, seal_all=True)
    made.save()
    script.engine.snapshots.finish(made)


def test_a_segment_of_another_history_is_left_alone():
    contents, stored = sealed_directory()
    stranger = segment.name_of("orders", 1, 0, 10**9, 0)
    engine = opened({**contents, stranger: b"from a newer state, before a backup was put back"})
    assert sorted(readable(engine)) == sorted(stored)
    assert stranger in engine._files.names()
