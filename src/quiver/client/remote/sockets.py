"""A connection to a node for threads: a socket that never blocks, and how one is opened.

A signal may interrupt any of this (Ctrl-C). Counts of bytes are stored by the same call in C that moves
the bytes, so none is lost: what was received is understood and what was not sent is sent by whoever comes
next. With TLS a lock is around each call, for OpenSSL must not read and write one connection at once.
"""

import select
import socket
import ssl
from collections import deque
from contextlib import suppress
from threading import Lock
from typing import Final

from quiver import limits
from quiver.batches.codec import BytesLike
from quiver.client.remote.address import Address
from quiver.client.remote.handshake import Busy, Handshake
from quiver.errors import Unreachable
from quiver.wire.frames import Frame, FrameReader

WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Wire:
    """One connection; one thread reads it at a time, and one writes."""

    def __init__(self, sock: socket.socket, rest: bytes = b"") -> None:
        sock.setblocking(False)
        self._sock = sock
        self._secure = isinstance(sock, ssl.SSLSocket)
        self._turn = Lock()
        self._reader = FrameReader()
        self._rest = rest  # received with the handshake
        self._received: list[int] = []  # counts of bytes that are not understood yet
        self._outgoing: deque[memoryview] = deque()
        self._doubtful = False  # what was received was not understood to the end

    @property
    def readable(self) -> bool:
        """Whether something was received, or can be without waiting, that no poll would tell."""
        if self._rest or self._received:
            return True
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0

    @property
    def unsent(self) -> bool:
        """Whether bytes wait to be sent."""
        return bool(self._outgoing)

    def wait(self, seconds: float, *, write: bool = False) -> tuple[bool, bool]:
        """Wait until it can be read (or written); which of the two."""
        if self.readable:
            return True, False
        if self._secure and write:  # TLS may have to read before it can write
            seconds = min(seconds, 0.1)
        try:
            return _poll(self._sock, seconds, write=write)
        except ValueError:  # it has no number any more
            raise ConnectionAbortedError("the connection was closed") from None

    def read(self) -> list[Frame]:
        """The frames that came; `ConnectionError` when the node has closed."""
        if self._doubtful:
            raise ConnectionResetError("what came was not understood to the end")
        if not self._received:
            if self._rest:
                self._take_rest()
            else:
                self._receive()
        frames: list[Frame] = []
        self._doubtful = True
        for count in self._received:
            if not count:
                raise ConnectionResetError("the node has closed the connection")
            frames += self._reader.received(count)
        self._received.clear()
        self._doubtful = False
        return frames

    def _receive(self) -> None:
        buffer = (self._reader.buffer(),)
        try:
            if self._secure:
                with self._turn:
                    self._received.extend(map(self._sock.recv_into, buffer))
            else:
                self._received.extend(map(self._sock.recv_into, buffer))
        except WOULD_BLOCK:
            pass

    def _take_rest(self) -> None:
        count = self._reader.fill(self._rest)
        self._received, self._rest = [count], self._rest[count:]

    def add(self, pieces: list[BytesLike]) -> None:
        """These are to be sent."""
        self._outgoing.extend(memoryview(piece).cast("B") for piece in pieces)

    def send(self) -> bool:
        """Send what can be sent now; whether that is all."""
        while self._outgoing:
            piece, sent = self._outgoing[0], list[int]()
            try:
                if self._secure:
                    with self._turn:
                        sent.extend(map(self._sock.send, (piece,)))
                else:
                    sent.extend(map(self._sock.send, (piece,)))
            except WOULD_BLOCK:
                return False
            finally:
                if sent:
                    self._advance(piece, sent[0])
        return True

    def _advance(self, piece: memoryview, count: int) -> None:
        if count < len(piece):
            self._outgoing[0] = piece[count:]
        else:
            self._outgoing.popleft()

    def close(self) -> None:
        """End it; a thread that waits for it wakes up."""
        shut(self._sock)
        self._sock.close()

    def forget(self) -> None:
        """It belongs to the process from which this one was forked: close our copy of it, silently."""
        with suppress(OSError):
            socket.close(self._sock.detach())


def shut(sock: socket.socket) -> None:
    """End what it is for; a thread that waits for it wakes up."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def hung_up(sock: socket.socket) -> bool:
    """Whether something comes although nothing was asked: the end, most likely."""
    try:
        return _poll(sock, 0, write=False)[0]
    except (OSError, ValueError):  # it is closed
        return True


def _poll(sock: socket.socket, seconds: float, *, write: bool) -> tuple[bool, bool]:
    """Whether the socket can be read, and written."""
    if not hasattr(select, "poll"):  # Windows
        found = select.select([sock], [sock] if write else [], [], seconds)
        return bool(found[0]), bool(found[1])
    poll = select.poll()
    poll.register(sock, select.POLLIN | (select.POLLOUT if write else 0))
    events = sum(event for _, event in poll.poll(min(seconds, 1e6) * 1000))
    return bool(events & ~select.POLLOUT), bool(events & select.POLLOUT)


def connect(address: Address, tls: ssl.SSLContext | None, host: str, seconds: float) -> Wire:
    """A connection on which frames go. `OSError` or `Busy` if there is none now, an error of ours if
    waiting does not help, `NoUpgrade` if what is between us and the node does not let it through."""
    sock = open_socket(tls, host, seconds)
    try:
        handshake = Handshake(address, host)
        sock.sendall(handshake.request())
        while not handshake.feed(_some(sock)):
            pass
        return Wire(sock, handshake.rest)
    except BaseException:
        sock.close()
        raise


def _some(sock: socket.socket) -> bytes:
    try:
        return sock.recv(limits.FRAME_BUFFER_BYTES)
    except TimeoutError:
        raise TimeoutError("no answer to the handshake") from None


def open_socket(tls: ssl.SSLContext | None, host: str, seconds: float) -> socket.socket:
    """A connection to a host, with TLS if it is given."""
    name, _, port = host.rpartition(":")
    name = name.strip("[]")
    sock = socket.create_connection((name, int(port)), min(seconds, limits.CONNECT_SECONDS_MAX))
    try:
        sock.settimeout(seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        notice_the_dead(sock)
        return sock if tls is None else tls.wrap_socket(sock, server_hostname=name)
    except ssl.SSLError as error:
        sock.close()
        refuse_strangers(host, error)
        raise
    except BaseException:
        sock.close()
        raise


def notice_the_dead(sock: socket.socket) -> None:
    """A peer that has vanished without a word is found out by the system, also if nothing is asked."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def refuse_strangers(host: str, error: Exception) -> None:
    """What answered is not what TLS expects: trying again would not help."""
    if isinstance(error, ssl.SSLCertVerificationError):
        raise Unreachable(f"{host} is not whom we trust: {error}") from None
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        raise Unreachable(
            f"{host} does not speak TLS as we do ({error.reason}): check the port, and "
            "call a node without TLS quiver://, not quivers://"
        ) from None


def may_be_tls(tls: ssl.SSLContext | None, error: Exception, *, known: bool) -> bool:
    """Whether what answers so may speak TLS, and no node be: none was `known` there, and we do not."""
    refused = isinstance(error, ConnectionRefusedError | TimeoutError | Busy)
    return tls is None and not known and not refused


def demand_no_tls(host: str) -> None:
    """Refuse a host that does not answer as a node does, and speaks TLS; it is told nothing."""
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        open_socket(anybody, host, limits.CONNECT_SECONDS_MAX).close()
    except (OSError, Unreachable):  # and TimeoutError, and what ssl raises
        return
    raise Unreachable(f"{host} speaks TLS: call it quivers://, not quiver://")
