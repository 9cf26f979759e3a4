"""A wire that can be cut: between a client and a node, it forwards until told to lose something."""

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from types import TracebackType
from typing import Self


class Wire:
    """Forwards connections to a port. `lose` says whose answers are lost: those to requests with some
    part in them, so many times; `after` is called, and who asked gets what is there `instead`. `drop` says
    the same of requests that get lost before the node has them. While it is `down` nobody gets through."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.lose: dict[bytes, int] = {}
        self.drop: dict[bytes, int] = {}
        self.lost = 0
        self.after: Callable[[], object] = lambda: None
        self.instead = b""
        self.down = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.down:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [near, far]
            asked = bytearray()
            for target in (self._ask, self._answer):
                thread = Thread(target=target, args=(near, far, asked))
                self._threads.append(thread)
                thread.start()

    def _ask(self, near: socket.socket, far: socket.socket, asked: bytearray) -> None:
        with suppress(OSError):
            while data := near.recv(1 << 20):
                asked += data
                if self._is_lost(self.drop, bytes(asked)):
                    self.after()
                    break
                far.sendall(data)
        _cut(near, far)

    def _answer(self, near: socket.socket, far: socket.socket, asked: bytearray) -> None:
        with suppress(OSError):
            while data := far.recv(1 << 20):
                if self._is_lost(self.lose, bytes(asked)):
                    self.after()
                    near.sendall(self.instead)
                    break
                asked.clear()
                near.sendall(data)
        _cut(near, far)

    def _is_lost(self, losses: dict[bytes, int], request: bytes) -> bool:
        for part, times in losses.items():
            if part in request and times:
                losses[part] -= 1
                self.lost += 1
                return True
        return False

    def cut(self) -> None:
        """Break all connections there are; others can be made."""
        _cut(*self._sockets[1:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _cut(*self._sockets)
        for thread in self._threads:
            thread.join(10)
        for one in self._sockets:
            one.close()


def _cut(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
