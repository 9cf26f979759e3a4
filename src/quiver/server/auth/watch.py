"""Files that are read again when they change: access and certificates."""

import asyncio
import logging
from pathlib import Path
from typing import Protocol

from quiver.errors import QuiverError
from quiver.limits import ACCESS_CHECK_SECONDS
from quiver.server import logs

Stamp = tuple[tuple[int, ...] | None, ...]


class Refreshable(Protocol):
    """Something made of files."""

    @property
    def files(self) -> list[Path]:
        """The files."""

    def refresh(self) -> None:
        """Read them again, or raise and stay as it is."""


class Watch:
    """Looks at the files once a second, and at once when it is told to (SIGHUP)."""

    def __init__(self, *watched: Refreshable) -> None:
        self._watched = watched
        self._stamps = [stamp(each) for each in watched]
        self._hurry = asyncio.Event()

    def now(self) -> None:
        """Read everything again, changed or not."""
        self._hurry.set()

    async def run(self) -> None:
        """Watch until cancelled. Reading is done in a thread: a large file must not hold up the loop."""
        while True:
            try:
                async with asyncio.timeout(ACCESS_CHECK_SECONDS):
                    await self._hurry.wait()
            except TimeoutError:
                pass
            anyway = self._hurry.is_set()
            self._hurry.clear()
            await asyncio.to_thread(self.check, anyway=anyway)

    def check(self, *, anyway: bool = False) -> None:
        """Refresh what has changed. What cannot be read is logged, and what was known goes on."""
        for at, each in enumerate(self._watched):
            seen = stamp(each)
            if seen != self._stamps[at] or anyway:
                self._stamps[at] = seen
                try:
                    each.refresh()
                except QuiverError as error:
                    logs.event("kept what was read before", level=logging.ERROR, why=str(error))


def stamp(watched: Refreshable) -> Stamp:
    """What changes when a file is written, replaced or given to somebody else."""
    found: list[tuple[int, ...] | None] = []
    for path in watched.files:
        try:
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size))
        except OSError:
            found.append(None)
    return tuple(found)
