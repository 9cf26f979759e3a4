"""Many seeds in a row, and the story of one that failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

from tests.raft.simulation.cluster import Cluster
from tests.raft.simulation.rates import FAULTS, TICK

STORY_LINES = 60
SUMMARY = (
    "elections",
    "proposed",
    "confirmed",
    "reads",
    "crashes",
    "power cuts",
    "pauses",
    "installs",
    "transfers",
    "membership changes",
)


class SeedFailed(AssertionError):
    """A seed broke an invariant; the message says which, and how to see it again."""

    def __init__(self, seed: int, text: str) -> None:
        super().__init__(text)
        self.seed = seed


def run_seed(seed: int, voters: int | None = None) -> Counter[str]:
    """What happened, by kind. Raises SeedFailed."""
    cluster = Cluster(seed, voters)
    try:
        cluster.run()
    except Exception as error:  # also one of the core's own assertions
        raise SeedFailed(seed, _failed(seed, voters, error)) from error
    cluster.counts["commits"] = cluster.checks.last
    return cluster.counts


def run_seeds(first: int, count: int, voters: int | None = None) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in range(first, first + count):
        total += run_seed(seed, voters)
    return total


def told(seed: int, voters: int | None) -> Cluster:
    """The same run again, with its story."""
    cluster = Cluster(seed, voters, tell=True)
    try:
        cluster.run()
    except Exception as error:  # noqa: BLE001  # it ends the story
        cluster.tell(0, f"BROKEN: {error!r}")
    return cluster


def _failed(seed: int, voters: int | None, error: Exception) -> str:
    cluster = told(seed, voters)
    assert cluster.story is not None
    rates = cluster.drawn
    which = f" --nodes {voters}" if voters else ""
    lines = [
        f"seed {seed}: {type(error).__name__}: {error}",
        "",
        *(
            f"    {field.name} = {getattr(rates, field.name)}"
            for field in fields(rates)
            if field.name != "faults"
        ),
        "    faults = "
        + ", ".join(
            f"{fault} {share:.2f}"
            for fault, share in zip(FAULTS, rates.faults, strict=True)
            if share
        ),
        "",
        f"    the last {STORY_LINES} of {len(cluster.story)} things that happened (tick, peer):",
        *(
            f"{when / TICK:9.2f}  {number or '':>2}  {text}"
            for when, number, text in cluster.story[-STORY_LINES:]
        ),
        "",
        f"again: python -m tests.raft.simulation --runs 1 --first {seed}{which}",
    ]
    return "\n".join(lines)
