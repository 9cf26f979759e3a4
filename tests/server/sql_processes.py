"""What tests see of a node's processes for SQL, in /proc."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

LOOK_SECONDS = 0.02
MIB = 1 << 20


def children(pid: int) -> list[int]:
    """The processes that a process has started, by any of its threads."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found += map(int, (task / "children").read_text().split())
        except OSError:  # the thread has ended
            continue
    return sorted(found)


def memory(pid: int, field: str) -> int:
    """VmRSS or VmHWM (the most it has ever been) of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(field)), 0)


class Watch:
    """The most memory that a node takes in a block, beyond what it had, and that a child of it has."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.child = 0

    def __enter__(self) -> Self:
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")  # its peak begins anew
        self._before = memory(self._pid, "VmRSS")
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            for child in children(self._pid):
                self.child = max(self.child, memory(child, "VmHWM"))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        peak = memory(self._pid, "VmHWM")
        assert peak, "the node has ended"
        self.growth = peak - self._before

    def __str__(self) -> str:
        return (
            f"node {self._before // MIB} MiB + {self.growth // MIB} MiB, "
            f"process for SQL at most {self.child // MIB} MiB"
        )


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for somebody to ask how it ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def environment(pid: int) -> dict[str, str]:
    """The variables that a process was started with."""
    text = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(part.split("=", 1) for part in text.split("\0") if part)


def descriptors(pid: int) -> list[str]:
    """What the open descriptors of a process are, besides /dev/null."""
    found = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return sorted(target for target in found if target != "/dev/null")
