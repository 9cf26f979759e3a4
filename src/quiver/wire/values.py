"""The heads of frames: requests and answers as MessagePack, and the values of `model` that they stand for.

What is asked often has a shape of its own, an array without names; all other commands, queries and errands
are their name and the fields that `model` gives them. Nothing here is checked but kinds of values: the node
checks what a request says (`quiver.server.wire`), for it may come from a stranger.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_args

import msgspec
import pyarrow as pa

from quiver.batches.codec import BytesLike, decode, encode_one, encode_whole
from quiver.batches.output import Piece
from quiver.batches.schema import concat
from quiver.errors import ProtocolError
from quiver.model import commands, errands, queries, replies
from quiver.model.commands import Action
from quiver.model.errands import Errand
from quiver.model.queries import PageFound, Query, Watched
from quiver.model.ranges import Range
from quiver.model.replies import Origin, Placed, Received, SentReply, Slice
from quiver.model.settlement import Settlement
from quiver.wire.frames import Frame, Verb
from quiver.wire.problems import Trouble, Warned

T = TypeVar("T")


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The head of a frame. Fields may be added at its end, with defaults."""


# -- requests --------------------------------------------------------------------------------------


class SendHead(Head, frozen=True, gc=False):
    """One message for the topic of this number; its body is the payload."""

    topic: int
    key: str | None = None
    headers: dict[str, str] | None = None
    priority: int = 0
    delay_ms: int = 0
    ttl_ms: int = 0
    dedup_id: str | None = None


class BatchHead(Head, frozen=True, gc=False):
    """The batch of the payload, all of it or nothing; `producer` is name, epoch and sequence."""

    topic: int
    producer: tuple[str, int, int] | None = None


class ReceiveHead(Head, frozen=True, gc=False):
    """`commands.Receive`, and how long to wait for the first message."""

    topic: int
    group: str
    max_messages: int
    lease_ms: int
    wait_ms: int = 0
    consumer: str = ""
    per_key: int = 1
    begin: int | None = None


class HeldHead(Head, frozen=True, gc=False):
    """`commands.Held`, and the tag of its lease."""

    partition: int
    epoch: int
    tag: bytes
    ranges: tuple[Range, ...]


class SettleHead(Head, frozen=True, gc=False):
    """`commands.Settle`, with proof that the leases were given out."""

    topic: int
    group: int
    action: Action
    held: tuple[HeldHead, ...]
    delay_ms: int | None = None
    lease_ms: int = 0
    reason: str = ""

    @classmethod
    def of(cls, settlement: Settlement) -> "SettleHead":
        """What a client asks for."""
        it = settlement.command
        assert it.action != "dismiss", "that is not for clients"
        held = tuple(
            HeldHead(one.partition, one.epoch, tag, one.ranges)
            for one, tag in zip(it.held, settlement.tags, strict=True)
        )
        return cls(it.topic, it.group, it.action, held, it.delay_ms, it.lease_ms, it.reason)


class TransactHead(Head, frozen=True, gc=False):
    """Settles, and batches to send: the topic, and how many bytes of the payload are its batch."""

    settles: tuple[SettleHead, ...]
    sends: tuple[tuple[int, int], ...]


class NamedHead(Head, frozen=True, gc=False):
    """A command, query or errand by its name; `wait_ms` is for those that may have no answer yet."""

    name: str
    value: msgspec.Raw
    wait_ms: int = 0


class AuthenticateHead(Head, frozen=True, gc=False):
    """Go on as who has this token."""

    token: str


# -- answers ---------------------------------------------------------------------------------------


class Welcome(Head, frozen=True, gc=False):
    """Who answers, and at which time."""

    version: str
    time_ms: int


class AnswerHead(Head, frozen=True, gc=False):
    """What a request is told: when by the node's clock, and what its caller should be warned of."""

    time_ms: int
    value: msgspec.Raw
    warnings: tuple[Warned, ...] = ()


class ErrorHead(Head, frozen=True, gc=False):
    """Why a request has no answer."""

    time_ms: int
    trouble: Trouble
    warnings: tuple[Warned, ...] = ()


class PlacedOut(Head, frozen=True, gc=False):
    """`replies.Placed`."""

    partition: int
    offset: int
    count: int
    index: int
    row: int
    duplicate: bool = False

    @classmethod
    def of(cls, placed: Placed) -> "PlacedOut":
        p = placed
        return cls(p.partition, p.offset, p.count, p.index, p.row, p.duplicate)

    def placed(self) -> Placed:
        """Where the messages are."""
        return Placed(self.partition, self.offset, self.count, self.index, self.row, self.duplicate)


class SliceOut(Head, frozen=True, gc=False):
    """`replies.Slice`."""

    partition: int
    offset: int
    count: int
    index: int
    row: int
    time_ms: int
    attempt: int = 0
    reserved: bool = False
    origin: Origin | None = None

    @classmethod
    def of(cls, part: Slice) -> "SliceOut":
        """What is told of a slice."""
        p = part
        return cls(
            p.partition,
            p.offset,
            p.count,
            p.index,
            p.row,
            p.time_ms,
            p.attempt,
            p.reserved,
            p.origin,
        )

    def slice(self) -> Slice:
        """The slice."""
        return Slice(
            self.partition, self.offset, self.count, self.index, self.row, self.time_ms, self.attempt,
            self.origin, self.reserved,
        )  # fmt: skip


class ReceivedOut(Head, frozen=True, gc=False):
    """`replies.Received`, and the tag of the lease. The payload has the messages of the slices."""

    topic: int
    group: int
    epoch: int
    deadline_ms: int
    slices: tuple[SliceOut, ...]
    settled: bool = False
    lost: int = 0
    tag: bytes = b""

    @classmethod
    def of(cls, got: Received, parts: Sequence[Slice], tag: bytes) -> "ReceivedOut":
        """What is told of a lease, and of those of its messages that could be read."""
        slices = tuple(map(SliceOut.of, parts))
        return cls(
            got.topic, got.group, got.epoch, got.deadline_ms, slices, got.settled, got.lost, tag
        )

    def received(self) -> Received:
        """The lease."""
        slices = tuple(one.slice() for one in self.slices)
        return Received(
            self.topic, self.group, self.epoch, self.deadline_ms, slices, self.settled, self.lost
        )


class PageOut(Head, frozen=True, gc=False):
    """`queries.PageFound`. If it `has_bodies` the payload has the messages of the slices."""

    slices: tuple[SliceOut, ...]
    ahead: dict[int, int]
    topic: str = ""
    overtaken: tuple[tuple[int, int, int], ...] = ()
    marked: tuple[SliceOut, ...] = ()
    has_bodies: bool = True

    @classmethod
    def of(cls, page: PageFound, parts: Sequence[Slice], ahead: dict[int, int]) -> "PageOut":
        """What is told of a page, and of those of its messages that could be read and have room."""
        marked = tuple(map(SliceOut.of, page.marked))
        return cls(
            tuple(map(SliceOut.of, parts)), ahead, page.topic, page.overtaken, marked,
            page.bodies is not None,
        )  # fmt: skip

    def page(self, payload: BytesLike) -> PageFound:
        """The page, with its messages."""
        slices = [one.slice() for one in self.slices]
        bodies = Messages.of(slices, payload) if self.has_bodies else None
        marked = [one.slice() for one in self.marked]
        return PageFound(slices, self.ahead, bodies, self.topic, self.overtaken, marked)


# -- messages --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of slices that came with an answer: `Bodies` that are at hand."""

    slices: Sequence[Slice]
    batch: pa.RecordBatch | None  # None if there are no slices

    at_hand = True

    @classmethod
    def of(cls, slices: Sequence[Slice], payload: BytesLike) -> "Messages":
        """What an answer carries."""
        batch = decode(payload) if slices else None
        if batch is not None and batch.num_rows != sum(part.count for part in slices):
            raise ProtocolError("an answer has other messages than it says")
        return cls(slices, batch)

    def pieces(self) -> Iterator[Piece]:
        """The messages, in order."""
        at = 0
        for part in self.slices:
            yield Piece(self.batch, at, part)
            at += part.count

    def readable(self, *, some: bool) -> Iterator[Piece]:
        """All of them: what could not be read the node has left out, and has warned of."""
        return self.pieces()


def encode_pieces(pieces: Sequence[Piece]) -> BytesLike:
    """The messages of some pieces as one batch, as the log has batches."""
    if not pieces:
        return b""
    if len(pieces) == 1:
        batch, at, part = pieces[0]
        if part.count == 1 and batch.num_columns == 1:
            return encode_one(batch.column(0)[at].as_py())
        return encode_whole(batch.slice(at, part.count))
    return encode_whole(concat([batch.slice(at, part.count) for batch, at, part in pieces]))


# -- values by name --------------------------------------------------------------------------------

# What a client may ask for with PROPOSE, and what it is told.
PROPOSED: Final[dict[type[commands.Command], Any]] = {
    commands.CreateTopic: replies.TopicCreated,
    commands.AlterTopic: replies.Done,
    commands.DeleteTopic: replies.Done,
    commands.OpenProducer: replies.ProducerOpened,
    commands.CreateGroup: replies.Positioned,
    commands.DeleteGroup: replies.Done,
    commands.Seek: replies.Positioned,
    commands.PauseGroup: replies.Done,
    commands.Purge: replies.Moved,
    commands.Discard: replies.Moved,
    commands.Redrive: replies.Moved,
    commands.Join: replies.Assigned,
    commands.Heartbeat: replies.Assigned,
    commands.Commit: replies.Assigned,
    commands.Leave: replies.Done,
}
_VALUES: Final[tuple[type[Any], ...]] = (
    *PROPOSED, *queries.QUERIES, *queries.WATCHED, *errands.ERRANDS,
)  # fmt: skip
_ENCODER: Final = msgspec.msgpack.Encoder()
_NAMED: Final = {kind.__name__: msgspec.msgpack.Decoder(kind) for kind in _VALUES}


def encode(value: Any) -> bytes:
    """A head, or what is in one."""
    return _ENCODER.encode(value)


def named(value: Any, wait_ms: int = 0) -> bytes:
    """The head of a command, query or errand."""
    return encode(NamedHead(type(value).__name__, msgspec.Raw(encode(value)), wait_ms))


def value_of(head: NamedHead) -> Any:
    """The command, query or errand that a head names; ProtocolError if it is none."""
    decoder = _NAMED.get(head.name)
    if decoder is None:
        raise ProtocolError(
            f"{head.name[:80]!r} is nothing that this node does; is it older than the client?"
        )
    return _understood(decoder, head.value)


def answer_type(kind: type[Any]) -> Any:
    """The type of what a command, query or errand is answered with: see `answer_of` for messages."""
    if kind in PROPOSED:
        return PROPOSED[kind]
    (base,) = [
        base for base in getattr(kind, "__orig_bases__", ())
        if getattr(base, "__origin__", None) in (Query, Watched, Errand)
    ]  # fmt: skip
    (found,) = get_args(base)
    return found


def _understood(decoder: msgspec.msgpack.Decoder[T], data: bytes | memoryview | msgspec.Raw) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise ProtocolError(f"a frame is not as it should be: {error}") from None


class Reader:
    """Reads heads of one type."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)

    def __call__(self, data: bytes | memoryview | msgspec.Raw) -> Any:
        """The head in these bytes; ProtocolError if it is none."""
        return _understood(self._decoder, data)


HEADS: Final[dict[int, Reader]] = {
    verb: Reader(kind)
    for verb, kind in {
        Verb.SEND: SendHead,
        Verb.BATCH: BatchHead,
        Verb.RECEIVE: ReceiveHead,
        Verb.SETTLE: SettleHead,
        Verb.TRANSACT: TransactHead,
        Verb.PROPOSE: NamedHead,
        Verb.ASK: NamedHead,
        Verb.WATCH: NamedHead,
        Verb.ERRAND: NamedHead,
        Verb.AUTHENTICATE: AuthenticateHead,
        Verb.WELCOME: Welcome,
        Verb.ANSWER: AnswerHead,
        Verb.ERROR: ErrorHead,
    }.items()
}


def head_of(frame: Frame) -> Any:
    """The head of a frame; ProtocolError if it is not as it should be, or of a verb without one."""
    reader = HEADS.get(frame.verb)
    if reader is None:
        raise ProtocolError(f"frames of kind {frame.verb} are not known here")
    return reader(frame.head)


def sent_of(placed: Sequence[PlacedOut]) -> SentReply:
    """Where the messages of one request are."""
    return SentReply(tuple(one.placed() for one in placed))
