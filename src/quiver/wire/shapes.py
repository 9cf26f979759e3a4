"""What travels between a client and a node, as both sides know it.

Requests and answers are structs; JSON is their form on the wire, and the OpenAPI description is made
from them. Messages travel as JSON for people, and as Arrow streams for speed: the columns that
`receive_arrow` gives, and two that say where in the log a message is, of which its id is made.
What belongs to such a stream as a whole is JSON in its schema's metadata.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from quiver.errors import InvalidRequest
from quiver.model.commands import Action
from quiver.model.replies import Durability, Staged
from quiver.model.topic import Retention, Retry

ARROW: Final = "application/vnd.apache.arrow.stream"
JSON: Final = "application/json"
TIME_HEADER: Final = "quiver-time"  # the node's clock, in milliseconds since 1970
WARNINGS_HEADER: Final = "quiver-warnings"  # what retention has taken or damage hides, as JSON
IDEMPOTENCY_HEADER: Final = "idempotency-key"

ABOUT: Final = b"quiver"  # the key of our JSON in a schema's metadata

T = TypeVar("T")
Span = float | str  # a duration: seconds, or text such as "5m"
Spot = int | str  # a place in a topic: an offset, "earliest", "latest" or a time


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request. What it does not know it refuses, so that a typing error is noticed."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """An answer; a newer node may say more."""


# -- topics ----------------------------------------------------------------------------------------


class TopicArguments(Shape, frozen=True):
    """What a topic is made with: the arguments of `create_topic`."""

    partitions: int = 1
    order: str = "none"
    fair: bool = False
    partition_by: str | list[str] = "hash"
    retention: str | float | Retention = "settled"
    keep_unsettled: bool = True
    max_attempts: int | None = None
    dead_letter: str | None = None
    retry: str | float | Retry | None = None
    dedup_window: Span = 300
    max_backlog: int | None = None
    compression: str | None = None
    ledger: bool = True
    labels: dict[str, str] | None = None


class TopicChanges(Shape, frozen=True):
    """What shall change of a topic; what is left out stays."""

    partitions: int | UnsetType = UNSET
    order: str | UnsetType = UNSET
    fair: bool | UnsetType = UNSET
    partition_by: str | list[str] | UnsetType = UNSET
    retention: str | float | Retention | UnsetType = UNSET
    keep_unsettled: bool | UnsetType = UNSET
    max_attempts: int | UnsetType | None = UNSET
    dead_letter: str | UnsetType | None = UNSET
    retry: str | float | Retry | UnsetType | None = UNSET
    dedup_window: Span | UnsetType = UNSET
    max_backlog: int | UnsetType | None = UNSET
    compression: str | UnsetType | None = UNSET
    ledger: bool | UnsetType = UNSET
    labels: dict[str, str] | UnsetType | None = UNSET


class TopicOut(Answer, frozen=True):
    """A topic and its policy, as `TopicArguments` would make it again."""

    topic: str
    number: int
    policy: TopicArguments


class Topics(Answer, frozen=True):
    """The names of the topics there are."""

    topics: list[str]


class Count(Answer, frozen=True):
    """How many messages it was about."""

    count: int


class SettledOut(Count, frozen=True):
    """How many receipts were settled. After `extend` also until when their leases hold at least, in
    milliseconds since 1970 by the node's clock, which is the header `Quiver-Time` of answers."""

    deadline_ms: int | UnsetType = UNSET


# -- sending ---------------------------------------------------------------------------------------


class MessageIn(Shape, frozen=True):
    """A message: `body` is text, or anything else that is sent as JSON; bytes go into `base64`."""

    body: msgspec.Raw | UnsetType = UNSET  # kept as it was written: numbers stay what they are
    base64: str | UnsetType = UNSET
    key: str | None = None
    headers: dict[str, str] | None = None
    priority: int = 0
    delay: Span | None = None
    ttl: Span | None = None
    dedup_id: str | None = None


class MessagesIn(Shape, frozen=True):
    """Messages that are stored together or not at all."""

    messages: list[MessageIn]


class SendQuery(Shape, frozen=True):
    """How safely to store, and which part of a named producer's messages this is."""

    durability: Durability | None = None
    producer: str | None = None
    epoch: int = 0
    sequence: int = 0


class StagedIn(Shape, frozen=True):
    """What staging has answered, all of it."""

    staged: list[Staged]


class PublishIn(Shape, frozen=True):
    """Staged messages, and whose batch they are."""

    staged: list[Staged]
    application: str
    batch: int
    run: str = ""


class ApplicationOut(Answer, frozen=True):
    """The last batch of an application, null if it has published nothing."""

    batch: int | None


# -- receiving and settling ------------------------------------------------------------------------


class ReceiveIn(Shape, frozen=True):
    """How many, held for how long, and how long to wait for the first.

    `begin` is how many of them begin with that; the others are reserved. Without it all begin.
    """

    max_messages: int = 1
    lease: Span = 30
    wait: Span = 0
    consumer: str = ""
    begin: int | None = None


class OriginOut(Answer, frozen=True):
    """Where a dead letter came from, and why it died."""

    topic: str
    partition: int
    offset: int
    group: str
    attempts: int
    reason: str
    time: str


class MessageOut(Answer, frozen=True, omit_defaults=True):
    """A stored message: `body` if it is text, else `base64`.

    Under a lease it has an `attempt`, an `epoch` that only grows, and, unless it is settled already
    (it has begun, at most once), a `receipt`. While it is `reserved` it has not begun.
    """

    id: str
    partition: int
    offset: int
    created_at: str
    body: str | None = None
    base64: str | None = None
    key: str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    priority: int = 0
    attempt: int = 0
    epoch: int = 0
    receipt: str | None = None
    reserved: bool = False
    origin: OriginOut | None = None


class ReceivedMessages(Answer, frozen=True):
    """Messages under a lease; without any, nothing is held."""

    messages: list[MessageOut]


class LeaseAbout(Answer, frozen=True):
    """What the messages of one receive share; `receipts` has one for each partition, see `HeldIn`."""

    group: str
    epoch: int
    deadline_ms: int
    settled: bool
    receipts: dict[int, str]
    reserved: int = 0  # so many of the last messages have not begun


class HeldIn(Shape, frozen=True):
    """Other offsets under the lease of a receipt, in its partition, as half-open ranges."""

    receipt: str
    ranges: list[tuple[int, int]]


class SettlePart(Shape, frozen=True):
    """Receipts (or ranges under leases) and what shall become of them."""

    action: Action
    receipts: list[str] = []
    held: list[HeldIn] = []
    delay: Span | None = None
    lease: Span | None = None
    reason: str = ""


class SendPart(Shape, frozen=True):
    """What a transaction sends to a topic."""

    topic: str
    messages: list[MessageIn]


class TransactionIn(Shape, frozen=True):
    """Settling and sending that happens together or not at all."""

    settle: list[SettlePart] = []
    send: list[SendPart] = []


# -- reading ---------------------------------------------------------------------------------------


class ReadIn(Shape, frozen=True):
    """A replay: from where to where, or where the last page ended (`cursor`)."""

    start: Spot | None = None
    offset: int | None = None
    end: Spot | None = None
    partition: int | None = None
    cursor: str | None = None
    limit: int | None = None
    pending: bool = False


class ReadOut(Answer, frozen=True):
    """A page of a replay; with no `cursor` it was the last."""

    messages: list[MessageOut]
    cursor: str | None


class PageAbout(Answer, frozen=True):
    """Of a page as Arrow: the topic, and where the next page begins and the replay ends."""

    cursor: str


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a replay is: the topic's number, and by partition where it is and where it ends."""

    topic: int
    positions: dict[int, int]
    ends: dict[int, int]

    @property
    def more(self) -> bool:
        """Whether there may be another page."""
        return any(at < self.ends[part] for part, at in self.positions.items())


class Rows(Answer, frozen=True):
    """Rows of a table, a map each."""

    rows: list[dict[str, Any]]


class QuestionIn(Shape, frozen=True):
    """One SELECT."""

    query: str


# -- groups and members ----------------------------------------------------------------------------


class GroupIn(Shape, frozen=True):
    """Where a group begins, and what it is promised."""

    start: Spot = "earliest"
    guarantee: str = "at-least-once"


class SeekIn(Shape, frozen=True):
    """Where a group shall be."""

    to: Spot
    partition: int | None = None


class JoinIn(Shape, frozen=True):
    """How long a member may be silent."""

    session: Span = 30


class HeartbeatIn(Shape, frozen=True):
    """The partitions that the member has let go of."""

    released: list[int] = []


class CommitIn(Shape, frozen=True):
    """By partition, the offset before which everything is processed."""

    offsets: dict[int, int]


class FetchIn(Shape, frozen=True):
    """By partition, where to go on; partitions that are another's by now are left out."""

    positions: dict[int, int]
    max_messages: int = 1_000
    wait: Span = 0


class FetchAbout(Answer, frozen=True):
    """Where the next fetch begins."""

    ahead: dict[int, int]


class Fetched(Answer, frozen=True):
    """Messages of a member's partitions, and where the next fetch begins."""

    messages: list[MessageOut]
    ahead: dict[int, int]


# -- dead letters ----------------------------------------------------------------------------------


class DiscardIn(Shape, frozen=True):
    """Which pending messages: those for which a condition in SQL holds."""

    where: str | None = None
    limit: int | None = None
    dry_run: bool = False


class RedriveIn(DiscardIn, frozen=True):
    """Which pending messages, to where (or back to where they came from), and how fast."""

    to: str | None = None
    rate: float | None = None


# -- the node --------------------------------------------------------------------------------------


class About(Answer, frozen=True):
    """Which version this is, and what it can do."""

    name: str
    version: str
    api: str
    capabilities: list[str]


class WarningOut(Answer, frozen=True):
    """What a caller should be warned of: see `BehindRetention`, and `UnreadableMessages`."""

    message: str
    topic: str = ""
    group: str = ""
    count: int = 0
    unreadable: bool = False


class Problem(msgspec.Struct, frozen=True):
    """An error, as RFC 9457 has it. `code` is that of the Python error; `refused` has receipts."""

    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    type: str = "about:blank"
    refused: list[Any] = []


# -- text and bytes --------------------------------------------------------------------------------


def read_json(data: bytes, kind: type[T]) -> T:
    """The request that JSON says."""
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the request is not as it should be: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the request is not JSON: {error}") from None


def write_cursor(cursor: Cursor) -> str:
    """A cursor as text; it says nothing that is not asked for again."""
    return urlsafe_b64encode(msgspec.msgpack.encode(cursor)).rstrip(b"=").decode()


def read_cursor(text: str) -> Cursor:
    """The cursor that a text stands for."""
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        cursor = msgspec.msgpack.decode(data, type=Cursor)
    except (Base64Error, msgspec.DecodeError, ValueError, RecursionError):
        raise InvalidRequest("that is not a cursor; use the one of the page before") from None
    numbers = (cursor.topic, *cursor.positions, *cursor.positions.values(), *cursor.ends.values())
    if cursor.positions.keys() != cursor.ends.keys() or not all(0 <= n < 2**62 for n in numbers):
        raise InvalidRequest("that is not a cursor; use the one of the page before")
    return cursor


def write_json(value: Any) -> bytes:
    """An answer as JSON."""
    return msgspec.json.encode(value)
