"""Which offsets a job reads, and in which pieces: arithmetic only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import TypeAlias

from pyspark.sql.datasource import InputPartition

from quiver import limits

Bounds: TypeAlias = Mapping[
    int, tuple[int, int]
]  # by partition: first offset, and the one after the last


@dataclass(frozen=True)
class Span(InputPartition):
    """Offsets `start … end` of a partition: what one task reads."""

    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets; some may have no message."""
        return self.end - self.start


NOTHING = Span(0, 0, 0)  # Spark would make up a partition of its own where there is none


def split(spans: Iterable[Span], bytes_per_offset: float) -> list[Span]:
    """The spans cut into pieces of about the size that one task should read."""
    whole = [span for span in spans if span.size > 0]
    total = sum(span.size for span in whole)
    most = max(
        limits.SPARK_SPLIT_BYTES / max(bytes_per_offset, 1), total / limits.SPARK_SPLITS_MAX, 1
    )
    return [piece for span in whole for piece in _cut(span, ceil(span.size / most))]


def _cut(span: Span, pieces: int) -> list[Span]:
    edges = [span.start + span.size * number // pieces for number in range(pieces + 1)]
    return [Span(span.partition, start, end) for start, end in pairwise(edges)]
