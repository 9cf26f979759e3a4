"""What can be asked of the core. One command is one log entry.

Names that are user text (topics, groups) are resolved to numbers as early as possible, so that a
receipt or a send that belongs to a deleted topic can never reach a new one of the same name.
Offsets come as half-open ranges `(start, end)`.
"""

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from quiver.model.levels import bounds_of
from quiver.model.ranges import Range
from quiver.model.topic import Guarantee, TopicPolicy

Action = Literal["ack", "nack", "extend", "dead_letter", "begin", "release"]
Start = Literal["earliest", "latest", "offset", "time"]

UNNAMED: Final = "unnamed-"  # how names begin that nobody chose; they are forgotten first


@dataclass(frozen=True, slots=True)
class Found:
    """The first entry of every log: who we are, and the key that signs receipts.

    `shard` says which of a cluster's logs it is; one that is in no cluster is the first.
    """

    secret: bytes
    created_ms: int
    shard: int = 0


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Make a topic; the same policy again changes nothing."""

    name: str
    policy: TopicPolicy


@dataclass(frozen=True, slots=True)
class AlterTopic:
    """Give a topic the `fields` of `policy`; what others change at the same time stays changed."""

    topic: int
    policy: TopicPolicy
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Forget a topic, its groups and its messages."""

    topic: int


@dataclass(frozen=True, slots=True)
class Attributes:
    """What the core must know of single messages, a column each; an empty column means "none of them".

    keys, tenants: unsigned 64-bit little-endian hashes, 0 for no key · priorities: one byte ·
    deliver_at, expires_at: signed 64-bit little-endian milliseconds, 0 for none.
    """

    keys: bytes = b""
    tenants: bytes = b""
    priorities: bytes = b""
    deliver_at: bytes = b""
    expires_at: bytes = b""
    dedup_ids: tuple[str | None, ...] = ()


class Run(NamedTuple):  # there may be one for every message, so it must be cheap to make
    """Consecutive rows of the entry's batch that go to one partition."""

    partition: int
    rows: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    """Who sends: a named producer's epoch and the number of messages it had sent before these."""

    name: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Send:
    """Append rows `first_row…` of the entry's batch.

    Several requests may share one Send (group commit): `requests` counts the runs of each, and each
    request is accepted or refused by itself. `attributes`, if any, has a value for every row.
    """

    topic: int
    runs: tuple[Run, ...]
    requests: tuple[int, ...]
    attributes: Attributes | None = None
    first_row: int = 0
    producer: ProducerStamp | None = None
    staged: bool = False  # nobody is to have them here: neither dedup ids nor lives count yet


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """Take a producer name over: older holders of it are fenced."""

    topic: int
    name: str


@dataclass(frozen=True, slots=True)
class Receive:
    """Lease up to `max_messages` ready messages to `consumer`; an unknown group starts at the earliest.

    `begin` says how many of them, in the order of the reply, have begun with it; None means all. The
    others are reserved: see `Settle`. A receive that begins nothing takes only what is ready.
    `told_bytes` is for who can tell only so much of the messages, besides their bodies, at once: see
    `Slice.told_bytes`. The first of them is given in any case.
    """

    topic: int
    group: str
    max_messages: int
    lease_ms: int
    consumer: str = ""
    per_key: int = 1
    begin: int | None = None
    told_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Offsets held under one lease."""

    partition: int
    epoch: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """Ack, nack, extend, dead-letter, begin or release leased offsets.

    Each range succeeds or fails by itself. `delay_ms` None means the topic's retry policy;
    `seed` is the chance that jitter needs. To begin what is reserved makes it an attempt, and holds
    it for `lease_ms` from now, if that is given; ack, nack and dead-letter begin it, too. A release
    gives back, after `delay_ms`, and the attempt does not count. A dismissal is an ack without a
    lease, from whoever has one.
    """

    topic: int
    group: int
    action: Action | Literal["dismiss"]
    held: tuple[Held, ...]
    delay_ms: int | None = None
    lease_ms: int = 0
    reason: str = ""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Transact:
    """Settle and send, all or nothing. The sends share the entry's one batch."""

    settles: tuple[Settle, ...] = ()
    sends: tuple[Send, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a topic: `value` is an offset or milliseconds, `partition` None means all."""

    start: Start = "earliest"
    value: int = 0
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """Make a group before its first receive, to choose where it starts and what it is promised."""

    topic: int
    group: str
    position: Position = field(default_factory=Position)
    guarantee: Guarantee = "at-least-once"


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Forget a group and its delivery state."""

    topic: int
    group: str


@dataclass(frozen=True, slots=True)
class Seek:
    """Put a group elsewhere. Its leases end: receipts given before no longer settle anything."""

    topic: int
    group: str
    position: Position


@dataclass(frozen=True, slots=True)
class PauseGroup:
    """Stop or resume deliveries to a group; settling goes on."""

    topic: int
    group: str
    paused: bool


@dataclass(frozen=True, slots=True)
class Purge:
    """Drop every message of a topic, for all groups."""

    topic: int


@dataclass(frozen=True, slots=True)
class Pick:
    """Chosen offsets of one partition, not leased."""

    partition: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop chosen messages of a topic for all groups, except those somebody holds a lease on."""

    topic: int
    picks: tuple[Pick, ...]


@dataclass(frozen=True, slots=True)
class Compact:
    """Drop messages that are superseded, except those that some group has not settled."""

    topic: int
    picks: tuple[Pick, ...]


@dataclass(frozen=True, slots=True)
class Redrive:
    """Move dead letters back to where they came from (or to topic `target`), in one step."""

    topic: int
    picks: tuple[Pick, ...]
    target: int | None = None


@dataclass(frozen=True, slots=True)
class Publish:
    """Move staged messages into a topic, all in one step, each batch of an application once.

    `nbytes` is what the sender says of them; it is told to whoever publishes the batch again.
    """

    topic: int
    staged: int
    picks: tuple[Pick, ...]
    application: str
    batch: int
    run: str = ""
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Join:
    """Become (or stay) a member of a group that shares out whole partitions."""

    topic: int
    group: str
    member: str
    session_ms: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member is alive and has let go of `released` partitions."""

    topic: int
    group: str
    member: str
    released: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """A member has processed everything before these offsets, `(partition, offset)` each."""

    topic: int
    group: str
    member: str
    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """A member goes; its partitions are shared out at once."""

    topic: int
    group: str
    member: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Let time pass: end leases, lives and sessions that are due. `sweep` also drops old messages."""

    sweep: bool = False


@dataclass(frozen=True, slots=True)
class SetTime:
    """Set the queue's time back to `time_ms`: it was far ahead, because a machine's clock was."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class Raise:
    """Take the log to a higher level: what comes behind this may need a Quiver that knows it.

    There is none of an unknown level, so it is neither proposed nor read by who cannot apply it.
    """

    level: int

    def __post_init__(self) -> None:
        """Refuse a level that this Quiver does not know."""
        bounds_of(self.level)


@dataclass(frozen=True, slots=True)
class SetPeers:
    """Keep who shares the log: bytes that mean nothing here, for whoever replicates it."""

    peers: bytes


Command = (
    Found
    | CreateTopic
    | AlterTopic
    | DeleteTopic
    | Send
    | OpenProducer
    | Receive
    | Settle
    | Transact
    | CreateGroup
    | DeleteGroup
    | Seek
    | PauseGroup
    | Purge
    | Discard
    | Compact
    | Redrive
    | Publish
    | Join
    | Heartbeat
    | Commit
    | Leave
    | Tick
    | SetTime
    | Raise
    | SetPeers
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the log as the core sees it; the batch bytes stay in storage."""

    index: int
    now_ms: int
    command: Command
