"""The doctor finds what recovery would refuse, says where, and touches nothing."""

import pytest

from quiver.errors import CorruptLog
from quiver.storage import identity, mark, snapshot, vote
from quiver.storage.doctor import Finding, inspect
from quiver.storage.identity import Identity
from quiver.storage.logfile import LogFile, first_indexes, name_of
from quiver.storage.vote import VoteFile
from quiver.testing import MemoryFiles
from tests.unit.storage.logs import (
    fill,
    open_directory,
    open_log,
    open_v2,
    peer_record,
    save_state,
)


def grave(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity != "ok"]


def test_a_healthy_log_is_described(files):
    wal, _ = open_log(files)
    fill(wal, 10)
    wal.close()
    findings = inspect(files)
    assert grave(findings) == []
    assert [finding.file for finding in findings] == [name_of(f) for f in first_indexes(files)]
    assert "entries 1 to 4, " in findings[0].text


def test_an_empty_directory_has_nothing_to_tell(files):
    assert inspect(files) == []


def test_snapshots_and_gaps_they_explain_are_fine():
    files = MemoryFiles()
    wal = open_directory(files)[0]
    fill(wal, 20)
    save_state(files, wal, [1, 11])
    findings = inspect(files)
    assert grave(findings) == []
    assert findings[0].file == snapshot.name_of(20)
    assert len(first_indexes(files)) == 3


def test_a_torn_write_is_a_warning():
    files = MemoryFiles()
    wal, _ = open_log(files)
    fill(wal, 2)
    fill(wal, 1, sync=False)
    files.open(name_of(1)).write(wal.size_bytes - 8, [b"?"])
    (finding,) = grave(inspect(files))
    assert (finding.severity, finding.file) == ("warning", name_of(1))
    assert finding.offset == open_log(files)[0].size_bytes  # where it is cut


def test_what_a_crash_left_half_made_is_a_warning(files):
    files.create("snapshot-1.snap.tmp")
    (finding,) = inspect(files)
    assert (finding.severity, finding.file) == ("warning", "snapshot-1.snap.tmp")


def test_every_damaged_byte_that_keeps_the_log_from_opening_is_an_error():
    files = MemoryFiles()
    wal, _ = open_log(files)
    fill(wal, 10)
    files = files.crash("all")
    for name in files.names():
        for offset in range(files.open(name).size()):
            damaged = files.crash("all")
            damaged.open(name).write(offset, [b"\xee"])
            before = damaged.operations
            errors = [finding for finding in inspect(damaged) if finding.severity == "error"]
            assert damaged.operations == before
            try:
                open_log(damaged)
            except CorruptLog:
                assert [finding.file for finding in errors] == [name]
            else:
                assert errors == []


def test_the_place_of_damage_and_what_it_costs_are_told():
    files = MemoryFiles()
    wal, _ = open_log(files)
    fill(wal, 10)
    second = first_indexes(files)[1]
    offset = [at for at, _, _ in LogFile.open(files, second).walk()][1]
    files.open(name_of(second)).write(offset, [bytes(4)])
    (finding,) = grave(inspect(files))
    assert (finding.file, finding.offset, finding.severity) == (name_of(second), offset, "error")
    assert finding.text.startswith("entries 6 to 8 ")


@pytest.mark.parametrize("number", range(3))
def test_a_missing_file_is_an_error(number):
    files = MemoryFiles()
    wal, _ = open_log(files)
    fill(wal, 10)
    files.remove(name_of(first_indexes(files)[number]))
    (finding,) = grave(inspect(files))
    assert finding.severity == "error"


def test_a_log_that_is_gone_is_an_error():
    files = MemoryFiles()
    wal, _ = open_log(files)
    fill(wal, 2)
    files.remove(name_of(1))
    (finding,) = inspect(files)
    assert (finding.severity, finding.text) == ("error", "the log file with entry 1 is missing")
    files.remove(mark.NAME)
    assert inspect(files) == []


def joined() -> MemoryFiles:
    """A node with a vote, an identity, and an end of its log that is not committed."""
    files = MemoryFiles()
    wal, _ = open_v2(files)
    wal.append([peer_record(at, 3) for at in range(1, 8)], urgent=False)
    wal.sync()
    wal.commit(5)
    VoteFile(files).write(4, 2)
    Identity("c0ffee" * 5 + "00", 1, 3, "d" * 32).save(files)
    return files


def test_what_a_peer_has_is_told_and_an_end_that_is_not_committed_is_no_damage():
    files = joined()
    findings = inspect(files)
    assert grave(findings) == []
    told = {finding.kind: finding.text for finding in findings}
    assert told["mark"] == (
        "synced up to entry 7, of term 3; the cluster may take entries from 6 on back"
    )
    assert told["vote"] == "voted for node 2 in term 4"
    assert told["node"] == f"node 3 of cluster {'c0ffee' * 5}00, incarnation 1"


@pytest.mark.parametrize("name", [vote.NAME, identity.NAME])
def test_a_peer_that_cannot_vote_or_is_not_known_is_an_error(name):
    for damage in (lambda file: file.write(0, [bytes(9_000)]), lambda file: file.truncate(3)):
        files = joined()
        damage(files.open(name))
        (finding,) = grave(inspect(files))
        assert (finding.file, finding.severity, finding.kind) == (name, "error", "damaged")


def test_a_vote_that_is_gone_is_an_error():
    files = joined()
    files.remove(vote.NAME)
    (finding,) = grave(inspect(files))
    assert (finding.file, finding.severity) == (vote.NAME, "error")


def test_a_damaged_snapshot_is_an_error():
    files = MemoryFiles()
    wal = open_directory(files)[0]
    fill(wal, 20)
    save_state(files, wal, [])
    files.open(snapshot.name_of(20)).truncate(5)
    assert "is damaged" in grave(inspect(files))[0].text
