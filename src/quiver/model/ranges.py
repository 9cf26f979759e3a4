"""Offsets as ranges: each from its start up to its end, which is not in it."""

from collections.abc import Iterator
from heapq import merge as heap_merge
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]


def merge(ranges: list[Range]) -> list[Range]:
    """The same offsets as sorted, disjoint, non-touching ranges."""
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif start < end:
            merged.append((start, end))
    return merged


def union(*ranges: Iterator[Range]) -> Iterator[Range]:
    """The offsets of any of them, each in order, as `merge` gives them but one at a time."""
    start = end = -1
    for low, high in heap_merge(*ranges):
        if low > end:
            if start < end:
                yield start, end
            start = low
        end = max(end, high)
    if start < end:
        yield start, end


def subtract(ranges: list[Range], holes: list[Range]) -> list[Range]:
    """What is in `ranges` and not in `holes`; both as `merge` gives them."""
    left: list[Range] = []
    at = 0
    for start, end in ranges:
        position = start
        while at > 0 and holes[at - 1][1] > start:
            at -= 1
        while at < len(holes) and holes[at][0] < end:
            hole_start, hole_end = holes[at]
            if hole_start > position:
                left.append((position, hole_start))
            position = max(position, hole_end)
            at += 1
        if position < end:
            left.append((position, end))
    return left
