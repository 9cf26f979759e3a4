"""What the core answers. `index` and `row` say where in the log a message's bytes are."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from quiver.errors import AnotherRun
from quiver.model.commands import Held
from quiver.model.levels import Bounds

Durability = Literal["memory", "disk"]


@dataclass(frozen=True, slots=True)
class Done:
    """It is done, and there is nothing more to say."""


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """The topic's number; `fresh` is False if it was there already."""

    topic: int
    fresh: bool


@dataclass(slots=True)  # not frozen: there may be one for every message, and that is dear
class Placed:
    """Consecutive messages of a send: where they are now, or were already (`duplicate`)."""

    partition: int
    offset: int
    count: int
    index: int
    row: int
    duplicate: bool = False


@dataclass(slots=True)  # not frozen, as above
class SentReply:
    """One send request's messages, in the order of its rows."""

    placed: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class SentMany:
    """An answer for each request that shared the Send: its messages, or the error that refused it."""

    answers: tuple["SentReply | Exception", ...]


@dataclass(frozen=True, slots=True)
class ProducerOpened:
    """The producer's new epoch, and how many messages it has had confirmed so far."""

    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a dead letter came from, and why it died."""

    topic: str
    partition: int
    offset: int
    group: str
    attempts: int
    reason: str
    time_ms: int
    stored_ms: int = field(default=0, compare=False)  # when the message was stored first

    def told_bytes(self, bounds: Bounds) -> int:
        """At most how many bytes it takes to tell it."""
        texts = self.topic, self.group, self.reason
        return bounds.told_origin_bytes + sum(len(text.encode()) for text in texts)

    def shift(self, skip: int) -> "Origin":
        """The origin of the message `skip` further on."""
        return Origin(self.topic, self.partition, self.offset + skip, self.group, self.attempts,
                      self.reason, self.time_ms, self.stored_ms)  # fmt: skip


@dataclass(slots=True)  # not frozen, as above
class Slice:
    """Messages `offset … offset + count` of a partition: rows `row …` of the batch in entry `index`.

    `reserved` if they are leased and have not begun.
    """

    partition: int
    offset: int
    count: int
    index: int
    row: int
    time_ms: int
    attempt: int = 0
    origin: Origin | None = None
    reserved: bool = False

    @property
    def created_ms(self) -> int:
        """When the messages were stored first, wherever they have moved since."""
        return self.origin.stored_ms if self.origin is not None else self.time_ms

    def told_bytes(self, bounds: Bounds) -> int:
        """At most how many bytes it takes to tell it; the messages are told beside it."""
        if self.origin is None:
            return bounds.told_slice_bytes
        return bounds.told_slice_bytes + self.origin.told_bytes(bounds)

    def cut(self, skip: int, count: int) -> "Slice":
        """A part of it: `count` messages from the one after `skip` on."""
        if skip == 0 and count == self.count:
            return self
        origin = self.origin and self.origin.shift(skip)
        return Slice(self.partition, self.offset + skip, count, self.index, self.row + skip,
                     self.time_ms, self.attempt, origin, self.reserved)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Received:
    """A lease: the messages, and the epoch and deadline under which they are held.

    `lost` counts what retention has taken from the group and nobody has been told yet.
    """

    topic: int
    group: int
    epoch: int
    deadline_ms: int
    slices: tuple[Slice, ...]
    settled: bool = False
    lost: int = 0


class Bodies(Protocol):
    """The messages of some slices, which any thread may read: an answer's payload, in Arrow."""

    @property
    def at_hand(self) -> bool:
        """Whether all of them are in memory, so that reading them waits for no disk."""

    def pieces(self) -> Iterator[Any]:
        """All of them in order, or what is wrong with them."""

    def readable(self, *, some: bool) -> Iterator[Any]:
        """Those that can be read, and a warning if others cannot; if there must be `some`, an error."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a receive got, beside it the messages, and the tag that proves that the lease was given out."""

    received: Received
    source: Bodies
    tag: bytes = b""  # of a lease of nothing


@dataclass(frozen=True, slots=True)
class Settled:
    """How many messages were settled, and which were refused because their lease had ended."""

    count: int
    refused: tuple[Held, ...] = ()
    deadline_ms: int = 0


@dataclass(frozen=True, slots=True)
class Transacted:
    """What the parts of a transaction answered."""

    sent: tuple[SentReply, ...]


@dataclass(frozen=True, slots=True)
class Positioned:
    """A group is where it was asked to be.

    `behind` has partitions, with the offset it starts at, where retention has already let go of
    messages that were asked for.
    """

    behind: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """How many messages were redriven, discarded, compacted or purged."""

    count: int


@dataclass(frozen=True, slots=True)
class PeersSet:
    """The peers are kept; those that were kept before."""

    before: bytes


@dataclass(frozen=True, slots=True)
class Published:
    """What a batch has in it; `duplicate` if it was published before, and nothing was done now.

    Of a batch that was not its application's last one, nothing more is known: 0.
    """

    rows: int
    nbytes: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Staged:
    """Messages that wait to be published: `ranges` of (partition, start, end) where they are staged.

    `nbytes` is the size of their bodies. `number` says where that is: when the topic is deleted and made
    again, it is another. Who has the `tag` can publish or drop them; over a node, only as the principal
    that has staged them.
    """

    topic: str
    ranges: tuple[tuple[int, int, int], ...]
    rows: int
    nbytes: int
    number: int
    tag: str = field(default="", repr=False)


class Application(NamedTuple):
    """Who publishes staged batches: in which run, and what the last batch was."""

    run: str
    batch: int
    rows: int
    nbytes: int

    def repeated(self, topic: str, name: str, batch: int, run: str) -> Published | None:
        """What is told of a batch that the application has published before; None if it has not."""
        if self.run != run:
            raise AnotherRun(
                f"application {name!r} has published to topic {topic!r} in run {self.run!r}, and this "
                f"is run {run!r}, whose batches are numbered anew; go on with the checkpoint of the "
                "other run, or choose another name for the application"
            )
        if batch > self.batch:
            return None
        if batch < self.batch:
            return Published(0, 0, duplicate=True)
        return Published(self.rows, self.nbytes, duplicate=True)


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A Parquet file with messages of a partition. It may have more `rows` than those in `ranges`.

    `ranges` are the offsets of messages that are kept, each from its start up to its end.
    """

    path: str
    partition: int
    rows: int
    nbytes: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup: everything up to entry `entry`, which was made at `time_ms`.

    Of its files, `copied` were not in the backup before.
    """

    entry: int
    time_ms: int
    files: int
    bytes: int
    copied: int
    copied_bytes: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """Where the messages of a topic are at one moment: in these files, or else in the `rest`.

    That is, of each partition, ranges of offsets to be read from the queue. Nothing is in two places.
    """

    files: tuple[SealedFile, ...]
    rest: dict[int, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True)
class Assigned:
    """A member's partitions with their committed offsets, and those it must let go of.

    `lost` as in `Received`.
    """

    generation: int
    partitions: tuple[tuple[int, int], ...]
    revoked: tuple[int, ...]
    lost: int = 0


Reply = (
    Done
    | TopicCreated
    | SentMany
    | ProducerOpened
    | Received
    | Settled
    | Transacted
    | Positioned
    | Moved
    | PeersSet
    | Published
    | Assigned
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an entry did: the reply, or the refusal that changed nothing, and the topics to wake."""

    reply: Reply | Exception
    woken: tuple[int, ...] = ()
