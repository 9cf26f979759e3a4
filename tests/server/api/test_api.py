"""The native door as curl would use it: JSON in, JSON or problem+json out."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from quiver import limits
from tests.server.nodes import Node, start_node


class Api:
    """Calls of a node; an error's answer is an answer too."""

    def __init__(self, node: Node) -> None:
        self._url = node.url

    def __call__(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, Any]:
        data = None if body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json", **headers}
        request = urllib.request.Request(self._url + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                content = answer.read()
                return answer.status, json.loads(content) if content else None, answer.headers
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read()), error.headers


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with start_node(tmp_path_factory.mktemp("asked")) as node:
        yield Api(node)


@pytest.fixture
def api(shared: Api) -> Iterator[Api]:
    """A node without topics."""
    yield shared
    for topic in shared("GET", "/v1/topics")[1]["topics"]:
        shared("DELETE", f"/v1/topics/{topic}")


def test_a_message_is_sent_received_and_acked(api):
    assert api("PUT", "/v1/topics/t", {"retention": "7d", "max_attempts": 3})[0] == 200
    status, sent, _ = api("POST", "/v1/topics/t/messages", {"body": "hello", "key": "k"})
    assert (status, sent["partition"], sent["offset"], sent["duplicate"]) == (200, 0, 0, False)
    _, got, _ = api("POST", "/v1/topics/t/groups/g/receive", {"wait": 1})
    (message,) = got["messages"]
    assert (message["body"], message["key"], message["attempt"]) == ("hello", "k", 1)
    receipt = message["receipt"]
    assert api("POST", "/v1/settle", {"action": "ack", "receipts": [receipt]})[1] == {"count": 1}
    status, refused, headers = api("POST", "/v1/settle", {"action": "ack", "receipts": [receipt]})
    assert (status, refused["code"], refused["refused"]) == (409, "receipt_expired", [receipt])
    assert headers["content-type"] == "application/problem+json"
    assert api("GET", "/v1/topics/t/stats")[1]["depth"] == 0


def test_an_idempotency_key_is_a_dedup_id(api):
    api("PUT", "/v1/topics/t")
    answers = [
        api("POST", "/v1/topics/t/messages", {"body": {"a": 1}}, **{"Idempotency-Key": "once"})[1]
        for _ in range(2)
    ]
    assert [answer["duplicate"] for answer in answers] == [False, True]
    assert answers[0]["id"] == answers[1]["id"]


def test_bytes_travel_as_base64_and_json_with_its_content_type(api):
    api("PUT", "/v1/topics/t")
    api("POST", "/v1/topics/t/batches", {"messages": [{"base64": "gIGC"}, {"body": [1, 2]}]})
    _, got, _ = api("POST", "/v1/topics/t/groups/g/receive", {"max_messages": 5})
    assert got["messages"][0]["base64"] == "gIGC"
    assert got["messages"][1]["body"] == "[1, 2]"  # as it was written
    assert got["messages"][1]["headers"] == {"content-type": "application/json"}


def test_a_number_in_a_body_stays_what_it_was(api):
    api("PUT", "/v1/topics/t")
    body = {"price": 12345678901234567890.10, "count": 2**80}
    api("POST", "/v1/topics/t/messages", {"body": body})
    _, got, _ = api("POST", "/v1/topics/t/groups/g/receive", {})
    assert json.loads(got["messages"][0]["body"]) == body


def test_a_batch_in_json_has_a_bound_and_arrow_a_larger_one(api):
    api("PUT", "/v1/topics/t")
    large = {"messages": [{"body": "x" * limits.API_JSON_BYTES_MAX}]}
    try:
        status, problem, _ = api("POST", "/v1/topics/t/batches", large)
        assert (status, problem["code"]) == (413, "message_too_large")
    except urllib.error.URLError:
        pass  # it was cut off while it was still sending
    assert api("GET", "/v1/topics/t/stats")[1]["depth"] == 0
    assert api("POST", "/v1/topics/t/messages", large["messages"][0])[0] == 200


def test_a_replay_goes_on_where_the_page_before_ended(api):
    api("PUT", "/v1/topics/t", {"retention": "forever"})
    api("POST", "/v1/topics/t/batches", {"messages": [{"body": str(n)} for n in range(5)]})
    found, cursor = [], None
    while True:
        request = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
        _, page, _ = api("POST", "/v1/topics/t/read", request)
        found += [message["body"] for message in page["messages"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert found == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/topics/none/messages", {"body": "x"}, 404, "topic_not_found"),
        ("POST", "/v1/topics/none/messages", {"boddy": "x"}, 400, "invalid_request"),
        ("POST", "/v1/topics/none/messages", {}, 400, "invalid_request"),
        ("POST", "/v1/settle", {"action": "ack", "receipts": ["x"]}, 409, "receipt_invalid"),
        ("PUT", "/v1/topics/t", {"partitions": 0}, 400, "invalid_request"),
        ("PUT", "/v1/topics/t", {"partitions": "x"}, 400, "invalid_request"),
        ("GET", "/v1/topics/none", None, 404, "topic_not_found"),
    ],
)
def test_mistakes_are_problems_with_the_code_of_the_python_error(
    api, method, path, body, status, code
):
    got, problem, _ = api(method, path, body)
    assert (got, problem["code"], problem["status"]) == (status, code, status)


def test_the_description_names_every_endpoint(api):
    from quiver.server.api.table import ENDPOINTS

    _, description, _ = api("GET", "/openapi.json")
    assert description["openapi"] == "3.1.0"
    described = {
        (method.upper(), path) for path, item in description["paths"].items() for method in item
    }
    assert described == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}


def test_json_has_many_messages_and_receipts_but_not_any_number(api):
    api("PUT", "/v1/topics/t")
    many = limits.API_ROWS_MAX
    api("POST", "/v1/topics/t/batches", {"messages": [{"body": "x"}] * many})
    path = "/v1/topics/t/groups/g/receive"
    status, refused, _ = api("POST", path, {"max_messages": many + 1})
    assert (status, refused["code"]) == (400, "invalid_request")
    assert "application/vnd.apache.arrow.stream" in refused["detail"]
    receipts: list[str] = []
    while len(receipts) < many:
        got = api("POST", path, {"max_messages": many, "lease": 100})[1]["messages"]
        assert got, "all of it is there"
        receipts += [message["receipt"] for message in got]
    body = {"action": "ack", "receipts": [*receipts, receipts[0]]}
    assert api("POST", "/v1/settle", body)[1]["code"] == "invalid_request"
    assert api("POST", "/v1/transactions", {"settle": [body]})[1]["code"] == "invalid_request"
    body = {"action": "ack", "receipts": receipts}
    assert api("POST", "/v1/settle", body)[1] == {"count": many}
