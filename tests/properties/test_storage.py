"""Whatever is asked of the log and whatever the disk does, a simple list says what must be there."""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quiver.errors import DiskFull
from quiver.storage import codec, snapshot
from quiver.storage.frame import (
    HEADER_BYTES,
    EntryOrigin,
    LogRecord,
    decode_header,
    encode,
    header_bytes,
)
from quiver.storage.wal import Wal
from quiver.testing import MemoryFiles

unsigned = st.integers(0, 2**64 - 1)
signed = st.integers(-(2**63), 2**63 - 1)
records = st.builds(
    LogRecord,
    unsigned,
    unsigned,
    signed,
    st.integers(0, 255),
    st.binary(),
    st.binary(max_size=2_000),
)


origins = st.builds(
    EntryOrigin, st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
)


@given(record=records, origin=origins, level=st.integers(0, 255), synced=unsigned,
       salt=st.integers(0, 2**32 - 1), version=st.sampled_from([1, 2]))  # fmt: skip
def test_a_frame_holds_its_record(record, origin, level, synced, salt, version):
    if version == 2:
        record = replace(record, origin=origin, level=level)
    data = b"".join(encode(record, synced=synced, salt=salt, version=version))
    header = decode_header(data, salt=salt, version=version)
    assert header is not None
    command_start = header_bytes(version)
    command_end = command_start + header.command_bytes
    batch_end = command_end + header.batch_bytes
    found = header.record(data[command_start:command_end], data[command_end:batch_end])
    assert (found, header.synced) == (record, synced)
    assert record.nbytes == header.nbytes
    assert len(data) == header.frame_bytes
    assert data[batch_end:] == bytes(len(data) - batch_end)


@given(data=st.binary(max_size=2 * HEADER_BYTES), salt=st.integers(0, 2**32 - 1))
def test_rubbish_is_no_frame(data, salt):
    assert decode_header(data, salt=salt) is None


keys = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(), st.binary())
scalars = st.one_of(st.none(), st.booleans(), signed, st.floats(allow_nan=False), keys)
states = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner))


@given(state=states)
def test_state_comes_back(state):
    assert codec.decode_state(codec.encode_state(state)) == state


class LogMachine(RuleBasedStateMachine):
    """A log beside a list of what it should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.written: list[LogRecord] = []  # entry i at i - 1
        self.confirmed = 0
        self.after = 0
        self.take = 0

    @initialize()
    def open(self) -> None:
        snapshot.clean(self.files)
        saved = snapshot.load(self.files) or snapshot.SavedState(0, codec.encode_state([]))
        self.after, payload = saved.index, saved.payload
        self.live = {index: tuple(place) for index, *place in codec.decode_state(payload)}
        self.wal = Wal.open(
            self.files,
            after=self.after,
            places=[(index, *place) for index, place in self.live.items()],
            file_bytes=1_500,
            allocate_bytes=1_024,
            reserve_bytes=256,
        )
        found = list(self.wal.replay())
        assert [each.index for each in found] == list(
            range(self.after + 1, self.wal.last_index + 1)
        )
        assert self.confirmed <= self.wal.last_index <= len(self.written)
        del self.written[self.wal.last_index :]
        for each in found:
            expected = self.written[each.index - 1]
            assert (each.command, each.now_ms) == (expected.command, expected.now_ms)
        self.confirmed = self.wal.last_index

    @rule(sizes=st.lists(st.integers(0, 1_200), min_size=1, max_size=4), urgent=st.booleans())
    def append(self, sizes: list[int], urgent: bool) -> None:
        self.take += 1
        new = [
            LogRecord(
                len(self.written) + 1 + at, 1, self.take, 1, b"take %d" % self.take, b"x" * size
            )
            for at, size in enumerate(sizes)
        ]
        try:
            self.wal.append(new, urgent=urgent)
        except DiskFull:
            assert self.files.capacity_bytes is not None
        else:
            self.written += new

    @rule()
    def sync(self) -> None:
        self.wal.sync()
        self.confirmed = self.wal.synced_index
        assert self.confirmed == len(self.written)

    @rule(free=st.none() | st.integers(0, 3_000))
    def fill_or_free_the_disk(self, free: int | None) -> None:
        self.files.capacity_bytes = None if free is None else self.files.used_bytes + free

    @precondition(lambda self: self.confirmed > self.after)
    @rule(chance=st.randoms(use_true_random=False))
    def save(self, chance: Random) -> None:
        index = self.confirmed
        held = [*self.live, *range(self.after + 1, index + 1)]
        live = [each for each in held if self.written[each - 1].batch and chance.random() < 0.3]
        places = self.wal.places(live)
        try:
            snapshot.save(self.files, index, codec.encode_state(places))
        except DiskFull:
            return
        self.wal.keep(live, before=index)
        self.after = index
        self.live = {each: tuple(place) for each, *place in places}

    @rule(survives=st.sampled_from(["none", "all"]) | st.randoms(use_true_random=False))
    def crash(self, survives) -> None:
        self.files = self.files.crash(survives)
        self.files.capacity_bytes = None
        self.open()

    @rule()
    def close_and_open(self) -> None:
        self.wal.close()
        self.confirmed = len(self.written)
        self.open()

    @invariant()
    def every_needed_batch_can_be_read(self) -> None:
        for index in [*self.live, *range(self.after + 1, len(self.written) + 1)]:
            if self.written[index - 1].batch:
                assert self.wal.read(index) == self.written[index - 1].batch


TestLog = LogMachine.TestCase
TestLog.settings = settings(stateful_step_count=30)
