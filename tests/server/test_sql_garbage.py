"""A process for SQL that answers what no process of ours answers: its query fails, and the node goes on."""

import struct
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pytest

import quiver
from quiver.server.sql import process
from quiver.server.sql.frames import LENGTHS, Reply
from quiver.server.sql.process import SqlProcess
from tests.server.sql_processes import has_ended

pytestmark = pytest.mark.process

BEGUN = msgspec.msgpack.encode(Reply())
ANSWERS = """
import socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
channel.sendall(bytes.fromhex(sys.argv[2]))
channel.recv(1)
if sys.argv[3] == "00":
    sys.exit(127)
channel.sendall(bytes.fromhex(sys.argv[3]))
channel.recv(1 << 16)
channel.recv(1)
"""


def frame(head: bytes, table: bytes = b"") -> bytes:
    return LENGTHS.pack(len(head), len(table)) + head + table


def outside() -> bytes:
    """A table with a text that begins in it and ends far outside."""
    sink = pa.BufferOutputStream()
    table = pa.table({"x": ["aaa", "bbbb"]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    ends, other = (struct.pack("<3i", 0, 3, end) for end in (7, 1 << 30))
    found = sink.getvalue().to_pybytes()
    assert found.count(ends) == 1
    return found.replace(ends, other)


@pytest.fixture
def answering(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SqlProcess]:
    """A process that begins as it should, and answers with these bytes."""

    def started(channel: int, *_: object) -> "subprocess.Popen[bytes]":
        said = [frame(BEGUN).hex(), request.param.hex()]
        return subprocess.Popen(
            [sys.executable, "-c", ANSWERS, str(channel), *said], pass_fds=[channel]
        )

    monkeypatch.setattr(process, "_started", started)
    made = SqlProcess()
    made.start()
    yield made
    made.close()
    assert has_ended(made.pid)


@pytest.mark.parametrize(
    "answering",
    [
        frame(b"\xc1"),
        frame(msgspec.msgpack.encode({"a": "map"})),
        frame(BEGUN, b"no table"),
        frame(BEGUN, outside()),
    ],
    indirect=True,
    ids=["no MessagePack", "another shape", "no Arrow", "a text outside"],
)
def test_what_is_no_answer_is_the_end_of_its_process(answering: SqlProcess):
    with pytest.raises(quiver.QueryFailed, match="the node goes on"):
        answering.call("answer", 1_000)
    assert has_ended(answering.pid)


@pytest.mark.parametrize("answering", [b"\0"], indirect=True, ids=["ended by the linker"])
def test_a_process_that_got_no_memory_to_link_a_function_was_at_its_limit(answering: SqlProcess):
    with pytest.raises(quiver.LimitExceeded, match="memory"):
        answering.call("answer", 1_000)
