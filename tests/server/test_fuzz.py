"""Nothing that is sent makes a node fail: it answers, refuses or closes, and goes on."""

import gzip
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quiver import toml
from quiver.errors import InvalidRequest, QuiverError
from quiver.server import body, config
from tests.lengths import examples
from tests.server.nodes import Node, start_node
from tests.server.raw import Raw

LIMIT = 10_000
SAMPLE = bytes(range(256)) * 8
PACKED = {
    "gzip": gzip.compress(SAMPLE, mtime=0),
    "zstd": pa.Codec("zstd").compress(SAMPLE, asbytes=True),
}
REQUESTS = [
    b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 12\r\n\r\n{"body":"x"}',
    b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"GET /v1/topics?x=%20 HTTP/1.1\r\nHost: [::1]\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
]


@st.composite
def mangled(draw: st.DrawFn, samples: list[bytes]) -> bytes:
    """A sample with some bytes changed, cut out or put in."""
    data = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with start_node(tmp_path_factory.mktemp("fuzz")) as started:
        yield started
        assert not [line for line in started.lines if line["level"] == "error"], started.lines


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(mangled(REQUESTS), st.binary(max_size=200)))
def test_no_bytes_make_it_fail(node: Node, data: bytes):
    with Raw(node.port) as raw:
        raw.send(data)
        raw.socket.shutdown(1)
        answer = b""
        with suppress(ConnectionError):
            while piece := raw.socket.recv(65_536):
                answer += piece
    assert not answer.startswith(b"HTTP/1.1 5"), answer
    with Raw(node.port) as raw:
        assert raw.ask("GET", "/health/ready").status == 200


@given(name=st.sampled_from(sorted(PACKED)), data=st.data())
def test_packed_bodies_are_unpacked_or_refused(name: str, data: st.DataObject):
    packed = data.draw(st.one_of(mangled([PACKED[name]]), st.binary(max_size=200)))
    with suppress(QuiverError):
        assert len(body._UNPACK[name.encode()](packed, LIMIT)) <= LIMIT


KEYS = st.sampled_from(
    sorted({key for keys, _ in config._fields(config.NodeConfig) for key in keys})
)
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@given(told=st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_configuration_is_taken_or_refused(told: dict[str, Any]):
    with suppress(InvalidRequest):
        toml.checked(told, config.NodeConfig, "node.toml")
