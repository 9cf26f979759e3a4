"""A damaged segment stays as it is, whatever is rewritten around it, until somebody mends it."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import quiver
from quiver import limits
from quiver.client.flows import Flows
from quiver.client.local import LocalBroker
from quiver.node.peer import Peer
from quiver.node.shard import Shard
from quiver.storage.doctor import inspect
from quiver.storage.files import DiskFiles
from quiver.testing import VirtualClock
from tests.contract.verbs import bodies
from tests.inside import Inside, shard_of


@pytest.fixture(autouse=True)
def no_rewriting(monkeypatch):
    """Until a test wants it."""
    monkeypatch.setattr(limits, "SEGMENTS_SMALL_MAX", 100)


def rewrite(monkeypatch) -> None:
    monkeypatch.setattr(limits, "SEGMENTS_SMALL_MAX", 2)


def fill(path: Path, batches: range) -> list[bytes]:
    """A segment for each batch of ten messages."""
    sent = []
    with quiver.connect(path) as queue:
        queue.create_topic("t", retention="forever", max_attempts=1)
        for batch in batches:
            sent += [b"%d-%d" % (batch, at) for at in range(10)]
            queue.send_batch("t", sent[-10:])
            queue.seal()
    return sent


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [flip, Path.unlink], ids=["changed", "missing"])
def test_messages_of_a_damaged_segment_are_there_again_when_it_is_mended(
    tmp_path, monkeypatch, damage
):
    sent = fill(tmp_path, range(5))
    second = sorted(tmp_path.glob("t@*.parquet"))[1]
    content = second.read_bytes()
    damage(second)
    rewrite(monkeypatch)
    sent += fill(tmp_path, range(5, 12))
    assert len(list(tmp_path.glob("t@*.parquet"))) < 12, "others are rewritten together"
    with (
        quiver.connect(tmp_path) as queue,
        pytest.warns(quiver.UnreadableMessages, match="cannot be read"),
    ):
        assert bodies(queue.read("t")) == sent[:10] + sent[20:]
    second.write_bytes(content)
    with quiver.connect(tmp_path) as queue:
        assert bodies(queue.read("t")) == sent
        queue.seal()
        assert not second.exists(), "now it can be rewritten"
        assert bodies(queue.read("t")) == sent


def test_messages_damaged_in_the_log_stay_there_and_everything_else_goes_on(tmp_path):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t", retention="forever")
        for at in range(3):
            queue.send_batch("t", [b"%d" % at * 1000])
        (log,) = tmp_path.glob("wal-*.log")
        content = log.read_bytes()
        with log.open("r+b") as file:
            file.seek(content.index(b"1" * 1000))
            file.write(b"?")
        queue.seal()
        queue.send_batch("t", [b"3"])
        queue.seal()
        assert len(list(tmp_path.glob("t@*.parquet"))) == 1, "of the one that was sent afterwards"
        with pytest.warns(quiver.UnreadableMessages, match="1 messages were left out"):
            assert bodies(queue.read("t")) == [b"0" * 1000, b"2" * 1000, b"3"]
        log.write_bytes(content)
        assert len(bodies(queue.read("t"))) == 4
    with quiver.connect(tmp_path) as queue:
        queue.seal()
        assert not log.exists()
        assert [body[:1] for body in bodies(queue.read("t"))] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("damage", ["header", "sector"])
def test_a_log_file_that_cannot_be_read_hides_its_messages_and_no_others(
    tmp_path, monkeypatch, damage
):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t", retention="forever")
        queue.send_batch("t", [b"0" * 1000])
        shard = shard_of(queue._flows)
        shard.ask(Inside(lambda engine: engine.wal.roll())).wait()
        queue.send_batch("t", [b"1"])
        shard.ask(Inside(lambda engine: engine.wal._opened.cache_clear())).wait()
        shard.ask(Inside(lambda engine: engine.locator.cache._batches.clear())).wait()
        first = min(tmp_path.glob("wal-*.log"))
        content = first.read_bytes()
        if damage == "header":
            first.write_bytes(b"?" + content[1:])
        else:
            real = os.pread

            def failing(fd: int, count: int, at: int) -> bytes:
                if at and Path(f"/proc/self/fd/{fd}").readlink().name == first.name:
                    raise OSError(errno.EIO, "a bad sector")
                return real(fd, count, at)

            monkeypatch.setattr(os, "pread", failing)
        for _ in range(2):
            with pytest.warns(quiver.UnreadableMessages, match="1 messages were left out"):
                assert bodies(queue.receive("t", "g", max_messages=9)) == [b"1"]
            queue.seal()
            queue.seek("t", "g", "earliest")
        monkeypatch.undo()
        first.write_bytes(content)
        assert bodies(queue.read("t")) == [b"0" * 1000, b"1"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "step", ["storage.segment.write", "node.snapshots.Snapshots.finish"], ids=["first", "last"]
)
def test_who_waits_for_a_sealing_that_fails_is_told(tmp_path, monkeypatch, step):
    def failing(*_):
        raise quiver.StorageFailed("no")

    queue = quiver.connect(tmp_path)
    queue.create_topic("t")
    queue.send("t", "x")
    monkeypatch.setattr(f"quiver.{step}", failing)
    with pytest.raises(quiver.StorageFailed, match="the queue has stopped"):
        queue.seal()
    queue.close()


def test_a_letter_whose_bytes_are_in_a_damaged_segment_is_not_lost(tmp_path, monkeypatch):
    sent = fill(tmp_path, range(3))
    first = min(tmp_path.glob("t@*.parquet"))
    content = first.read_bytes()
    with quiver.connect(tmp_path) as queue:
        queue.receive("t", "g")[0].dead_letter(reason="enough")
    flip(first)
    rewrite(monkeypatch)
    with quiver.connect(tmp_path) as queue:
        queue.seal()
        queue.send("t", "and on it goes")
        queue.seal()
    first.write_bytes(content)
    for _ in range(2):  # from the segment of the other topic, then from its own
        with quiver.connect(tmp_path) as queue:
            assert bodies(queue.read("t.dlq")) == sent[:1]
            assert bodies(queue.read("t")) == [*sent, b"and on it goes"]
            queue.seal()
    assert list(tmp_path.glob("t.dlq@*.parquet"))


def damaged_first_half(path: Path) -> None:
    """Twenty messages in two segments, of which the first is changed."""
    fill(path, range(2))
    flip(min(path.glob("t@*.parquet")))


def test_a_table_acks_what_is_in_it_and_nothing_else(tmp_path):
    damaged_first_half(tmp_path)
    with quiver.connect(tmp_path) as queue:
        with pytest.warns(quiver.UnreadableMessages):
            got = queue.receive_arrow("t", group="g", max_messages=20)
        assert len(got.table) == 10
        got.ack()
        assert queue.stats("t").groups["g"].lag == 10


def test_a_member_does_not_go_past_what_it_could_not_read(tmp_path):
    damaged_first_half(tmp_path)
    with quiver.connect(tmp_path) as queue, queue.join("t", "g", "m") as member:
        for _ in range(2):
            with pytest.raises(quiver.CorruptSegment):
                member.fetch(max_messages=10)
        member.commit()
        assert queue.stats("t").groups["g"].lag == 20


def test_what_is_read_beside_damage_is_told_by_the_command_line_and_its_exit_code(tmp_path):
    damaged_first_half(tmp_path)
    command = [Path(sys.executable).with_name("quiver"), "export", "t", "-", "--data", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, len(done.stdout.splitlines())) == (4, 10)
    assert "10 messages were left out" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_names_the_messages_of_the_damaged_row_groups_only(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SEGMENT_GROUP_ROWS", 5)
    damaged_first_half(tmp_path)
    [error] = [one for one in inspect(DiskFiles(tmp_path)) if one.severity == "error"]
    assert "5 of its 10 messages" in error.text
    assert error.text.endswith("partition 0 of t, offsets 0 to 4")


def test_a_letter_that_expired_while_it_was_leased_is_kept(tmp_path):
    clock = VirtualClock(1_000_000)
    files = DiskFiles(tmp_path)
    shard = Shard(Peer.open(files, now_ms=clock.now_ms(), secret=b"s"), clock)
    with quiver.Queue(Flows(LocalBroker(shard), "disk"), shard.close) as queue:
        queue.create_topic("t", dead_letter="dead")
        queue.send("t", b"precious", ttl=1)
        [delivery] = queue.receive("t", group="g", lease=600)
        clock.advance(2)
        assert queue.receive("t", group="g") == []
        queue.seal()
        delivery.dead_letter(reason="late")
        queue.seal()
        assert bodies(queue.read("dead")) == [b"precious"]
