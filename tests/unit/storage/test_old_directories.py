"""A directory of before there were clusters opens, serves and goes on, and stays what it is.

What older versions of Quiver wrote is in `tests/fixtures`. They must be able to open it afterwards, so no
file may get a newer format, and none may be there that they do not know.
"""

import json
import tarfile
from pathlib import Path

import pytest

from quiver.client.local import open_flows
from quiver.client.sync import Queue
from quiver.storage import identity, mark, snapshot, vote
from quiver.storage.doctor import inspect
from quiver.storage.files import DiskFiles
from quiver.storage.lock import NAME as LOCK
from quiver.testing import VirtualClock

DIRECTORIES = Path(__file__).parents[2] / "fixtures" / "directories"
KINDS = ["plain", "sealed", "ledger", "killed"]
LEDGER_MS = 30 * 86_400_000


@pytest.fixture(params=KINDS)
def old(request, tmp_path):
    """A directory, and what is known of it."""
    path = tmp_path / "data"
    with tarfile.open(DIRECTORIES / f"{request.param}.tar.xz") as tar:
        tar.extractall(path, filter="data")
    expected = path / "expected.json"
    known = json.loads(expected.read_text())
    expected.unlink()
    if request.param == "killed":
        known["bodies"] = sorted([*known["bodies"], "not synced"])
    return path, known


def opened(path: Path, clock: VirtualClock) -> Queue:
    return Queue(*open_flows(path, LEDGER_MS, "disk", clock=clock))


def bodies(queue: Queue) -> list[str]:
    return sorted(record.body.decode() for record in queue.read("orders"))


def formats(path: Path) -> dict[str, bytes]:
    """The beginning of each file that has a format of ours: magic and version."""
    found = {}
    for file in path.iterdir():
        data = file.read_bytes()
        if file.name.startswith(("wal-", "snapshot-")):
            found[file.name] = data[:12]
        elif file.name == mark.NAME:
            found[file.name] = data[:8] + data[64:72] + b"%d" % len(data)
    return found


def assert_old_formats(path: Path) -> None:
    for name, start in formats(path).items():
        if name.startswith("wal-"):
            assert start == b"QuiverWL" + (1).to_bytes(4, "little")
        elif name.startswith("snapshot-"):
            assert start == b"QuiverSN" + (1).to_bytes(4, "little")
        else:
            assert start == b"QuiverMKQuiverMK84"
    names = {file.name for file in path.iterdir()}
    assert not names & {vote.NAME, identity.NAME}
    known = ("wal-", "snapshot-", "ledger-", "orders@", mark.NAME, LOCK)
    assert all(name.startswith(known) for name in names)


def test_it_opens_with_all_that_was_in_it_and_is_not_changed(old):
    path, known = old
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with opened(path, VirtualClock()) as queue:
        assert bodies(queue) == known["bodies"]
        extra = "not synced" in known["bodies"]  # it has a row of the ledger
        assert queue.ledger().num_rows == known["ledger"] + extra
        assert sum(file.rows for file in queue.segments("orders").files) == known["segments"]
    after = {file.name: file.read_bytes() for file in path.iterdir() if file.name != LOCK}
    for name, data in after.items():
        if name != mark.NAME:  # the reserve is given back
            assert data == before[name].rstrip(b"\0") + bytes(
                len(data) - len(before[name].rstrip(b"\0"))
            )
    assert after.keys() == before.keys() - {LOCK}
    assert_old_formats(path)


def test_it_serves_and_goes_on_in_its_old_formats(old):
    path, known = old
    clock = VirtualClock()
    with opened(path, clock) as queue:
        for turn in range(3):
            clock.advance(60.0)
            queue.send("orders", f"new {turn}", key="k")
            for delivery in queue.receive("orders", "g", max_messages=7):
                delivery.ack()
            queue.seal()
        left = bodies(queue)
    assert_old_formats(path)
    with opened(path, clock) as queue:
        assert bodies(queue) == left
        assert len(left) == max(len(known["bodies"]) + 3 - 21, 0)
    assert snapshot.names(DiskFiles(path))
    assert [one for one in inspect(DiskFiles(path)) if one.severity != "ok"] == []
