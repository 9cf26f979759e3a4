"""An answer that is read too slowly is cut, not only one of which nothing is read: it keeps memory."""

import json
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.server.nodes import Node, start_node

pytestmark = [pytest.mark.process, pytest.mark.check]

SIZE = 60_000_000
RATE = 20_000_000  # bytes a second that this node demands
PIECES = (400_000, 1_000_000)
PAUSE_SECONDS = (
    0.1  # after a piece: at most half of that rate; of large ones, between any two looks
)
PATIENCE_SECONDS = 60


def read(node: Node, piece_bytes: int) -> int:
    """How much of a large answer comes, a little at a time."""
    with socket.create_connection(("127.0.0.1", node.port), PATIENCE_SECONDS) as client:
        client.sendall(b"GET /test/large?bytes=%d HTTP/1.1\r\nhost: localhost\r\n\r\n" % SIZE)
        count = 0
        with suppress(ConnectionError):
            while count < SIZE and (piece := client.recv(piece_bytes)):
                count += len(piece)
                time.sleep(PAUSE_SECONDS)
        return count


@pytest.mark.parametrize("piece_bytes", PIECES)
def test_whoever_only_trickles_is_cut(tmp_path: Path, piece_bytes: int):
    env = {
        "QUIVER_BOUNDS_ANSWER_PAUSE_SECONDS": "1",
        "TEST_LIMITS": json.dumps({"ANSWER_BYTES_PER_SECOND_MIN": RATE}),
    }
    with start_node(tmp_path, env=env, module="tests.server.testing_node") as node:
        assert read(node, piece_bytes) < SIZE
