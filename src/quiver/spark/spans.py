"""Which offsets a job reads, and in which pieces: arithmetic only."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, zip_longest
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
    """What one task reads."""

    spans: tuple[Span, ...]

    def rounds(self) -> Iterator[dict[int, Span]]:
        """The spans, each partition's one after the other, and those of all partitions together."""
        lines: dict[int, list[Span]] = {}
        for span in self.spans:
            lines.setdefault(span.partition, []).append(span)
        for together in zip_longest(*lines.values()):
            yield {span.partition: span for span in together if span is not None}


def shares(spans: Iterable[Span], bytes_per_offset: float) -> list[Share]:
    """The spans shared out among tasks, each of which has the same part of every span.

    What was sent together is stored together, whichever partitions it went to; so it is read once.
    """
    wanted = [span for span in spans if span.size > 0]
    total = sum(span.size for span in wanted)
    density = max(bytes_per_offset, 1)
    most = max(limits.SPARK_SPLIT_BYTES / density, total / limits.SPARK_SPLITS_MAX, 1)
    least = max(limits.SPARK_SHARE_BYTES / density, 1)
    count = max(ceil(total / most), min(len(wanted), int(total / least)))
    made = zip(*(_cut(span, count) for span in wanted), strict=True)
    parts = (tuple(piece for piece in pieces if piece.size) for pieces in made)
    return [Share(part) for part in parts if part]


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
