"""Public fakes: a clock that is told the time and a disk that can crash."""

from quiver.testing.memory_files import MemoryFiles, SimulatedCrash
from quiver.testing.virtual_clock import VirtualClock

__all__ = ["MemoryFiles", "SimulatedCrash", "VirtualClock"]
