"""Frames between a node and its processes for SQL."""

import socket
from collections.abc import Iterator
from threading import Thread

import pyarrow as pa
import pytest

from quiver.server.sql import frames
from quiver.server.sql.frames import Reply, SqlRequest, TooLarge

LARGE = 10_000_000  # more than a socket takes at once


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def sent(to: socket.socket, head: SqlRequest | Reply, table: pa.Table | None = None) -> Thread:
    thread = Thread(target=frames.write, args=(to, head, table))
    thread.start()
    return thread


def test_a_head_and_a_table_arrive_as_they_were(pair):
    here, there = pair
    table = pa.table({"body": [b"x" * LARGE, None], "n": [1, 2]})
    for head, rows in [
        (SqlRequest("table", [["a", "b"], "*"]), table),
        (SqlRequest("clear"), None),
    ]:
        writing = sent(here, head, rows)
        assert frames.read(there, SqlRequest, 2 * LARGE) == (head, rows)
        writing.join()
    frames.write(there, Reply([[0, 1]]))
    assert frames.read(here, Reply, 1_000) == (Reply([[0, 1]]), None)


def test_a_table_without_rows_is_a_table(pair):
    here, there = pair
    frames.write(here, Reply(), pa.table({"n": pa.array([], pa.int64())}))
    _, table = frames.read(there, Reply, 10_000)
    assert table is not None
    assert table.schema == pa.schema({"n": pa.int64()})


@pytest.mark.parametrize("table", [None, pa.table({"x": ["y" * 1_000]})])
def test_more_than_is_taken_is_not_read(pair, table):
    here, there = pair
    frames.write(here, Reply("x" * 1_000), table)
    with pytest.raises(TooLarge):
        frames.read(there, Reply, 500)


def test_the_end_of_the_other_side_is_told(pair):
    here, there = pair
    here.sendall(frames.LENGTHS.pack(100, 0) + b"half")
    here.close()
    with pytest.raises(EOFError):
        frames.read(there, Reply, 1_000)
