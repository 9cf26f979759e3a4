"""Between a client and a node: what forwards frames until told to lose one, and what speaks HTTP only.

A request is known by its words: the verb of its frame, and the name of the command, query or errand in it
or what a settle does ("SEND", "PROPOSE", "Purge", "SETTLE", "ack"). They are the same whether a frame is on
a connection of its own or posted.
"""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Self

from quiver.wire.frames import Frame, FrameReader, Verb, pack
from quiver.wire.problems import Trouble
from quiver.wire.values import ErrorHead, NamedHead, SettleHead, encode, head_of

SECONDS = 60


class Proxy:
    """Forwards connections to a port, perhaps a small `piece` at a time. `lose` says whose answers are
    lost: those to requests with some word, so many times; `after` is called before, and who asked gets what
    is there `instead`: an error, as a node would say it, or bytes that nobody would. `drop` says the same
    of requests that get lost before the node has them, and `drop_with` of one that is answered by the
    proxy. While it is `down` nobody gets through."""

    def __init__(self, port: int, piece: int = 0) -> None:
        self._target = port
        self.piece = piece
        self.lose: dict[str, int] = {}
        self.drop: dict[str, int] = {}
        self.drop_with: dict[str, bytes] = {}
        self.lost = 0
        self.after: Callable[[], object] = lambda: None
        self.instead: Trouble | bytes = b""
        self.part = 0.0  # of an answer that is lost: how much of it comes through
        self.down = False
        self.seen: list[frozenset[str]] = []  # the requests, in their order
        self.frames: list[Frame] = []
        self.answers: list[Frame] = []  # that were forwarded
        self.opened = 0  # connections
        self._changed = Event()
        self._pairs: list[Pair] = []
        self._lock = Lock()
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
            self.opened += 1
            if self.down:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._target))
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [near, far]
            pair = Pair(self, Stream(near), Stream(far))
            self._pairs.append(pair)
            for target in (pair.ask, pair.answer):
                self._threads.append(Thread(target=target))
                self._threads[-1].start()

    def notes(self, frame: Frame) -> None:
        """A request has come."""
        self.frames.append(frame)
        self.seen.append(words(frame))
        self._changed.set()

    def await_request(self, word: str, count: int = 1) -> None:
        """Until so many requests with this word have come, from the beginning on."""
        while sum(word in one for one in self.seen) < count:
            self._changed.clear()
            if sum(word in one for one in self.seen) < count:
                assert self._changed.wait(SECONDS), f"no {word} in {self.seen}"

    def is_lost(self, losses: dict[str, int], request: frozenset[str]) -> bool:
        with self._lock:
            for word in request:
                if losses.get(word):
                    losses[word] -= 1
                    self.lost += 1
                    return True
        return False

    def swallow(self) -> None:
        """From now on nothing comes through the connections there are, and they stay."""
        for pair in self._pairs:
            pair.mute = True

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


class Pair:
    """A connection of a client, and the one to the node that goes with it."""

    def __init__(self, proxy: Proxy, near: "Stream", far: "Stream") -> None:
        self._proxy = proxy
        self._near = near
        self._far = far
        self._asked: dict[int, frozenset[str]] = {}  # by the numbers of their frames
        self._posted: SimpleQueue[tuple[int, frozenset[str]]] = SimpleQueue()  # one after the other
        self._upgraded: SimpleQueue[bool] = SimpleQueue()
        self.mute = False

    def ask(self) -> None:
        """Forward requests."""
        with suppress(OSError, EOFError):
            while not self._requested():
                pass
            for frame in self._near.frames():
                self._proxy.notes(frame)
                said = words(frame)
                if self._proxy.is_lost(self._proxy.drop, said):
                    self._proxy.after()
                    break
                self._asked[frame.id] = said
                self._forward(self._far, packed(frame))
        _cut(self._near.sock, self._far.sock)

    def _requested(self) -> bool:
        """Forward one request of HTTP; whether frames follow."""
        head, fields = self._near.head()
        body = self._near.exactly(int(fields.get("content-length", "0")))
        number, said = 0, frozenset({head.split(b" HTTP", 1)[0].decode()})
        if body:
            (frame,) = frames_of(body)
            self._proxy.notes(frame)
            number, said = frame.id, words(frame)
        if self._proxy.is_lost(self._proxy.drop, said):
            self._proxy.after()
            raise EOFError
        for word in said & self._proxy.drop_with.keys():
            self._proxy.lost += 1
            self._near.sock.sendall(self._proxy.drop_with.pop(word))
            raise EOFError
        self._posted.put((number, said))
        self._forward(self._far, head + body)
        return "upgrade" in fields and self._upgraded.get(timeout=SECONDS)

    def answer(self) -> None:
        """Forward answers."""
        with suppress(OSError, EOFError):
            while not self._responded():
                pass
            for frame in self._far.frames():
                said = self._asked.get(frame.id, frozenset())
                if self._proxy.is_lost(self._proxy.lose, said):
                    self._proxy.after()
                    self._near.sock.sendall(self._instead(frame.id, packed(frame)))
                    break
                self._proxy.answers.append(frame)
                self._forward(self._near, packed(frame))
        self._upgraded.put(False)
        _cut(self._near.sock, self._far.sock)

    def _responded(self) -> bool:
        head, fields = self._far.head()
        body = self._far.body(fields)
        number, said = self._posted.get(timeout=SECONDS)
        if self._proxy.is_lost(self._proxy.lose, said):
            self._proxy.after()
            told = self._instead(number, head + body)
            if isinstance(self._proxy.instead, Trouble):
                told = answer("200 OK", told, "application/vnd.quiver.frames")
            self._near.sock.sendall(told)
            raise EOFError
        upgraded = b" 101 " in head.split(b"\r\n")[0]
        self._upgraded.put(upgraded)
        if number and fields.get("transfer-encoding") != "chunked":
            self._proxy.answers += frames_of(body)
        self._forward(self._near, head + body)
        return upgraded

    def _instead(self, number: int, real: bytes) -> bytes:
        other = self._proxy.instead
        if isinstance(other, Trouble):
            return pack(Verb.ERROR, number, encode(ErrorHead(1_700_000_000_000, other)))[0]
        return other or real[: int(len(real) * self._proxy.part)]

    def _forward(self, to: "Stream", data: bytes) -> None:
        if self.mute:
            return
        step = self._proxy.piece or len(data)
        for at in range(0, len(data), step or 1):
            to.sock.sendall(data[at : at + step])


class Stream:
    """One end, with what was received of it and not taken yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._data = b""

    def _more(self) -> None:
        piece = self.sock.recv(1 << 20)
        if not piece:
            raise EOFError
        self._data += piece

    def until(self, end: bytes) -> bytes:
        while end not in self._data:
            self._more()
        return self.exactly(self._data.index(end) + len(end))

    def exactly(self, count: int) -> bytes:
        while len(self._data) < count:
            self._more()
        found, self._data = self._data[:count], self._data[count:]
        return found

    def head(self) -> tuple[bytes, dict[str, str]]:
        """What a message of HTTP begins with, and its fields."""
        head = self.until(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")[1:]
        return head, dict(line.split(": ", 1) for line in lines if line)

    def body(self, fields: dict[str, str]) -> bytes:
        if fields.get("transfer-encoding") != "chunked":
            return self.exactly(int(fields.get("content-length", "0")))
        found = b""
        while True:
            size = self.until(b"\r\n")
            found += size + self.exactly(int(size, 16) + 2)
            if not int(size, 16):
                return found

    def frames(self) -> Iterator[Frame]:
        """What comes from now on."""
        reader = FrameReader()
        while True:
            if not self._data:
                self._more()
            room = reader.buffer()
            count = min(len(room), len(self._data))
            room[:count], self._data = self._data[:count], self._data[count:]
            yield from reader.received(count)


def words(frame: Frame) -> frozenset[str]:
    """What a request is known by."""
    found = {Verb(frame.verb).name}
    if frame.verb in (Verb.SETTLE, Verb.PROPOSE, Verb.ASK, Verb.WATCH, Verb.ERRAND):
        head = head_of(frame)
        found |= {head.action} if isinstance(head, SettleHead) else set()
        found |= {head.name} if isinstance(head, NamedHead) else set()
    return frozenset(found)


def frames_of(body: bytes) -> list[Frame]:
    stream = Stream(socket.socket())
    with stream.sock:
        stream._data = body
        found: list[Frame] = []
        with suppress(OSError):  # there is no more
            found.extend(stream.frames())
        return found


def packed(frame: Frame) -> bytes:
    start, rest = pack(Verb(frame.verb), frame.id, bytes(frame.head), frame.payload, frame.flags)
    return start if rest is None else start + rest


def answer(status: str, body: bytes, kind: str = "text/html") -> bytes:
    """An answer of HTTP, after which the connection ends."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close"
    return head.encode() + b"\r\n\r\n" + body


def _cut(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def plain_proxy(port: int, *options: str) -> Iterator[int]:
    """A reverse proxy in a process of its own, which knows nothing but requests of HTTP: see `plain.py`."""
    program = Path(__file__).with_name("plain.py")
    process = subprocess.Popen(
        [sys.executable, str(program), str(port), *options],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


__all__ = ["Any", "Proxy", "Trouble", "answer", "plain_proxy", "words"]
