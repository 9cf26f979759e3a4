"""What the actions share: the queue behind them, what they remember, and one request's context."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, TypeVar
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
from quiver.server.sqs.attempts import Attempts
from quiver.server.sqs.faults import Fault, missing, no_queue
from quiver.server.sqs.queues import SqsQueue
from quiver.server.sqs.shapes import Output
from quiver.server.traffic import HeldBytes

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
    def flows(self) -> Flows:
        """Its verbs, for those that need more than an answer."""
        return self.context.flows

    @property
    def secret(self) -> bytes:
        """What receipts are signed with."""
        return self.context.broker.secret

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
    base: str  # scheme and host as the client knows them
    region: str
    trace: str | None
    path_queue: str | None  # the queue whose own URL was called
    request: Request

    @property
    def bounds(self) -> Sqs:
        """What is refused, and what only AWS would refuse."""
        return self.service.bounds

    @property
    def held(self) -> HeldBytes:
        """What the request and its answer keep in memory."""
        return HeldBytes.by(self.request)

    def url(self, name: str) -> str:
        """A queue's URL, by the address that the client has used."""
        return f"{self.base}/{self.bounds.account}/{name}"

    def arn(self, name: str) -> str:
        """A queue's ARN, in the region that the client has signed for."""
        return f"arn:aws:sqs:{self.region}:{self.bounds.account}:{name}"

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
        return await self.service.handle(name)
