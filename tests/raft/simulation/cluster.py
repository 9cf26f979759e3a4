"""A run: peers, the network between them, clients, an operator, and all that goes wrong."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quiver.raft.messages import AppendReply, InstallReply, Peers, PreVoteReply, VoteReply
from quiver.raft.ready import Role
from tests.raft.simulation.checks import Broken, Checks, require
from tests.raft.simulation.peer import NOBODY, PROPOSAL_BYTES_MAX, SimulatedPeer
from tests.raft.simulation.rates import FAULTS, TICK, draw

if TYPE_CHECKING:
    from quiver.raft.messages import AnyMessage
    from tests.raft.simulation.disk import Disk, Payload

SMALL_BYTES_MAX = 50  # of an entry, if it is not large
PARTITIONS = ("halves", "one way", "bridge", "leader", "deaf", "mute", "flapping")
NUMBERS_MAX = 9  # of peers that a run may ever have
MEMBERS_MAX = 5
LATE_MAX = 15 * TICK  # of a message, or a sync
DOUBLE_MAX = 40 * TICK  # how long after a message it may come again
STEADY_TICKS = 60  # after the healing, and after somebody leads again
HEAL_TICKS = 400
STORM = 16  # messages from one peer to another in a tick, when all is calm


class Cluster:
    """Everything that happens follows from the seed, so a run can be repeated to tell its story."""

    def __init__(self, seed: int, voters: int | None = None, *, tell: bool = False) -> None:
        self.rng = random.Random(seed)
        self.rates = draw(self.rng, voters)
        self.drawn = self.rates
        self.story: list[tuple[int, int, str]] | None = [] if tell else None
        self.counts: Counter[str] = Counter()
        self.now = 0
        self.heap: list[
            tuple[int, int, SimulatedPeer | None, int, Callable[..., None], tuple[Any, ...]]
        ] = []
        self.number = 0  # of the next event
        self.payload = 0
        self.token = 0
        self.blocked: set[tuple[int, int]] = set()  # from, to
        self.arrived: dict[tuple[int, int], int] = {}  # when the last message of a link comes
        self.calm = False
        self.links: Counter[tuple[int, int]] = Counter()  # messages of this tick, when all is calm
        self.peers: dict[int, SimulatedPeer] = {}
        self.disks: dict[int, Disk] = {}
        founders = Peers(tuple(range(1, self.rates.voters + 1)))
        self.checks = Checks(founders)
        for number in founders.voters:
            self._add(number, founders)

    # -- time --------------------------------------------------------------------------------------

    def later(
        self, delay: int, peer: SimulatedPeer | None, action: Callable[..., None], *args: Any
    ) -> None:
        """Do it then, unless the peer has ended by that time; if it is paused, when it wakes."""
        self.number += 1
        life = peer.life if peer else 0
        heapq.heappush(self.heap, (self.now + delay, self.number, peer, life, action, args))

    def run_until(self, end: int) -> None:
        heap = self.heap
        while heap[0][0] <= end:
            self.now, _, peer, life, action, args = heapq.heappop(heap)
            if peer is not None:
                if peer.life != life:
                    continue
                if peer.paused:
                    peer.deferred.append((action, args))
                    continue
            action(*args)
        self.now = end

    # -- the whole run -----------------------------------------------------------------------------

    def run(self) -> None:
        for peer in list(self.peers.values()):
            self._start(peer)
        self.later(self.rates.fault_every, None, self._fault)
        self.later(self.rates.client_every, None, self._client)
        self.run_until(self.rates.ticks * TICK)
        self._heal_all()
        self._become_steady()

    def tell(self, number: int, text: str) -> None:
        if self.story is not None:
            self.story.append((self.now, number, text))

    # -- the network -------------------------------------------------------------------------------

    def send(self, message: AnyMessage, payloads: tuple[Payload, ...] = ()) -> None:
        rates, rng = self.rates, self.rng
        link = (message.sender, message.to)
        self.count(message)
        if self.calm:
            self.links[link] += 1
        if link in self.blocked or (rates.loss and rng.random() < rates.loss):
            self.counts["lost"] += 1
            return
        arrives = self.now + 1 + int(rng.random() * rates.delay)
        if rates.spikes and rng.random() < rates.spikes:
            arrives += int(rng.random() * LATE_MAX)
            self.counts["late"] += 1
        if rates.ordered:
            arrives = max(arrives, self.arrived.get(link, 0))
        elif arrives < self.arrived.get(link, 0):
            self.counts["overtaken"] += 1
        self.arrived[link] = arrives
        self.later(arrives - self.now, None, self._deliver, message, payloads)
        if rates.duplicates and rng.random() < rates.duplicates:
            self.counts["doubled"] += 1
            self.later(
                arrives - self.now + int(rng.random() * DOUBLE_MAX),
                None,
                self._deliver,
                message,
                payloads,
            )

    def count(self, message: AnyMessage) -> None:
        self.counts[type(message).__name__] += 1
        match message:
            case PreVoteReply(granted=False):
                self.counts["pre-votes refused"] += 1
            case VoteReply(granted=False):
                self.counts["votes refused"] += 1
            case AppendReply(rejected=int()):
                self.counts["appends refused"] += 1
            case InstallReply(installed=False):
                self.counts["installs refused"] += 1
            case _:
                pass

    def _deliver(self, message: AnyMessage, payloads: tuple[Payload, ...]) -> None:
        peer = self.peers[message.to]
        if not peer.up:
            return
        if peer.paused:
            peer.deferred.append((peer.receive, (message, payloads)))
        else:
            peer.receive(message, payloads)

    # -- disks and processes -----------------------------------------------------------------------

    def sync_time(self, peer: SimulatedPeer) -> int:
        rates, rng = self.rates, self.rng
        units = 1 + int(rng.random() * rates.sync) * peer.disk_factor
        if rates.sync_spikes and rng.random() < rates.sync_spikes:
            units += int(rng.random() * LATE_MAX)
        return min(units, LATE_MAX)

    def can_fetch(self, source: int, to: int) -> bool:
        peer = self.peers[source]
        reachable = peer.up and not peer.paused and (source, to) not in self.blocked
        return reachable and self.rng.random() >= self.rates.install_fails

    # -- clients -----------------------------------------------------------------------------------

    def _client(self) -> None:
        self.later(1 + int(self.rng.random() * 2 * self.rates.client_every), None, self._client)
        peer = self._someone(leading=self.rng.random() < 0.7)
        if peer is None:
            return
        if self.rng.random() < self.rates.reads:
            self.ask(peer)
        else:
            self.propose(peer)

    def ask(self, peer: SimulatedPeer) -> None:
        self.token += 1
        peer.read(self.token)

    def propose(self, peer: SimulatedPeer) -> None:
        rng = self.rng
        large = rng.random() < self.rates.large
        payloads: list[Payload] = []
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            self.payload += 1
            payloads.append(self.payload)
        top = PROPOSAL_BYTES_MAX if large else SMALL_BYTES_MAX
        peer.propose(payloads, tuple(1 + int(rng.random() * top) for _ in payloads))

    def _someone(self, *, leading: bool = False) -> SimulatedPeer | None:
        """A peer that can be reached: one that believes that it leads, if there is one."""
        up = [peer for peer in self.peers.values() if peer.up and not peer.paused]
        if leading:
            up = [peer for peer in up if peer.role is Role.LEADER] or up
        return self.rng.choice(up) if up else None

    # -- faults ------------------------------------------------------------------------------------

    def _fault(self) -> None:
        if self.calm:
            return
        self.later(1 + int(self.rng.random() * 2 * self.rates.fault_every), None, self._fault)
        if any(self.rates.faults):
            (fault,) = self.rng.choices(list(FAULTS), self.rates.faults)
            getattr(self, "_" + fault.replace(" ", "_"))()

    def _crash(self) -> None:
        peer = self._someone(leading=self.rng.random() < 0.4)
        if peer is not None:
            self._stop(peer)

    def _power_cut(self) -> None:
        self.counts["power cuts"] += 1
        for peer in self.peers.values():
            if peer.up:
                self._stop(peer)

    def _stop(self, peer: SimulatedPeer) -> None:
        self.counts["crashes"] += 1
        peer.crash()
        self.tell(peer.number, f"crashes; {peer.disk}")
        self.later(int(self.rng.random() ** 2 * 40 * TICK), None, self._start_again, peer)

    def _start_again(self, peer: SimulatedPeer) -> None:
        if not peer.up and not peer.retired:
            self._start(peer)

    def _start(self, peer: SimulatedPeer) -> None:
        self.tell(peer.number, "starts")
        peer.start()
        self.later(int(self.rng.random() * TICK), peer, self._tick, peer)

    def _tick(self, peer: SimulatedPeer) -> None:
        self.later(max(int(TICK * peer.rate), 1), peer, self._tick, peer)
        peer.tick()

    def _pause(self) -> None:
        peer = self._someone(leading=self.rng.random() < 0.6)
        if peer is not None:
            self.counts["pauses"] += 1
            self.tell(peer.number, "is paused")
            peer.paused, peer.deferred = True, []
            self.later(int(self.rng.random() * 40 * TICK), None, self._wake, peer, peer.life)

    def _wake(self, peer: SimulatedPeer, life: int) -> None:
        """The first who comes is a reader: before a tick, and before the messages that have waited."""
        if peer.life != life or not peer.paused:
            return
        self.tell(peer.number, "wakes")
        peer.paused = False
        self.counts["reads on waking"] += 1
        self.ask(peer)
        if self.rng.random() < 0.3:
            self.propose(peer)
        waiting, peer.deferred = peer.deferred, []
        for action, args in waiting:
            if peer.life == life:
                action(*args)

    def _partition(self) -> None:
        """One at a time, and often for so long that the rest elects a leader."""
        if self.blocked:
            return
        rng, numbers = self.rng, list(self.peers)
        rng.shuffle(numbers)
        half = numbers[: max(len(numbers) // 2, 1)]
        rest = numbers[len(half) :]
        kind = rng.choice((*PARTITIONS, "leader", "leader", "mute"))
        leaders = [
            peer.number for peer in self.peers.values() if peer.up and peer.role is Role.LEADER
        ]
        alone = rng.choice(leaders or numbers)
        others = [number for number in numbers if number != alone]
        self.counts[f"partition: {kind}"] += 1
        match kind:
            case "halves":
                blocked = _both(half, rest)
            case "one way":
                blocked = _one_way(half, rest)
            case "bridge":  # the first of the rest sees both sides
                blocked = _both(half, rest[1:])
            case "leader":
                blocked = _both([alone], others)
            case "deaf":
                blocked = _one_way(others, [alone])
            case "mute":
                blocked = _one_way([alone], others)
            case _:
                blocked = _both([alone], others)
                for turn in range(1, 9):
                    at = turn * int(1 + rng.random() * 8 * TICK)
                    self.later(at, None, self._set_blocked, blocked if turn % 2 == 0 else set())
        self._set_blocked(blocked)
        self.later(int(rng.random() * 50 * TICK), None, self._set_blocked, set())

    def _set_blocked(self, blocked: set[tuple[int, int]]) -> None:
        if self.calm:
            return
        self.blocked = blocked
        self.tell(0, f"links that are down: {sorted(blocked)}")
        for sender, to in sorted(blocked):
            peer = self.peers[sender]
            if peer.up and not peer.paused and self.rng.random() < 0.1:
                self.counts["connections lost"] += 1
                peer.lose_connection(to)

    def _clock(self) -> None:
        peer = self._someone()
        if peer is not None:
            peer.rate = 1.0 + self.rates.skew * (2 * self.rng.random() - 1)

    def _slow_disk(self) -> None:
        peer = self._someone()
        if peer is not None:
            peer.disk_factor = self.rng.choice((1, 1, 5, 30))

    def _transfer(self) -> None:
        peer = self._someone(leading=True)
        if peer is not None and peer.role is Role.LEADER:
            to = self.rng.choice(list(self.peers))
            peer.transfer(to)

    def _snapshot(self) -> None:
        peer = self._someone()
        if peer is not None:
            peer.take_snapshot()

    def _membership(self) -> None:
        """An operator asks a leader for the next step."""
        self._retire()
        peer = self._someone(leading=True)
        if peer is None or peer.role is not Role.LEADER:
            return
        wanted = self._next_peers(peer.peers)
        if wanted is not None:
            peer.propose_peers(wanted)

    def _next_peers(self, peers: Peers) -> Peers | None:
        rng = self.rng
        if peers.outgoing:
            self.counts["joint changes"] += 1
            return replace(peers, outgoing=())
        kind = rng.choice(("add", "promote", "promote", "remove", "demote", "forget", "joint"))
        if kind == "joint":
            known = [*peers.voters, *peers.learners]
            voters = tuple(sorted(rng.sample(known, rng.randint(1, len(known)))))
            return Peers(voters, peers.voters, tuple(n for n in peers.learners if n not in voters))
        if kind == "add" and len(peers.voters) + len(peers.learners) < MEMBERS_MAX:
            number = len(self.peers) + 1
            if number > NUMBERS_MAX:
                return None
            self._add(number, NOBODY)
            self._start(self.peers[number])
            self.counts["added"] += 1
            return replace(peers, learners=(*peers.learners, number))
        if kind == "promote" and peers.learners:
            number = rng.choice(peers.learners)
            self.counts["promoted"] += 1
            return Peers(
                tuple(sorted((*peers.voters, number))),
                learners=tuple(other for other in peers.learners if other != number),
            )
        if kind == "remove" and len(peers.voters) > 1:
            number = rng.choice(peers.voters)
            self.counts["removed"] += 1
            return replace(peers, voters=tuple(other for other in peers.voters if other != number))
        if kind == "demote" and len(peers.voters) > 1:
            number = rng.choice(peers.voters)
            self.counts["demoted"] += 1
            return Peers(
                tuple(other for other in peers.voters if other != number),
                learners=tuple(sorted((*peers.learners, number))),
            )
        if kind == "forget" and peers.learners:
            number = rng.choice(peers.learners)
            return replace(peers, learners=tuple(o for o in peers.learners if o != number))
        return None

    def _add(self, number: int, founders: Peers) -> None:
        peer = self.peers[number] = SimulatedPeer(self, number, founders)
        self.disks[number] = peer.disk
        peer.rate = 1.0 + self.rates.skew * (2 * self.rng.random() - 1)

    def _retire(self) -> None:
        """Shuts down who was removed, once all voters that are left know it for good."""
        for peer in self.peers.values():
            if peer.up and self._is_removed(peer.number) and self.rng.random() < 0.5:
                self.counts["retired"] += 1
                self.tell(peer.number, "is shut down for good")
                peer.crash()
                peer.retired = True

    def _is_removed(self, number: int) -> bool:
        changes = self.checks.changes
        index, peers = changes[-1]
        return (
            number not in _members(peers)
            and any(number in _members(before) for _, before in changes)
            and all(self.disks[voter].state.snapshot.index >= index for voter in peers.voters)
        )

    # -- and when nothing goes wrong any more ------------------------------------------------------

    def _heal_all(self) -> None:
        self.tell(0, "all is healed")
        self.calm, self.blocked = True, set()
        self.rates = replace(
            self.rates, client_every=TICK, reads=0.3, large=0.0, loss=0.0, duplicates=0.0, delay=10,
            spikes=0.0, ordered=True, sync=5, sync_spikes=0.0, install_fails=0.0, gather=0, apply_later=0.0,
        )  # fmt: skip
        for peer in self.peers.values():
            peer.rate = 1.0 + 0.1 * (peer.rate - 1.0)
            peer.disk_factor = 1
            if not peer.up and not peer.retired:
                self._start(peer)
            elif peer.paused:
                self._wake(peer, peer.life)

    def _become_steady(self) -> None:
        """Within a bounded time somebody leads, clients are served, and all members are equal."""
        proposed, index = self.payload, self.checks.last
        self.run_until(self.now + LATE_MAX + DOUBLE_MAX)  # what was late is there by then
        for _ in range(HEAL_TICKS):
            self.run_until(self.now + TICK)
            fresh = [
                at
                for at in range(index + 1, self.checks.last + 1)
                if isinstance(number := self.checks.committed[at].payload, int)
                and number > proposed
            ]
            if fresh and self._all_have(fresh[0]):
                break
        else:
            raise Broken(f"{HEAL_TICKS} ticks after the healing: {self._standing()}")
        leader = self._leader()
        assert leader is not None
        term = leader.term
        for number in _members(leader.peers):
            self.peers[number].served = False
        for _ in range(STEADY_TICKS):
            self.links.clear()
            for number in _members(leader.peers):
                if not self.peers[number].served:
                    self.ask(self.peers[number])
            self.run_until(self.now + TICK)
            busiest = max(self.links.values(), default=0)
            require(busiest <= STORM, f"{busiest} messages from one peer to another in a calm tick")
        same = leader.role is Role.LEADER and leader.term == term
        require(same, f"the leader of term {term} was disturbed: {self._standing()}")
        require(self._all_have(self.checks.last - 10), f"somebody is behind: {self._standing()}")
        for number in _members(leader.peers):
            require(self.peers[number].served, f"peer {number} has answered no reader")

    def _leader(self) -> SimulatedPeer | None:
        leaders = [peer for peer in self.peers.values() if peer.up and peer.role is Role.LEADER]
        return max(leaders, key=lambda peer: peer.term, default=None)

    def _all_have(self, index: int) -> bool:
        leader = self._leader()
        return (
            leader is not None
            and leader.number in (*leader.peers.voters, *leader.peers.outgoing)
            and all(self.peers[number].applied >= index for number in _members(leader.peers))
        )

    def _standing(self) -> str:
        return "; ".join(str(peer) for peer in self.peers.values())


def _members(peers: Peers) -> list[int]:
    return sorted({*peers.voters, *peers.outgoing, *peers.learners})


def _one_way(senders: list[int], receivers: list[int]) -> set[tuple[int, int]]:
    return {(sender, to) for sender in senders for to in receivers}


def _both(some: list[int], others: list[int]) -> set[tuple[int, int]]:
    return _one_way(some, others) | _one_way(others, some)
