"""Ready messages where keys matter: a chain of offsets for each key, and turns between the keys.

With `order="key"` a message waits until all before it in its chain are settled, or goes with them in
one receive. So what is *out* (leased, or waiting for a retry or a delay) holds up everything behind
it, and nothing before it: those that were given back of several that went together are ready
again, up to the first that is still out. With `fair` alone nothing is held up.

Turns: chains that have something ready stand in a ring per priority of their head; a ring goes
round the tenants (the part of a key before its first "/"), and inside a tenant round its keys. So
a key with a million messages gets one turn in each round like any other, and a tenant with a
thousand busy keys gets one like any other. Messages without a key (key 0) share one chain that is
never held up.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from heapq import heappop
from typing import Any, Final

from quiver.core.delivery.lanes import Taken
from quiver.core.delivery.offsets import OffsetSet
from quiver.model.ranges import Range

COMPACT_AT: Final = 64  # consumed offsets kept at the head of a chain before it is shortened


class Chain:
    """The pending messages of one key, in offset order."""

    __slots__ = ("again", "head", "key", "level", "offered", "offsets", "out", "tenant")

    def __init__(self, key: int, tenant: int) -> None:
        """Nothing pending."""
        self.key = key
        self.tenant = tenant
        self.offsets: list[int] = []
        self.head = 0  # offsets before it are consumed
        self.again: list[tuple[int, int]] = []  # heap of (offset, attempts) that came back
        self.out: list[int] = []  # what is leased or waits, in order, where order matters
        self.offered = -1  # the offset for which it stands in a ring, or -1
        self.level = 0  # the priority of that ring

    def peek(self, settled: OffsetSet | None) -> int:
        """The first pending offset, or -1; forgets settled ones on the way, if any may be."""
        if settled is None:
            if self.again:
                return self.again[0][0]
            return self.offsets[self.head] if self.head < len(self.offsets) else -1
        while self.again:
            if self.again[0][0] not in settled:
                return self.again[0][0]
            heappop(self.again)
        while self.head < len(self.offsets):
            if self.offsets[self.head] not in settled:
                return self.offsets[self.head]
            self._consume()
        return -1

    def pop(self) -> tuple[int, int]:
        """Take what `peek` showed: its offset and attempts so far."""
        if self.again:
            return heappop(self.again)
        offset = self.offsets[self.head]
        self._consume()
        return offset, 0

    def send_out(self, offset: int) -> None:
        """It is leased, or waits: what is behind it is held up."""
        insort(self.out, offset)

    def bring_in(self, offset: int) -> None:
        """It is settled, or pending again."""
        at = bisect_left(self.out, offset)
        assert self.out[at] == offset
        del self.out[at]

    def holds_up(self, offset: int) -> bool:
        """Whether something that comes before `offset` is out."""
        return bool(self.out) and self.out[0] < offset

    def _consume(self) -> None:
        self.head += 1
        if self.head >= COMPACT_AT and self.head * 2 >= len(self.offsets):
            del self.offsets[: self.head]
            self.head = 0


class Ring:
    """Keys that have a turn to come: round the tenants, and inside each round its keys."""

    __slots__ = ("keys", "tenants")

    def __init__(self) -> None:
        """Nobody waits."""
        self.tenants: deque[int] = deque()
        self.keys: dict[int, deque[int]] = {}

    def push(self, key: int, tenant: int) -> None:
        """Stand at the end of the tenant's keys, and the tenant at the end of the tenants."""
        keys = self.keys.get(tenant)
        if keys is None:
            self.keys[tenant] = deque((key,))
            self.tenants.append(tenant)
        else:
            keys.append(key)

    def pop(self) -> int:
        """Whose turn it is."""
        tenant = self.tenants.popleft()
        keys = self.keys[tenant]
        key = keys.popleft()
        if keys:
            self.tenants.append(tenant)
        else:
            del self.keys[tenant]
        return key

    def remove(self, key: int, tenant: int) -> None:
        """Stand no longer in it."""
        keys = self.keys[tenant]
        keys.remove(key)
        if not keys:
            del self.keys[tenant]
            self.tenants.remove(tenant)

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self.tenants)


class Chains:
    """What a group may take from one partition, by key."""

    __slots__ = ("_chains", "_ordered", "_rings")

    def __init__(self, ordered: bool) -> None:
        """`ordered`: nothing of a key before what is older."""
        self._ordered = ordered
        self._chains: dict[int, Chain] = {}
        self._rings: dict[int, Ring] = {}

    def blocks(self, key: int) -> bool:
        """Whether a message of this key that is out keeps its successors back."""
        return self._ordered and key != 0

    def chain(self, key: int, tenant: int) -> Chain:
        """The key's chain, made if it is new."""
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = Chain(key, tenant)
        return chain

    def offer(self, chain: Chain, offset: int, priority: int) -> None:
        """The chain's head `offset` is ready: let it have a turn."""
        chain.offered = offset
        chain.level = priority
        self._rings.setdefault(priority, Ring()).push(chain.key, chain.tenant)

    def promote(self, chain: Chain, offset: int, priority: int) -> None:
        """The chain stands in a ring, and now has a head of higher priority."""
        self.withdraw(chain)
        self.offer(chain, offset, priority)

    def withdraw(self, chain: Chain) -> None:
        """The chain stands in a ring, and has nothing to give for now."""
        ring = self._rings[chain.level]
        ring.remove(chain.key, chain.tenant)
        if not ring:
            del self._rings[chain.level]
        chain.offered = -1

    def keep_turn(self, level: int, tenant: int) -> None:
        """The chain whose turn it was had nothing to give: another key of its tenant is next."""
        ring = self._rings.get(level)
        if ring is not None and ring.tenants[-1] == tenant:
            ring.tenants.rotate(1)

    def known(self, key: int) -> Chain | None:
        """The key's chain, if it has one."""
        return self._chains.get(key)

    def drop_if_done(self, chain: Chain) -> None:
        """Forget a chain with nothing pending, unless something of it is out."""
        if not chain.out:
            self._chains.pop(chain.key, None)

    def levels(self) -> list[int]:
        """The priorities at which a chain stands in a ring."""
        return list(self._rings)

    def next_turn(self, level: int) -> tuple[Chain, int, int] | None:
        """The chain whose turn it is, the offset it was offered for, and its ring, which it leaves.

        A chain whose next message has a higher priority than the last one goes before the others.
        """
        highest = max(self._rings, default=-1)
        if highest < level:
            return None
        ring = self._rings[highest]
        chain = self._chains[ring.pop()]
        if not ring:
            del self._rings[highest]
        offered, chain.offered = chain.offered, -1
        return chain, offered, highest

    def __bool__(self) -> bool:
        """Whether there may be something to take."""
        return bool(self._rings)

    def ranges(self) -> Iterator[Range]:
        """Everything pending in the chains, settled or not."""
        for chain in self._chains.values():
            yield from ((offset, offset + 1) for offset in chain.offsets[chain.head :])
            yield from ((offset, offset + 1) for offset, _ in chain.again)

    def out(self) -> dict[int, list[int]]:
        """What each key has out, by key."""
        return {key: chain.out for key, chain in self._chains.items() if chain.out}

    def check(self) -> None:
        """Every chain in a ring is known and marked so, and no other."""
        queued = [
            key for ring in self._rings.values() for keys in ring.keys.values() for key in keys
        ]
        assert len(queued) == len({*queued})
        assert sorted(queued) == sorted(c.key for c in self._chains.values() if c.offered >= 0)
        for chain in self._chains.values():
            assert not chain.holds_up(chain.offered)

    def dump(self) -> list[Any]:
        """As plain data; of what is out only how much, since leases and what waits are told elsewhere."""
        chains = [
            [c.key, c.tenant, c.offsets[c.head :], list(c.again), len(c.out), c.offered]
            for c in self._chains.values()
        ]
        rings = [
            [priority, list(ring.tenants), [[t, list(keys)] for t, keys in ring.keys.items()]]
            for priority, ring in self._rings.items()
        ]
        return [chains, rings]

    @classmethod
    def load(cls, ordered: bool, data: list[Any]) -> "Chains":
        """What `dump` gave; the caller says what is out."""
        made = cls(ordered)
        chains, rings = data
        for key, tenant, offsets, again, _, offered in chains:
            chain = made._chains[key] = Chain(key, tenant)
            chain.offsets, chain.offered = offsets, offered
            chain.again = [(offset, attempts) for offset, attempts in again]
        for priority, tenants, keys in rings:
            ring = made._rings[priority] = Ring()
            ring.tenants = deque(tenants)
            ring.keys = {tenant: deque(members) for tenant, members in keys}
            for _, members in keys:
                for key in members:
                    made._chains[key].level = priority
        return made


def join(singles: list[tuple[int, int]]) -> list[Taken]:
    """Consecutive offsets with equal attempts as ranges, in the order given."""
    joined: list[Taken] = []
    for offset, attempts in singles:
        if joined and joined[-1][1] == offset and joined[-1][2] == attempts:
            joined[-1] = (joined[-1][0], offset + 1, attempts)
        else:
            joined.append((offset, offset + 1, attempts))
    return joined
