"""Consensus, log and state of one node, stepped by events. No thread, no clock, and it never waits.

What is to be done outside comes back as `Effects`. The order is the promise:

1. *Append.* What is proposed is written to the log, all in order, or refused: a full disk refuses
   what would store something new; what frees space may use the log's last reserve.
2. *Agree.* When the disk has it (`synced`), this node's copy counts. What a majority has is committed.
3. *Apply.* Only what is committed is applied, in the order of the log.
4. *Answer.* Only what is applied and committed is answered, and only to whoever proposed that very
   entry: at its place in the log there may be one of another term. Who asked for less does not wait
   for the disk, unless others do: the state knows of their entries already, and an answer lets those
   who watch look at it.

A sole voter applies while the disk works (`_appliable`), because nobody can take its entries
back. A lone send takes 60 µs less like that. If the sync fails, the state knows too much, but then
nothing is answered any more, and the next opening goes by what is on disk.

Here is the peer of a directory that never had to do with a cluster: a group of one. What it takes to
agree with others is added in `joined`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from quiver.errors import InvalidRequest, QuiverError
from quiver.model.commands import Found, SetTime, Tick
from quiver.model.replies import Outcome
from quiver.node.clock import Jump
from quiver.node.engine import Engine, Proposal
from quiver.node.garbage import without_gc
from quiver.node.snapshots import Snapshot
from quiver.raft.messages import AnyMessage, Peers
from quiver.raft.messages import Snapshot as RaftSnapshot
from quiver.raft.raft import Raft
from quiver.raft.ready import Read
from quiver.raft.settings import Settings, Start
from quiver.storage import identity, snapshot
from quiver.storage.files import Files
from quiver.storage.frame import LogRecord
from quiver.storage.ledger import RETENTION_MS

ALONE = 1  # the number of a peer that has never had another


class ProposedRequest(Protocol):
    """What is proposed, and whether its answer waits until it cannot be lost any more."""

    proposal: Proposal
    sync: bool


@dataclass(slots=True)
class _Asked:
    """A request of this node itself."""

    proposal: Proposal
    sync: bool


@dataclass(slots=True)
class Effects:
    """What came of an event: requests with their outcomes, those with entries in the log's order.

    `sync`: somebody waits for the disk. Make the log durable, then tell `Peer.synced`.

    For peers, `messages` may leave at once, each with the records of its entries. A reader that is in
    `reads` may be answered when the entry that is said there is applied. `install` is a state to be
    fetched from the leader.
    """

    answers: list[tuple[Any, Outcome]] = field(default_factory=list)
    sync: bool = False
    messages: Sequence[tuple[AnyMessage, Sequence[LogRecord]]] = ()
    reads: Sequence[Read] = ()
    install: RaftSnapshot | None = None


class Peer:
    """Used by one thread."""

    def __init__(self, engine: Engine, raft: Raft) -> None:
        self.engine = engine
        self.raft = raft
        self._proposed: deque[tuple[ProposedRequest, LogRecord]] = deque()  # here, and not applied
        self._applied: deque[tuple[ProposedRequest, int, Outcome]] = deque()  # and not answered

    @classmethod
    def open(
        cls, files: Files, *, now_ms: int, secret: bytes, ledger_ms: int = RETENTION_MS,
        **sizes: int,
    ) -> "Peer":  # fmt: skip
        """Recover what the directory holds; found a new log with `secret` if it holds nothing.

        Nobody else has ever had an entry of this log, so all that is in it is committed. A directory
        that has joined a cluster is refused: its end may have to be taken back (`joined`).
        """
        known = identity.load(files)
        if known is not None:
            raise InvalidRequest(
                f"this directory is that of node {known.node} of cluster {known.cluster[:8]}: only the "
                "node may open it, together with the others; with read_only=True it can be read"
            )
        snapshot.clean(files)
        with without_gc():
            engine = Engine.load(files, ledger_ms, **sizes)
            engine.replay(engine.wal.replay())
        engine.tidy()
        index = engine.core.index
        end = RaftSnapshot(index, engine.wal.last_term, Peers((ALONE,)))
        start = Start.lone(ALONE, snapshot=end, last_index=index)
        peer = cls(engine, Raft(Settings(peer=ALONE, seed=0), start))
        if index == 0:
            peer._demand(Proposal(Found(secret, now_ms)), now_ms)
        return peer

    def follow_clock(self, now_ms: int, directory: str, *, accept: bool) -> None:
        """Compare the log's time with the clock's before anything is written.

        They must be near each other, unless somebody says that the clock is right: then the log's
        time follows it, back or forth.
        """
        jump = self.engine.jump = Jump(self.engine.core.now_ms, now_ms)
        if not accept:
            jump.demand(directory)
        elif jump.is_back:
            self._demand(Proposal(SetTime(now_ms)), now_ms)
        elif jump.is_unlikely:
            self._demand(Proposal(Tick()), now_ms)  # from now on it is the last entry's time

    # -- events ------------------------------------------------------------------------------------

    def propose(self, requests: Sequence[ProposedRequest], now_ms: int) -> Effects:
        """Let these become entries, at this time or later."""
        effects = Effects()
        refusal = self._refusal(requests)
        if refusal is None:
            self._append(requests, now_ms, effects)
        else:
            effects.answers += [(request, Outcome(refusal)) for request in requests]
        self._follow(effects)
        return effects

    def _append(self, requests: Sequence[ProposedRequest], now_ms: int, effects: Effects) -> None:
        engine, raft = self.engine, self.raft
        proposals = [request.proposal for request in requests]
        sizes: list[int] = []
        appended = engine.append(proposals, raft.term, self._stamp(now_ms))
        for request, record in zip(requests, appended, strict=True):
            if isinstance(record, LogRecord):
                self._proposed.append((request, record))
                sizes.append(request.proposal.nbytes)
                effects.sync = effects.sync or request.sync
            else:
                effects.answers.append((request, Outcome(record)))
        raft.propose(sizes)
        if effects.sync:
            engine.wal.begin_sync()

    def _refusal(self, requests: Sequence[ProposedRequest]) -> QuiverError | None:
        """Why nothing can be proposed here, if that is so."""
        return None

    def _stamp(self, now_ms: int) -> int:
        """The time of the next entry: not before that of the last one, which is applied."""
        return max(now_ms, self.engine.core.now_ms)

    def synced(self) -> Effects:
        """The log has been made durable."""
        effects = Effects()
        self._follow(effects)
        return effects

    def compacted(self, made: Snapshot) -> None:
        """A snapshot is saved, and the log before it is not needed any more."""
        self.raft.applied(made.index)
        term = self.engine.wal.term_of(made.index)
        self.raft.compacted(RaftSnapshot(made.index, term, self.raft.peers))

    # -- for who may wait --------------------------------------------------------------------------

    def commit(
        self, proposals: Sequence[Proposal], *, now_ms: int, sync: bool = True
    ) -> list[Outcome]:
        """Propose these, wait for the disk, and say what became of each; nobody else may wait for it."""
        asked = [_Asked(proposal, sync) for proposal in proposals]
        effects = self.propose(asked, now_ms)
        answers = effects.answers
        if effects.sync:
            self.engine.wal.sync()
            answers += self.synced().answers
        outcomes = {id(request): outcome for request, outcome in answers}
        return [outcomes[id(request)] for request in asked]

    def begin_snapshot(self, now_ms: int, *, seal_all: bool = False) -> Snapshot:
        """Sweep and sync, then take the state as it is; see `snapshots` for what follows."""
        (swept,) = self.commit([Proposal(Tick(sweep=True))], now_ms=now_ms)
        self.engine.wal.sync()
        self.raft.kept(self.engine.wal.synced_index)  # also if a full disk refused the sweep
        return self.engine.snapshots.begin(swept.woken, seal_all=seal_all)

    def _demand(self, proposal: Proposal, now_ms: int) -> None:
        """Do this, or raise why not."""
        (outcome,) = self.commit([proposal], now_ms=now_ms)
        if isinstance(outcome.reply, Exception):
            raise outcome.reply

    # -- what follows ------------------------------------------------------------------------------

    def _follow(self, effects: Effects) -> None:
        """Apply what may be applied, and find out who may be answered."""
        self._apply()
        self.raft.kept(self.engine.wal.synced_index)
        effects.sync = self._answer(effects)

    @property
    def _appliable(self) -> int:
        """Up to which entry the log may be applied: nobody can take a sole voter's entries back."""
        return self.engine.wal.last_index

    def _apply(self) -> None:
        core, upto = self.engine.core, self._appliable
        while core.index < upto:
            self._apply_own()

    def _apply_own(self) -> None:
        request, record = self._proposed.popleft()
        outcome = self.engine.apply(record, request.proposal)
        self._applied.append((request, record.index, outcome))

    def _answer(self, effects: Effects) -> bool:
        """Answer whoever need not wait for the disk any more; whether somebody must."""
        commit, applied = self.raft.commit, self._applied
        waits = any(index > commit and request.sync for request, index, _ in applied)
        while applied and (applied[0][1] <= commit or not waits):
            request, _, outcome = applied.popleft()
            effects.answers.append((request, outcome))
        return waits

    def close(self) -> None:
        """Sync what is written and let go of the files."""
        self.engine.close()
