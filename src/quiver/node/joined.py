"""The peer of a directory that has joined a cluster: it agrees with others on what is in the log.

What `peer` promises holds here as well. What is added:

- *Opening.* Only what is known to be committed is applied. What is behind it may have to go.
- *Leading.* A peer never leads twice in a term. After an opening it follows, or has itself elected.
- *Append.* Who leads writes what is proposed, who follows what the leader sends. All others refuse.
- *Apply.* An entry is applied when it is committed and durable here.
- *Answer.* A proposal is known by index *and* term. When an entry of a later term is applied, those
  of earlier terms that are not applied by then never will be: their askers are told so. They are never
  told what became of somebody else's entry.

A driver brings events, and does what the `Effects` say. It sends `Effects.messages`, and whatever is lost
of them does no harm. It lets `Wal.start_sync` work elsewhere, and tells `synced` when it has ended.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from quiver import limits
from quiver.errors import DiskFull, InvalidRequest, NotLeader, Overloaded, QuiverError
from quiver.model.commands import SetPeers, Tick
from quiver.model.replies import Outcome
from quiver.node.engine import Engine, Proposal
from quiver.node.garbage import without_gc
from quiver.node.peer import Effects, Peer, ProposedRequest
from quiver.node.peers import SETS_PEERS, committed_changes, decode_peers
from quiver.node.saver import Saver
from quiver.node.snapshots import Snapshot
from quiver.raft.messages import AnyMessage, Append
from quiver.raft.messages import Snapshot as RaftSnapshot
from quiver.raft.raft import Raft
from quiver.raft.ready import Save, Vote
from quiver.raft.settings import Settings, Start
from quiver.storage import identity, snapshot
from quiver.storage.files import Files
from quiver.storage.frame import LogRecord
from quiver.storage.ledger import RETENTION_MS
from quiver.storage.vote import VoteFile
from quiver.storage.wal import FoundEntries


class JoinedPeer(Peer):
    """Used by one thread."""

    def __init__(self, engine: Engine, raft: Raft, vote: VoteFile) -> None:
        super().__init__(engine, raft)
        self._vote = vote
        self._saver = Saver(raft, engine.wal, vote)
        self._snapshot_index = engine.core.index  # of the last one
        self._now_ms = 0  # as the driver has told it last

    @classmethod
    def reopen(
        cls, files: Files, *, seed: int, ledger_ms: int = RETENTION_MS, **sizes: int
    ) -> "JoinedPeer":
        """Recover what the directory holds; `seed` is another one at each start.

        The state is that of what is known to be committed, and no vote is given before an event comes.
        """
        known = identity.load(files)
        if known is None:
            raise InvalidRequest("this directory has not joined a cluster: it has no peers")
        vote = VoteFile(files, known.shard)
        snapshot.clean(files)
        sizes = {"recent_bytes": limits.WAL_RECENT_BYTES_MAX, **sizes, "version": 2}
        engine = Engine.load(files, ledger_ms, **sizes)
        index, peers = engine.core.index, decode_peers(engine.core.peers)
        found = engine.wal.scan(SETS_PEERS)
        known_commit = committed_changes(found.of_kind, founded=bool(peers.voters))
        if known_commit > engine.wal.commit_index:
            engine.wal.commit(known_commit)
        start = Start(
            vote=Vote(vote.term, vote.peer),
            snapshot=RaftSnapshot(index, engine.wal.term_of(index), peers),
            entries=_entries(found),
            commit=engine.wal.commit_index,
            applied=index,
        )
        peer = cls(engine, Raft(Settings(peer=known.node, seed=seed), start), vote)
        with without_gc():
            peer._apply()
        engine.tidy()
        return peer

    def close(self) -> None:
        """Sync what is written and let go of the files."""
        super().close()
        self._vote.close()

    # -- events ------------------------------------------------------------------------------------

    def propose(self, requests: Sequence[ProposedRequest], now_ms: int) -> Effects:
        """Let these become entries, at this time or later; or say at once why not (NotLeader, …)."""
        kinds = {request.proposal.kind for request in requests}
        assert SETS_PEERS not in kinds, "who takes part is changed with propose_peers"
        return super().propose(requests, now_ms)

    def step(self, message: AnyMessage, records: Sequence[LogRecord] = ()) -> Effects:
        """A message has come, and the records of its entries."""
        return self._take(lambda: self.raft.step(message), records)

    def tick(self, now_ms: int) -> Effects:
        """A tick of time has passed."""
        self._now_ms = now_ms
        return self._take(self.raft.tick)

    def propose_peers(self, request: ProposedRequest, now_ms: int) -> Effects:
        """Let who takes part change: the request proposes a `SetPeers`, one peer more or less.

        It is answered at once if that cannot be done (NotLeader, InvalidRequest, PeersChanging).
        """
        effects = Effects()
        proposal, command = request.proposal, request.proposal.command
        assert isinstance(command, SetPeers), "another command"
        records: list[LogRecord] = []
        refusal = self._refusal([request])
        if refusal is None:
            try:
                index = self.raft.propose_peers(decode_peers(command.peers), proposal.nbytes)
                records = [self._record(index, self.raft.term, proposal, now_ms)]
                self._proposed.append((request, records[0]))
            except QuiverError as error:
                refusal = error
        if refusal is not None:
            effects.answers.append((request, Outcome(refusal)))
        self._follow(effects, records)
        return effects

    def read(self, token: int) -> Effects:
        """Ask how far one must have applied to have seen all that is committed now."""
        return self._do(lambda: self.raft.read(token))

    def campaign(self) -> Effects:
        """Ask for votes now, not after a timeout."""
        return self._take(self.raft.campaign)

    def transfer(self, peer: int) -> Effects:
        """Hand over to another voter. Raises NotLeader and InvalidRequest."""
        return self._do(lambda: self.raft.transfer(peer))

    def unreachable(self, peer: int) -> Effects:
        """What was sent to a peer lately is probably lost."""
        return self._do(lambda: self.raft.unreachable(peer))

    def install_failed(self, state: RaftSnapshot) -> Effects:
        """A state that `Effects.install` has asked for could not be had."""
        return self._do(lambda: self.raft.install_failed(state))

    def snapshot_applied(self, *, seal_all: bool = False) -> Snapshot | None:
        """Take the state as it is applied here; None if that is in a snapshot already.

        Who does not lead can have no entry made for it, so it may find no other state than before;
        and a segment has its name from the last entry.
        """
        if self.engine.core.index == self._snapshot_index:
            return None
        self.engine.wal.sync()  # a sole voter has applied what is not durable yet
        return self.engine.snapshots.begin(seal_all=seal_all)

    def compacted(self, made: Snapshot) -> None:
        """A snapshot is saved, and the log before it is not needed any more."""
        super().compacted(made)
        self._snapshot_index = made.index

    def _take(self, event: Callable[[], Any], records: Sequence[LogRecord] = ()) -> Effects:
        """Let consensus have an event; with a disk that does not keep up it is as if it was lost."""
        self._saver.retry()
        return self._do(event, records) if self._saver.keeps_up else self.synced()

    def _do(self, event: Callable[[], Any], records: Sequence[LogRecord] = ()) -> Effects:
        effects = Effects()
        event()
        self._follow(effects, records)
        return effects

    def _refusal(self, requests: Sequence[ProposedRequest]) -> QuiverError | None:
        self._saver.retry()
        if not self._saver.keeps_up:
            return DiskFull("the disk of this peer does not keep up: retry after a moment")
        try:
            self.raft.demand_room(sum(request.proposal.nbytes for request in requests))
        except (NotLeader, Overloaded) as refusal:
            return refusal
        if self._proposed and self._proposed[0][1].term < self.raft.term:
            return Overloaded(
                "this peer has only just come to lead again, and what was proposed to it before is"
                " not decided yet: retry after a moment"
            )
        return None

    def _stamp(self, now_ms: int) -> int:
        """The time of the next entry: not before that of the last one, applied or not."""
        core, wal = self.engine.core, self.engine.wal
        last_ms = core.now_ms if core.index == wal.last_index else wal.last_now_ms
        return max(now_ms, last_ms)

    # -- what follows ------------------------------------------------------------------------------

    def _follow(self, effects: Effects, records: Sequence[LogRecord] = ()) -> None:
        """Do all that consensus wants; `records` has what is new in the log and not written yet."""
        raft, saver, wal = self.raft, self._saver, self.engine.wal
        messages: list[tuple[AnyMessage, Sequence[LogRecord]]] = []
        messages += [(message, ()) for message in saver.settled()]
        self._apply()
        while saver.keeps_up and (ready := raft.ready()) is not None:
            effects.reads = [*effects.reads, *ready.reads]
            effects.install = ready.install or effects.install
            if saver.save(ready, self._payloads(ready.save, records)):
                messages += [(message, self._records_of(message)) for message in ready.before]
            else:
                self.engine.snapshots.disk_is_full = True  # the next one makes room
            messages += [(message, ()) for message in saver.settled()]
            self._apply()
        effects.messages = messages
        self._answer(effects)
        effects.sync = wal.synced_index < wal.last_index

    def _payloads(self, save: Save | None, records: Sequence[LogRecord]) -> list[LogRecord]:
        """The records of a save's entries that are not in the log yet."""
        if save is None:
            return []
        came = {(record.index, record.term): record for record in records}
        written = self.engine.wal.last_index if save.cut is None else save.cut
        found: list[LogRecord] = []
        for entry in save.entries:
            if entry.index > written:
                record = came.get((entry.index, entry.term))
                if record is None:
                    assert entry.index == self.raft.begins, f"{entry} has come without its record"
                    record = self._record(entry.index, entry.term, Proposal(Tick()), self._now_ms)
                found.append(record)
        return found

    def _record(self, index: int, term: int, proposal: Proposal, now_ms: int) -> LogRecord:
        """What this peer proposes, as the next entry of the log."""
        return LogRecord(index, term, self._stamp(now_ms), proposal.kind, proposal.command_bytes)

    def _records_of(self, message: AnyMessage) -> Sequence[LogRecord]:
        """What travels beside a message. Consensus knows of sizes only, and not those of all entries."""
        if not isinstance(message, Append):
            return ()
        records: list[LogRecord] = []
        nbytes = sum(entry.nbytes for entry in message.entries)
        while len(records) < len(message.entries):
            first = message.prev_index + 1 + len(records)
            records += self.engine.wal.entries(first, nbytes)
        return records[: len(message.entries)]

    @property
    def _appliable(self) -> int:
        """Up to what is committed and durable here, unless nobody else has a vote."""
        wal = self.engine.wal
        if self.raft.decides_alone:
            return super()._appliable
        return min(wal.commit_index, wal.synced_index)

    def _apply(self) -> None:
        """Apply what may be applied: own proposals, which have a batch at hand, and what came."""
        engine, wal, core, proposed = self.engine, self.engine.wal, self.engine.core, self._proposed
        read: deque[LogRecord] = deque()
        while core.index < self._appliable:
            index = core.index + 1
            self._give_up(index, wal.term_of(index))
            own = proposed[0] if proposed and proposed[0][1].index == index else None
            if own is None and (not read or read[0].index != index):
                read = deque(wal.entries(index, limits.APPEND_BYTES_MAX))
            record = own[1] if own is not None else read.popleft()
            if record.kind == SETS_PEERS and index > wal.commit_index:
                break  # who takes part changes only by what is committed, also for a sole voter
            if own is not None:
                self._apply_own()
            else:
                engine.replay([record])
            if record.kind == SETS_PEERS:
                self.raft.reconfigure(decode_peers(core.peers))
        self.raft.applied(min(core.index, wal.commit_index))

    def _give_up(self, index: int, term: int) -> None:
        """An entry of this term is about to be applied: what was proposed in earlier ones is lost."""
        proposed = self._proposed
        while proposed and proposed[0][1].term < term:
            request, _ = proposed.popleft()
            error = NotLeader(
                "another peer has come to lead before the others had this: nothing of it was stored,"
                " send it again",
                self.raft.leader,
            )
            self._applied.append((request, index, Outcome(error)))


def _entries(found: FoundEntries) -> tuple[tuple[int, int], ...]:
    """Terms and sizes of what a scan has found."""
    entries: list[tuple[int, int]] = []
    base = found.terms[0][0]
    ends = [first - 1 for first, _ in found.terms[1:]] + [base + len(found.sizes)]
    for (first, term), end in zip(found.terms, ends, strict=True):
        entries += [(term, nbytes) for nbytes in found.sizes[max(first - base - 1, 0) : end - base]]
    return tuple(entries)
