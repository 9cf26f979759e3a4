"""A peer in a simulation: a real `Raft`, driven as a driver must, on a disk that takes its time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quiver.errors import InvalidRequest, NotLeader, Overloaded, PeersChanging
from quiver.raft.messages import Append, Peers, Snapshot
from quiver.raft.raft import Raft
from quiver.raft.ready import Read, Ready, Role, Save
from quiver.raft.settings import Settings, Start
from tests.raft.simulation.checks import require
from tests.raft.simulation.disk import (
    NOTHING,
    Compacted,
    Disk,
    Installed,
    Payload,
    State,
    Step,
    Written,
    digest_after,
)
from tests.raft.simulation.rates import TICK

if TYPE_CHECKING:
    from quiver.raft.messages import AnyMessage
    from tests.raft.simulation.cluster import Cluster

NOBODY = Peers(())
APPEND_BYTES = 200  # small, so that all of these are met
WINDOW_BYTES = 1_000
WINDOW_MESSAGES = 4
UNCOMMITTED_BYTES = 4_000
PROPOSAL_BYTES_MAX = 2_000  # of an entry


class SimulatedPeer:
    """What outlives a crash is `disk`; all else is made anew by `start`."""

    def __init__(self, cluster: Cluster, number: int, founders: Peers) -> None:
        self.cluster = cluster
        self.number = number
        self.disk = Disk(State(Snapshot(0, 0, founders), 0))
        self.life = 0  # how often it was started; what belongs to an earlier life comes to nothing
        self.up = False
        self.paused = False
        self.retired = False  # removed, and shut down for good
        self.rate = 1.0  # of its clock
        self.disk_factor = 1  # how much slower than others

    # -- living and dying --------------------------------------------------------------------------

    def start(self) -> None:
        disk = self.disk
        self.life += 1
        self.up, self.paused = True, False
        self.log = disk.log.copy()
        self.applied = disk.state.snapshot.index
        self.digest = disk.state.digest
        self.peers = disk.state.snapshot.peers
        self.commit = self.applied
        self.role = Role.FOLLOWER
        self.term = disk.vote.term
        self.leader: int | None = None
        self.payloads: dict[tuple[int, int], Payload] = {}  # by index, term: not in the log yet
        self.asked: dict[int, int] = {}  # by index: the term of what clients here wait for
        self.reads: dict[int, int] = {}  # by token: what was committed when it was asked
        self.due: list[tuple[int, int]] = []  # index and token of reads that wait for being applied
        self.begun = 0  # steps for the disk, and how many of them are done
        self.done = 0
        self.syncing = False
        self.shared = self.log.last_index  # the log up to here is on the disk as it is in memory
        # Messages that wait until so many steps are done.
        self.held: deque[tuple[int, tuple[AnyMessage, ...]]] = deque()
        self.deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # during a pause
        self.gathering = False
        self.applying = False
        self.snapshotting = False
        self.served = False  # whether a reader was answered
        self.ticks = 0
        self.leads_since = 0  # in its ticks; or the voters are the same since
        self.heard: dict[int, int] = {}  # by peer: at which tick
        self.unanswered: dict[int, tuple[int, int]] = {}  # messages with entries, and their bytes
        alone = self.is_alone
        known = max(min(disk.commit, disk.log.last_index), self.applied)
        if alone:
            self.cluster.counts["started alone"] += 1
            self.cluster.checks.forget_lone(disk)
        self.raft = Raft(
            Settings(
                peer=self.number,
                seed=self.cluster.rng.getrandbits(32),
                election_ticks=self.cluster.rates.election,
                append_bytes_max=APPEND_BYTES,
                window_bytes_max=WINDOW_BYTES,
                window_messages_max=WINDOW_MESSAGES,
                uncommitted_bytes_max=UNCOMMITTED_BYTES,
            ),
            Start(
                disk.vote,
                disk.state.snapshot,
                tuple((entry.term, entry.nbytes) for entry in disk.log.entries),
                commit=disk.log.last_index if alone else known,
                applied=self.applied,
                alone=alone,
            ),
        )
        self.act()

    @property
    def is_alone(self) -> bool:
        """Whether it has never had another peer, nor is about to have one."""
        disk = self.disk
        only = disk.state.snapshot.peers == Peers((self.number,))
        return only and not any(isinstance(payload, Peers) for payload in disk.log.payloads)

    def __str__(self) -> str:
        state = "paused" if self.paused else "up" if self.up else "down"
        return (
            f"{self.number}: {state}, {self.role.value} of term {self.term}, log {self.log.base}"
            f"-{self.log.last_index}, commit {self.commit}, applied {self.applied}, {self.peers}"
        )

    def crash(self) -> None:
        self.disk.crash(self.cluster.rng)
        self.up = self.paused = False
        self.life += 1

    # -- what comes in -----------------------------------------------------------------------------

    def tick(self) -> None:
        self.ticks += 1
        self.raft.tick()
        self.act()
        if self.role is Role.LEADER:
            since = self.ticks - 2 * self.cluster.rates.election
            if self.leads_since < since:
                heard = {number for number, at in self.heard.items() if at >= since} | {self.number}
                self.cluster.checks.is_heard(self.number, self.peers, heard)

    def receive(self, message: AnyMessage, payloads: tuple[Payload, ...]) -> None:
        self.unanswered.pop(message.sender, None)
        self.heard[message.sender] = self.ticks
        if isinstance(message, Append):
            for entry, payload in zip(message.entries, payloads, strict=True):
                self.payloads[entry.index, entry.term] = payload
        self.raft.step(message)
        if self.cluster.rates.gather:
            if not self.gathering:
                self.gathering = True
                self.cluster.later(self.cluster.rates.gather, self, self.gathered)
        else:
            self.act()

    def gathered(self) -> None:
        self.gathering = False
        self.act()

    # -- what `Ready` says -------------------------------------------------------------------------

    def act(self) -> None:
        while (ready := self.raft.ready()) is not None:
            if not self.do(ready):
                break
        self.payloads.clear()

    def do(self, ready: Ready) -> bool:
        """In the order of the fields; whether something may have come up by it."""
        applied = False
        checks = self.cluster.checks
        if ready.save is not None:
            self.save(ready.save, ready)
        if ready.role is Role.LEADER and (self.role, self.term) != (Role.LEADER, ready.term):
            self.cluster.counts["elections"] += 1
            checks.leads(self.number, self.life, ready.term, self.log)
        if (ready.role, ready.term, ready.leader) != (self.role, self.term, self.leader):
            self.cluster.tell(
                self.number, f"{ready.role.value}, term {ready.term}, leader {ready.leader}"
            )
            self.unanswered.clear()
            self.leads_since = self.ticks
        self.role, self.term, self.leader = ready.role, ready.term, ready.leader
        for message in ready.before:
            self.send(message)
        if ready.after:
            if self.done == self.begun:
                self.promise(ready.after)
            else:
                self.held.append((self.begun, ready.after))
        if ready.commit != self.commit:
            require(ready.commit > self.commit, f"the commit of peer {self.number} goes back")
            self.commit = ready.commit
            if (
                checks.commits(self.number, self.log, self.commit, self.term)
                and self.role is Role.LEADER
            ):
                checks.is_durable(self.number, self.peers, self.cluster.disks, self.commit)
            applied = self.apply_soon()
        for read in ready.reads:
            self.may_read(read)
        if ready.install is not None:
            self.fetch(ready.install)
        return applied

    def save(self, save: Save, ready: Ready) -> None:
        checks, log = self.cluster.checks, self.log
        if save.cut is not None:
            checks.cuts(self.number, log, save.cut)
            self.cluster.counts["cuts"] += 1
            log.cut(save.cut)
            self.shared = min(self.shared, save.cut)
        payloads = []
        for entry in save.entries:
            payload = self.payloads.get((entry.index, entry.term))
            if payload is None:
                own = entry.index == self.raft.begins
                require(own, f"peer {self.number} has no payload for {entry}")
                payload = NOTHING
            checks.appends(self.number, entry, payload, log.term(entry.index - 1))
            log.append(entry, payload)
            payloads.append(payload)
        same = (log.last_index, log.term(log.last_index)) == (save.last_index, save.last_term)
        require(same, f"peer {self.number}: the log does not end as {save} says")
        self.begin(Written(save, tuple(payloads)))

    def send(self, message: AnyMessage) -> None:
        self.cluster.checks.sends(message, self.disk, self.log, self.cluster.disks[message.to])
        payloads: tuple[Payload, ...] = ()
        if isinstance(message, Append):
            for entry in message.entries:
                require(
                    self.log.term(entry.index) == entry.term,
                    f"peer {self.number} sends {entry}, which it does not have",
                )
            payloads = tuple(self.log.payload(entry.index) for entry in message.entries)
            if message.entries:
                self.keeps_to_window(message)
        self.cluster.send(message, payloads)

    def keeps_to_window(self, append: Append) -> None:
        """Who hears nothing from a peer sends it no more than the window, and a probe."""
        messages, nbytes = self.unanswered.get(append.to, (0, 0))
        require(
            messages <= WINDOW_MESSAGES and nbytes < WINDOW_BYTES + PROPOSAL_BYTES_MAX,
            f"peer {self.number} has sent {messages} messages to {append.to}, which is silent",
        )
        nbytes += sum(entry.nbytes for entry in append.entries)
        self.unanswered[append.to] = (messages + 1, nbytes)

    def promise(self, messages: tuple[AnyMessage, ...]) -> None:
        for message in messages:
            self.send(message)

    # -- the disk ----------------------------------------------------------------------------------

    def begin(self, step: Step) -> None:
        self.disk.coming.append(step)
        self.begun += 1
        if not self.syncing:
            self.sync()

    def sync(self) -> None:
        """A sync covers what was begun when it began, and no more."""
        self.syncing = True
        self.cluster.later(self.cluster.sync_time(self), self, self.synced, len(self.disk.coming))

    def synced(self, count: int) -> None:
        self.syncing = False
        saves: list[Save] = []
        for _ in range(count):
            step = self.disk.finish()
            self.done += 1
            match step:
                case Written(save, _):
                    saves.append(save)
                case Installed(state):
                    self.persisted(saves)
                    self.installed(state)
                case Compacted(state):
                    self.persisted(saves)
                    self.compacted(state)
        self.persisted(saves)
        if self.disk.coming:
            self.sync()
        cuts = [
            step.save.cut
            for step in self.disk.coming
            if isinstance(step, Written) and step.save.cut is not None
        ]
        self.shared = min([self.disk.log.last_index, *cuts])
        while self.held and self.held[0][0] <= self.done:
            self.promise(self.held.popleft()[1])
        self.act()
        if self.apply():
            self.act()

    def persisted(self, saves: list[Save]) -> None:
        """All of these: it is enough to tell of the last."""
        for save in saves if self.cluster.rates.sync_told else saves[-1:]:
            if self.log.term(save.last_index) != save.last_term:
                self.cluster.counts["overwritten while syncing"] += 1
            self.raft.persisted(save)
        saves.clear()

    # -- the state machine -------------------------------------------------------------------------

    def apply_soon(self) -> bool:
        """At once, or a little later: other things may come in between."""
        if self.applying:
            return False
        if self.cluster.rng.random() < self.cluster.rates.apply_later:
            self.applying = True
            self.cluster.later(int(self.cluster.rng.random() * TICK), self, self.apply_now)
            return False
        return self.apply()

    def apply_now(self) -> None:
        self.applying = False
        self.act()
        if self.apply():
            self.act()

    def apply(self) -> bool:
        """What is committed, and durable here; whether there was anything."""
        upto = min(self.commit, self.shared)
        if self.applying or self.applied >= upto:
            return False
        while self.applied < upto:
            index = self.applied + 1
            term, payload = self.log.term(index), self.log.payload(index)
            assert term is not None
            self.digest = digest_after(self.digest, payload)
            self.cluster.checks.applies(self.number, index, term, payload, self.digest)
            self.applied = index
            self.answer(index, term)
            if isinstance(payload, Peers):
                self.peers, self.leads_since = payload, self.ticks
                self.cluster.counts["membership changes"] += 1
                self.cluster.tell(self.number, f"has applied {payload}")
                self.raft.reconfigure(payload)
        self.raft.applied(self.applied)
        self.answer_readers()
        return True

    # -- clients -----------------------------------------------------------------------------------

    def propose(self, payloads: list[Payload], sizes: tuple[int, ...]) -> None:
        cluster, raft = self.cluster, self.raft
        try:
            first = raft.propose(sizes)
        except (NotLeader, Overloaded) as error:
            cluster.counts[f"refused: {type(error).__name__}"] += 1
            return
        cluster.counts["proposed"] += len(payloads)
        waiting = sum(sizes) + sum(
            entry.nbytes for entry in self.log.entries[max(raft.commit - self.log.base, 0) :]
        )
        require(
            waiting <= max(UNCOMMITTED_BYTES, sum(sizes)) or not raft.others,
            f"peer {self.number} has {waiting} bytes that are not committed",
        )
        self.has_proposed(first, payloads)

    def propose_peers(self, peers: Peers) -> None:
        """A change of one peer; or a joint one, which the core can count but does not propose yet."""
        joint = bool(peers.outgoing or self.peers.outgoing)
        if any(
            isinstance(payload, Peers) and (joint or payload.outgoing)
            for payload in self.on_the_way
        ):
            return
        try:
            if joint and self.applied < (self.raft.begins or 0):
                return
            index = self.raft.propose((20,)) if joint else self.raft.propose_peers(peers, 20)
        except (InvalidRequest, NotLeader, Overloaded, PeersChanging) as error:
            self.cluster.counts[f"refused: {type(error).__name__}"] += 1
        else:
            self.cluster.counts["proposed peers"] += 1
            self.cluster.tell(self.number, f"proposes {peers} as entry {index}")
            self.has_proposed(index, [peers])

    @property
    def on_the_way(self) -> list[Payload]:
        """What is in the log and not applied."""
        return self.log.payloads[max(self.applied - self.log.base, 0) :]

    def has_proposed(self, first: int, payloads: list[Payload]) -> None:
        term = self.raft.term
        for index, payload in enumerate(payloads, first):
            self.payloads[index, term] = payload
            self.asked[index] = term
        self.act()

    def transfer(self, to: int) -> None:
        try:
            self.raft.transfer(to)
        except (NotLeader, InvalidRequest):
            return
        self.cluster.counts["transfers"] += 1
        self.cluster.tell(self.number, f"hands over to {to}")
        self.act()

    def lose_connection(self, to: int) -> None:
        self.unanswered.pop(to, None)
        self.raft.unreachable(to)
        self.act()

    def answer(self, index: int, term: int) -> None:
        """Whoever proposed the entry here may be told, if it is the same one."""
        asked = self.asked.pop(index, None)
        if asked is not None:
            self.cluster.counts["confirmed" if asked == term else "overwritten"] += 1

    def read(self, token: int) -> None:
        self.reads[token] = self.cluster.checks.last
        try:
            self.raft.read(token)
        except Overloaded:
            del self.reads[token]
            return
        self.act()

    def may_read(self, read: Read) -> None:
        require(read.token in self.reads, f"peer {self.number} answers a reader who did not ask")
        if read.index is None:
            self.cluster.counts["reads refused"] += 1
            del self.reads[read.token]
        else:
            self.due.append((read.index, read.token))
            self.answer_readers()

    def answer_readers(self) -> None:
        ready = [(index, token) for index, token in self.due if index <= self.applied]
        if ready:
            self.due = [due for due in self.due if due not in ready]
            for index, token in ready:
                self.cluster.checks.reads(self.number, index, self.reads.pop(token))
                self.cluster.counts["reads"] += 1
                self.served = True

    # -- states instead of entries -----------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Of what is applied; when it is durable, the log before it goes."""
        index = self.applied
        if self.snapshotting or index <= self.disk.state.snapshot.index:
            return
        self.snapshotting = True
        term = self.log.term(index)
        assert term is not None
        state = State(Snapshot(index, term, self.peers), self.digest)
        self.cluster.later(
            int(self.cluster.rng.random() * 5 * TICK), self, self.begin, Compacted(state)
        )

    def compacted(self, state: State) -> None:
        self.snapshotting = False
        if state.snapshot.index > self.log.base:
            self.cluster.counts["snapshots"] += 1
            self.cluster.tell(self.number, f"has a snapshot at {state.snapshot.index}")
            self.log.forget(state.snapshot.index)
            self.raft.compacted(state.snapshot)

    def fetch(self, snapshot: Snapshot) -> None:
        """Get the state from who leads: that takes time, and may fail."""
        self.cluster.tell(self.number, f"fetches the state at {snapshot.index}")
        time = int(self.cluster.rng.random() ** 2 * 20 * TICK)
        self.cluster.later(time, self, self.fetched, snapshot, self.leader)

    def fetched(self, snapshot: Snapshot, source: int | None) -> None:
        cluster = self.cluster
        if source is None or not cluster.can_fetch(source, self.number):
            cluster.counts["installs failed"] += 1
            cluster.tell(self.number, f"could not get the state at {snapshot.index}")
            self.raft.install_failed(snapshot)
            self.act()
        else:
            self.begin(Installed(State(snapshot, cluster.checks.committed[snapshot.index].digest)))

    def installed(self, state: State) -> None:
        cluster, snapshot = self.cluster, state.snapshot
        cluster.counts["installs"] += 1
        cluster.tell(self.number, f"has installed the state at {snapshot.index}")
        self.log.install(snapshot)
        self.applied, self.digest, self.peers = snapshot.index, state.digest, snapshot.peers
        self.asked = {index: term for index, term in self.asked.items() if index > self.applied}
        self.raft.installed(snapshot)
        same = self.raft.peers == self.peers
        require(same, f"peer {self.number} counts {self.raft.peers}, not those of its state")
        self.answer_readers()
