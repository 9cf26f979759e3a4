"""A damaged file of the queue is found by its backup, and does not replace a good copy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver.client.backup import backup as back_up
from quiver.storage.wal import Wal
from tests.contract.verbs import bodies

MARKED = b"the message whose byte is flipped"


def make(path: Path) -> Any:
    queue = quiver.connect(path)
    queue.create_topic("orders", retention="forever")
    queue.send_batch("orders", [quiver.Message(b"first-%d" % n) for n in range(50)])
    return queue


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def flip_in_the_log(data: Path) -> str:
    (path,) = (path for path in data.glob("wal-*.log") if MARKED in path.read_bytes())
    flip(path, path.read_bytes().index(MARKED))
    return path.name


def flip_in_a_segment(data: Path) -> str:
    path = max(data.glob("*@*.parquet"))
    flip(path, path.stat().st_size // 3)
    return path.name


def flip_in_a_header_without_a_mark(data: Path) -> str:
    """The entries behind it alone tell that it was on disk."""
    (data / "confirmed").unlink()
    path = next(data.glob("wal-*.log"))
    flip(path, path.read_bytes().rindex(b"QVfr", 0, path.read_bytes().index(MARKED)))
    return path.name


def send_into_the_log(queue: Any, _data: Path) -> None:
    queue.send("orders", MARKED)
    for _ in range(2):
        queue.send("orders", b"behind it")


def send_into_a_complete_log_file(queue: Any, data: Path) -> None:
    send_into_the_log(queue, data)
    while len(list(data.glob("wal-*.log"))) < 2:
        queue.send("orders", b"more" * 1_000)


def send_into_a_segment(queue: Any, _: Path) -> None:
    queue.send("orders", b"sealed")
    queue.seal()


@pytest.mark.parametrize(
    ("send", "damage", "error"),
    [
        (send_into_the_log, flip_in_the_log, quiver.CorruptLog),
        (send_into_the_log, flip_in_a_header_without_a_mark, quiver.CorruptLog),
        (send_into_a_complete_log_file, flip_in_the_log, quiver.CorruptLog),
        (send_into_a_segment, flip_in_a_segment, quiver.CorruptSegment),
    ],
)
def test_a_damaged_file_is_an_error_and_the_last_backup_stays(
    tmp_path,
    monkeypatch,
    send: Callable[[Any, Path], None],
    damage: Callable[[Path], str],
    error: Any,
):
    data, backup = tmp_path / "data", tmp_path / "backup"
    monkeypatch.setitem(Wal.open.__kwdefaults__, "file_bytes", 20_000)
    with make(data) as queue:
        made = queue.backup(backup)
        before = bodies(queue.read("orders"))
        send(queue, data)
    manifest = (backup / "manifest.json").read_bytes()
    name = damage(data)
    with pytest.raises(error, match=name.split("@")[0]):
        back_up(data, backup)
    assert (backup / "manifest.json").read_bytes() == manifest
    assert not list((backup / "files").glob("*.tmp")), "a damaged copy is not kept"
    assert quiver.restore(backup, tmp_path / "copy").entry == made.entry
    with quiver.connect(tmp_path / "copy") as copy:
        assert bodies(copy.read("orders")) == before
        copy.send("orders", b"it can be written to")


def test_a_file_that_was_put_back_is_copied_again(tmp_path):
    data, backup = tmp_path / "data", tmp_path / "backup"
    with make(data) as queue:
        send_into_the_log(queue, data)
        before = bodies(queue.read("orders"))
    whole = {path: path.read_bytes() for path in data.glob("wal-*.log")}
    flip_in_the_log(data)
    with quiver.connect(data, read_only=True) as queue:
        with pytest.raises(quiver.CorruptLog):
            queue.backup(backup)
        for path, content in whole.items():
            path.write_bytes(content)
        queue.backup(backup)
    quiver.restore(backup, tmp_path / "copy")
    with quiver.connect(tmp_path / "copy") as copy:
        assert bodies(copy.read("orders")) == before


def test_who_looks_at_a_directory_whose_entries_are_hidden_by_damage_is_warned_once(tmp_path):
    data = tmp_path / "data"
    with make(data) as queue:
        send_into_the_log(queue, data)
    name = flip_in_a_header_without_a_mark(data)
    with quiver.connect(data, read_only=True) as queue:
        with pytest.warns(quiver.UnreadableMessages, match=f"{name} is damaged .*quiver doctor"):
            stats = queue.stats("orders")
        assert stats.stored == 50, "what is before the damage can be read"
        assert queue.topics() == ["orders"], "without another warning, which would be an error here"
