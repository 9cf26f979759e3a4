"""The process: one socket, one shard, one event loop; signals end it in order."""

import asyncio
import json
import signal
import socket
import sys
from typing import Any

import uvicorn
import uvloop

from quiver.client.connect import connect_async
from quiver.errors import InvalidRequest
from quiver.server.app import make_app
from quiver.server.auth import ACCESS_FILE, Certificate, Guard, Tls, Watch
from quiver.server.config import Config
from quiver.server.context import Context
from quiver.server.metrics import Metrics


def serve(config: Config) -> None:
    """Run a node until it is told to stop."""
    guard = _guard(config)
    tls = Tls(Certificate(config.tls.cert, config.tls.key)) if config.tls is not None else None
    if guard.open and not config.loopback and not config.insecure:
        raise InvalidRequest(
            f"{config.listen} can be reached from other machines, and no credentials are configured; "
            "configure some, listen on 127.0.0.1, or say --insecure if everybody may do everything"
        )
    uvloop.run(_serve(config, guard, tls))


def _guard(config: Config) -> Guard:
    """Of the access file that was named, which must be there, or of the data directory's, if any."""
    named = config.access.file
    return Guard(named or config.data / ACCESS_FILE, required=named is not None)


async def _serve(config: Config, guard: Guard, tls: Tls | None) -> None:
    listener = _listen(config)
    async with connect_async(config.data) as queue:
        app = make_app(Context(queue, config, guard, Metrics()))
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                server_header=False,
                proxy_headers=False,
            )
        )
        watch = Watch(guard, *([tls] if tls is not None else []))
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        loop.add_signal_handler(signal.SIGHUP, watch.now)
        watching = asyncio.create_task(watch.run())
        server.config.load()
        server.config.ssl = tls.context if tls is not None else None
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[listener])
        host, port = listener.getsockname()[:2]
        _log(
            "listening",
            address=f"{host}:{port}",
            url=f"{'https' if tls else 'http'}://{host}:{port}",
        )
        await ended.wait()
        _log("stopping")
        watching.cancel()
        server.config.timeout_graceful_shutdown = int(config.bounds.drain_seconds)
        await server.shutdown([listener])
    _log("stopped")


def _listen(config: Config) -> socket.socket:
    host, port = config.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InvalidRequest(f"cannot listen on {config.listen}: {error.strerror}") from None
    return listener


def _log(event: str, **facts: Any) -> None:
    sys.stderr.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stderr.flush()
