"""The ways into a queue that the contract is checked through.

A behaviour is written once, against the verbs of `quiver.Queue`. A door opens a directory on a
given clock and hands out something with those verbs: the sync API is that already, the async API
gets there through `Blocking`, which runs it in an event loop of its own. The client's doors have a
node's application between the two, behind a real socket.
"""

import asyncio
import atexit
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from inspect import isasyncgen, iscoroutine
from pathlib import Path
from secrets import token_bytes
from threading import Barrier, Thread
from typing import Any, Protocol

from quiver import (
    AsyncConsumer,
    AsyncDelivery,
    AsyncDeliveryBatch,
    AsyncMember,
    AsyncProducer,
    AsyncQueue,
    AsyncTransaction,
    Queue,
    QueueClosed,
    limits,
)
from quiver.client.connect import open_node
from quiver.client.flows import Flows
from quiver.client.local import LocalBroker
from quiver.client.remote.address import parse
from quiver.node.peer import Peer
from quiver.node.shard import Shard
from quiver.server.app import make_app
from quiver.server.auth import Guard
from quiver.server.config import NodeConfig
from quiver.server.context import Context
from quiver.server.metrics import Metrics
from quiver.server.protocol import HttpConnection
from quiver.server.sql.questions import Questions
from quiver.server.traffic import ServerState, Traffic
from quiver.storage.files import DiskFiles
from quiver.storage.lock import DirectoryLock
from quiver.testing import VirtualClock
from tests.contract.json_door import JsonDoor
from tests.contract.sqs_door import SqsDoor
from tests.inside import Inside

NODE_WORKERS = 4
PATIENCE_SECONDS = 30  # for anything that must happen; a test that waits this long has failed
ASYNC_THINGS = (
    AsyncConsumer,
    AsyncDelivery,
    AsyncDeliveryBatch,
    AsyncMember,
    AsyncProducer,
    AsyncQueue,
    AsyncTransaction,
)


class Door(Protocol):
    """Opens queues; `end` lets go of what the door itself needed, after its queues are closed."""

    def open(self, path: Path, clock: VirtualClock, durability: Any = "disk") -> Any:
        """A queue with the verbs of `quiver.Queue`."""

    def end(self) -> None:
        """Close the door."""

    shard: Shard  # behind the queue that was opened last


def open_shard(path: Path, clock: VirtualClock) -> tuple[Shard, Callable[[], None]]:
    """`quiver.client.connect.open_shard` with a clock that a test advances."""
    lock = DirectoryLock.acquire(path)
    try:
        peer = Peer.open(DiskFiles(path), now_ms=clock.now_ms(), secret=token_bytes(32))
    except BaseException:
        lock.release()
        raise
    shard = Shard(peer, clock)

    def wake() -> None:
        try:
            for _ in range(2):  # the second is answered when all that the first one woke is done
                shard.ask(Inside(lambda _: None)).wait()
        except QueueClosed:
            pass

    clock.when_advanced(wake)

    def close() -> None:
        shard.close()
        lock.release()

    return shard, close


class SyncDoor:
    """The embedded API for threads."""

    shard: Shard

    def open(self, path: Path, clock: VirtualClock, durability: Any = "disk") -> Any:
        self.shard, close = open_shard(path, clock)
        return Queue(Flows(LocalBroker(self.shard), durability), close)

    def end(self) -> None:
        pass


class AsyncDoor:
    """The embedded API for event loops."""

    shard: Shard

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="contract-loop", daemon=True)
        self._thread.start()

    def open(self, path: Path, clock: VirtualClock, durability: Any = "disk") -> Any:
        return Blocking(
            self._loop, AsyncQueue(lambda loop: self.opened(path, clock, durability, loop))
        ).__enter__()

    def opened(
        self, path: Path, clock: VirtualClock, durability: Any, loop: Any = None
    ) -> tuple[Flows, Callable[[], None]]:
        self.shard, close = open_shard(path, clock)
        return Flows(LocalBroker(self.shard), durability), close

    def end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._loop.shutdown_default_executor(), self._loop).result(
            PATIENCE_SECONDS
        )
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()


class ClientDoor:
    """The client for threads, of a node."""

    shard: Shard
    options = "?wire=always"

    def open(self, path: Path, clock: VirtualClock, durability: Any = "disk") -> Any:
        return Queue(*self.opened(path, clock, durability))

    def opened(
        self, path: Path, clock: VirtualClock, durability: Any, loop: Any = None
    ) -> tuple[Flows, Callable[[], None]]:
        self.shard, close_shard = open_shard(path, clock)
        NODE.serve(AsyncQueue(lambda _: (Flows(LocalBroker(self.shard), durability), close_shard)))
        flows, close_link = open_node(parse(NODE.url + self.options), durability, loop=loop)

        def close() -> None:
            close_link()
            NODE.stop_serving()

        return flows, close

    def end(self) -> None:
        pass


class PostingClientDoor(ClientDoor):
    """The same, where nothing but plain HTTP gets through."""

    options = "?wire=never"


class AsyncClientDoor(AsyncDoor):
    """The client for event loops, of a node."""

    def __init__(self) -> None:
        super().__init__()
        self._client = ClientDoor()

    def opened(
        self, path: Path, clock: VirtualClock, durability: Any, loop: Any = None
    ) -> tuple[Flows, Callable[[], None]]:
        found = self._client.opened(path, clock, durability, loop)
        self.shard = self._client.shard
        return found


class NodeThread:
    """A node's application behind a real socket, for one queue after the other."""

    def __init__(self) -> None:
        self.url = ""
        self._app: Any = None
        self._queue: AsyncQueue | None = None
        self._questions = Questions()  # its processes are kept from one test to the next
        self._loop = asyncio.new_event_loop()

    def start(self) -> None:
        """Once for all tests, with all the threads it will ever have."""
        workers = ThreadPoolExecutor(NODE_WORKERS, thread_name_prefix="contract-worker")
        atexit.register(self._questions.close)
        askers = self._questions._threads
        for pool, size in ((workers, NODE_WORKERS), (askers, 2 * limits.SQL_QUERIES_MAX)):
            ready = Barrier(size + 1)
            for _ in range(size):
                pool.submit(ready.wait)
            ready.wait(PATIENCE_SECONDS)
        self._loop.set_default_executor(workers)
        Thread(target=self._loop.run_forever, name="contract-node", daemon=True).start()
        self._run(self._listen())

    async def _listen(self) -> None:
        # With the protocol named, asyncio turns Nagle's delays off.
        listener = socket.socket(proto=socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        state, traffic = ServerState(), Traffic(NodeConfig().bounds)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: HttpConnection(self, state, traffic), sock=listener
        )
        self.url = f"quiver://127.0.0.1:{listener.getsockname()[1]}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    def serve(self, queue: AsyncQueue) -> None:
        async def begin() -> None:
            self._queue = await queue.__aenter__()
            self._app = make_app(Context(queue, NodeConfig(), Guard(), Metrics(), self._questions))

        self._run(begin())

    def stop_serving(self) -> None:
        async def end() -> None:
            if self._queue is not None:
                await self._queue.aclose()

        self._run(end())

    def _run(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_SECONDS)


NODE = NodeThread()
DOORS: dict[str, Callable[[], Door]] = {
    "sync": SyncDoor,
    "async": AsyncDoor,
    "client": ClientDoor,
    "async-client": AsyncClientDoor,
    "posting-client": PostingClientDoor,
    "json": JsonDoor,
    "boto3": SqsDoor,
}


class Blocking:
    """An object of the async API, used from a thread as if it were its sync twin."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: Any) -> None:
        self._loop = loop
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "close":
            name = "aclose"
        value = getattr(self._inner, name)
        if not callable(value):
            return self._outward(value)

        def call(*args: Any, **options: Any) -> Any:
            options = {key: _inward(option) for key, option in options.items()}
            return self._outward(value(*map(_inward, args), **options))

        return call

    def __enter__(self) -> "Blocking":
        self._run(self._inner.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._run(self._inner.__aexit__(*error))

    def __len__(self) -> int:
        return len(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)

    def _run(self, coroutine: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(PATIENCE_SECONDS)

    def _outward(self, value: Any) -> Any:
        if iscoroutine(value):
            return self._outward(self._run(value))
        if isasyncgen(value):
            return self._items(value)
        if isinstance(value, list):
            return [self._outward(item) for item in value]
        return Blocking(self._loop, value) if isinstance(value, ASYNC_THINGS) else value

    def _items(self, values: Any) -> Iterator[Any]:
        while True:
            try:
                yield self._outward(self._run(anext(values)))
            except StopAsyncIteration:
                return


def _inward(value: Any) -> Any:
    """What was wrapped, as the async API gave it."""
    if isinstance(value, Blocking):
        return value._inner
    if isinstance(value, list):
        return [item._inner if isinstance(item, Blocking) else item for item in value]
    return value
