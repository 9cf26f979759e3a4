"""Each endpoint, as other languages use it: JSON both ways, and Arrow where there is Arrow.

Nothing of our client is between test and node, and its client makes none of these requests.
"""

import http.client
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import pyarrow as pa
import pytest

from quiver.server.api.table import ENDPOINTS
from quiver.wire import shapes
from tests.server.nodes import Node, start_node

pytestmark = pytest.mark.process

F = TypeVar("F", bound=Callable[..., Any])
TOPIC: Final = "/v1/topics/{topic}"
GROUP: Final = TOPIC + "/groups/{group}"
MEMBER: Final = GROUP + "/members/{member}"
NAMES: Final = {"topic": "t", "group": "g", "member": "m", "producer": "p", "application": "etl"}
TRIED: Final[set[tuple[str, str, str]]] = set()  # method, path, and which kind of Arrow


def tries(method: str, path: str, *arrow: str) -> Callable[[F], F]:
    """Which endpoint a test is about, and whether with Arrow `in` or `out`."""
    TRIED.update({(method, path, kind) for kind in arrow or ("json",)})
    return lambda test: test


class Http:
    """Requests of HTTP; an answer that is an error is the test's."""

    def __init__(self, node: Node) -> None:
        self.port = node.port

    def __call__(self, method: str, path: str, body: Any = None, **names: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        status, _, content = self.raw(method, path, data, shapes.JSON, shapes.JSON, **names)
        assert status in (200, 204), content
        assert (status == 204) == (not content)
        return json.loads(content) if content else None

    def arrow(self, method: str, path: str, body: Any = None, **names: str) -> pa.Table:
        """With an answer in Arrow."""
        data = None if body is None else json.dumps(body).encode()
        status, kind, content = self.raw(method, path, data, shapes.JSON, shapes.ARROW, **names)
        assert (status, kind) == (200, shapes.ARROW), content
        return pa.ipc.open_stream(content).read_all()

    def send_arrow(self, path: str, table: pa.Table, **names: str) -> Any:
        status, _, content = self.raw(
            "POST", path, stream(table), shapes.ARROW, shapes.JSON, **names
        )
        assert status == 200, content
        return json.loads(content)

    def raw(
        self, method: str, path: str, data: bytes | None, kind: str, accept: str, **names: str
    ) -> tuple[int, str, bytes]:
        for name, value in {**NAMES, **names}.items():
            path = path.replace(f"{{{name}}}", value)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            said = {"accept": accept} | ({} if data is None else {"content-type": kind})
            connection.request(method, path, data, said)
            answer = connection.getresponse()
            return answer.status, answer.headers.get_content_type(), answer.read()
        finally:
            connection.close()


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def about(table: pa.Table) -> Any:
    return json.loads(table.schema.metadata[shapes.ABOUT])


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    with start_node(tmp_path_factory.mktemp("each")) as node:
        yield Http(node)


@pytest.fixture
def http_(shared: Http) -> Iterator[Http]:
    """A node with a topic `t` that keeps everything, and nothing else."""
    shared("PUT", TOPIC, {"retention": "forever", "max_attempts": 1})
    yield shared
    for topic in shared("GET", "/v1/topics")["topics"]:
        shared("DELETE", TOPIC, topic=topic)


@pytest.fixture
def five(http_: Http) -> Http:
    """The same, with the messages 0 to 4."""
    bodies = [{"body": str(at), "key": f"k{at}"} for at in range(5)]
    assert http_("POST", TOPIC + "/batches", {"messages": bodies})["count"] == 5
    return http_


def test_every_endpoint_is_tried():
    wanted = {(one.method, one.path, "json") for one in ENDPOINTS}
    wanted |= {(one.method, one.path, "in") for one in ENDPOINTS if one.arrow_in}
    wanted |= {(one.method, one.path, "out") for one in ENDPOINTS if one.arrow_out}
    assert wanted == TRIED


# -- topics ----------------------------------------------------------------------------------------


@tries("GET", "/v1")
def test_about(http_):
    said = http_("GET", "/v1")
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", said["version"])
    assert said["capabilities"]


@tries("GET", "/v1/overview")
def test_overview(five):
    said = five("GET", "/v1/overview")
    assert said["topics"]["t"]["depth"] == 5
    assert said["storage"]["log_files"] > 0


@tries("GET", "/v1/topics")
@tries("PUT", TOPIC)
@tries("GET", TOPIC)
@tries("PATCH", TOPIC)
@tries("DELETE", TOPIC)
def test_topics(http_):
    made = http_("PUT", TOPIC, {"partitions": 2, "retention": "7d"}, topic="new")
    assert (made["topic"], made["policy"]["partitions"]) == ("new", 2)
    assert http_("PUT", TOPIC, {"partitions": 2, "retention": "7d"}, topic="new") == made
    assert http_("GET", "/v1/topics") == {"topics": ["new", "t", "t.dlq"]}
    changed = http_("PATCH", TOPIC, {"max_backlog": 10}, topic="new")
    assert http_("GET", TOPIC, topic="new") == changed
    assert (changed["policy"]["max_backlog"], changed["policy"]["partitions"]) == (10, 2)
    assert changed["number"] == made["number"]
    http_("DELETE", TOPIC, topic="new")
    assert http_("GET", "/v1/topics") == {"topics": ["t", "t.dlq"]}


@tries("GET", TOPIC + "/stats")
@tries("POST", TOPIC + "/purge")
def test_stats_and_purge(five):
    assert five("GET", TOPIC + "/stats")["depth"] == 5
    assert five("POST", TOPIC + "/purge") == {"count": 5}
    assert five("GET", TOPIC + "/stats")["depth"] == 0


@tries("POST", TOPIC + "/compact")
def test_compact(http_):
    http_("PUT", TOPIC, {"retention": {"compact": True}}, topic="latest")
    messages = [{"body": str(at), "key": "k"} for at in range(3)]
    http_("POST", TOPIC + "/batches", {"messages": messages}, topic="latest")
    http_("POST", "/v1/seal")
    assert http_("POST", TOPIC + "/compact", topic="latest") == {"count": 2}


@tries("GET", TOPIC + "/segments")
@tries("POST", "/v1/seal")
def test_segments_and_seal(five):
    before = five("GET", TOPIC + "/segments")
    assert (before["files"], before["rest"]) == ([], {"0": [[0, 5]]})
    five("POST", "/v1/seal")
    (file,) = five("GET", TOPIC + "/segments")["files"]
    assert (file["rows"], file["ranges"]) == (5, [[0, 5]])
    assert file["path"].endswith(".parquet")


# -- sending ---------------------------------------------------------------------------------------


@tries("POST", TOPIC + "/messages")
def test_send(http_):
    body = {"body": "x", "key": "k", "headers": {"a": "b"}, "priority": 3, "dedup_id": "one"}
    sent = http_("POST", TOPIC + "/messages?durability=memory", body)
    assert (sent["offset"], sent["duplicate"], sent["durability"]) == (0, False, "memory")
    assert http_("POST", TOPIC + "/messages", body)["duplicate"]
    (got,) = http_("POST", GROUP + "/receive", {})["messages"]
    assert (got["id"], got["key"], got["headers"], got["priority"]) == (
        sent["id"], "k", {"a": "b"}, 3
    )  # fmt: skip


@tries("POST", TOPIC + "/batches", "json", "in")
def test_batches(http_):
    table = pa.table({
        "body": pa.array([b"a", b"b"]),
        "key": pa.array(["k", None]),
        "headers": pa.array([{"x": "y"}, {}], pa.map_(pa.string(), pa.string())),
    })  # fmt: skip
    sent = http_.send_arrow(TOPIC + "/batches", table)
    assert (sent["count"], sent["duplicates"]) == (2, 0)
    http_("POST", TOPIC + "/batches", {"messages": [{"body": "c"}, {"base64": "ZA=="}]})
    got = http_("POST", GROUP + "/receive", {"max_messages": 9})["messages"]
    assert texts(got) == ["a", "b", "c", "d"]
    assert (got[0]["key"], got[0]["headers"]) == ("k", {"x": "y"})


@tries("POST", TOPIC + "/batches", "in")
def test_times_in_arrow(http_):
    times = pa.array([None, datetime.now(UTC) + timedelta(hours=1)], pa.timestamp("ms", "UTC"))
    table = pa.table({"body": pa.array([b"now", b"later"]), "deliver_at": times})
    assert http_.send_arrow(TOPIC + "/batches", table)["count"] == 2
    assert texts(http_("POST", GROUP + "/receive", {"max_messages": 9})["messages"]) == ["now"]
    assert http_("GET", TOPIC + "/stats")["depth"] == 2


@tries("POST", TOPIC + "/producers/{producer}")
def test_named_producers(http_):
    opened = http_("POST", TOPIC + "/producers/{producer}")
    epoch = opened["epoch"]
    assert opened["sequence"] == 0
    path = f"{TOPIC}/batches?producer=p&epoch={epoch}&sequence=0"
    body = {"messages": [{"body": "a"}, {"body": "b"}]}
    assert http_("POST", path, body)["count"] == 2
    assert http_("POST", path, body)["duplicates"] == 2
    again = http_("POST", TOPIC + "/producers/{producer}")
    assert again["epoch"] > epoch
    assert again["sequence"] == 2
    refused = http_.raw("POST", path, json.dumps(body).encode(), shapes.JSON, shapes.JSON)
    assert json.loads(refused[2])["code"] == "producer_fenced"


@tries("POST", TOPIC + "/staged", "json", "in")
@tries("POST", TOPIC + "/publish")
@tries("POST", TOPIC + "/unstage")
@tries("GET", TOPIC + "/applications/{application}")
def test_staging(http_):
    one = http_("POST", TOPIC + "/staged", {"messages": [{"body": "a"}]})
    two = http_.send_arrow(TOPIC + "/staged", pa.table({"body": pa.array([b"b", b"c"])}))
    three = http_("POST", TOPIC + "/staged", {"messages": [{"body": "never"}]})
    assert http_("GET", TOPIC + "/stats")["depth"] == 0
    assert http_("GET", TOPIC + "/applications/{application}") == {"batch": None}
    batch = {"staged": [one, two], "application": "etl", "batch": 7}
    assert http_("POST", TOPIC + "/publish", batch)["rows"] == 3
    assert http_("POST", TOPIC + "/publish", batch)["duplicate"]
    assert http_("GET", TOPIC + "/applications/{application}") == {"batch": 7}
    assert http_("POST", TOPIC + "/unstage", {"staged": [three]}) == {"count": 1}
    assert texts(http_("POST", TOPIC + "/read", {})["messages"]) == ["a", "b", "c"]


# -- receiving, settling, reading -------------------------------------------------------------------


@tries("POST", GROUP + "/receive")
@tries("POST", "/v1/settle")
def test_receive_and_settle(five):
    first, second, *rest = five("POST", GROUP + "/receive", {"max_messages": 5})["messages"]

    def settle(action: str, *messages: Any, **how: Any) -> Any:
        receipts = [message["receipt"] for message in messages]
        return five("POST", "/v1/settle", {"action": action, "receipts": receipts, **how})

    assert settle("extend", first, second, lease=600)["deadline_ms"] > 0
    assert settle("ack", first) == {"count": 1}
    assert settle("release", second) == {"count": 1}
    (again,) = five("POST", GROUP + "/receive", {"begin": 0})["messages"]
    assert (again["body"], again["reserved"]) == ("1", True)
    assert settle("begin", again) == {"count": 1}
    assert settle("dead_letter", again, *rest[:2], reason="bad") == {"count": 3}
    (letter,) = five("POST", GROUP + "/receive", {}, topic="t.dlq")["messages"]
    assert (letter["origin"]["topic"], letter["origin"]["reason"]) == ("t", "bad")
    assert settle("nack", rest[2]) == {"count": 1}


@tries("POST", GROUP + "/receive", "out")
@tries("POST", "/v1/settle")
def test_receive_arrow_and_settle_ranges(five):
    got = five.arrow("POST", GROUP + "/receive", {"max_messages": 5, "lease": 600, "begin": 4})
    assert got["body"].to_pylist() == [b"0", b"1", b"2", b"3", b"4"]
    assert got["key"].to_pylist() == [f"k{at}" for at in range(5)]
    lease = about(got)
    assert (lease["group"], lease["settled"], lease["reserved"]) == ("g", False, 1)
    held = [{"receipt": lease["receipts"]["0"], "ranges": [[0, 2], [3, 4]]}]
    assert five("POST", "/v1/settle", {"action": "ack", "held": held}) == {"count": 3}
    assert five("GET", TOPIC + "/stats")["groups"]["g"]["in_flight"] == 2
    assert five.arrow("POST", GROUP + "/receive", {}).num_rows == 0


@tries("POST", "/v1/transactions")
def test_transactions(five):
    (got,) = five("POST", GROUP + "/receive", {})["messages"]
    five("PUT", TOPIC, {}, topic="out")
    body = {
        "settle": [{"action": "ack", "receipts": [got["receipt"]]}],
        "send": [
            {"topic": "out", "messages": [{"body": "a"}]},
            {"topic": "out", "messages": [{"body": "b"}, {"body": "c"}]},
        ],
    }
    assert [part["count"] for part in five("POST", "/v1/transactions", body)] == [1, 2]
    out = five("POST", GROUP + "/receive", {"max_messages": 9}, topic="out")["messages"]
    assert texts(out) == ["a", "b", "c"]
    again = five.raw(
        "POST", "/v1/transactions", json.dumps(body).encode(), shapes.JSON, shapes.JSON
    )
    assert (again[0], json.loads(again[2])["code"]) == (409, "receipt_expired")


@tries("POST", TOPIC + "/read", "json", "out")
def test_read(five):
    page = five("POST", TOPIC + "/read", {"limit": 3, "start": "earliest"})
    assert texts(page["messages"]) == ["0", "1", "2"]
    rest = five.arrow("POST", TOPIC + "/read", {"cursor": page["cursor"], "limit": 9})
    assert rest["body"].to_pylist() == [b"3", b"4"]
    end = five("POST", TOPIC + "/read", {"cursor": about(rest)["cursor"]})
    assert end == {"messages": [], "cursor": None}
    some = five.arrow("POST", TOPIC + "/read", {"offset": 1, "end": 3, "partition": 0})
    assert (some["partition"].to_pylist(), some["offset"].to_pylist()) == ([0, 0], [1, 2])


# -- groups ----------------------------------------------------------------------------------------


@tries("PUT", GROUP)
@tries("DELETE", GROUP)
@tries("POST", GROUP + "/seek")
@tries("POST", GROUP + "/pause")
@tries("POST", GROUP + "/resume")
def test_groups(five):
    five("PUT", GROUP, {"start": "latest", "guarantee": "at-most-once"})
    assert five("POST", GROUP + "/receive", {})["messages"] == []
    five("POST", GROUP + "/seek", {"to": 3, "partition": 0})
    five("POST", GROUP + "/pause")
    assert five("POST", GROUP + "/receive", {})["messages"] == []
    five("POST", GROUP + "/resume")
    (got,) = five("POST", GROUP + "/receive", {})["messages"]
    assert got["body"] == "3"
    assert "receipt" not in got
    five("DELETE", GROUP)
    assert five("GET", TOPIC + "/stats")["groups"] == {}


@tries("PUT", MEMBER)
@tries("GET", MEMBER)
@tries("DELETE", MEMBER)
@tries("POST", MEMBER + "/heartbeat")
@tries("POST", MEMBER + "/fetch", "json", "out")
@tries("POST", MEMBER + "/commit")
def test_members(five):
    joined = five("PUT", MEMBER, {"session": 60})
    assert joined["partitions"] == [[0, 0]]
    assert five("GET", MEMBER) == joined
    got = five("POST", MEMBER + "/fetch", {"positions": {"0": 0}, "max_messages": 2})
    assert texts(got["messages"]) == ["0", "1"]
    assert got["ahead"] == {"0": 2}
    rest = five.arrow("POST", MEMBER + "/fetch", {"positions": {"0": 2}, "wait": 1})
    assert rest["body"].to_pylist() == [b"2", b"3", b"4"]
    assert about(rest)["ahead"] == {"0": 5}
    assert five("POST", MEMBER + "/commit", {"offsets": {"0": 4}})["partitions"] == [[0, 4]]
    assert five("POST", MEMBER + "/heartbeat", {"released": []})["partitions"] == [[0, 4]]
    five("DELETE", MEMBER)
    assert five("GET", TOPIC + "/stats")["groups"]["g"]["lag"] == 1


# -- dead letters ----------------------------------------------------------------------------------


@tries("POST", TOPIC + "/redrive")
@tries("POST", TOPIC + "/discard")
def test_redrive_and_discard(five):
    got = five("POST", GROUP + "/receive", {"max_messages": 5})["messages"]
    receipts = [message["receipt"] for message in got]
    five("POST", "/v1/settle", {"action": "dead_letter", "receipts": receipts})
    dead = {"topic": "t.dlq"}
    some = {"where": "text = '3'", "dry_run": True}
    assert five("POST", TOPIC + "/discard", some, **dead) == {"count": 1}
    assert five("POST", TOPIC + "/discard", {"limit": 1}, **dead) == {"count": 1}
    five("PUT", TOPIC, {}, topic="other")
    assert five("POST", TOPIC + "/redrive", {"limit": 1, "to": "other"}, **dead) == {"count": 1}
    assert five("POST", TOPIC + "/redrive", {"rate": 10_000}, **dead) == {"count": 3}
    back = five("POST", GROUP + "/receive", {"max_messages": 9})["messages"]
    assert texts(back) == ["2", "3", "4"]


# -- what happened ---------------------------------------------------------------------------------


@tries("GET", "/v1/ledger", "json", "out")
@tries("GET", "/v1/messages/{message}/trace", "json", "out")
def test_ledger_and_trace(five):
    (got,) = five("POST", GROUP + "/receive", {})["messages"]
    five("POST", "/v1/settle", {"action": "ack", "receipts": [got["receipt"]]})
    story = five("GET", "/v1/messages/{message}/trace", message=got["id"])["rows"]
    assert [row["event"] for row in story][:3] == ["sent", "leased", "acked"]
    table = five.arrow("GET", "/v1/messages/{message}/trace", message=got["id"])
    assert table["event"].to_pylist() == [row["event"] for row in story]
    five("POST", "/v1/seal")
    rows = five("GET", "/v1/ledger?topic=t")["rows"]
    ledger = five.arrow("GET", "/v1/ledger?topic=t")
    assert ledger.num_rows == len(rows) > 0
    assert {"t"} <= {row["topic"] for row in rows} <= {"t", "t.dlq", "t~staged"}
    assert five.arrow("GET", "/v1/ledger").num_rows >= ledger.num_rows
    assert five.arrow("GET", "/v1/ledger?topic=t&end=2001-01-01T00:00:00Z").num_rows == 0


@tries("POST", "/v1/sql", "json", "out")
def test_sql(five):
    query = {"query": "select key, text::int as n from t where n > 2 order by n"}
    assert five("POST", "/v1/sql", query) == {
        "rows": [{"key": "k3", "n": 3}, {"key": "k4", "n": 4}]
    }
    assert five.arrow("POST", "/v1/sql", query).to_pydict() == {"key": ["k3", "k4"], "n": [3, 4]}
