"""What consensus wants to be stored, in the files of a peer; and what may be said when that is durable.

A save is done in this order: the vote, which is durable when it is written; the cut; the entries; how far
all is committed. It is *durable* when the log is synced up to its end, and then it is told to `Raft`, and
the messages that waited for it may leave. A cut syncs what it leaves, so those before it wait for no more.

`Save.commit` is written where it costs no sync, so a power cut may take it back, or all of it. What must
not be forgotten is in the log itself: see `peers.committed_changes`.

A disk without room refuses a save. It is tried again at every event, and until it succeeds the peer takes
part in nothing: what comes is lost, as if a network had lost it, so nothing piles up. The same if too many
saves wait for the disk.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from quiver import limits
from quiver.errors import DiskFull
from quiver.raft.messages import Late
from quiver.raft.raft import Raft
from quiver.raft.ready import Ready, Save
from quiver.storage.frame import LogRecord
from quiver.storage.vote import VoteFile
from quiver.storage.wal import Wal


@dataclass(slots=True)
class _Waiting:
    """Messages that may leave when the log is durable up to `upto`, and the save that is then."""

    save: Save | None
    upto: int
    messages: tuple[Late, ...]


class _Refused(NamedTuple):
    """What the disk had no room for."""

    ready: Ready
    records: Sequence[LogRecord]


class Saver:
    """Of one peer, used by its thread."""

    def __init__(self, raft: Raft, wal: Wal, vote: VoteFile) -> None:
        self._raft = raft
        self._wal = wal
        self._vote = vote
        self._waiting: deque[_Waiting] = deque()
        self._refused: _Refused | None = None
        self._cut_for = (
            0  # the last save for which the log was cut: not again if the rest is refused
        )

    @property
    def keeps_up(self) -> bool:
        """Whether all was written so far, and not too much waits for the disk."""
        return self._refused is None and len(self._waiting) < limits.SAVES_MAX

    def retry(self) -> None:
        """Try again what the disk has refused."""
        if self._refused is not None:
            self.save(*self._refused)

    def save(self, ready: Ready, records: Sequence[LogRecord]) -> bool:
        """Write what this wants, `records` being those of its entries; False if there is no room."""
        save = ready.save
        self._refused = None
        try:
            if save is not None:
                self._write(save, records)
        except DiskFull:
            self._refused = _Refused(ready, records)
            return False
        if ready.commit > self._wal.commit_index:
            self._wal.commit(ready.commit)
        if save is not None or ready.after:
            upto = 0 if save is None else save.last_index
            self._waiting.append(_Waiting(save, upto, ready.after))
        return True

    def settled(self) -> Iterator[Late]:
        """Tell what has become durable, and say what may leave because of that."""
        waiting = self._waiting
        while waiting and waiting[0].upto <= self._wal.synced_index:
            done = waiting.popleft()
            if done.save is not None:
                self._raft.persisted(done.save)
            yield from done.messages

    def _write(self, save: Save, records: Sequence[LogRecord]) -> None:
        wal = self._wal
        if save.votes:
            self._vote.write(save.vote.term, save.vote.peer)
        if save.cut is not None:
            wal.cut(save.cut)
            for one in self._waiting:
                one.upto = min(one.upto, save.cut)
        if records and records[-1].index > wal.last_index:
            wal.append(records, urgent=True)
