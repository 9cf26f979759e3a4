"""Between machines what is large is compressed, both ways, from a threshold on."""

import gzip
import json
import urllib.request
from typing import Any

import pyarrow as pa
import pytest

import quiver
from quiver import limits
from quiver.client.remote.address import Address
from quiver.wire.frames import Flag, Frame, Verb
from tests.server.api.conftest import Connect
from tests.server.api.proxies import Proxy

pytestmark = pytest.mark.process
LONG = "x" * (4 * limits.COMPRESS_BYTES_MIN)


@pytest.fixture
def queue(proxy: Proxy, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client that takes its node to be on another machine."""
    monkeypatch.setattr(Address, "local", False)
    made = connect(proxy.port)
    made.create_topic("t", retention="forever")
    return made


def compressed(frames: list[Frame], verb: Verb) -> list[tuple[bool, bool]]:
    """Of the frames of a kind: whether they are compressed, and small."""
    return [
        (bool(frame.flags & Flag.ZSTD), len(frame.payload) < len(LONG) / 10)
        for frame in frames
        if frame.verb == verb
    ]


def test_what_is_compressed_arrives_as_it_was(queue, proxy):
    queue.send_batch("t", [LONG, "short"])
    queue.send("t", "short")
    queue.send_batch("t", ["a", "b"])
    with queue.transaction() as tx:
        tx.send("t", LONG)
    assert compressed(proxy.frames, Verb.BATCH) == [(True, True), (False, True)]
    assert compressed(proxy.frames, Verb.SEND) == [(False, True)]
    assert compressed(proxy.frames, Verb.TRANSACT) == [(True, True)]
    texts = [LONG, "short", "short", "a", "b", LONG]
    proxy.answers.clear()
    assert [delivery.text for delivery in queue.receive("t", max_messages=9)] == texts
    assert [record.text for record in queue.read("t")] == texts
    large = [frame for frame in proxy.answers if len(frame.payload)]
    assert len(large) == 2
    assert compressed(large, Verb.ANSWER) == [(True, True)] * 2


def test_on_one_machine_nothing_is_compressed(proxy, connect):
    queue = connect(proxy.port)
    queue.create_topic("t")
    queue.send_batch("t", [LONG, "short"])
    assert queue.receive("t")[0].text == LONG
    assert not any(frame.flags & Flag.ZSTD for frame in proxy.frames + proxy.answers)


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "identity"])
def test_answers_are_compressed_as_a_client_of_http_can_take_it(node, encoding):
    with quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
        queue.create_topic("t", retention="forever")
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


def test_what_is_sent_over_http_may_be_compressed(node):
    body = pa.compress(json.dumps({"body": LONG}).encode(), "zstd", asbytes=True)
    said = {"content-type": "application/json", "content-encoding": "zstd"}
    with quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
        queue.create_topic("t")
        request = urllib.request.Request(f"{node.url}/v1/topics/t/messages", body, said)
        urllib.request.urlopen(request, timeout=30).close()
        assert queue.receive("t")[0].text == LONG
