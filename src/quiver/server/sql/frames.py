"""What a node and a process for SQL say to each other: frames on a socket pair.

    length of head · length of table · head (MessagePack) · table (an Arrow stream, or nothing)

The process is answered by nobody else and asked by nobody else, so there are no numbers: each request
has one reply, and the next request follows it. Both sides know the most that a frame may have.
"""

import socket
import struct
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa

LENGTHS: Final = struct.Struct("<II")

T = TypeVar("T")


class SqlRequest(msgspec.Struct, frozen=True, array_like=True):
    """A call of `Sql`: a method, and its arguments besides a table, which is always the last one."""

    method: str
    arguments: list[Any] = []


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """What it has returned besides a table, or the code and the text of its error."""

    value: Any = None
    error: str = ""
    message: str = ""


class TooLarge(Exception):  # a fact, as all errors here
    """A frame has more bytes than the other side takes."""


def write(to: socket.socket, head: SqlRequest | Reply, table: pa.Table | None = None) -> None:
    """Send a frame."""
    data = msgspec.msgpack.encode(head)
    body = _stream(table) if table is not None else memoryview(b"")
    to.sendall(LENGTHS.pack(len(data), len(body)) + data)
    if body:
        to.sendall(body)


def read(of: socket.socket, kind: type[T], bytes_max: int) -> tuple[T, pa.Table | None]:
    """The next frame. `EOFError` if there is none: the other side has ended."""
    head_bytes, table_bytes = LENGTHS.unpack(_exactly(of, LENGTHS.size))
    if head_bytes + table_bytes > bytes_max:
        raise TooLarge
    head = msgspec.msgpack.decode(_exactly(of, head_bytes), type=kind)
    if not table_bytes:
        return head, None
    with pa.ipc.open_stream(pa.py_buffer(_exactly(of, table_bytes))) as reader:
        return head, reader.read_all()


def _stream(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def _exactly(of: socket.socket, count: int) -> bytearray:
    found = bytearray(count)
    with memoryview(found) as view:
        at = 0
        while at < count:
            got = of.recv_into(view[at:])
            if got == 0:
                raise EOFError
            at += got
    return found
