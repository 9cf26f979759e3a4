"""What goes wrong in one run, and how often: each seed draws its own rates.

With the same rates for all seeds most runs would look alike. So each seed leaves out about half of
the faults, and draws how often the others come (a swarm): some runs have one fault all the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

TICK = 100  # units of virtual time in a tick of a clock that goes right

FAULTS = {  # with the highest weight that each may have
    "crash": 1.0,
    "power cut": 0.5,
    "pause": 1.0,
    "partition": 2.0,
    "clock": 0.5,
    "slow disk": 1.0,
    "membership": 3.0,
    "transfer": 1.0,
    "snapshot": 2.0,
}


@dataclass(frozen=True, slots=True)
class Rates:
    """All rates of a run; times are in units (`TICK`), shares between 0 and 1."""

    voters: int  # at the beginning
    ticks: int  # how long things go wrong, before all is healed
    election: int  # ticks of an election timeout
    faults: tuple[float, ...]  # how often each of `FAULTS` is chosen
    fault_every: int
    client_every: int
    reads: float  # share of what clients ask; the others propose
    large: float  # share of proposals that fill an append, or a window
    loss: float
    duplicates: float
    delay: int
    spikes: float  # share of messages that take an election's time
    ordered: bool  # as over one connection, or each message by itself
    sync: int  # what a sync takes
    sync_spikes: float
    sync_told: bool  # of each save that a sync covers, not only of the last
    install_fails: float
    skew: float  # clocks go by up to this share too fast or too slow
    gather: int  # a driver steps what came in this time before it asks what to do; 0: after each
    apply_later: float  # share of the times that applying waits a little


def draw(rng: random.Random, voters: int | None) -> Rates:
    def sometimes(share: float, top: float) -> float:
        """0 in that share of the runs, otherwise up to `top`, small values more often."""
        return 0.0 if rng.random() < share else top * rng.random() ** 2

    return Rates(
        voters=voters or rng.choice((1, 2, 3, 3, 3, 4, 5, 5)),
        ticks=rng.choice((200, 350, 500, 800)),
        election=rng.choice((3, 5, 10)),
        faults=tuple(sometimes(0.4, top) for top in FAULTS.values()),
        fault_every=rng.choice((2, 6, 12, 20, 30)) * TICK,
        client_every=rng.choice((25, 50, 100, 200)),
        reads=sometimes(0.1, 1.0),
        large=sometimes(0.6, 1.0),
        loss=sometimes(0.4, 0.5),
        duplicates=sometimes(0.5, 0.4),
        delay=rng.choice((2, 10, 40, 120)),
        spikes=sometimes(0.6, 0.3),
        ordered=rng.random() < 0.4,
        sync=rng.choice((1, 5, 20, 80, 250)),
        sync_spikes=sometimes(0.5, 0.3),
        sync_told=rng.random() < 0.5,
        install_fails=sometimes(0.5, 0.8),
        skew=sometimes(0.4, 0.6),
        gather=rng.choice((0, 0, 0, 3, 20)),
        apply_later=sometimes(0.6, 1.0),
    )
