"""A disk that runs full: sends are refused, settling goes on, and so does all when there is room."""

import errno
import gc
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quiver
from tests.contract.verbs import drain

MIB = 1_048_576
DISK_BYTES = 48 * MIB
BALLAST_BYTES = 20 * MIB
BODY_BYTES = 64 * 1_024

pytestmark = pytest.mark.process


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=60)


@pytest.fixture(params=["tmpfs", pytest.param("ext4", marks=pytest.mark.check)])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, with a ballast file on it that can be removed."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mount = tmp_path / "disk"
    mount.mkdir()
    try:
        if request.param == "tmpfs":
            run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "quiver-test", str(mount))
        else:
            image = tmp_path / "image"
            with image.open("wb") as file:
                file.truncate(DISK_BYTES)
            run("mkfs.ext4", "-q", "-m", "0", "-F", str(image))
            run("mount", "-o", "loop", str(image), str(mount))
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        pytest.skip(f"a small {request.param} cannot be mounted here: {error}")
    try:
        with (mount / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, BALLAST_BYTES)
        yield mount
    finally:
        gc.collect()  # an error that somebody still looks at keeps the files of its frames open
        done = subprocess.run(["umount", str(mount)], capture_output=True, timeout=60, check=False)
        if done.returncode:
            run("umount", "--lazy", str(mount))
        assert done.returncode == 0, done.stderr


class Sender:
    """Sends numbered messages and knows which were confirmed."""

    def __init__(self) -> None:
        self.confirmed: list[int] = []
        self.next = 0

    def send(self, queue: Any) -> None:
        number, self.next = self.next, self.next + 1
        queue.send("t", f"{number:08}".encode() + bytes(BODY_BYTES))
        self.confirmed.append(number)

    def fill(self, queue: Any) -> quiver.DiskFull:
        """Send until there is no room; within bounds."""
        for _ in range(2 * DISK_BYTES // BODY_BYTES):
            try:
                self.send(queue)
            except quiver.DiskFull as full:
                return full
        raise AssertionError("the disk never ran full")


def numbers(found: list[bytes]) -> list[int]:
    return [int(body[:8]) for body in found]


def test_sends_are_refused_and_work_again_when_there_is_room(disk):
    sender = Sender()
    with quiver.connect(disk / "data") as queue:
        queue.create_topic("t")
        queue.create_group("t", "audit")
        full = sender.fill(queue)
        assert full.retryable
        assert "Free some disk space" in str(full)
        assert len(sender.confirmed) > 20
        for _ in range(20):  # still full, and nothing breaks
            with pytest.raises(quiver.DiskFull):
                sender.send(queue)
        with pytest.raises(quiver.DiskFull):
            queue.send_batch("t", [bytes(BODY_BYTES)])
        with pytest.raises(quiver.DiskFull), queue.transaction() as transaction:
            transaction.send("t", bytes(BODY_BYTES))
        assert queue.stats("t").sent == len(sender.confirmed)

        got = queue.receive("t", "g", max_messages=10)
        assert numbers([x.body for x in got]) == sender.confirmed[:10]
        queue.ack(got[:5])
        got[5].nack()
        got[6].extend(60)
        with queue.transaction() as transaction:
            transaction.ack(got[7:])
        assert len(list(queue.read("t"))) == len(sender.confirmed)

        (disk / "ballast").unlink()
        sender.send(queue)  # without a restart
        queue.create_topic("another")
        for _ in range(50):
            sender.send(queue)
        assert numbers(drain(queue, "t", "audit")) == sender.confirmed
    with quiver.connect(disk / "data") as queue:
        assert queue.topics() == ["another", "t"]
        assert queue.stats("t").sent == len(sender.confirmed)
        left = numbers(drain(queue, "t", "g"))
        assert sorted(left) == sorted(set(sender.confirmed) - {0, 1, 2, 3, 4, 6, 7, 8, 9})
        queue.send("t", b"and on it goes")


def test_a_queue_on_a_full_disk_can_be_closed_and_opened_and_settled(disk):
    sender = Sender()
    with quiver.connect(disk / "data") as queue:
        queue.create_topic("t")
        queue.create_group("t", "g")
        sender.fill(queue)
    take_all_room(disk / "more")  # what closing gave back goes to somebody else
    with quiver.connect(disk / "data") as queue:
        sender.fill(queue)
        assert queue.stats("t").sent == len(sender.confirmed)
        assert len(list(queue.read("t"))) == len(sender.confirmed)
        exhaust(queue)
        (disk / "more").unlink()
        (got,) = queue.receive("t", "g")
        got.ack()
    (disk / "ballast").unlink()
    with quiver.connect(disk / "data") as queue:
        sender.send(queue)
        assert numbers(drain(queue, "t", "g")) == sender.confirmed[1:]


def exhaust(queue: Any) -> None:
    """Receive and nack until there is no room even for that."""
    for _ in range(100_000):
        try:
            queue.nack(queue.receive("t", "other", max_messages=1, consumer="c" * 1_000), delay=0)
        except quiver.DiskFull:
            return
    raise AssertionError("the reserve never ran out")


def take_all_room(path: Path) -> None:
    """Write until there is no room for a single byte."""
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 4_096, 1):
            try:
                for _ in range(2 * DISK_BYTES // size):
                    file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def test_the_reserve_may_run_out_and_nothing_is_lost(disk):
    """A consumer that goes on and on: in the end even receiving is refused, retryably."""
    sender = Sender()
    with quiver.connect(disk / "data") as queue:
        queue.create_topic("t")
        queue.create_group("t", "audit")
        sender.fill(queue)
        exhaust(queue)
        (disk / "ballast").unlink()
        sender.send(queue)
        assert numbers(drain(queue, "t", "audit")) == sender.confirmed


def test_a_producer_hands_back_what_the_disk_refuses(disk):
    with quiver.connect(disk / "data") as queue:
        queue.create_topic("t")
        back: list[quiver.Message] = []
        causes = []
        out = queue.producer("t", linger=60, max_messages=7)
        for at in range(2 * DISK_BYTES // BODY_BYTES):
            try:
                out.send(f"{at:08}".encode() + bytes(BODY_BYTES))
            except quiver.ProducerFailed as failed:
                causes.append(failed.__cause__)
                back += failed.unsent
        try:
            out.close()
        except quiver.ProducerFailed as failed:
            back += failed.unsent
        assert {type(cause) for cause in causes} == {quiver.DiskFull}
        (disk / "ballast").unlink()
        found = numbers(drain(queue))
        returned = numbers([message.body for message in back])
        assert sorted(found + returned) == list(range(2 * DISK_BYTES // BODY_BYTES))


def test_consumers_that_drain_a_full_disk_make_room_again(disk):
    sender = Sender()
    found: list[int] = []
    with quiver.connect(disk / "data") as queue:
        queue.create_topic("t")
        queue.create_group("t", "g")
        for _ in range(4):
            sender.fill(queue)
            found += numbers(drain(queue, "t", "g"))
            for _ in range(1_000):  # the room is made by a snapshot, behind our back
                try:
                    sender.send(queue)
                    break
                except quiver.DiskFull:
                    time.sleep(0.02)
            else:
                raise AssertionError("everything is settled, and still there is no room")
        found += numbers(drain(queue, "t", "g"))
    assert found == sender.confirmed
    with quiver.connect(disk / "data") as queue:
        assert queue.stats("t").depth == 0
        sender.send(queue)
