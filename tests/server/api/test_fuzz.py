"""What strangers may send: never the node's fault, never a hang, never more memory than was sent."""

import http.client
import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quiver
from quiver import limits
from quiver.server.api.table import ENDPOINTS
from quiver.wire import shapes
from tests.lengths import examples
from tests.server.nodes import Node, start_node

FEW = settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
NAMES = {"topic": "t", "group": "g", "member": "m", "producer": "p", "message": "3-0"}


class Stranger:
    """Sends anything; what comes back is a status and some content."""

    def __init__(self, node: Node) -> None:
        self._port = node.port

    def __call__(self, method: str, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        return answer.status, content

    def arrow(self, stream: bytes) -> tuple[int, Any]:
        return self("POST", "/v1/topics/t/batches", stream, **{"content-type": shapes.ARROW})

    def json(self, method: str, path: str, value: Any) -> tuple[int, Any]:
        data = json.dumps(value).encode()
        return self(method, path, data, **{"content-type": shapes.JSON})


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    with start_node(tmp_path_factory.mktemp("fuzzed")) as node:
        with quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
            queue.create_topic("t", retention="forever", partitions=2)
            queue.send_batch("t", [str(at) for at in range(10)])
            queue.join("t", "g", "m")
        yield Stranger(node)
        with quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:  # and it still works
            queue.send("t", b"after all")


def stream(batch: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


GOOD = stream(
    pa.record_batch(
        {
            "body": pa.array([b"a", b"bb", b"ccc"]),
            "key": pa.array(["k", None, "l"]),
            "headers": pa.array([{"v": "1"}, None, {}], pa.map_(pa.string(), pa.string())),
            "priority": pa.array([1, 2, None], pa.int8()),
        }
    )
)


@FEW
@given(
    st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=8),
    st.integers(0, len(GOOD)),
)
def test_arrow_streams_with_wrong_bytes(stranger, changes, length):
    data = bytearray(GOOD)
    for at, byte in changes:
        data[at] = byte
    assert stranger.arrow(bytes(data[:length]))[0] < 500


def test_what_arrow_itself_would_believe_is_refused_by_its_size_or_form(stranger):
    zeros = pa.array([bytes(1_000_000)] * 60)
    bomb = stream(pa.record_batch({"body": zeros}), compression="zstd")
    status, told = stranger.arrow(bomb)
    assert (status, json.loads(told)["code"]) == (400, "invalid_batch")
    assert b"compressed buffers" in told
    nulls = pa.record_batch({"body": pa.array([b"x"]), "key": pa.nulls(1)})
    claim = stream(nulls).replace((1).to_bytes(8, "little"), (2 * 10**9).to_bytes(8, "little"))
    assert stranger.arrow(claim)[0] in (400, 413)
    sink = pa.BufferOutputStream()
    one = pa.record_batch({"body": pa.array([b"x"])})
    with pa.ipc.new_stream(sink, one.schema) as writer:
        for _ in range(limits.ARROW_MESSAGES_MAX + 1):
            writer.write_batch(one)
    status, told = stranger.arrow(sink.getvalue().to_pybytes())
    assert status == 400
    assert b"fewer and larger" in told


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)
BODIED = [endpoint for endpoint in ENDPOINTS if endpoint.body is not None]


@FEW
@given(st.sampled_from(BODIED), st.data())
def test_any_json_to_any_endpoint(stranger, endpoint, data):
    fields = msgspec.structs.fields(endpoint.body)
    known = st.fixed_dictionaries({}, optional={field.name: JSON for field in fields})
    body = data.draw(known | JSON)
    if isinstance(body, dict) and "wait" in body:
        body["wait"] = 0
    assert stranger.json(endpoint.method, endpoint.path.format(**NAMES), body)[0] < 500


@FEW
@given(st.binary(max_size=60))
def test_any_bytes_as_json(stranger, data):
    assert stranger("POST", "/v1/settle", data, **{"content-type": shapes.JSON})[0] < 500


NUMBERS = st.integers(-(2**70), 2**70) | st.integers(-2, 20)


@FEW
@given(
    st.text(max_size=40)
    | st.tuples(
        NUMBERS, st.dictionaries(NUMBERS, NUMBERS, max_size=3), st.dictionaries(NUMBERS, NUMBERS)
    ).map(lambda parts: urlsafe_b64encode(_packed(parts)).decode())
)
def test_cursors_that_are_none(stranger, cursor):
    assert stranger.json("POST", "/v1/topics/t/read", {"cursor": cursor})[0] < 500


@FEW
@given(
    st.text(max_size=80)
    | st.binary(min_size=45, max_size=45).map(lambda b: urlsafe_b64encode(b).decode())
)
def test_receipts_that_are_none(stranger, receipt):
    status, _ = stranger.json("POST", "/v1/settle", {"action": "ack", "receipts": [receipt]})
    assert status in (400, 409)


@FEW
@given(
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4), st.sampled_from(["ack", "nack", "extend"])
)
def test_any_ranges_under_a_lease(stranger, ranges, action):
    stranger.arrow(GOOD)  # so that there is something to be leased
    _, got = stranger.json("POST", "/v1/topics/t/groups/h/receive", {"max_messages": 1, "lease": 1})
    (message,) = json.loads(got)["messages"]
    held = [{"receipt": message["receipt"], "ranges": ranges}]
    settle = {"action": action, "held": held, "lease": 1}
    assert stranger.json("POST", "/v1/settle", settle)[0] < 500


@FEW
@given(st.dictionaries(NUMBERS, NUMBERS, max_size=4))
def test_any_positions_of_a_member(stranger, positions):
    texts = {str(partition): offset for partition, offset in positions.items()}
    member = "/v1/topics/t/groups/g/members/m"
    for path, field in (("fetch", "positions"), ("commit", "offsets")):
        assert stranger.json("POST", f"{member}/{path}", {field: texts})[0] < 500


def _packed(parts: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(parts)
    except (OverflowError, ValueError):
        return b"too large"
