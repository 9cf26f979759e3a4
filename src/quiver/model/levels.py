"""Levels: what a log may contain, and the bounds that decide what its entries do.

Whoever applies the same entries must come to the same state, whatever version of Quiver it runs. So
all that decides inside `apply` belongs to the log and not to the program: the commands and their
fields, the form of the state, and the bounds below. A log begins at level 1; a `Raise` takes it to a
higher one, from that entry on, and a snapshot says which one it has reached.

A newer level is added when one of these changes: `limits` then has the new values, which are the
defaults here, and the levels before it are written down with the old ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quiver import limits
from quiver.errors import UnsupportedFormat

FIRST: Final = 1  # the level of every log that no `Raise` has taken further


@dataclass(frozen=True, slots=True)
class Bounds:
    """What decides inside `apply`: each is described in `limits`, by the same name in capitals."""

    topics_max: int = limits.TOPICS_MAX
    groups_max: int = limits.GROUPS_MAX
    members_max: int = limits.MEMBERS_MAX
    producers_max: int = limits.PRODUCERS_MAX
    applications_max: int = limits.APPLICATIONS_MAX
    dedup_ids_max: int = limits.DEDUP_IDS_MAX
    priority_max: int = limits.PRIORITY_MAX
    reason_chars_max: int = limits.REASON_CHARS_MAX
    receive_bytes_max: int = limits.RECEIVE_BYTES_MAX
    reserved_ms_min: int = limits.RESERVED_MS_MIN
    stolen_ms_min: int = limits.STOLEN_MS_MIN
    told_slice_bytes: int = limits.TOLD_SLICE_BYTES
    told_origin_bytes: int = limits.TOLD_ORIGIN_BYTES
    mature_max: int = limits.MATURE_MAX
    expire_max: int = limits.EXPIRE_MAX
    sweep_hole_min: int = limits.SWEEP_HOLE_MIN
    peers_bytes_max: int = limits.PEERS_BYTES_MAX


LEVELS: Final[Mapping[int, Bounds]] = {FIRST: Bounds()}


def bounds_of(level: int) -> Bounds:
    """What decides at this level; `UnsupportedFormat` if this Quiver does not know it."""
    known = LEVELS.get(level)
    if known is None:
        raise UnsupportedFormat(
            f"Level {level} of the log is not known to this Quiver, which knows levels up to "
            f"{max(LEVELS)}. Use the newer Quiver that knows it."
        )
    return known
