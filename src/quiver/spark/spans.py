"""Which offsets a job reads, and in which pieces: arithmetic only."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import NamedTuple, TypeAlias

from pyspark.sql.datasource import InputPartition

from quiver import limits

Bounds: TypeAlias = Mapping[
    int, tuple[int, int]
]  # by partition: first offset, and the one after the last


class Span(NamedTuple):
    """Offsets `start … end` of a partition; some may have no message."""

    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets."""
        return self.end - self.start


@dataclass(frozen=True)
class Share(InputPartition):
    """What one task reads: spans of the topic of this number, which another of its name does not have."""

    topic: int
    spans: tuple[Span, ...]


def shares(topic: int, spans: Iterable[Span], bytes_per_offset: float) -> list[Share]:
    """The spans shared out among tasks: large ones are cut, and small ones go together."""
    wanted = [span for span in spans if span.size > 0]
    total = sum(span.size for span in wanted)
    density = max(bytes_per_offset, 1)
    most = max(limits.SPARK_SPLIT_BYTES / density, total / limits.SPARK_SPLITS_MAX, 1)
    least = limits.SPARK_SHARE_BYTES / density
    made: list[Share] = []
    small: list[Span] = []
    for piece in (piece for span in wanted for piece in _cut(span, ceil(span.size / most))):
        small.append(piece)
        if sum(one.size for one in small) >= least:
            made.append(Share(topic, tuple(small)))
            small = []
    return [*made, Share(topic, tuple(small))] if small else made


def _cut(span: Span, pieces: int) -> Iterator[Span]:
    edges = [span.start + span.size * number // pieces for number in range(pieces + 1)]
    return (Span(span.partition, start, end) for start, end in pairwise(edges))


def advanced(at: Mapping[int, int], ends: Mapping[int, int], most: int | None) -> dict[int, int]:
    """How far to go from `at` towards `ends` in `most` steps altogether: who lags most goes farthest."""
    lags = {number: ends[number] - at[number] for number in at}
    total = sum(lags.values())
    if most is None or total <= most:
        return dict(ends)
    steps = {number: lag * most // total for number, lag in lags.items()}
    left = most - sum(steps.values())
    for number in sorted(lags, key=lambda number: steps[number] - lags[number])[:left]:
        steps[number] += 1
    return {number: at[number] + steps[number] for number in at}
