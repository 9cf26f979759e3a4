"""Where TLS connections are until their handshake is done: counted, for it may never be.

An event loop's own server tells nobody of a connection before that, and who only opens connections
and says nothing would be bounded in time, and not in number.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

from quiver import limits
from quiver.server.protocol import HttpConnection
from quiver.server.traffic import Traffic


class TlsListener:
    """Lets connections in from a socket that listens, each after its handshake."""

    def __init__(
        self, listener: socket.socket, tls: ssl.SSLContext, traffic: Traffic,
        make: Callable[[str], HttpConnection],
    ) -> None:  # fmt: skip
        """`make` gets the address under which the connection is counted."""
        self._listener = listener
        self._tls = tls
        self._traffic = traffic
        self._make = make
        self._tasks = {asyncio.create_task(self._accept())}

    def close(self) -> None:
        """Let nobody in any more."""
        for task in self._tasks:
            task.cancel()
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(self._listener)
            except OSError:  # no descriptor is free, or the client has gone already
                await asyncio.sleep(limits.ACCEPT_PAUSE_SECONDS)
                continue
            peer = address[0]
            if self._traffic.enter(peer):  # who could not be told why without a handshake
                self._traffic.leave(peer)
                accepted.close()
                continue
            task = loop.create_task(self._shake_hands(accepted, peer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _shake_hands(self, accepted: socket.socket, peer: str) -> None:
        made = self._make(peer)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: made, accepted, ssl=self._tls,
                ssl_handshake_timeout=self._traffic.bounds.head_seconds,
            )  # fmt: skip
        except OSError:  # of the handshake, or of the line
            pass
        finally:
            if not made.entered:  # else it is counted until it ends
                self._traffic.leave(peer)
                accepted.close()
