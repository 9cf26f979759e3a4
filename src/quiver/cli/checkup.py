"""Looks at a directory for `quiver doctor` and says in plain words what it found."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from quiver import limits
from quiver.errors import ClockJumped, QuiverError, StorageError, UnsupportedFormat
from quiver.model.queries import Ping
from quiver.node.clock import Jump, SystemClock, told
from quiver.node.replica import Replica
from quiver.storage import (
    codec,
    doctor,
    identity,
    ledger,
    lock,
    logfile,
    mark,
    segment,
    snapshot,
    vote,
)
from quiver.storage.files import TEMPORARY, DiskFiles

if TYPE_CHECKING:
    from quiver.storage.doctor import Finding

LOOKS: Final = 3  # at a directory that changes while we look
FREE_BYTES_LOW: Final = 2 * limits.WAL_FILE_BYTES

Status = Literal["healthy", "warnings", "unreadable", "damaged"]
Severity = Literal["warning", "error"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Something that is not as it should be: what, where, what it means, what to do."""

    severity: Severity
    file: str
    offset: int
    what: str
    means: str
    todo: str


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file of the directory. `first` and `last` are the entries in it, 0 if it has none."""

    name: str
    kind: str
    bytes: int
    first: int = 0
    last: int = 0


@dataclass(slots=True)
class Checkup:
    """Everything there is to say about a directory."""

    directory: str
    owner: str | None
    confirmed: int
    free_bytes: int
    formats: dict[str, int]
    time: str = "not known"
    files: list[FileFacts] = field(default_factory=list)
    problems: list[Diagnosis] = field(default_factory=list)

    @property
    def status(self) -> Status:
        """The worst of it in a word."""
        errors = [problem for problem in self.problems if problem.severity == "error"]
        if errors:
            means = EXPLAINED["unreadable"][0]
            return "unreadable" if all(one.means == means for one in errors) else "damaged"
        return "warnings" if self.problems else "healthy"


def examine(path: Path) -> Checkup:
    """Read every file and change none. A directory in use changes meanwhile: errors are looked at again."""
    for _ in range(LOOKS - 1):
        found = _examine(path)
        if found.owner is None or found.status in ("healthy", "warnings"):
            return found
    return _examine(path)


def _examine(path: Path) -> Checkup:
    owner = lock.owner_of(path)
    files = DiskFiles(path, read_only=True)
    findings = doctor.inspect(files)
    checkup = Checkup(
        str(path), owner, doctor.confirmed_in(files), shutil.disk_usage(path).free,
        {"log": logfile.VERSION, "snapshot": snapshot.VERSION, "segment": int(segment.VERSION)},
    )  # fmt: skip
    for name in files.names():
        checkup.files.append(_facts(path / name, findings))
    for finding in findings:
        if finding.severity != "ok" and not (
            owner and finding.kind in ("torn", "temporary", "orphan")
        ):
            checkup.problems.append(_problem(finding))  # an owner is just writing those
    if checkup.status in ("healthy", "warnings"):
        checkup.problems += _lost_batches(files, findings)
    if checkup.status in ("healthy", "warnings"):
        checkup.problems += _look_inside(checkup, files, path)
    checkup.problems += [_stranger(facts) for facts in checkup.files if facts.kind == "unknown"]
    if checkup.free_bytes < FREE_BYTES_LOW:
        checkup.problems.append(_little_room(checkup))
    return checkup


def _look_inside(checkup: Checkup, files: DiskFiles, path: Path) -> Iterator[Diagnosis]:
    """What whoever opens it comes upon: entries or a state that this Quiver does not know, or its time.

    Of when the last entry is, that is, and whether the clock is so far from it that opening asks.
    """
    try:
        log_ms = Replica(files, lambda: lock.unowned(path)).ask(Ping())
    except UnsupportedFormat as error:
        what = str(error).split(". ", 1)[0]
        yield Diagnosis("error", checkup.directory, 0, what, *EXPLAINED["unsupported"])
        return
    except QuiverError:  # changing too fast, or told before
        return
    jump = Jump(log_ms, SystemClock().now_ms())
    checkup.time = f"the last entry is of {told(log_ms)}"
    try:
        jump.demand(str(path))
    except ClockJumped as error:
        what, todo = str(error).removesuffix(" Nothing was changed.").split(". ", 1)
        yield Diagnosis(
            "warning", checkup.directory, 0, what,
            "The machine's clock is wrong, or it was when the last entries were written. Until this is "
            "settled the queue is not opened; nothing is lost.",
            todo,
        )  # fmt: skip


def _facts(path: Path, findings: "list[Finding]") -> FileFacts:
    about = {finding.file: finding for finding in findings if finding.severity == "ok"}
    try:
        nbytes = path.lstat().st_size
    except OSError:  # gone since
        nbytes = 0
    if found := about.get(path.name):
        return FileFacts(path.name, found.kind, nbytes, found.first, found.last)
    return FileFacts(path.name, _kind_of(path), nbytes)


def _kind_of(path: Path) -> str:
    name = path.name
    if not path.is_file():
        return "unknown"
    if name.endswith(TEMPORARY):
        return "temporary"
    if name.startswith("wal-"):
        return "log"
    if name.startswith("snapshot-"):
        return "snapshot"
    if ledger.span_of(name):
        return "ledger"
    if name.endswith(segment.SUFFIX):
        return "segment"
    return {
        lock.NAME: "lock", mark.NAME: "mark", vote.NAME: "vote", identity.NAME: "node",
    }.get(name, "unknown")  # fmt: skip


def _lost_batches(files: DiskFiles, findings: "list[Finding]") -> Iterator[Diagnosis]:
    """Messages that the snapshot knows to be in a log file which is gone or too short."""
    held = {finding.first: finding.last for finding in findings if finding.kind == "log"}
    for first, indexes in _needed(files).items():
        lost = [index for index in indexes if index > held.get(first, 0)]
        if lost:
            yield Diagnosis(
                "error", logfile.name_of(first), 0,
                f"{'entry' if len(lost) == 1 else 'entries'} {_ranges(lost)} cannot be read from here"
                + ("" if first in held else ": the file is missing"),
                *EXPLAINED["damaged"],
            )  # fmt: skip


def _needed(files: DiskFiles) -> dict[int, list[int]]:
    """The entries whose batches the snapshot still needs, by the file that has them."""
    needed: dict[int, list[int]] = {}
    try:
        saved = snapshot.load(files)
        state: Any = codec.decode_state(saved.payload)[0] if saved is not None else None
        places: Any = codec.decode_state(state)[1] if state is not None else []
    except StorageError:  # found and told before
        return {}
    for index, first, _ in places:
        needed.setdefault(first, []).append(index)
    return needed


def _ranges(indexes: list[int]) -> str:
    return f"{indexes[0]:,}" if len(indexes) == 1 else f"{indexes[0]:,} to {indexes[-1]:,}"


RESTORE: Final = (
    "Do not open or delete anything. Copy the directory as it is, then restore it from a backup. "
    "If there is none, ask for help with the copy: what is before the damage can be read."
)
EXPLAINED: Final[dict[str, tuple[str, str]]] = {
    "damaged": (
        "Bytes that were safely on disk have changed or gone since: a disk error, or somebody wrote "
        "to the file. Messages or settlements in them were confirmed to their senders, so Quiver "
        "refuses to go on without them.",
        RESTORE,
    ),
    "missing": (
        "A file of the log was removed or renamed. Messages or settlements in it were confirmed to "
        "their senders, so Quiver refuses to go on without them.",
        f"Put the file back. {RESTORE}",
    ),
    "unsupported": (
        "Nothing is wrong with the data; this version of Quiver is too old to read it.",
        "Use the newer Quiver that wrote it, or install a newer one",
    ),
    "unreadable": (
        "The operating system does not let us read the file, so nothing can be said about it: it may "
        "be whole.",
        "Check the file's permissions, the disk and the system's log, then run quiver doctor again.",
    ),
    "segment": (
        "Messages that have left the log cannot be read from here: a disk error, or somebody changed "
        "or removed the file. Everything else can be read, and the queue works.",
        "Restore the file from a backup. If there is none, put each group behind these offsets: "
        "quiver groups seek TOPIC GROUP --to OFFSET",
    ),
    "peer": (
        "A node that does not know what it has promised, or who it is, could vote twice. It does not "
        "take part any more; the other nodes go on without it, as long as they are the majority.",
        "Remove the node from the cluster, and let it join again with an empty directory.",
    ),
    "orphan": (
        "The process or the machine stopped while messages were being moved; they are where they "
        "were before. Or the file is of another state of this directory, such as a newer one before "
        "a backup was put back.",
        "Nothing. If it was left by a crash, the next opening removes it.",
    ),
    "untold": (
        "A file of the ledger cannot be read. Messages are not affected, but what happened to them "
        "in these entries is not known any more.",
        "Put the file back from a backup, or move it away.",
    ),
    "torn": (
        "The process or the machine stopped in the middle of a write. Nobody was told that it was "
        "stored, so nothing is lost. This is normal after a crash.",
        "Nothing. The next opening cuts it off.",
    ),
    "temporary": (
        "The process or the machine stopped while it was making this file. It was never used.",
        "Nothing. The next opening removes it.",
    ),
}


def _problem(finding: "Finding") -> Diagnosis:
    of_segment = finding.file.endswith(segment.SUFFIX) and not ledger.span_of(finding.file)
    about_segment = finding.severity == "error" and of_segment and finding.kind != "unreadable"
    about_peer = finding.file in (vote.NAME, identity.NAME) and finding.kind == "damaged"
    means, todo = EXPLAINED["segment" if about_segment else "peer" if about_peer else finding.kind]
    severity: Severity = "error" if finding.severity == "error" else "warning"
    what = finding.text.split(" Nothing was changed.")[0].rstrip(".")
    return Diagnosis(severity, finding.file, finding.offset, what, means, todo)


def _stranger(facts: FileFacts) -> Diagnosis:
    return Diagnosis(
        "warning", facts.name, 0, "not one of Quiver's files",
        "It does no harm here, but nobody but Quiver should keep files in this directory.",
        "Move it elsewhere.",
    )  # fmt: skip


def _little_room(checkup: Checkup) -> Diagnosis:
    return Diagnosis(
        "warning", checkup.directory, 0, f"only {checkup.free_bytes / 1e6:,.0f} MB of disk are free",
        "When the disk is full, sends are refused until there is room again. What is stored is safe.",
        "Free some disk space.",
    )  # fmt: skip
