"""A client of frames that does what it is told, and nothing by itself."""

import itertools
import socket
import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from quiver.batches.codec import BytesLike, decode, encode_whole
from quiver.batches.rows import make_row
from quiver.batches.rows import pack as pack_rows
from quiver.model import commands, queries
from quiver.model.commands import Held
from quiver.model.replies import Settled
from quiver.model.topic import TopicPolicy
from quiver.wire import values
from quiver.wire.frames import PATH, PROTOCOL, Flag, Frame, FrameReader, Verb, pack
from quiver.wire.values import (
    BatchHead,
    HeldHead,
    NamedHead,
    PlacedOut,
    ReceivedOut,
    ReceiveHead,
    SendHead,
    SettleHead,
    encode,
    named,
)

PATIENCE_SECONDS = 20


class Refused(Exception):
    """The upgrade was answered with something else."""

    def __init__(self, status: int, head: bytes, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.head = head
        self.body = body


class Wire:
    """One connection."""

    def __init__(
        self, port: int, token: str = "", *, tls: ssl.SSLContext | None = None,
        protocol: str = PROTOCOL, ahead: bytes = b"", **headers: str,
    ) -> None:  # fmt: skip
        made = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = made if tls is None else tls.wrap_socket(made, server_hostname="localhost")
        self._reader = FrameReader()
        self._numbers = itertools.count(1)
        self._frames: list[Frame] = []
        self.told: dict[int, list[Frame]] = {}
        told = {"host": "localhost", "connection": "Upgrade", "upgrade": protocol}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            told["authorization"] = f"Bearer {token}"
        head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        self.socket.sendall(f"GET {PATH} HTTP/1.1\r\n{head}\r\n".encode() + ahead)
        try:
            self.welcome = self._upgraded()
        except BaseException:
            self.socket.close()
            raise

    def _upgraded(self) -> values.Welcome:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self.socket.recv(65_536)
            assert piece, f"it was closed after {data!r}"
            data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        self.head = head.lower()
        status = int(head.split()[1])
        if status != 101:
            while piece := self.socket.recv(65_536):
                rest += piece
            raise Refused(status, self.head, rest)
        self._give(rest)
        frame = self.frame()
        assert (frame.verb, frame.id) == (Verb.WELCOME, 0)
        found: values.Welcome = values.head_of(frame)
        return found

    def _give(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            room = self._reader.buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            view = view[count:]
            self._frames += self._reader.received(count)

    # -- frames ------------------------------------------------------------------------------------

    def frame(self) -> Frame:
        """The next frame."""
        while not self._frames:
            count = self.socket.recv_into(self._reader.buffer())
            if not count:
                raise ConnectionError("the node has closed the connection")
            self._frames += self._reader.received(count)
        return self._frames.pop(0)

    def send_frame(
        self, verb: Verb, head: bytes = b"", payload: BytesLike = b"", flags: int = 0,
        number: int | None = None,
    ) -> int:  # fmt: skip
        number = next(self._numbers) if number is None else number
        start, rest = pack(verb, number, head, payload, flags)
        self.socket.sendall(start)
        if rest is not None:
            self.socket.sendall(rest)
        return number

    def answer(self, number: int) -> Frame:
        """The next frame of a request; those of others are kept for them."""
        while not self.told.get(number):
            frame = self.frame()
            self.told.setdefault(frame.id, []).append(frame)
        return self.told[number].pop(0)

    def value(self, number: int, kind: Any) -> tuple[Any, Frame]:
        """What a request is told, or its error raised."""
        frame = self.answer(number)
        head = values.head_of(frame)
        if frame.verb == Verb.ERROR:
            raise head.trouble.error()
        assert frame.verb == Verb.ANSWER, frame
        return values.Reader(kind)(head.value), frame

    # -- requests ----------------------------------------------------------------------------------

    def ask(self, query: Any) -> Any:
        number = self.send_frame(Verb.ASK, named(query))
        return self.value(number, values.answer_type(type(query)))[0]

    def propose(self, command: Any, *, sync: bool = True) -> Any:
        number = self.send_frame(Verb.PROPOSE, named(command), flags=Flag.SYNC * sync)
        return self.value(number, values.answer_type(type(command)))[0]

    def topic(self, name: str, policy: TopicPolicy | None = None) -> int:
        """The number of a topic, which is made."""
        made = self.propose(commands.CreateTopic(name, policy or TopicPolicy()))
        found: int = made.topic
        return found

    def find(self, name: str) -> queries.TopicFound:
        found: queries.TopicFound = self.ask(queries.FindTopic(name))
        return found

    def submit(self, topic: int, body: bytes, *, sync: bool = True, **fields: Any) -> int:
        head = encode(SendHead(topic, **fields))
        return self.send_frame(Verb.SEND, head, body, Flag.SYNC * sync)

    def send(self, topic: int, body: bytes, *, sync: bool = True, **fields: Any) -> PlacedOut:
        found: PlacedOut = self.value(self.submit(topic, body, sync=sync, **fields), PlacedOut)[0]
        return found

    def send_batch(self, topic: int, bodies: Sequence[bytes], flags: int = 0) -> list[PlacedOut]:
        batch = pack_rows([make_row(body) for body in bodies], 0)
        number = self.send_frame(
            Verb.BATCH, encode(BatchHead(topic)), encode_whole(batch), Flag.SYNC | flags
        )
        found: list[PlacedOut] = self.value(number, list[PlacedOut])[0]
        return found

    def submit_receive(
        self, topic: int, group: str = "g", count: int = 10, *, lease_ms: int = 30_000,
        wait_ms: int = 0, begin: int | None = None,
    ) -> int:  # fmt: skip
        head = ReceiveHead(topic, group, count, lease_ms, wait_ms, begin=begin)
        return self.send_frame(Verb.RECEIVE, encode(head), flags=Flag.SYNC)

    def received(self, number: int) -> tuple[ReceivedOut, list[bytes]]:
        out, frame = self.value(number, ReceivedOut)
        payload: BytesLike = frame.payload
        if frame.flags & Flag.ZSTD:
            with pa.CompressedInputStream(pa.BufferReader(payload), "zstd") as stream:
                payload = stream.read()
        return out, decode(payload).column("body").to_pylist() if len(payload) else []

    def receive(self, topic: int, group: str = "g", count: int = 10, **options: Any) -> Any:
        return self.received(self.submit_receive(topic, group, count, **options))

    def submit_settle(self, got: ReceivedOut, action: Any = "ack", **fields: Any) -> int:
        return self.send_frame(Verb.SETTLE, encode(settle_of(got, action, **fields)), flags=1)

    def settle(self, got: ReceivedOut, action: Any = "ack", **fields: Any) -> Settled:
        found: Settled = self.value(self.submit_settle(got, action, **fields), Settled)[0]
        return found

    def ping(self) -> None:
        number = self.send_frame(Verb.PING)
        assert self.answer(number).verb == Verb.PONG

    def cancel(self, number: int) -> None:
        self.send_frame(Verb.CANCEL, number=number)

    # -- its end -----------------------------------------------------------------------------------

    def is_closed(self) -> bool:
        """Whether the node closes it, sooner or later."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def settle_of(got: ReceivedOut, action: Any = "ack", **fields: Any) -> SettleHead:
    """What settles all of a lease."""
    found: dict[int, list[tuple[int, int]]] = {}
    for part in got.slices:
        found.setdefault(part.partition, []).append((part.offset, part.offset + part.count))
    held = tuple(HeldHead(at, got.epoch, got.tag, tuple(them)) for at, them in found.items())
    return SettleHead(got.topic, got.group, action, held, **fields)


__all__ = ["Held", "NamedHead", "Refused", "Wire", "settle_of"]
