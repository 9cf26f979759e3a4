"""A node of a test's own: it upgrades, and does with each frame what the test says."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

import msgspec
import pytest

from quiver.wire.frames import FrameReader, Verb, pack
from quiver.wire.problems import Trouble
from quiver.wire.values import AnswerHead, ErrorHead, Welcome, encode

UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: quiver/1\r\nconnection: upgrade\r\n\r\n"
NOW_MS = 1_700_000_000_000


class Peer:
    """One connection, as the node has it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.seen: list[tuple[int, int]] = []  # verb and number of each frame

    def say(self, verb: Verb, number: int, head: Any, payload: bytes = b"", flags: int = 0) -> None:
        for piece in pack(verb, number, encode(head), payload, flags):
            if piece is not None:
                self.sock.sendall(piece)

    def answer(self, number: int, value: Any, payload: bytes = b"", flags: int = 0) -> None:
        self.say(
            Verb.ANSWER, number, AnswerHead(NOW_MS, msgspec.Raw(encode(value))), payload, flags
        )

    def refuse(self, number: int, code: str, detail: str = "no") -> None:
        self.say(Verb.ERROR, number, ErrorHead(NOW_MS, Trouble(code, detail)))


Serve = Callable[[Peer, Any], None]


class Scripted:
    """A listener, and what it does with frames."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.peers: list[Peer] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._threads.append(Thread(target=self._talk, args=(sock,), daemon=True))
                self._threads[-1].start()

    def _talk(self, sock: socket.socket) -> None:
        with sock, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                piece = sock.recv(65536)
                if not piece:  # it was interrupted
                    return
                head += piece
            sock.sendall(UPGRADED)
            peer = Peer(sock)
            self.peers.append(peer)
            peer.say(Verb.WELCOME, 0, Welcome("test", NOW_MS))
            reader = FrameReader()
            while count := sock.recv_into(reader.buffer()):
                for frame in reader.received(count):
                    peer.seen.append((frame.verb, frame.id))
                    if frame.verb == Verb.PING:
                        peer.say(Verb.PONG, frame.id, ())
                    else:
                        self.serve(peer, frame)

    def cut(self) -> None:
        """Close every connection."""
        for peer in self.peers:
            with suppress(OSError):
                peer.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()


@contextmanager
def scripted(serve: Serve) -> Iterator[Scripted]:
    node = Scripted(serve)
    try:
        yield node
    finally:
        node.close()


def without_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names cannot be looked up, and that is told by an error that is none of the system's."""
    connect = socket.create_connection

    def look_up(address: tuple[str, int], *args: Any, **options: Any) -> socket.socket:
        if address[0] != "127.0.0.1":
            raise UnicodeError("no name")
        return connect(address, *args, **options)

    monkeypatch.setattr(socket, "create_connection", look_up)
