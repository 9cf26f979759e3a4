"""What the actions share: the queue behind them, what they remember, and one request's context."""

import asyncio
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

from starlette.requests import Request

from quiver import limits
from quiver.client.aio import AsyncQueue
from quiver.client.flows import Flows
from quiver.client.tasks import run
from quiver.errors import InvalidRequest, TopicNotFound
from quiver.model.ids import uuid_text
from quiver.node.placing import TopicHandle
from quiver.server.auth import Principal, Verb
from quiver.server.config import Sqs
from quiver.server.context import Context
from quiver.server.requests import header
from quiver.server.sqs.attempts import Attempts
from quiver.server.sqs.faults import Fault, missing, no_queue
from quiver.server.sqs.queues import SqsQueue
from quiver.server.sqs.shapes import Output
from quiver.server.traffic import HeldBytes

REGION: Final = re.compile(rb"Credential=[^/,&]+?(?:/|%2F)\d{8}(?:/|%2F)([a-z0-9-]{1,40})(?:/|%2F)")

K = TypeVar("K")
V = TypeVar("V")


class Memory(Generic[K, V]):
    """The newest `most` of what was put in; what is older is forgotten, and nobody may rely on it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        return self._items.get(key)

    def put(self, key: K, value: V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._most:
            self._items.popitem(last=False)

    def pop(self, key: K) -> V | None:
        return self._items.pop(key, None)


@dataclass(slots=True)
class Move:
    """A task that moves messages from one queue to another."""

    handle: str
    source: str
    source_arn: str
    target_arn: str | None
    rate: int | None
    to_move: int
    started_ms: int
    moved: int = 0
    status: str = "RUNNING"
    reason: str | None = None
    job: asyncio.Task[int] | None = field(default=None, repr=False)

    def output(self) -> Output:
        """As ListMessageMoveTasks shows it."""
        found: Output = {
            "TaskHandle": self.handle if self.status == "RUNNING" else None,
            "Status": self.status,
            "SourceArn": self.source_arn,
            "DestinationArn": self.target_arn,
            "MaxNumberOfMessagesPerSecond": self.rate,
            "ApproximateNumberOfMessagesMoved": self.moved,
            "ApproximateNumberOfMessagesToMove": self.to_move,
            "FailureReason": self.reason,
            "StartedTimestamp": self.started_ms,
        }
        return {name: value for name, value in found.items() if value is not None}


class SqsService:
    """One for a node."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.flows: Flows = context.flows  # for those that need more than the queue's verbs
        self._broker = context.broker
        self.bounds: Sqs = context.config.sqs
        self.deleted: Memory[str, int] = Memory(limits.SQS_REMEMBERED_MAX)  # queue -> when
        self.purged: Memory[str, int] = Memory(limits.SQS_REMEMBERED_MAX)
        # topic, partition, offset -> when it was received first, and last
        self.received: Memory[tuple[int, int, int], tuple[int, int]] = Memory(
            limits.SQS_REMEMBERED_MAX
        )
        # topic -> at most how many are in flight: what there were, and all that was received since
        self.in_flight: Memory[int, int] = Memory(limits.SQS_QUEUES_MAX)
        self.attempts = Attempts()
        self.moves: list[Move] = []  # newest first
        self.changing = asyncio.Lock()  # labels are read, changed and written as a whole
        self._queues: Memory[str, SqsQueue] = Memory(limits.SQS_QUEUES_MAX)
        self._mark: int | None = None

    @property
    def queue(self) -> AsyncQueue:
        """What everything is kept in."""
        return self.context.queue

    @property
    def secret(self) -> bytes:
        """What receipts are signed with."""
        return self._broker.secret

    def now_ms(self) -> int:
        """The log's time."""
        return self.flows.now_ms()

    def message_id(self, index: int, row: int) -> str:
        """A UUID that `trace` takes, and that no other directory gives to a message."""
        if self._mark is None:
            mark = blake2b(self.secret, digest_size=4, person=b"sqs")
            self._mark = int.from_bytes(mark.digest())
        return uuid_text(index, row, self._mark)

    async def handle(self, name: str) -> TopicHandle:
        """The topic behind a queue."""
        found = self.flows.known(name)
        if found is None:
            try:
                found = await run(self.flows.handle(name))
            except (TopicNotFound, InvalidRequest):
                raise no_queue() from None
        return found

    def look(self, handle: TopicHandle) -> SqsQueue:
        """The queue that a topic is, as its policy is now."""
        queue = self._queues.get(handle.name)
        if queue is None or queue.policy is not handle.policy:
            queue = SqsQueue(handle.name, handle.policy)
            self._queues.put(handle.name, queue)
        return queue


@dataclass(slots=True)
class SqsCall:
    """One request: who asks, by what address, about which queue."""

    service: SqsService
    principal: Principal
    request: Request
    path_queue: str | None  # the queue whose own URL was called

    @property
    def bounds(self) -> Sqs:
        """What is refused, and what only AWS would refuse."""
        return self.service.bounds

    @property
    def held(self) -> HeldBytes:
        """What the request and its answer keep in memory."""
        return HeldBytes.by(self.request)

    @property
    def trace(self) -> str | None:
        """The client's trace header of AWS."""
        given = header(self.request.scope, b"x-amzn-trace-id")
        return given.decode("latin-1") if given else None

    def url(self, name: str) -> str:
        """A queue's URL, by the address that the client has used."""
        scope = self.request.scope
        host = (header(scope, b"host") or b"localhost").decode("latin-1")
        return f"{scope['scheme']}://{host}/{self.bounds.account}/{name}"

    def arn(self, name: str) -> str:
        """A queue's ARN, in the region that the client has signed for."""
        scope = self.request.scope
        signed = REGION.search(header(scope, b"authorization") or scope["query_string"])
        region = signed[1].decode() if signed else self.bounds.region
        return f"arn:aws:sqs:{region}:{self.bounds.account}:{name}"

    def name(self, url: str | None) -> str:
        """The queue that a QueueUrl means: a URL, or just a name; or the one whose URL was called."""
        if url is None:
            if self.path_queue is None:
                raise missing("QueueUrl")
            return self.path_queue
        try:
            path = urlsplit(url).path
        except ValueError:
            raise Fault(
                "InvalidAddress", f"The address {url} is not valid for this endpoint."
            ) from None
        name = path.rstrip("/").rpartition("/")[2]
        if not name:
            raise no_queue()
        return name

    async def topic(self, url: str | None, verb: Verb) -> TopicHandle:
        """The topic of the queue that is meant, if the principal may do that to it."""
        name = self.name(url)
        self.principal.demand(verb, name)
        return self.service.flows.known(name) or await self.service.handle(name)
