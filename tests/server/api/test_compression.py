"""Between machines bodies are compressed, both ways, from a threshold on."""

import gzip
import json
import urllib.request
from collections.abc import Iterator

import pyarrow as pa
import pytest

import quiver
from quiver import limits
from quiver.client.remote.address import Address
from quiver.client.remote.link import Link
from tests.server.nodes import Node

pytestmark = pytest.mark.process
LONG = "x" * (4 * limits.COMPRESS_BYTES_MIN)


@pytest.fixture
def queue(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[quiver.Queue]:
    """A client that takes its node to be on another machine."""
    monkeypatch.setattr(Address, "local", False)
    with quiver.connect(f"quiver://127.0.0.1:{node.port}") as made:
        made.create_topic("t", retention="forever")
        yield made


def test_what_is_compressed_arrives_as_it_was(queue, monkeypatch):
    sent = []
    plain = Link._compressed

    def watched(self, request):
        made = plain(self, request)
        sent.append((len(request.body), len(made.body), made.headers.get("content-encoding")))
        return made

    monkeypatch.setattr(Link, "_compressed", watched)
    queue.send_batch("t", [LONG, "short"])
    queue.send("t", "short")
    (before, after, encoding), (_, _, none) = sent
    assert (encoding, none) == ("zstd", None)
    assert after < before / 10
    got = queue.receive("t", max_messages=5)
    assert [delivery.text for delivery in got] == [LONG, "short", "short"]
    assert [record.text for record in queue.read("t")] == [LONG, "short", "short"]


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "identity"])
def test_answers_are_compressed_as_the_client_can_take_it(queue, node, encoding):
    queue.send("t", LONG)
    request = urllib.request.Request(
        f"{node.url}/v1/topics/t/read",
        b"{}",
        {"content-type": "application/json", "accept-encoding": encoding},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        data = answer.read()
        assert answer.headers.get("content-encoding", "identity") == encoding
    if encoding == "gzip":
        data = gzip.decompress(data)
    elif encoding == "zstd":
        data = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    assert json.loads(data)["messages"][0]["body"] == LONG
