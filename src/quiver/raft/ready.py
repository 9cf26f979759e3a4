"""What a peer's driver is to do. It does it in the order of the fields, and one `Ready` after the other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from quiver.raft.messages import Early, Entry, Late, Snapshot


class Role(Enum):
    """What a peer is at the moment; the chapter in `quiver.raft` says what moves it."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class Vote:
    """What a peer must never forget: the newest term it knows of, and whom it voted for in it."""

    term: int = 0
    peer: int | None = None


class Save(NamedTuple):
    """To be made durable. Handed back with `Raft.persisted`, it stands for all that were before it.

    First the vote, then the log is cut behind entry `cut`, then entries are appended. `last_index`
    and `last_term` are the end of the log then. Saves are numbered in their order: the entries of
    one count for nothing if the log was cut after it, even if the same ones were appended again.

    `commit` is stored with the entries and alone is no reason to save. A peer that has a change of
    the peers in its log must not forget that the change before was committed: it would campaign
    with voters two changes old, whose majority need not know what was committed since. A driver may as
    well find that out from the log, where each change says so of the one before.
    """

    number: int
    vote: Vote
    votes: bool  # whether the vote is another one than in the save before
    cut: int | None
    entries: tuple[Entry, ...]
    last_index: int
    last_term: int
    commit: int


@dataclass(frozen=True, slots=True)
class Read:
    """A reader may be answered when entry `index` is applied; None: not here, ask the leader again."""

    token: int
    index: int | None


class Ready(NamedTuple):
    """What has come up since the last one.

    `save` is begun, and `before` may be sent meanwhile. `after` may be sent when this save and all
    before it are durable, also if there is none in this one. Entries up to `commit` are committed:
    they may be applied when they are durable here (a sole voter's may be earlier, see `Peer`).
    """

    save: Save | None
    before: tuple[Early, ...]
    after: tuple[Late, ...]
    commit: int
    reads: tuple[Read, ...]
    install: Snapshot | None  # to be fetched and put in place; then `Raft.installed`
    term: int
    role: Role
    leader: int | None
