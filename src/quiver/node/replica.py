"""A directory that somebody else may own: its state, read from the files and followed.

The log is replayed up to the confirmation mark, which the owner moves with every sync: what is
before it stays as it is. If nobody owns the directory, what is behind the mark counts as well, as
the next owner would see it; not in a cluster, where others may have decided against it.

The owner removes files that only older states needed, but not before it has saved the snapshot
that makes them so. So whatever we found counts if our snapshot is still the newest one afterwards.
Otherwise the newer one is loaded and the question is asked again; topics, partitions and offsets
mean the same there.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import TypeVar

from quiver import limits
from quiver.errors import CorruptLog, Overloaded, StorageError
from quiver.model.queries import Query
from quiver.node.answers import answer
from quiver.node.clock import Clock, SystemClock
from quiver.node.engine import Engine
from quiver.node.garbage import without_gc
from quiver.storage import snapshot
from quiver.storage.backup import Manifest, Needed
from quiver.storage.files import Files
from quiver.storage.mark import Mark

T = TypeVar("T")


class Replica:
    """Answers questions about a directory without owning it. Used by one thread at a time.

    `unowned` says whether nobody owns it, and sees to it that nobody does for the length of a block.
    """

    def __init__(
        self,
        files: Files,
        unowned: Callable[[], AbstractContextManager[bool]],
        clock: Clock | None = None,
    ) -> None:
        self._files = files
        self._unowned = unowned
        self._clock = clock or SystemClock()
        self._engine: Engine | None = None
        self._names: Sequence[str] = ()  # of the directory, when it was last looked at
        self._confirmed = 0
        self._alone = True  # the owner is no node of a cluster
        self.damage: CorruptLog | None = None  # what hides entries that were on disk

    def ask(self, query: Query[T]) -> T:
        """The answer by the state of now."""

        def ask(engine: Engine) -> T:
            self._clock.not_before(engine.core.now_ms)
            return answer(engine, query, self._clock.now_ms())

        return self._look(ask)

    def needed_files(self) -> tuple[Manifest, list[Needed]]:
        """What a backup is of, and the files that hold it."""
        return self._look(_needed)

    @property
    def directory(self) -> str:
        """Where the files are."""
        return self._files.path("")

    def _look(self, question: Callable[[Engine], T]) -> T:
        problem: StorageError | None = None
        for _ in range(limits.REPLICA_TRIES_MAX):
            names = self._files.names()
            try:
                engine = self._caught_up(names)
                answer = question(engine)
            except StorageError as error:
                if self._files.names() == names:
                    raise
                problem = error  # a file was removed just now, or is damaged: that will be seen
                continue
            if _newest(self._files.names()) == _newest(names):
                return answer
        raise problem or Overloaded("the files of the queue change faster than they can be read")

    def _caught_up(self, names: Sequence[str]) -> Engine:
        """The state of now, in a directory with these files."""
        mark = Mark(self._files)
        confirmed, self._alone = mark.commit, mark.version == 1
        engine, self._engine = self._engine, None  # what goes wrong half-way is not used any more
        if (
            engine is None
            or _newest(names) != _newest(self._names)
            or confirmed < self._confirmed
            or not engine.wal.is_current  # another directory has taken its place
        ):
            with without_gc():
                engine = Engine.load(self._files)
            self._follow(engine, confirmed, fresh=True)
            engine.core.reasons.clear()  # what was counted before is not counted again
        else:
            if names != self._names:
                engine.find_ledger()
            self._follow(engine, confirmed, fresh=False)
        self._engine, self._names, self._confirmed = engine, names, confirmed
        return engine

    def _follow(self, engine: Engine, confirmed: int, *, fresh: bool) -> None:
        with without_gc():
            engine.replay(engine.wal.follow(confirmed))
        if not self._alone:
            return
        goes_on = engine.wal.goes_on
        if goes_on or fresh:  # a damaged entry may hide that the log goes on
            with self._unowned() as nobodys:
                if nobodys and goes_on:
                    engine.replay(engine.wal.follow(None))
                    engine.wal.settle()
                self.damage = engine.wal.lost() if nobodys else None


def _needed(engine: Engine) -> tuple[Manifest, list[Needed]]:
    core = engine.core
    queue = blake2b(core.secret, digest_size=16).hexdigest()
    return Manifest(queue, core.index, core.now_ms, ()), engine.needed_files()


def _newest(names: Sequence[str]) -> str | None:
    """The newest snapshot among these files."""
    return max(filter(snapshot.is_name, names), default=None)
