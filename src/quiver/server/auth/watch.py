"""Files that are read again when they change: access and certificates."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="quiver-access")

    def now(self) -> None:
        """Read everything again, changed or not."""
        self._hurry.set()

    async def look(self) -> None:
        """Wait until it is time to look, and look.

        It has a thread of its own: a large file must not hold up the loop, and nothing that keeps
        all other threads busy must keep a revoked token alive.
        """
        try:
            async with asyncio.timeout(ACCESS_CHECK_SECONDS):
                await self._hurry.wait()
        except TimeoutError:
            pass
        anyway = self._hurry.is_set()
        self._hurry.clear()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, lambda: self.check(anyway=anyway))

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
                except Exception as error:  # noqa: BLE001  # the others are looked at all the same
                    logs.failure("bug", error)


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
