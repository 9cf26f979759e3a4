"""Looks at a data directory and says what is in it and what is wrong, and changes nothing."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple

from quiver.errors import (
    CorruptIdentity,
    CorruptLedger,
    CorruptLog,
    CorruptSegment,
    CorruptVote,
    StorageError,
    UnsupportedFormat,
)
from quiver.storage import codec, identity, ledger, mark, segment, snapshot, vote
from quiver.storage.files import TEMPORARY
from quiver.storage.logfile import LogFile, first_indexes, name_of
from quiver.storage.mark import Mark
from quiver.storage.parquet import Blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quiver.storage.files import Files

Severity = Literal["ok", "warning", "error"]
Kind = Literal[
    "log",
    "snapshot",
    "segment",
    "ledger",
    "mark",
    "vote",
    "node",
    "temporary",
    "orphan",
    "torn",
    "untold",
    "damaged",
    "missing",
    "unsupported",
    "unreadable",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about a file. An error: something confirmed is damaged or missing.

    `first` and `last` are the entries that it is about: what a file holds, or what cannot be read.
    """

    file: str
    offset: int
    severity: Severity
    text: str
    kind: Kind
    first: int = 0
    last: int = 0


def inspect(files: Files) -> list[Finding]:
    """Everything there is to say about a directory. Damage is found, never raised."""
    text = "half made when a crash came; the next opening removes it"
    findings = [
        Finding(name, 0, "warning", text, "temporary")
        for name in files.names()
        if name.endswith(TEMPORARY)
    ]
    after, of_snapshot, needed = _inspect_snapshot(files)
    findings += of_snapshot
    unread = any(finding.kind == "unreadable" for finding in of_snapshot)
    findings += _inspect_segments(files, needed) if not unread else ()
    confirmed, of_mark = _inspect_mark(files)
    confirmed = max(after, confirmed)
    findings += of_mark
    firsts = first_indexes(files)
    missing = firsts[0] > after + 1 if firsts else confirmed > 0
    if missing and not unread:
        text = f"the log file with entry {after + 1} is missing"
        findings.append(Finding(name_of(after + 1), 0, "error", text, "missing", after + 1))
    for first, following in zip_longest(firsts, firsts[1:]):
        findings += _inspect_log(files, first, following, after, confirmed)
    findings += _inspect_ledger(files)
    findings += _inspect_peer(files)
    return findings


def confirmed_in(files: Files) -> int:
    """The last entry that is known to be on disk; 0 if that cannot be read."""
    return _inspect_mark(files)[0]


def _inspect_mark(files: Files) -> tuple[int, list[Finding]]:
    try:
        found = Mark(files)
        if found.version == 1:
            return found.synced, []
        text = f"synced up to entry {found.synced}, of term {found.term}"
        if found.commit < found.synced:
            text += f"; the cluster may take entries from {found.commit + 1} on back"
        return found.synced, [Finding(mark.NAME, 0, "ok", text, "mark")]
    except StorageError as error:
        return 0, [Finding(mark.NAME, 0, "error", str(error), _kind(error))]


def _inspect_snapshot(files: Files) -> tuple[int, list[Finding], list[Named]]:
    """The newest snapshot: its index (0 if there is no good one), what to say of it, its segments."""
    try:
        loaded = snapshot.load(files)
        if loaded is None:
            return 0, [], []
        index = loaded.index
        _, segments = codec.decode_state(loaded.payload)
    except StorageError as error:
        return 0, [Finding("snapshot", 0, "error", str(error), _kind(error))], []
    text = f"the state after entry {index}, {len(loaded.payload):,} bytes"
    found = [Finding(snapshot.name_of(index), 0, "ok", text, "snapshot", 1, index)]
    text = "an older state, which the next snapshot removes"
    older = [name for name in snapshot.names(files) if name != snapshot.name_of(index)]
    found += [Finding(name, 0, "ok", text, "snapshot") for name in older]
    named = [
        Named(one[0], partition, array("q", one[1]), array("q", one[2]), Blocks.load(one[-1]))
        for _, partition, shelf in segments
        for one in shelf
    ]
    return index, found, named


class Named(NamedTuple):
    """A segment that the snapshot names, and the offsets that are in it."""

    name: str
    partition: int
    starts: array[int]
    ends: array[int]
    blocks: Blocks


def _inspect_segments(files: Files, needed: list[Named]) -> Iterator[Finding]:
    """Segments that are needed and good, damaged or missing, and those that nobody needs."""
    there = segment.names(files)
    for one in needed:
        count = sum(one.ends) - sum(one.starts)
        topic = one.name.rsplit("@", 1)[0]
        which = (
            f"partition {one.partition} of {topic}, offsets {one.starts[0]} to {one.ends[-1] - 1}"
        )
        if one.name not in there:
            text = f"the file is missing: {count:,} messages of {which}, cannot be read"
            yield Finding(one.name, 0, "error", text, "missing")
            continue
        try:
            file = segment.SegmentFile(files.open(one.name), one.blocks)
            rows, bad = file.verify()
            file.close()
        except StorageError as error:
            why = str(error).removeprefix(f"{one.name} is ").removesuffix(f" {segment.REMEDY}")
            text = f"{why} {count:,} messages of {which}, cannot be read"
            yield Finding(one.name, 0, "error", text, _kind(error))
            continue
        if bad:
            offsets = ", ".join(f"{first} to {last}" for first, last in bad)
            where = f"partition {one.partition} of {topic}, offsets {offsets}"
            text = f"damaged: {count - rows:,} of its {count:,} messages cannot be read: {where}"
            yield Finding(one.name, 0, "error", text, "damaged")
        elif rows != count:
            text = f"{rows:,} messages where {count:,} should be: {which}"
            yield Finding(one.name, 0, "error", text, "damaged")
        else:
            yield Finding(one.name, 0, "ok", f"{count:,} messages of {which}", "segment")
    names = {one.name for one in needed}
    for name in there:
        if name not in names:
            text = "no snapshot names it: left over by a crash (the next opening removes it), or put here"
            yield Finding(name, 0, "warning", text, "orphan")


def _inspect_log(
    files: Files, first: int, following: int | None, after: int, confirmed: int
) -> Iterator[Finding]:
    """One file of the log; `following` is where the next one begins, None if this is the last."""
    name = name_of(first)
    try:
        log = LogFile.open(files, first)
        last = first - 1 + sum(1 for _ in log.walk())
        tail, behind = log.tail(), max(0, log.file.size() - log.end)
    except StorageError as error:
        yield Finding(name, 0, "error", str(error), _kind(error), first)
        return
    entries = f"entries {first} to {last}" if last >= first else "no entries"
    text = f"{entries}, {log.end:,} bytes and {behind:,} behind them"
    yield Finding(name, log.end, "ok", text, "log", first, last)
    if following is None:
        confirmed = max(confirmed, tail.synced)
    elif tail.clean and following <= after + 1:  # what may be missing is no longer needed
        confirmed = last
    else:
        confirmed = following - 1
    if last < confirmed:
        text = f"entries {last + 1} to {confirmed} were confirmed and cannot be read from here"
        yield Finding(name, log.end, "error", text, "damaged", last + 1, confirmed)
    elif not tail.clean:
        text = "a write that was never confirmed; the next opening cuts it off"
        yield Finding(name, log.end, "warning", text, "torn", last + 1)


def _inspect_ledger(files: Files) -> Iterator[Finding]:
    """What happened, as far as files tell; the queue does not need them."""
    for span in ledger.spans(files):
        try:
            rows = ledger.count(files, span)
        except CorruptLedger as error:
            yield Finding(span.name, 0, "warning", str(error), "untold", *span)
        except StorageError as error:
            yield Finding(span.name, 0, "error", str(error), _kind(error), *span)
        else:
            text = f"what happened in entries {span.first} to {span.last}, {rows:,} rows"
            yield Finding(span.name, 0, "ok", text, "ledger", *span)


def _inspect_peer(files: Files) -> Iterator[Finding]:
    """What only a node of a cluster has."""
    names = files.names()
    try:
        who = identity.load(files)
        if who is not None:
            text = f"node {who.node} of cluster {who.cluster}, incarnation {who.incarnation}"
            yield Finding(identity.NAME, 0, "ok", text, "node")
    except StorageError as error:
        yield Finding(identity.NAME, 0, "error", str(error), _kind(error))
    try:
        given = vote.VoteFile(files)
        given.close()
        if vote.NAME in names:
            to = f"for node {given.peer}" if given.peer else "for nobody"
            yield Finding(vote.NAME, 0, "ok", f"voted {to} in term {given.term}", "vote")
    except StorageError as error:
        yield Finding(vote.NAME, 0, "error", str(error), _kind(error))


def _kind(error: StorageError) -> Kind:
    match error:
        case UnsupportedFormat():
            return "unsupported"
        case CorruptLog() | CorruptSegment() | CorruptVote() | CorruptIdentity():
            return "damaged"
        case _:
            return "unreadable"
