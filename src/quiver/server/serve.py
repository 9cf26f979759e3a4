"""The process of a node: one socket, one shard, one event loop, and an end in order.

    check ─► bind ─► open the shard ─► listen ─► READY … SIGTERM ─► drain ─► close the shard

Draining: nobody new comes in, receives that wait are answered empty, what runs is finished within a
bound. Clients of frames are told, and leave by themselves; what they ask until then is refused. A second
signal ends the process at once, which loses nothing that was confirmed. If the shard fails, the process
ends with an error, so that whoever watches over it starts it anew.
"""

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from typing import Any, Final

import msgspec
import uvloop

from quiver import __version__, limits
from quiver.client.aio import AsyncQueue
from quiver.client.local import LocalBroker, open_flows
from quiver.client.tasks import finished
from quiver.errors import (
    InvalidRequest,
    QuiverError,
    StorageFailed,
    UnavailableError,
)
from quiver.model.queries import Ping
from quiver.model.units import milliseconds
from quiver.node.clock import Jump, told
from quiver.node.shard import Shard
from quiver.server import logs, memory, systemd
from quiver.server.app import make_app
from quiver.server.auth import ACCESS_FILE, Certificate, Guard, Tls, Watch
from quiver.server.config import NodeBounds, NodeConfig
from quiver.server.context import Context
from quiver.server.exchange import lines_of
from quiver.server.metrics import Metrics
from quiver.server.protocol import HttpConnection
from quiver.server.requests import ALWAYS
from quiver.server.sql.questions import Questions
from quiver.server.tls_listener import TlsListener
from quiver.server.traffic import ServerState, Traffic
from quiver.server.wire.connection import WireConnection

FAILED: Final = 1
BACKLOG: Final = 4_096
TICK_SECONDS: Final = 1.0
SWITCH_SECONDS: Final = 0.0005
LOOK_SECONDS: Final = 0.05  # between looks at what is still to be sent when a node ends
OTHER_FILES: Final = 512  # descriptors that are not connections: log, segments, threads


def serve(config: NodeConfig, *, accept_clock: bool = False) -> int:
    """Run a node until it is told to stop; the exit code."""
    guard, tls = check(config)
    # A thread that is busy with Python (a large batch, JSON) gives the others their turn so often. Each
    # request changes threads twice, and with Python's own 5 ms a busy thread made it ten times as slow.
    sys.setswitchinterval(SWITCH_SECONDS)
    logs.begin(config.log)
    memory.keep_freed()
    memory.restrain_gc()
    return uvloop.run(Node(config, guard, tls, accept_clock=accept_clock).run())


def check(config: NodeConfig) -> tuple[Guard, Tls | None]:
    """Refuse a configuration that a node must not be started with; who guards it, and its TLS."""
    named = config.access.file  # must be there; the data directory's need not
    guard = Guard(named or config.data / ACCESS_FILE, required=named is not None)
    tls = Tls(Certificate(config.tls.cert, config.tls.key)) if config.tls is not None else None
    if guard.open and not config.loopback and not config.insecure:
        raise InvalidRequest(
            f"{config.listen} can be reached from other machines, and no credentials are configured; "
            "configure some, listen on 127.0.0.1, or say --insecure if everybody may do everything"
        )
    return guard, tls


class Node:
    """A running node."""

    def __init__(
        self, config: NodeConfig, guard: Guard, tls: Tls | None, *, accept_clock: bool = False
    ) -> None:
        self._config = config
        self._accept_clock = accept_clock
        self._guard = guard
        self._tls = tls
        self._metrics = Metrics()
        self._questions = Questions(config.bounds.sql_queries, config.bounds.sql_seconds)
        self._traffic = Traffic(possible(config.bounds))
        self._metrics.watch_connections(lambda: self._traffic.connections)
        self._slack = memory.Slack(self._traffic)
        self._state = ServerState()
        self._ending = asyncio.Event()
        self._failure: BaseException | None = None
        self._shard: Shard | None = None

    async def run(self) -> int:
        """Serve until a signal or a failure."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_end, number)
        loop.set_default_executor(ThreadPoolExecutor(limits.THREADS_MAX, "quiver"))
        watch = Watch(self._guard, *([self._tls] if self._tls is not None else []))
        loop.add_signal_handler(signal.SIGHUP, watch.now)
        with bound(self._config) as listener:
            flows, close = await asyncio.to_thread(
                partial(
                    open_flows, self._config.data, milliseconds("30d", "ledger_retention"),
                    self._config.durability, limits.SERVED_CACHE_BYTES_MAX,
                    accept_clock=self._accept_clock,
                )
            )  # fmt: skip
            assert isinstance(flows.broker, LocalBroker)
            self._shard = flows.broker.shard
            _tell_jump(self._shard.jump)
            async with AsyncQueue(lambda _: (flows, close)) as queue:
                server = await self._listen(queue, listener)
                tasks = [asyncio.create_task(duty) for duty in self._duties(watch)]
                await self._ending.wait()
                await self._drain(server)
                await asyncio.to_thread(self._questions.close)
                for task in tasks:
                    task.cancel()
                systemd.notify("STATUS=closing the queue")
                giving_up = loop.call_later(limits.CLOSE_SECONDS_MAX, self._give_up)
        giving_up.cancel()
        logs.event("stopped", failed=self._failure is not None)
        return FAILED if self._failure is not None else 0

    async def _listen(
        self, queue: AsyncQueue, listener: socket.socket
    ) -> asyncio.Server | TlsListener:
        context = Context(queue, self._config, self._guard, self._metrics, self._questions)
        app = make_app(context, self._traffic, self._check)
        self._date()

        def enter(peer: str = "") -> HttpConnection:
            return HttpConnection(app, self._state, self._traffic, peer)

        server: asyncio.Server | TlsListener
        if self._tls is None:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(enter, sock=listener, backlog=BACKLOG)
        else:
            listener.setblocking(False)
            listener.listen(BACKLOG)
            server = TlsListener(listener, self._tls.context, self._traffic, enter)
        host, port = listener.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        logs.event(
            "listening", address=address, url=f"http{'s' * bool(self._tls)}://{address}",
            data=str(self._config.data), version=__version__, pid=os.getpid(),
            open=self._guard.open,
        )  # fmt: skip
        systemd.notify(f"READY=1\nSTATUS=listening on {address}")
        return server

    # -- while it runs -----------------------------------------------------------------------------

    def _duties(self, watch: Watch) -> Iterator[Coroutine[Any, Any, None]]:
        """What must be looked after now and then."""
        yield every(0, watch.look)  # which waits by itself
        bounds = self._config.bounds
        shortest = min(bounds.head_seconds, bounds.body_pause_seconds, bounds.body_seconds,
                       bounds.idle_seconds, bounds.answer_pause_seconds)  # fmt: skip
        yield every(min(TICK_SECONDS, shortest / 4), self._look)
        watchdog_seconds = systemd.watchdog_seconds()
        if watchdog_seconds is not None:
            yield every(watchdog_seconds, self._reassure)
        yield every(TICK_SECONDS, self._give_memory_back)

    async def _look(self) -> None:
        self._date()
        assert self._shard is not None
        if self._shard.failure is not None:
            self._failed(self._shard.failure)
        now = asyncio.get_running_loop().time()
        for connection in list(self._state.connections):
            connection.sweep(now)

    async def _give_memory_back(self) -> None:
        if self._slack.is_due(asyncio.get_running_loop().time()):
            await asyncio.to_thread(memory.give_back)
            self._slack.gave_back()

    async def _reassure(self) -> None:
        """Tell systemd that all is well, if it is."""
        with suppress(QuiverError):
            await self._check()
            systemd.notify("WATCHDOG=1")

    def _date(self) -> None:
        date = (b"date", formatdate(usegmt=True).encode())
        self._state.common = lines_of([date, *ALWAYS])

    async def _check(self) -> None:
        """Whether requests can be served; raises why not."""
        assert self._shard is not None
        if self._shard.failure is not None:
            raise StorageFailed(f"the queue has stopped: {self._shard.failure}")
        if self._ending.is_set():
            raise UnavailableError("the node is about to end")
        try:
            async with asyncio.timeout(limits.READY_SECONDS_MAX):
                await finished(self._shard.ask(Ping()))
        except TimeoutError:
            raise UnavailableError(
                f"the queue has not answered for {limits.READY_SECONDS_MAX:g} seconds; its disk may be slow"
            ) from None

    # -- its end -----------------------------------------------------------------------------------

    def _told_to_end(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._ending.is_set():
            logs.event("ended at once", level=logging.WARNING, signal=name)
            sys.stderr.flush()
            os._exit(128 + number)
        logs.event("stopping", signal=name, connections=self._traffic.connections)
        self._ending.set()

    def _failed(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            logs.failure("queue failed", error, reason=str(error))
            self._ending.set()

    async def _drain(self, server: asyncio.Server | TlsListener) -> None:
        systemd.notify("STOPPING=1")
        server.close()
        assert self._shard is not None
        with suppress(QuiverError):
            self._shard.stop_waiting()
        for connection in list(self._state.connections):
            connection.shutdown()
        leave_by = asyncio.get_running_loop().time() + limits.LEAVE_SECONDS_MAX
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.bounds.drain_seconds):
                while self._state.tasks:  # one that ends may start another: requests in a row
                    await asyncio.wait(self._state.tasks)
                while self._is_needed(leave_by):  # noqa: ASYNC110  # nobody tells when it is done
                    await asyncio.sleep(LOOK_SECONDS)
        left = len(self._state.tasks) + self._busy()
        if left:
            logs.event("cut", level=logging.WARNING, requests=left)
        cut = left or self._unsent()
        for connection in list(self._state.connections):
            if cut:
                connection.transport.abort()
            else:
                connection.transport.close()
        for _ in range(2):
            if self._state.tasks:  # most end by themselves when their client is gone
                await asyncio.wait(self._state.tasks, timeout=TICK_SECONDS)
            for task in self._state.tasks:
                task.cancel()

    def _is_needed(self, leave_by: float) -> bool:
        """Whether something runs, or a client may have sent what it has no answer to yet."""
        if self._busy() or self._unsent():
            return True
        return bool(self._wired()) and asyncio.get_running_loop().time() < leave_by

    def _wired(self) -> list[WireConnection]:
        """The connections of frames."""
        return [one for one in self._state.connections if isinstance(one, WireConnection)]

    def _busy(self) -> int:
        """How many requests on them have no answer yet."""
        return sum(one.busy for one in self._wired())

    def _unsent(self) -> bool:
        """Whether answers are made that were not read yet."""
        return any(one.transport.get_write_buffer_size() for one in self._state.connections)

    def _give_up(self) -> None:
        logs.event("ended without closing", level=logging.ERROR)
        sys.stderr.flush()
        os._exit(FAILED)


def _tell_jump(jump: Jump) -> None:
    """Say that much time has passed since the last entry, or that the time was set back."""
    if jump.is_long or jump.is_back:
        logs.event(
            "clock jumped", level=logging.WARNING, last_entry=told(jump.log_ms),
            clock=told(jump.clock_ms), days=round(jump.seconds / 86_400, 1),
        )  # fmt: skip


async def every(seconds: float, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do something again and again; a failure is told, and is not the end of it."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await act()
        except Exception as error:  # noqa: BLE001  # without this nobody would be cut any more
            logs.failure("bug", error)


def bound(config: NodeConfig) -> socket.socket:
    """A socket with the configured address; nobody is let in yet."""
    host, port = config.address
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _notice_the_dead(listener)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InvalidRequest(
            f"cannot listen on {config.listen}: {(error.strerror or str(error)).lower()}; choose "
            "another with --listen, port 0 is any that is free"
        ) from None
    return listener


def _notice_the_dead(listener: socket.socket) -> None:
    """Connections inherit this: a peer that has vanished without a word is found out by the kernel."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def possible(bounds: NodeBounds) -> NodeBounds:
    """The bounds with no more connections than the operating system has descriptors for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = bounds.connections + OTHER_FILES
    there = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < there:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (there, hard))
        except (OSError, ValueError):  # somebody who runs us does not want that
            there = soft
    if there == wanted:
        return bounds
    fewer = max(there - OTHER_FILES, 1)
    logs.event(
        "few descriptors", level=logging.WARNING, connections=fewer, wanted=bounds.connections,
        todo=f"raise the hard limit of open files to {wanted}",
    )  # fmt: skip
    return msgspec.structs.replace(bounds, connections=fewer)
