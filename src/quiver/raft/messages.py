"""What peers say to each other, as values. Payloads travel beside them: here an entry is a term and a size.

Two unions say when a message may leave. What is in `Early` depends on nothing that is not durable yet.
What is in `Late` is a promise: its sender will still know it after a power cut, so it waits for
everything that its sender was told to save before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Entry:
    """A place in the log; `nbytes` is what its payload takes on the way and in the log."""

    index: int
    term: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Peers:
    """Who takes part, each list sorted, by the numbers that the cluster has given them.

    While `outgoing` is not empty, both lists of voters must agree (joint consensus). Today voters
    come and go one at a time, which needs no joint phase; the format has room for it.
    """

    voters: tuple[int, ...]
    outgoing: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after an entry, which a peer gets that is behind the log; a handle, not the bytes."""

    index: int
    term: int
    peers: Peers


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Any of those below. `term` is the sender's, except in what belongs to a pre-vote."""

    sender: int
    to: int
    term: int


# -- elections -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteRequest(Message):
    """Would you vote for me in `term`, which I have not begun? Nobody's state changes."""

    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteReply(Message):
    """`term` is the one asked for if granted, otherwise the sender's own.

    It also says what the sender knows to be committed, as `VoteReply` does.
    """

    granted: bool
    commit: int = 0
    commit_term: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest(Message):
    """Vote for me. With `transfer` the leader has asked for it, and a lease does not speak against it."""

    last_index: int
    last_term: int
    transfer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteReply(Message):
    """The sender's vote in this term, or that it has none to give.

    It also says that entry `commit` of term `commit_term` is committed. The sender may be a peer
    whose vote is needed only because the candidate does not know yet that it was removed.
    """

    granted: bool
    commit: int = 0
    commit_term: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutNow(Message):
    """Campaign at once: the leader hands over."""


# -- replication -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Append(Message):
    """Entries behind the one at `prev_index`, and how far the log is committed."""

    prev_index: int
    prev_term: int
    entries: tuple[Entry, ...]
    commit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendReply(Message):
    """The log equals the leader's up to `match`, durably; or it does not fit behind `rejected`.

    A refusal says where the leader should try next: the largest index with a term up to
    `hint_term` that the sender has.
    """

    match: int
    rejected: int | None = None
    hint_index: int = 0
    hint_term: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Message):
    """The leader lives. `commit` is no further than what this peer is known to have.

    `read` numbers the rounds that confirm a leadership for readers; 0: none is under way.
    """

    commit: int
    read: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply(Message):
    """So does the sender, and it has followed this leader at round `read`."""

    read: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Install(Message):
    """You are behind the log: get this state instead."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallReply(Message):
    """The state at `index` is in place, durably; or it could not be had."""

    index: int
    installed: bool


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest(Message):
    """A follower's reader asks how far it must have applied; `token` is the follower's own."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReply(Message):
    """So far; None if the sender does not lead."""

    token: int
    index: int | None


Early: TypeAlias = (
    PreVoteRequest
    | PreVoteReply
    | TimeoutNow
    | Append
    | Heartbeat
    | Install
    | ReadRequest
    | ReadReply
)
Late: TypeAlias = VoteRequest | VoteReply | AppendReply | HeartbeatReply | InstallReply
AnyMessage: TypeAlias = Early | Late
