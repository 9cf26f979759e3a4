"""What happened, as clients saw it, and nine promises that every such history must keep.

A history knows nothing of the state behind it: only what was asked, when, and what was answered.
`ok` was answered, `fail` was refused, `info` got no answer because the machine stopped: it was done
or not. Every body is unique, so a message is known by it. The order of events is that of the log.

The promises are numbered as in the reliability study, part 4: `no_loss` is I1, `no_phantom` I2,
`no_delivery_after_ack` I3, `one_live_lease` I4, `key_order` I5, `dedup` I6, `fencing` I7,
`exactly_once` I8, `offsets` I9. Each returns the violations it found, as sentences.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["ok", "fail", "info"]
Place = tuple[int, int, int]  # topic, partition, offset
Seat = tuple[int, int, int, int]  # topic, group, partition, offset


@dataclass(frozen=True, slots=True)
class TopicMade:
    """A topic and what it promises."""

    topic: int
    order: str
    dedup_window_ms: int


@dataclass(frozen=True, slots=True)
class Sent:
    """A message was sent; `place` is where the answer says that it is."""

    status: Status
    body: bytes
    topic: int
    now_ms: int
    place: Place | None = None
    key: str = ""
    expires_at: int = 0
    dedup_id: str | None = None
    duplicate: bool = False
    transaction: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """A stored message came to a second place: as a dead letter, or redriven."""

    body: bytes
    source: Place
    place: Place
    now_ms: int
    group: int = 0  # whose dead letter it is; 0: redriven, and no longer in the first place
    key: str = ""
    only: int = 0  # the one group that it is for; 0: for all


@dataclass(frozen=True, slots=True)
class Owed:
    """From here on a group is owed exactly these messages of a partition, and all later ones."""

    topic: int
    group: int
    partition: int
    offsets: tuple[int, ...]
    end: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A consumer got a message under a lease."""

    seat: Seat
    body: bytes
    epoch: int
    now_ms: int
    deadline_ms: int
    attempt: int
    settled: bool = False
    status: Status = "ok"


@dataclass(frozen=True, slots=True)
class Reserved:
    """A consumer got a message under a lease, and has not begun it."""

    seat: Seat
    body: bytes
    epoch: int
    now_ms: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A consumer began what it had reserved."""

    seat: Seat
    epoch: int
    now_ms: int
    deadline_ms: int
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """A receipt was used."""

    status: Status
    action: str
    seat: Seat
    epoch: int
    now_ms: int
    deadline_ms: int = 0
    transaction: int = 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """Receipts and sends under this number were one step."""

    status: Status
    number: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Messages were taken out on purpose: purged, discarded, or by a policy that says so."""

    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Deleted:
    """A topic is no more, or one of its groups."""

    topic: int
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Altered:
    """A topic remembers ids for another time from now on."""

    topic: int
    dedup_window_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A member was told, or said, up to where its group is done with a partition."""

    topic: int
    group: int
    partition: int
    offset: int
    said: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """In the end, after everything was delivered and settled, this is still stored."""

    place: Place
    body: bytes


@dataclass(frozen=True, slots=True)
class Clock:
    """The time that the history ended at."""

    now_ms: int


Event = (
    TopicMade
    | Sent
    | Moved
    | Owed
    | Delivered
    | Reserved
    | Begun
    | Settled
    | Transaction
    | Dropped
    | Altered
    | Deleted
    | Committed
    | Left
    | Clock
)


@dataclass
class History:
    """Events in the order of the log."""

    events: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        self.events.append(event)

    def check(self) -> None:
        """All nine promises were kept."""
        for promise in PROMISES:
            broken = promise(self)
            assert not broken, f"{promise.__name__}: {broken[0]} (and {len(broken) - 1} more)"

    # -- what several promises need ----------------------------------------------------------------

    def stored(self) -> Iterator[tuple[Place, bytes]]:
        """Every place that a message was put into."""
        for event in self.events:
            match event:
                case Sent(duplicate=False, place=place) if place is not None:
                    yield place, event.body
                case Moved():
                    yield event.place, event.body

    def orders(self) -> dict[int, str]:
        return {e.topic: e.order for e in self.events if isinstance(e, TopicMade)}


def no_loss(history: History) -> list[str]:
    """I1: what was confirmed was processed by every group it is owed to, or is still there."""
    lives: dict[Place, int] = {}
    stored: dict[Place, bytes] = {}
    taken: set[Place] = set()
    owed: dict[tuple[int, int, int], tuple[frozenset[int], int]] = {}
    done: dict[Seat, bool] = {}
    left: dict[Place, bytes] = {}
    gone: set[tuple[int, int | None]] = set()
    now_ms = 0
    for event in history.events:
        match event:
            case Sent(status="ok", duplicate=False, place=place) if place is not None:
                stored[place] = event.body
                lives[place] = event.expires_at
            case Moved():
                stored[event.place] = event.body
                if event.group:
                    done[event.source[0], event.group, event.source[1], event.source[2]] = True
                else:
                    taken.add(event.source)
                done.update(dict.fromkeys(_spared(event, owed), True))
            case Owed():
                owed[event.topic, event.group, event.partition] = (
                    frozenset(event.offsets),
                    event.end,
                )
                again = (event.topic, event.group, event.partition)
                for seat in [seat for seat in done if seat[:3] == again]:
                    del done[seat]
            case Delivered() | Begun() if event.settled:
                done[event.seat] = True
            case Settled(action="ack" | "dismiss", status="ok" | "info"):
                done[event.seat] = True
            case Committed(said=True):
                for offset in range(event.offset):
                    done[event.topic, event.group, event.partition, offset] = True
            case Dropped():
                taken.update(event.places)
            case Deleted():
                gone.add((event.topic, event.group))
            case Left():
                left[event.place] = event.body
            case Clock():
                now_ms = event.now_ms
    broken = []
    for place, body in stored.items():
        topic, partition, offset = place
        if (topic, None) in gone or place in taken or 0 < lives.get(place, 0) <= now_ms:
            continue
        watchers = [
            (group, offsets, end)
            for (of_topic, group, of_partition), (offsets, end) in owed.items()
            if (of_topic, of_partition) == (topic, partition) and (topic, group) not in gone
        ]
        for group, offsets, end in watchers:
            wanted = offset in offsets or offset >= end
            if wanted and (topic, group, partition, offset) not in done:
                broken.append(f"{body!r} at {place} was never processed by group {group}")
        if not watchers and left.get(place) != body:
            broken.append(f"{body!r} at {place} is not there any more, and nobody has had it")
    return broken


def no_phantom(history: History) -> list[str]:
    """I2: what is delivered was sent, to that very place, with that very body."""
    possible = {e.body for e in history.events if isinstance(e, Sent) and e.status != "fail"}
    known: dict[Place, bytes] = {}
    broken = []
    for event in history.events:
        match event:
            case Sent(place=place) if place is not None and not event.duplicate:
                known[place] = event.body
            case Moved():
                known[event.place] = event.body
                if event.body not in possible:
                    broken.append(f"{event.body!r} was moved, and never sent")
            case Delivered() | Reserved():
                topic, _, partition, offset = event.seat
                if event.body not in possible:
                    broken.append(f"{event.body!r} was delivered, and never sent")
                if known.get((topic, partition, offset)) != event.body:
                    broken.append(f"{event.body!r} was delivered as {event.seat}")
            case Left():
                if known.get(event.place) != event.body:
                    broken.append(f"{event.body!r} is left at {event.place}")
    return broken


def no_delivery_after_ack(history: History) -> list[str]:
    """I3: what a group has acked is never delivered to it again, unless it was sent back."""
    acked: dict[Seat, int] = {}
    broken = []
    for event in history.events:
        match event:
            case Settled(action="ack" | "dead_letter" | "dismiss", status="ok"):
                acked[event.seat] = event.epoch
            case Owed():
                again = (event.topic, event.group, event.partition)
                for seat in [seat for seat in acked if seat[:3] == again]:
                    del acked[seat]
            case Delivered() | Reserved() | Begun():
                if event.seat in acked:
                    broken.append(f"{event.seat} was acked, and delivered as {event.epoch}")
                if not isinstance(event, Reserved) and event.settled:
                    acked[event.seat] = event.epoch
    return broken


def one_live_lease(history: History) -> list[str]:
    """I4: nobody gets a message while somebody else has begun it and surely has a live lease."""
    until: dict[Seat, tuple[int, int]] = {}  # epoch, deadline
    broken = []
    for event in history.events:
        match event:
            case Delivered() | Reserved() | Begun():
                epoch, deadline_ms = until.get(event.seat, (0, 0))
                if event.now_ms < deadline_ms:
                    broken.append(f"{event.seat} was given as {event.epoch} and held as {epoch}")
                if not isinstance(event, Reserved):
                    until[event.seat] = (event.epoch, 0 if event.settled else event.deadline_ms)
            case Settled(action="dismiss"):
                if event.status != "fail":
                    until.pop(event.seat, None)
            case Settled() if until.get(event.seat, (0, 0))[0] == event.epoch:
                if event.action not in ("extend", "begin") and event.status != "fail":
                    until.pop(event.seat)
                elif not event.deadline_ms:
                    continue
                elif event.status == "ok":
                    until[event.seat] = (event.epoch, event.deadline_ms)
                elif event.status == "info":
                    deadline_ms = min(until[event.seat][1], event.deadline_ms)
                    until[event.seat] = (event.epoch, deadline_ms)
            case Owed():
                again = (event.topic, event.group, event.partition)
                for seat in [seat for seat in until if seat[:3] == again]:
                    del until[seat]
    return broken


def key_order(history: History) -> list[str]:
    """I5: in key order nothing is delivered before its predecessor of the key is done with.

    In partition order every message is of one key. Messages of one receive come in order.
    """
    orders = history.orders()
    keys: dict[Place, str] = {}
    lives: dict[Place, int] = {}
    taken: set[Place] = set()
    owed: dict[tuple[int, int, int], tuple[frozenset[int], int]] = {}
    done: set[Seat] = set()
    last: dict[tuple[int, int, int, str, int], int] = {}
    broken = []
    for event in history.events:
        match event:
            case Sent(place=place) if place is not None and not event.duplicate:
                keys[place] = event.key
                lives[place] = event.expires_at
            case Moved():
                keys[event.place] = event.key
                if event.group:
                    done.add((event.source[0], event.group, event.source[1], event.source[2]))
                else:
                    taken.add(event.source)
                done.update(_spared(event, owed))
            case Dropped():
                taken.update(event.places)
            case Owed():
                again = (event.topic, event.group, event.partition)
                owed[again] = (frozenset(event.offsets), event.end)
                done = {seat for seat in done if seat[:3] != again}
            case Settled(action="ack" | "dismiss", status="ok" | "info"):
                done.add(event.seat)
            case Committed(said=True):
                done.update(
                    (event.topic, event.group, event.partition, o) for o in range(event.offset)
                )
            case Begun():
                if event.settled:
                    done.add(event.seat)
            case Delivered() | Reserved():
                topic, group, partition, offset = event.seat
                if isinstance(event, Delivered) and event.settled:
                    done.add(event.seat)
                key = keys[topic, partition, offset]
                strict = orders[topic] == "partition"
                if not strict and (orders[topic] != "key" or not key):
                    continue
                together = (topic, group, partition, "" if strict else key, event.epoch)
                if last.get(together, -1) > offset:
                    broken.append(f"{event.seat} came behind {last[together]} in one receive")
                last[together] = offset
                offsets, end = owed[topic, group, partition]
                for before in range(offset):
                    place = (topic, partition, before)
                    if (
                        (before in offsets or before >= end)
                        and (strict or keys.get(place) == key)
                        and place not in taken
                        and not 0 < lives.get(place, 0) <= event.now_ms
                        and (topic, group, partition, before) not in done
                        and not _together(history, (topic, group, partition, before), event.epoch)
                    ):
                        broken.append(f"{event.seat} was delivered before {before} was done with")
    return broken


def _spared(moved: Moved, groups: Iterable[tuple[int, int, int]]) -> list[Seat]:
    """The seats of groups that a redriven message is not for."""
    topic, partition, offset = moved.place
    return [
        (topic, group, partition, offset)
        for of_topic, group, of_partition in groups
        if moved.only and group != moved.only and (of_topic, of_partition) == (topic, partition)
    ]


def _together(history: History, seat: Seat, epoch: int) -> bool:
    return any(
        event.seat == seat and event.epoch == epoch
        for event in history.events
        if isinstance(event, Delivered | Reserved)
    )


def dedup(history: History) -> list[str]:
    """I6: inside the window an id is stored once, and every answer says where."""
    windows = {e.topic: e.dedup_window_ms for e in history.events if isinstance(e, TopicMade)}
    first: dict[tuple[int, str], tuple[int, Place]] = {}  # until when it is known, and where
    broken = []
    for event in history.events:
        if isinstance(event, Altered):
            windows[event.topic] = event.dedup_window_ms
            for (topic, dedup_id), (until_ms, place) in first.items():
                if topic == event.topic:
                    latest_ms = event.now_ms + event.dedup_window_ms
                    first[topic, dedup_id] = (min(until_ms, latest_ms), place)
        if not isinstance(event, Sent) or event.dedup_id is None or event.place is None:
            continue
        known = first.get((event.topic, event.dedup_id))
        fresh = known is None or event.now_ms >= known[0]
        if event.duplicate and fresh:
            broken.append(f"{event.body!r} was taken for a duplicate of nothing")
        elif not event.duplicate and not fresh:
            broken.append(f"{event.dedup_id!r} was stored twice, again at {event.place}")
        elif not event.duplicate:
            until_ms = event.now_ms + windows[event.topic]
            first[event.topic, event.dedup_id] = (until_ms, event.place)
        elif known is not None and known[1] != event.place:
            broken.append(f"{event.dedup_id!r} is at {known[1]}, and the answer said {event.place}")
    return broken


def fencing(history: History) -> list[str]:
    """I7: only the newest receipt of a message works, until its lease ends, and it works once."""
    newest: dict[Seat, int] = {}
    until: dict[Seat, int] = {}
    used: set[tuple[Seat, int]] = set()
    broken = []
    for event in history.events:
        match event:
            case Delivered() | Reserved():
                if newest.get(event.seat, 0) >= event.epoch:
                    broken.append(f"the epoch of {event.seat} did not grow")
                newest[event.seat] = event.epoch
                until[event.seat] = event.deadline_ms
            case Begun():
                if newest.get(event.seat) != event.epoch or (event.seat, event.epoch) in used:
                    broken.append(f"{event.seat} was begun under the old epoch {event.epoch}")
            case Owed():
                again = (event.topic, event.group, event.partition)
                for seat in [seat for seat in newest if seat[:3] == again]:
                    used.add((seat, newest[seat]))
            case Settled(action="dismiss", status="ok"):  # whoever has it
                used.add((event.seat, newest.get(event.seat, 0)))
            case Settled(status="ok"):
                if newest.get(event.seat) != event.epoch:
                    broken.append(f"{event.seat} was settled under the old epoch {event.epoch}")
                elif (event.seat, event.epoch) in used:
                    broken.append(f"the receipt of {event.seat} was used twice")
                elif event.now_ms >= until[event.seat]:
                    broken.append(f"{event.seat} was settled after its lease had ended")
                if event.action == "extend" or (event.action == "begin" and event.deadline_ms):
                    until[event.seat] = event.deadline_ms
                elif event.action != "begin":
                    used.add((event.seat, event.epoch))
            case Settled(status="info", action="extend" | "begin"):
                until[event.seat] = max(until.get(event.seat, 0), event.deadline_ms)
    return broken


def exactly_once(history: History) -> list[str]:
    """I8: the receipts and sends of a transaction were all done, or none, and each input once."""
    transactions = {e.number: e for e in history.events if isinstance(e, Transaction)}
    stored = {body for _, body in history.stored()}
    inputs: dict[tuple[Seat, int], int] = {}
    done: dict[int, dict[str, bool]] = {number: {} for number in transactions}
    broken = []
    for event in history.events:
        match event:
            case Settled(transaction=number) if number:
                if transactions[number].status == "ok" and event.action != "extend":
                    if event.status != "ok":
                        broken.append(f"transaction {number} is ok, and {event.seat} is not")
                    receipt = (event.seat, event.epoch)
                    if inputs.setdefault(receipt, number) != number:
                        broken.append(f"{event.seat} is an input of two transactions")
                if transactions[number].status == "fail" and event.status != "fail":
                    broken.append(f"transaction {number} failed, and {event.seat} was settled")
            case Sent(transaction=number) if number:
                there = event.body in stored or event.duplicate
                done[number][repr(event.body)] = there
                if transactions[number].status == "fail" and event.body in stored:
                    broken.append(f"transaction {number} failed, and {event.body!r} was stored")
                if transactions[number].status == "ok" and not there:
                    broken.append(f"transaction {number} is ok, and {event.body!r} is missing")
    for number, outputs in done.items():
        if len(set(outputs.values())) > 1:
            broken.append(f"transaction {number} is half done: {outputs}")
    return broken


def offsets(history: History) -> list[str]:
    """I9: an offset is one message for ever, there are no gaps, and commits do not go back."""
    known: dict[Place, bytes] = {}
    ends: dict[tuple[int, int], int] = {}
    committed: dict[tuple[int, int, int], int] = {}
    broken = []
    for event in history.events:
        match event:
            case Sent() | Moved() if event.place is not None:
                if isinstance(event, Sent) and event.duplicate:
                    continue
                topic, partition, offset = event.place
                if event.place in known:
                    broken.append(f"{event.place} is {known[event.place]!r} and {event.body!r}")
                elif offset != ends.get((topic, partition), 0):
                    broken.append(
                        f"{event.place} does not follow {ends.get((topic, partition), 0)}"
                    )
                known[event.place] = event.body
                ends[topic, partition] = offset + 1
            case Owed():
                committed.pop((event.topic, event.group, event.partition), None)
            case Committed(said=False):
                where = (event.topic, event.group, event.partition)
                if event.offset < committed.get(where, 0):
                    broken.append(f"the position of {where} went back to {event.offset}")
                committed[where] = event.offset
    return broken


PROMISES = (
    no_loss,
    no_phantom,
    no_delivery_after_ack,
    one_live_lease,
    key_order,
    dedup,
    fencing,
    exactly_once,
    offsets,
)
