"""A backup of an open queue is the queue at one moment, and a queue again."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver.client import backup as client_backup
from quiver.storage import backup as storage
from tests.contract.verbs import bodies
from tests.lengths import quickly
from tests.server.nodes import start_node

LEASE = 3_600


def fill(queue: Any, rounds: range) -> None:
    """Batches in segments, in old log files and in the newest one; some settled, one leased."""
    for at in rounds:
        messages = [quiver.Message(b"%d-%d" % (at, n) * 50, key=f"k{n}") for n in range(20)]
        queue.send_batch("orders", messages)
        queue.ack(queue.receive("orders", "billing", max_messages=7))
        queue.receive("orders", "shipping", max_messages=1, lease=LEASE)
        if at % 2:
            queue.seal()


def make(path: Path) -> Any:
    queue = quiver.connect(path)
    queue.create_topic("orders", retention="forever", partitions=2)
    fill(queue, range(5))
    return queue


def content(queue: Any) -> Any:
    """Every message, each group's state, and what the ledger tells."""
    messages = sorted((r.partition, r.offset, r.id, r.key, r.body) for r in queue.read("orders"))
    stats = queue.stats("orders")
    groups = {name: (one.lag, one.in_flight, one.acked) for name, one in stats.groups.items()}
    return messages, stats.stored, groups, queue.ledger().to_pylist()


def look(path: Path) -> Any:
    with quiver.connect(path, read_only=True) as queue:
        return content(queue)


def test_a_backup_is_the_queue_of_one_moment_while_the_original_goes_on(tmp_path):
    with make(tmp_path / "data") as queue:
        before = content(queue)
        made = queue.backup(tmp_path / "backup")
        assert made.copied == made.files
        fill(queue, range(5, 10))
        quiver.restore(tmp_path / "backup", tmp_path / "copy")
        assert look(tmp_path / "copy") == before
        with quiver.connect(tmp_path / "copy") as copy:
            assert content(copy) == before
            fill(copy, range(3))
            copy.seal()
            assert len(bodies(copy.read("orders"))) == 160
        assert len(bodies(queue.read("orders"))) == 200


def test_a_second_backup_copies_only_what_is_new(tmp_path):
    with make(tmp_path / "data") as queue:
        queue.seal()
        first = queue.backup(tmp_path / "backup")
        again = queue.backup(tmp_path / "backup")
        assert again.copied <= 1, "at most the log file that entries are just written to"
        queue.send("orders", b"one more")
        segments = {path.name for path in (tmp_path / "data").glob("*.parquet")}
        copied = {
            path.name: path.stat().st_mtime_ns for path in (tmp_path / "backup/files").iterdir()
        }
        second = queue.backup(tmp_path / "backup")
        assert (second.files, second.copied) == (first.files, 1)
        assert second.copied_bytes < second.bytes / 2
        for name, changed in copied.items():
            if name.split("~")[0] in segments:
                assert (tmp_path / "backup/files" / name).stat().st_mtime_ns == changed
        assert len(list((tmp_path / "backup/files").iterdir())) == second.files, "and no older ones"
        before = content(queue)
    quiver.restore(tmp_path / "backup", tmp_path / "copy")
    assert look(tmp_path / "copy") == before


def test_beside_a_running_node(tmp_path):
    make(tmp_path / "data").close()
    with start_node(tmp_path) as node:
        address = node.url.replace("http", "quiver")
        with quiver.connect(address) as queue:
            queue.send("orders", b"through the node")
            with pytest.raises(quiver.InvalidRequest, match="where the node's directory is"):
                queue.backup(tmp_path / "backup")
            ours = [sys.executable, "-m", "quiver.cli"]
            done = subprocess.run(
                [*ours, "backup", tmp_path / "data", tmp_path / "backup", "--json"],
                check=True, capture_output=True,
            )  # fmt: skip
            assert json.loads(done.stdout)["entry"] > 0
            before = sorted(bodies(queue.read("orders")))
            subprocess.run([*ours, "restore", tmp_path / "backup", tmp_path / "copy"], check=True)
            with quiver.connect(tmp_path / "copy") as copy:
                assert sorted(bodies(copy.read("orders"))) == before
            queue.send("orders", b"it goes on")


def test_files_that_the_owner_removes_meanwhile_are_found_in_its_newer_snapshot(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(quiver.limits, "SEGMENTS_SMALL_MAX", 0)  # each sealing rewrites all
    with make(tmp_path / "data") as queue:
        real, left = storage.Vault.add, [3]

        def sealing(vault: Any, source: Path, needed: Any) -> Any:
            if left[0] and needed.name.endswith(".parquet"):
                left[0] -= 1
                queue.send("orders", b"more")
                queue.seal()
            return real(vault, source, needed)

        monkeypatch.setattr(storage.Vault, "add", sealing)
        queue.backup(tmp_path / "backup")
        assert left == [0]
        sent = sorted(bodies(queue.read("orders")))
    quiver.restore(tmp_path / "backup", tmp_path / "copy")
    with quiver.connect(tmp_path / "copy") as copy:
        assert sorted(bodies(copy.read("orders"))) == sent


def test_a_bit_that_flipped_is_found_before_anything_is_written(tmp_path):
    with make(tmp_path / "data") as queue:
        queue.backup(tmp_path / "backup")
    for path in [*(tmp_path / "backup/files").iterdir(), tmp_path / "backup/manifest.json"]:
        whole = path.read_bytes()
        broken = bytearray(whole)
        broken[len(whole) // 2] ^= 1
        path.write_bytes(broken)
        with pytest.raises(quiver.CorruptBackup, match=path.name.split("~")[0]):
            quiver.restore(tmp_path / "backup", tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
        path.write_bytes(whole)
    next((tmp_path / "backup/files").iterdir()).unlink()
    with pytest.raises(quiver.CorruptBackup, match="is missing"):
        quiver.restore(tmp_path / "backup", tmp_path / "copy")


KILLED = """
import os, signal, sys
from quiver.storage import files
left = int(sys.argv[3])
def counted(owner, name):
    real = getattr(owner, name)
    def call(*args, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)
    setattr(owner, name, call)
for owner, names in ((files.DiskFile, ("write", "sync")),
                     (files.DiskFiles, ("create", "rename", "remove", "sync_directory"))):
    for name in names:
        counted(owner, name)
import quiver
if sys.argv[4] == "backup":
    with quiver.connect(sys.argv[1], read_only=True) as queue:
        queue.backup(sys.argv[2])
else:
    quiver.restore(sys.argv[1], sys.argv[2])
"""


def killed(*arguments: Any) -> bool:
    """Whether it was, at that call that changes the disk."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, arguments)], capture_output=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


@pytest.mark.parametrize("at", quickly(1, range(60)))
def test_a_kill_at_any_call_leaves_the_last_backup_or_makes_the_new_one(tmp_path, at):
    with make(tmp_path / "data") as queue:
        states = [content(queue)]
        queue.backup(tmp_path / "backup")
        fill(queue, range(5, 7))
        states.append(content(queue))
    killed(tmp_path / "data", tmp_path / "backup", at * 3, "backup")
    quiver.restore(tmp_path / "backup", tmp_path / "copy")
    assert look(tmp_path / "copy") in states
    with quiver.connect(tmp_path / "data") as queue:
        queue.backup(tmp_path / "backup")
    assert not [path for path in (tmp_path / "backup/files").iterdir() if path.suffix == ".tmp"]
    quiver.restore(tmp_path / "backup", tmp_path / "again")
    assert look(tmp_path / "again") == states[1]


@pytest.mark.parametrize("at", quickly(3, range(40)))
def test_a_queue_that_was_restored_half_cannot_be_opened(tmp_path, at):
    with make(tmp_path / "data") as queue:
        whole = content(queue)
        queue.backup(tmp_path / "backup")
    complete = not killed(tmp_path / "backup", tmp_path / "copy", at, "restore")
    mark = tmp_path / "copy" / "confirmed"
    if not mark.exists() or not mark.read_bytes():
        return  # nothing of it is there yet
    try:
        with quiver.connect(tmp_path / "copy") as copy:
            assert content(copy) == whole
    except quiver.CorruptLog:
        assert not complete


@pytest.mark.parametrize(
    ("dest", "text"),
    [
        (lambda path: path / "data", "is in the directory of the queue"),
        (lambda path: path / "data" / "backup", "is in the directory of the queue"),
        (lambda path: path / "other", "has other files"),
        (lambda path: path / "other" / "file", "is a file"),
    ],
)
def test_places_where_no_backup_belongs_are_refused(
    tmp_path, dest: Callable[[Path], Path], text: str
):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with make(tmp_path / "data") as queue, pytest.raises(quiver.InvalidRequest, match=text):
        queue.backup(dest(tmp_path))


def test_only_one_makes_a_backup_at_a_time_and_only_an_empty_directory_is_restored_to(tmp_path):
    with make(tmp_path / "data") as queue:
        with (
            storage.opened(tmp_path / "backup", tmp_path / "data"),
            pytest.raises(quiver.DirectoryInUse, match="making a backup"),
        ):
            queue.backup(tmp_path / "backup")
        queue.backup(tmp_path / "backup")
        with pytest.raises(quiver.InvalidRequest, match="not empty"):
            quiver.restore(tmp_path / "backup", tmp_path / "data")
        with pytest.raises(quiver.InvalidRequest, match="no backup"):
            quiver.restore(tmp_path / "data", tmp_path / "copy")
        with pytest.raises(quiver.InvalidRequest, match="other files"):
            quiver.connect(tmp_path / "backup")


def test_the_backup_of_a_queue_that_is_gone_is_not_replaced_by_one_of_its_successor(tmp_path):
    with make(tmp_path / "data") as queue:
        before = content(queue)
        queue.backup(tmp_path / "backup")
    (tmp_path / "data").rename(tmp_path / "lost")
    with (
        quiver.connect(tmp_path / "data") as queue,
        pytest.raises(quiver.InvalidRequest, match="backup of another queue"),
    ):
        queue.backup(tmp_path / "backup")
    quiver.restore(tmp_path / "backup", tmp_path / "copy")
    with quiver.connect(tmp_path / "copy") as copy:
        assert content(copy) == before
        copy.backup(tmp_path / "backup")  # what was restored goes on as the same queue


def test_who_may_use_a_node_is_in_the_backup(tmp_path):
    with make(tmp_path / "data") as queue:
        (tmp_path / "data" / client_backup.ACCESS).write_text("# nobody\n")
        queue.backup(tmp_path / "backup")
    quiver.restore(tmp_path / "backup", tmp_path / "copy")
    assert (tmp_path / "copy" / client_backup.ACCESS).read_text() == "# nobody\n"
