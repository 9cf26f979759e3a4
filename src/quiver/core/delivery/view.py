"""A group's view of one partition: what is ready, waiting, leased and settled.

Every offset below `next` is in exactly one of four places; offsets from `next` on have not been looked
at. `check` verifies that.

    ready      may be given to the next receive       `PriorityLanes` (RangeView) or `Chains` (KeyView)
    waiting    ready again at a time                  `due`, a heap by that time
    leased     a receive holds it until a deadline    `leases`, by epoch
    settled    done with, for this group              `settled`

What is leased has *begun*, or is only *reserved*: then it is no attempt yet, and from `steal_ms` on
another receive may take it over. In every other respect it is leased.

What moves an offset, by which functions of the view. Commands call them through `Delivery`:

    from      to         when                                             by
    ───────   ────────   ──────────────────────────────────────────────   ──────────────────────────
    unseen    ready      it was sent, or the group was made               catch_up → _admit
    unseen    waiting    the same, and it has a delay                     catch_up → _admit → _park
    unseen    unseen     the same, in strict order: all behind it, too    blocked_until_ms
    unseen    settled    it was removed, or its life has ended            catch_up, _admit → _lapse
    ready     leased     Receive                                          take, then lease
    ready     settled    Receive, at most once                            take, then settle
    ready     ready      Receive, and the answer was full before it       take, then untake → _back
    waiting   ready      its time has come, and there is a Receive        prepare → _mature → _back
    leased    leased     Settle extend; begin: reserved becomes begun     extend; begin
    leased    settled    Settle ack, Transact; buried as a dead letter    release, then settle
    leased    settled    begin, at most once                              release, then settle
    leased    ready      Settle nack or release, no delay; taken over     release, give_back → _back
    leased    waiting    the same with a delay; a nack's retry            release, give_back → _park
    leased    ready,     its deadline has come                            release_due, then the same
              waiting,
              settled    or it had its last attempt, or its life ended    … settle; give_back → _lapse
    any but   settled    its life has ended; what has begun may be        expire → drop
    begun                settled by its holder
    any       settled    retention, Settle dismiss                        lose → drop
    any but   settled    Commit of a member; Discard and Redrive of       drop
    leased               what nobody holds

Purge and Seek begin a new view; Compact takes only what is settled.

`settled` is the truth. `drop` does not search the heap, the lanes or the chains: they may go on naming
an offset that was settled behind their back, and skip it when they come to it.

`RangeView` serves topics where keys do not matter, in ranges; `KeyView` serves key order and fairness,
message by message.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from quiver.core.delivery.chains import Chain, Chains, join
from quiver.core.delivery.extents import Extent
from quiver.core.delivery.lanes import PriorityLanes, Taken
from quiver.core.delivery.offsets import OffsetSet
from quiver.core.delivery.partition import Partition
from quiver.model.ranges import Range, merge, subtract
from quiver.model.topic import TopicPolicy

Waiting = tuple[int, int, int, int]  # due_ms, start, end, attempts so far
Lapsed = Callable[[int, int], None]  # told of the ranges whose life has ended


class ViewPiece(NamedTuple):
    """Consecutive offsets under a lease. `steal_ms` is 0 if they have begun.

    If they are reserved, it is when others may take them over, and `attempt` is the one that would begin.
    """

    start: int
    end: int
    attempt: int
    deadline_ms: int
    steal_ms: int = 0


class Lease:
    """Offsets one receive took: sorted pieces."""

    __slots__ = ("consumer", "epoch", "held")

    def __init__(self, epoch: int, consumer: str, held: list[ViewPiece]) -> None:
        """`epoch` is the index of the entry that granted it, so it only grows."""
        self.epoch = epoch
        self.consumer = consumer
        self.held = held

    def holds(self, start: int, end: int) -> bool:
        """Whether all of `start … end` is still held."""
        position = start
        for piece in self._touching(start, end):
            if piece.start > position:
                return False
            position = piece.end
        return position >= end

    def release(self, start: int, end: int) -> list[ViewPiece]:
        """Let go of what is held of `start … end`; return those pieces."""
        pieces = self._touching(start, end)
        if not pieces:
            return []
        released: list[ViewPiece] = []
        remain: list[ViewPiece] = []
        for piece in pieces:
            low, high, attempt, deadline_ms, steal_ms = piece
            if low >= start and high <= end:
                released.append(piece)
                continue
            if low < start:
                remain.append(ViewPiece(low, start, attempt, deadline_ms, steal_ms))
            if high > end:
                remain.append(ViewPiece(end, high, attempt, deadline_ms, steal_ms))
            cut = max(low, start), min(high, end)
            released.append(ViewPiece(*cut, attempt, deadline_ms, steal_ms))
        at = self._first(start)
        self.held[at : at + len(pieces)] = remain
        return released

    def hold(self, pieces: list[ViewPiece]) -> None:
        """Hold these, which were released just now, in place of what they were before."""
        self.held += pieces
        self.held.sort()

    def _first(self, start: int) -> int:
        at = bisect_right(self.held, start, key=lambda piece: piece[0])
        return at - 1 if at and self.held[at - 1][1] > start else at

    def _touching(self, start: int, end: int) -> list[ViewPiece]:
        at = stop = self._first(start)
        while stop < len(self.held) and self.held[stop][0] < end:
            stop += 1
        return self.held[at:stop]


class View:
    """What both kinds of view share."""

    __slots__ = ("_lapsed", "_spoiled", "blocked_until_ms", "due", "expired", "leased", "leases", "next",
                 "partition", "reserved", "reserving", "settled")  # fmt: skip

    def __init__(self, partition: Partition, start: int, lapsed: Lapsed) -> None:
        """Everything before `start` counts as settled."""
        self._lapsed = lapsed
        self.partition = partition
        self.settled = OffsetSet.below(start)
        self.next = start
        self.due: list[Waiting] = []
        self._spoiled = False  # `due` may name what is settled; not a part of the state
        self.leases: dict[int, Lease] = {}
        self.leased = 0  # messages, of which
        self.reserved = 0  # so many have not begun,
        self.reserving: dict[int, int] = {}  # by epoch: when others may take them over
        self.expired = 0  # messages whose time to live ended, since the view began
        self.blocked_until_ms = 0  # in strict order a delayed message holds up all behind it

    # -- what the kinds differ in ------------------------------------------------------------------

    def _admit(self, extent: Extent, start: int, end: int, now_ms: int) -> int:
        """Look at `start … end` for the first time; return where it stopped."""
        raise NotImplementedError

    def levels(self) -> list[int]:
        """The priorities at which something may be ready."""
        raise NotImplementedError

    def take(self, level: int, limit: int, per_key: int, now_ms: int) -> list[Taken]:
        """Take up to `limit` ready messages of a priority; the caller leases or settles them."""
        raise NotImplementedError

    def _back(self, start: int, end: int, attempts: int, now_ms: int) -> None:
        """These are ready again."""
        raise NotImplementedError

    def _park(self, due_ms: int, start: int, end: int, attempts: int) -> None:
        """These are ready again at `due_ms`."""
        heappush(self.due, (due_ms, start, end, attempts))

    def _freed(self, start: int, end: int, now_ms: int) -> None:
        """These no longer hold anything up."""

    def is_ready(self, now_ms: int) -> bool:
        """Whether a receive would probably get something."""
        raise NotImplementedError

    def ready_ranges(self) -> Iterator[Range]:
        """Everything that is ready, settled or not."""
        raise NotImplementedError

    # -- what they share ---------------------------------------------------------------------------

    def catch_up(self, now_ms: int) -> None:
        """Look at everything that was appended since the last time."""
        partition = self.partition
        if self.next == partition.end:
            return
        self.blocked_until_ms = 0
        for extent in partition.since(self.next):
            start, end = max(self.next, extent.first), extent.end
            if start > self.next:
                self.settled.add(self.next, start)
            for low, high in self._unremoved(start, end):
                stop = self._admit(extent, low, high, now_ms)
                if stop < high:
                    self.next = stop
                    self._unremoved(stop, partition.end)  # what is gone counts as settled at once
                    return
            self.next = end
        if self.next < partition.end:
            self.settled.add(self.next, partition.end)
            self.next = partition.end

    def _unremoved(self, start: int, end: int) -> list[Range]:
        kept = [(start, end)]
        if self.partition.removed.count:
            kept = list(self.partition.removed.gaps(start, end))
            for low, high in subtract([(start, end)], kept):
                self.settled.add(low, high)
        # Members settle by offset what no view has looked at.
        return [gap for low, high in kept for gap in self.settled.gaps(low, high)]

    def prepare(self, now_ms: int, mature_max: int) -> None:
        """Make ready what may be taken now; at most so many of what has waited for its time."""
        self.catch_up(now_ms)
        self._mature(now_ms, mature_max)

    def untake(self, start: int, end: int, attempts: int, now_ms: int) -> None:
        """Put back what was taken and not leased."""
        self._back(start, end, attempts, now_ms)

    def lease(
        self, epoch: int, consumer: str, begun: list[Taken], reserved: list[Taken],
        deadline_ms: int, steal_ms: int = 0,
    ) -> None:  # fmt: skip
        """Hold what was taken until `deadline_ms`; what is `reserved`, for its own until `steal_ms`."""
        held = [ViewPiece(start, end, attempts + 1, deadline_ms) for start, end, attempts in begun]
        if reserved:
            held += [ViewPiece(start, end, attempts + 1, deadline_ms, steal_ms)
                     for start, end, attempts in reserved]  # fmt: skip
            self.reserved += sum(end - start for start, end, _ in reserved)
            self.reserving[epoch] = steal_ms
        held.sort()
        self.leases[epoch] = Lease(epoch, consumer, held)
        self.leased += sum([end - start for start, end, *_ in held])

    def release(self, epoch: int, start: int, end: int) -> list[ViewPiece]:
        """End the lease on what it holds of `start … end`: the pieces."""
        lease = self.leases.get(epoch)
        if lease is None:
            return []
        released = lease.release(start, end)
        for piece in released:
            self.leased -= piece[1] - piece[0]
        if not lease.held:
            del self.leases[epoch]
        if self.reserving:
            self._unreserve(lease, released)
        return released

    def _unreserve(self, lease: Lease, pieces: list[ViewPiece]) -> None:
        """Of these, what was reserved is that no longer."""
        count = sum(piece.end - piece.start for piece in pieces if piece.steal_ms)
        if count:
            self.reserved -= count
            if not any(piece.steal_ms for piece in lease.held):
                del self.reserving[lease.epoch]

    def extend(self, epoch: int, start: int, end: int, deadline_ms: int) -> list[Range]:
        """Hold what the lease holds of `start … end` until `deadline_ms`; return what that is."""
        lease = self.leases[epoch]
        extended = lease.release(start, end)
        lease.hold([piece._replace(deadline_ms=deadline_ms) for piece in extended])
        return [(piece.start, piece.end) for piece in extended]

    def begin(self, epoch: int, start: int, end: int, deadline_ms: int) -> list[ViewPiece]:
        """What the lease holds of `start … end` has begun; return the pieces as they were before.

        They are held until `deadline_ms`, or, if that is 0, as long as before.
        """
        lease = self.leases[epoch]
        before = lease.release(start, end)
        lease.hold(
            [
                piece._replace(deadline_ms=deadline_ms or piece.deadline_ms, steal_ms=0)
                for piece in before
            ]
        )
        self._unreserve(lease, before)
        return before

    def release_due(self, epoch: int, when_ms: int) -> list[ViewPiece]:
        """End the lease on what it was to hold until `when_ms` at most."""
        lease = self.leases.get(epoch)
        if lease is None:
            return []
        due = [(piece.start, piece.end) for piece in lease.held if piece.deadline_ms <= when_ms]
        return [piece for start, end in due for piece in self.release(epoch, start, end)]

    # -- taking over -------------------------------------------------------------------------------

    @property
    def steals_all(self) -> bool:
        """Whether reservations are taken over all together or not at all."""
        return False

    def steal_due_ms(self) -> int | None:
        """When a reservation may be taken over."""
        return min(self.reserving.values(), default=None) if self.reserving else None

    def may_steal(self, now_ms: int) -> bool:
        """Whether a reservation may be taken over by now."""
        due_ms = self.steal_due_ms()
        return due_ms is not None and due_ms <= now_ms

    def stealable(self, now_ms: int) -> list[tuple[int, int, list[ViewPiece]]]:
        """What may be taken over by now: since when, the epoch that has reserved it, the pieces."""
        if not self.may_steal(now_ms):
            return []
        return [
            (steal_ms, epoch, [piece for piece in self.leases[epoch].held if piece.steal_ms])
            for epoch, steal_ms in self.reserving.items()
            if steal_ms <= now_ms
        ]

    # -- settling ----------------------------------------------------------------------------------

    def settle(self, start: int, end: int, now_ms: int) -> None:
        """These are done with, and were leased or taken until now."""
        self.settled.add(start, end)
        self._freed(start, end, now_ms)

    def give_back(self, start: int, end: int, attempts: int, due_ms: int, now_ms: int) -> None:
        """These were released unsettled: ready again at `due_ms`, unless their life ended meanwhile."""
        kept = [(start, end)]
        if self.partition.has_ttl:
            over = merge(
                [
                    (offset, offset + 1)
                    for offset in range(start, end)
                    if 0 < self.partition.expires_at_of(offset) <= now_ms
                ]
            )
            for low, high in over:
                self._lapse(low, high)
                self.settle(low, high, now_ms)
            kept = subtract(kept, over)
        for low, high in kept:
            if due_ms > now_ms:
                self._park(due_ms, low, high, attempts)
            else:
                self._back(low, high, attempts, now_ms)

    def unheld(self, ranges: list[Range]) -> list[Range]:
        """The part of `ranges` that is neither settled nor begun."""
        open_ = [gap for start, end in merge(ranges) for gap in self.settled.gaps(start, end)]
        return subtract(open_, self.held_ranges(begun=True))

    def held_ranges(self, *, begun: bool = False) -> list[Range]:
        """Everything that is leased, or only what has `begun`."""
        return merge(
            [
                (piece.start, piece.end)
                for lease in self.leases.values()
                for piece in lease.held
                if not (begun and piece.steal_ms)
            ]
        )

    def drop(self, start: int, end: int, now_ms: int) -> None:
        """These are gone without having been delivered; the places that name them will skip them."""
        self.settled.add(start, end)
        self._spoiled = bool(self.due)
        if self.next in self.settled:
            self.blocked_until_ms = 0

    def lose(self, start: int, end: int, now_ms: int) -> int:
        """Retention takes these away, also from whoever holds them; return how many were unsettled."""
        lost = sum(high - low for low, high in self.settled.gaps(start, end))
        if lost:
            self._end(list(self.leases), start, end, now_ms)
            self.drop(start, end, now_ms)
        return lost

    def _end(self, epochs: list[int], start: int, end: int, now_ms: int) -> None:
        """End these leases on `start … end`, which nobody is to have any more."""
        for epoch in epochs:
            for piece in self.release(epoch, start, end):
                self.settle(piece.start, piece.end, now_ms)

    def expire(self, ranges: list[Range], now_ms: int) -> None:
        """The life of these messages has ended; what has begun may still be settled."""
        for start, end in self.unheld(ranges):
            self._lapse(start, end)
            self._end(list(self.reserving), start, end, now_ms)
            self.drop(start, end, now_ms)

    def _lapse(self, start: int, end: int) -> None:
        """Count messages whose life has ended, and tell."""
        self.expired += end - start
        self._lapsed(start, end)

    def next_due_ms(self) -> int | None:
        """When something that waits becomes ready."""
        due = self.due[0][0] if self.due else None
        if self.blocked_until_ms and (due is None or self.blocked_until_ms < due):
            return self.blocked_until_ms
        return due

    def waiting(self, now_ms: int) -> int:
        """How many messages wait for a time that has not come."""
        if not self._spoiled:
            return sum([end - start for due, start, end, _ in self.due if due > now_ms])
        return sum(
            high - low
            for due, start, end, _ in self.due
            if due > now_ms
            for low, high in self.settled.gaps(start, end)
        )

    def _mature(self, now_ms: int, room: int) -> None:
        while self.due and self.due[0][0] <= now_ms and room > 0:
            _, start, end, attempts = heappop(self.due)
            room -= end - start
            for low, high in self.settled.gaps(start, end):
                self._back(low, high, attempts, now_ms)
        self._spoiled = self._spoiled and bool(self.due)

    def set_times(self, ends: Callable[[int], int], when: Callable[[int, int, int], int]) -> None:
        """Replace when leases end and may be taken over, and when waiting messages are due.

        `when` gets that, the first offset of those that wait together (-1 if all were settled
        meanwhile), and their attempts.
        """
        self.blocked_until_ms = 0  # the next receive looks again
        self.reserving = {epoch: ends(steal_ms) for epoch, steal_ms in self.reserving.items()}
        for lease in self.leases.values():
            lease.held = [
                piece._replace(
                    deadline_ms=ends(piece.deadline_ms),
                    steal_ms=piece.steal_ms and ends(piece.steal_ms),
                )
                for piece in lease.held
            ]
        moved = []
        for due_ms, start, end, attempts in self.due:
            first = next((low for low, _ in self.settled.gaps(start, end)), -1)
            moved.append((when(due_ms, first, attempts), start, end, attempts))
        heapify(moved)
        self.due = moved

    def check(self) -> None:
        """Every offset below `next` is in exactly one place."""
        pieces = [piece for lease in self.leases.values() for piece in lease.held]
        held = [(piece.start, piece.end) for piece in pieces]
        assert self.leased == sum(end - start for start, end in held)
        assert all(lease.held for lease in self.leases.values())
        assert self.reserved == sum(x.end - x.start for x in pieces if x.steal_ms)
        assert self.reserving == self._reserving()
        waits = [(start, end) for _, start, end, _ in self.due]
        assert self._spoiled or not any(self._any_settled(start, end) for start, end in waits)
        places = [
            gap
            for start, end in [*held, *waits, *self.ready_ranges()]
            for gap in self.settled.gaps(start, end)
        ]
        assert sum(end - start for start, end in places) == sum(
            end - start for start, end in merge(places)
        ), "an offset is in two places"
        assert merge(places) == list(self.settled.gaps(0, self.next)), "an offset is nowhere"
        assert all(self.settled.covers(a, b) is False for a, b in held)

    def _any_settled(self, start: int, end: int) -> bool:
        return list(self.settled.gaps(start, end)) != [(start, end)]

    def dump(self) -> list[Any]:
        """As plain data."""
        leases = [[x.epoch, x.consumer, x.held] for x in self.leases.values()]
        return [self.settled.dump(), self.next, list(self.due), leases, self.expired,
                self.blocked_until_ms, self._dump_ready()]  # fmt: skip

    def load(self, data: list[Any]) -> None:
        """Become what `dump` gave."""
        settled, self.next, due, leases, self.expired, self.blocked_until_ms, ready = data
        self.settled = OffsetSet.load(settled)
        self.due = [(when, start, end, attempts) for when, start, end, attempts in due]
        self._spoiled = any(self._any_settled(start, end) for _, start, end, _ in self.due)
        self.leases = {
            epoch: Lease(epoch, consumer, [ViewPiece(*piece) for piece in held])
            for epoch, consumer, held in leases
        }
        pieces = [piece for lease in self.leases.values() for piece in lease.held]
        self.leased = sum(piece.end - piece.start for piece in pieces)
        self.reserved = sum(piece.end - piece.start for piece in pieces if piece.steal_ms)
        self.reserving = self._reserving()
        self._load_ready(ready)

    def _reserving(self) -> dict[int, int]:
        """By epoch, when what is reserved may be taken over: all of one lease at the same time."""
        return {
            lease.epoch: piece.steal_ms
            for lease in self.leases.values()
            for piece in lease.held
            if piece.steal_ms
        }

    def _dump_ready(self) -> list[Any]:
        raise NotImplementedError

    def _load_ready(self, data: list[Any]) -> None:
        raise NotImplementedError


class RangeView(View):
    """Offset order inside each priority; or, `strict`, one receive at a time in pure offset order."""

    __slots__ = ("_lanes", "_strict")

    def __init__(self, partition: Partition, start: int, lapsed: Lapsed, strict: bool) -> None:
        """`strict` is `order="partition"`."""
        super().__init__(partition, start, lapsed)
        self._strict = strict
        self._lanes = PriorityLanes()

    def _admit(self, extent: Extent, start: int, end: int, now_ms: int) -> int:
        columns = extent.columns
        if columns is None or not (columns.priorities or columns.deliver_at or columns.expires_at):
            self._lanes.add(start, end, 0)
            return end
        shift = extent.base - extent.first
        waits: list[list[int]] = []  # due_ms, priority, start, end: alike, and in a row
        for offset in range(start, end):
            row = offset + shift
            if columns.expires_at and 0 < columns.expires_at[row] <= now_ms:
                self._lapse(offset, offset + 1)
                self.settled.add(offset, offset + 1)
                continue
            priority = columns.priorities[row] if columns.priorities and not self._strict else 0
            due_ms = columns.deliver_at[row] if columns.deliver_at else 0
            if due_ms <= now_ms:
                self._lanes.add(offset, offset + 1, priority)
            elif self._strict:
                self.blocked_until_ms = due_ms
                return offset
            elif waits and waits[-1][:2] == [due_ms, priority] and waits[-1][3] == offset:
                waits[-1][3] = offset + 1
            else:
                waits.append([due_ms, priority, offset, offset + 1])
        for due_ms, _, low, high in waits:
            self._park(due_ms, low, high, 0)
        return end

    def levels(self) -> list[int]:
        """The priorities at which something may be ready."""
        return self._lanes.levels()

    def take(self, level: int, limit: int, per_key: int, now_ms: int) -> list[Taken]:
        """Take up to `limit` ready messages of a priority, oldest first."""
        if not self._strict:
            return self._lanes.take(level, limit, self.settled)
        if self.leases:
            return []
        taken: list[Taken] = []
        barrier = self._barrier()
        for start, end, attempts in self._lanes.take(level, limit, self.settled):
            if start < barrier:
                taken.append((start, min(end, barrier), attempts))
            if end > barrier:
                self._lanes.put_back(max(start, barrier), end, attempts, 0)
        return taken

    def _barrier(self) -> int:
        """In strict order nothing from here on may go before what waits for its time."""
        return min((start for _, start, _, _ in self.due), default=self.partition.end)

    def _back(self, start: int, end: int, attempts: int, now_ms: int) -> None:
        priority = 0 if self._strict else self.partition.priority_of(start)
        self._lanes.put_back(start, end, attempts, priority)

    def is_ready(self, now_ms: int) -> bool:
        """Whether a receive would probably get something."""
        if self._strict and self.leases:
            return False
        if self.due and self.due[0][0] <= now_ms:
            return True
        unseen = self.next < self.partition.end and self.blocked_until_ms <= now_ms
        if self._strict and self.due:
            return bool(self._lanes) and self._lanes.lowest() < self._barrier()
        return bool(self._lanes) or unseen

    def next_due_ms(self) -> int | None:
        """When something that waits becomes ready; in strict order not while a lease is out.

        There a delayed message that nobody has looked at is behind all that waits to be retried.
        """
        if self._strict and self.leases:
            return None
        return self.due[0][0] if self._strict and self.due else super().next_due_ms()

    @property
    def steals_all(self) -> bool:
        """In strict order what is behind something reserved is held up by it."""
        return self._strict

    def steal_due_ms(self) -> int | None:
        """As for any view; in strict order not while something has begun, which must be first."""
        if self._strict and self.reserved < self.leased:
            return None
        return super().steal_due_ms()

    def drop(self, start: int, end: int, now_ms: int) -> None:
        """As for any view; in strict order they also hold up nothing any more."""
        super().drop(start, end, now_ms)
        if self._strict:
            self.due = [piece for piece in self.due if not self.settled.covers(piece[1], piece[2])]
            heapify(self.due)
            if self.next in self.settled:
                self.blocked_until_ms = 0

    def ready_ranges(self) -> Iterator[Range]:
        """Everything that is ready, settled or not."""
        return self._lanes.ranges()

    def _dump_ready(self) -> list[Any]:
        return self._lanes.dump()

    def _load_ready(self, data: list[Any]) -> None:
        self._lanes = PriorityLanes.load(data)


class KeyView(View):
    """Turns between keys; `ordered`, nothing of a key before what is older.

    Each key has a `Chain` of its ready messages. A chain with a head that may go stands in a ring and
    is *offered* for that head; `take` gives turns to the chains in the rings.

    With `ordered`, a message is *out* while it is leased or waits: nothing behind it in its chain may go.

        a message is…        in the chain as    its chain
        ──────────────────   ────────────────   ─────────────────────────────────────────────
        ready                offsets or again   is offered, unless something before it is out
        taken, leased        out                is offered for a head before it, or for none
        waiting (`_parked`)  out                the same: a delayed head holds up its key
        settled              nothing            is offered for the next head (`_freed`)

    Without `ordered`, and for messages without a key, nothing is ever out: a chain is offered as long
    as it has anything.

    What may make a chain's offer wrong, and who puts it right: an older message comes back (`_back`),
    or that or the offered one is settled behind its back (`drop`). `_promote` then offers the right
    head if it must not wait for its old turn; otherwise `take` finds out at the turn (`_may_take`).
    """

    __slots__ = ("_chains", "_holes", "_ordered", "_parked")

    def __init__(self, partition: Partition, start: int, lapsed: Lapsed, ordered: bool) -> None:
        """`ordered` is `order="key"`; otherwise the topic is only fair."""
        super().__init__(partition, start, lapsed)
        self._ordered = ordered
        self._chains = Chains(ordered)
        self._parked: dict[int, None] = {}  # offsets in `due` that hold up their key
        self._holes: OffsetSet | None = None  # `settled`, once chains may have settled messages

    def _admit(self, extent: Extent, start: int, end: int, now_ms: int) -> int:
        columns = extent.columns
        shift = extent.base - extent.first
        for offset in range(start, end):
            row = offset + shift
            key = tenant = deliver_at = 0
            if columns is not None:
                if columns.expires_at and 0 < columns.expires_at[row] <= now_ms:
                    self._lapse(offset, offset + 1)
                    self.settled.add(offset, offset + 1)
                    continue
                if columns.keys:
                    key, tenant = columns.keys[row], columns.tenants[row]
                if columns.deliver_at:
                    deliver_at = columns.deliver_at[row]
            if deliver_at > now_ms and not self._chains.blocks(key):
                self._park(deliver_at, offset, offset + 1, 0)
                continue
            chain = self._chains.chain(key, tenant)
            chain.offsets.append(offset)
            self._offer(chain, now_ms)
        return end

    def _offer(self, chain: Chain, now_ms: int) -> None:
        """Let the chain have a turn if its head is ready; a delayed head is parked and blocks it."""
        blocks = self._chains.blocks(chain.key)
        if chain.offered >= 0:
            if self._holes is not None and chain.offered in self._holes:
                self._promote(chain, now_ms)
            return
        head = chain.peek(self._holes)
        if head < 0:
            self._chains.drop_if_done(chain)
            return
        if chain.holds_up(head):
            return
        deliver_at = self.partition.deliver_at_of(head) if blocks else 0
        if deliver_at > now_ms:
            _, attempts = chain.pop()
            chain.send_out(head)
            self._park(deliver_at, head, head + 1, attempts)
            return
        self._chains.offer(chain, head, self.partition.priority_of(head))

    def levels(self) -> list[int]:
        """The priorities at which something may be ready."""
        return self._chains.levels()

    def take(self, level: int, limit: int, per_key: int, now_ms: int) -> list[Taken]:
        """Take up to `limit` ready messages of a priority or more, in turns between the keys."""
        singles: list[tuple[int, int]] = []
        while len(singles) < limit:
            turn = self._chains.next_turn(level)
            if turn is None:
                break
            chain, offered, priority = turn
            head = chain.peek(self._holes)
            if head != offered and not self._may_take(chain, head, priority, now_ms):
                self._chains.keep_turn(priority, chain.tenant)
                self._offer(chain, now_ms)
                continue
            if not self._chains.blocks(chain.key):
                singles.append(chain.pop())
                self._offer(chain, now_ms)
                continue
            run = self._run_of(chain, min(per_key, limit - len(singles)), now_ms)
            for offset, _ in run:
                chain.send_out(offset)
            singles += run
        return join(singles)

    def _run_of(self, chain: Chain, limit: int, now_ms: int) -> list[tuple[int, int]]:
        """Take the first of a key's messages, up to one that must wait or is behind one that is out."""
        run = [chain.pop()]
        while len(run) < limit:
            head = chain.peek(self._holes)
            if head < 0 or chain.holds_up(head) or self.partition.deliver_at_of(head) > now_ms:
                break
            run.append(chain.pop())
        return run

    def _promote(self, chain: Chain, now_ms: int) -> None:
        """The chain may have another head than it was offered for: it waits for none that is lower."""
        head = chain.peek(self._holes) if chain.offered >= 0 else -1
        if head < 0 or head == chain.offered:
            return
        if chain.holds_up(head) or self.partition.deliver_at_of(head) > now_ms:
            if self._chains.blocks(chain.key):  # else it stays at the old one's until it is due
                self._chains.withdraw(chain)
                self._offer(chain, now_ms)
            return
        priority = self.partition.priority_of(head)
        if priority > chain.level:
            self._chains.promote(chain, head, priority)

    def _may_take(self, chain: Chain, head: int, priority: int, now_ms: int) -> bool:
        """What a chain was offered for is gone, or something older came back: it keeps its turn."""
        return (
            head >= 0
            and not chain.holds_up(head)
            and self.partition.priority_of(head) == priority
            and self.partition.deliver_at_of(head) <= now_ms
        )

    def _chain_of(self, offset: int) -> Chain:
        return self._chains.chain(self.partition.key_of(offset), self.partition.tenant_of(offset))

    def _back(self, start: int, end: int, attempts: int, now_ms: int) -> None:
        for offset in range(start, end):
            self._parked.pop(offset, None)
            chain = self._chain_of(offset)
            if self._chains.blocks(chain.key):
                chain.bring_in(offset)
            heappush(chain.again, (offset, attempts))
            self._offer(chain, now_ms)
            self._promote(chain, now_ms)

    def _park(self, due_ms: int, start: int, end: int, attempts: int) -> None:
        super()._park(due_ms, start, end, attempts)
        for offset in range(start, end):
            if self._chains.blocks(self.partition.key_of(offset)):
                self._parked[offset] = None

    def _freed(self, start: int, end: int, now_ms: int) -> None:
        for offset in range(start, end):
            key = self.partition.key_of(offset)
            if self._chains.blocks(key):
                chain = self._chains.chain(key, 0)
                chain.bring_in(offset)
                self._offer(chain, now_ms)

    def drop(self, start: int, end: int, now_ms: int) -> None:
        """As for any view; a parked message also frees its key."""
        super().drop(start, end, now_ms)
        self._holes = self.settled
        for offset in range(start, end):
            if offset in self._parked:
                del self._parked[offset]
                self._freed(offset, offset + 1, now_ms)
            elif self._chains:
                chain = self._chains.known(self.partition.key_of(offset))
                if chain is not None:
                    self._promote(chain, now_ms)

    def is_ready(self, now_ms: int) -> bool:
        """Whether a receive would probably get something."""
        return bool(self._chains) or bool(self.due and self.due[0][0] <= now_ms)

    def ready_ranges(self) -> Iterator[Range]:
        """Everything pending in the chains, settled or not."""
        return self._chains.ranges()

    def check(self) -> None:
        """Also: of a key just what is leased or parked is out."""
        super().check()
        self._chains.check()
        out: dict[int, list[int]] = {}
        for key, offset in self._held_up_by():
            out.setdefault(key, []).append(offset)
        assert self._chains.out() == {key: sorted(offsets) for key, offsets in out.items()}

    def _held_up_by(self) -> Iterator[tuple[int, int]]:
        """Key and offset of everything that is leased or parked and holds up its key."""
        held = (offset for start, end in self.held_ranges() for offset in range(start, end))
        for offset in (*held, *self._parked):
            key = self.partition.key_of(offset)
            if self._chains.blocks(key):
                yield key, offset

    def _dump_ready(self) -> list[Any]:
        return [*self._chains.dump(), list(self._parked)]

    def _load_ready(self, data: list[Any]) -> None:
        chains, rings, parked = data
        self._holes = self.settled
        self._chains = Chains.load(self._ordered, [chains, rings])
        self._parked = dict.fromkeys(parked)
        for key, offset in self._held_up_by():
            self._chains.chain(key, 0).send_out(offset)


def make_view(partition: Partition, policy: TopicPolicy, start: int, lapsed: Lapsed) -> View:
    """The view that serves the topic's policy."""
    if policy.keyed and policy.order != "partition":
        return KeyView(partition, start, lapsed, ordered=policy.order == "key")
    return RangeView(partition, start, lapsed, strict=policy.order == "partition")
