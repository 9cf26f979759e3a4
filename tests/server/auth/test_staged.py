"""Staged messages are of the principal that has staged them, and of no rule about topics."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver.server.auth.access import AccessEntry
from tests.server.auth.callers import Answer, Guarded
from tests.server.auth.test_sqs_matrix import ask

ENTRIES = {
    "admin": AccessEntry(allow=("*:*",)),
    "alice": AccessEntry(allow=("send:orders",)),
    "bob": AccessEntry(allow=("send:orders",)),
    "wide": AccessEntry(allow=("*:orders*",)),
    "named": AccessEntry(allow=("*:orders.staged",)),
}
NAMES = ("orders.staged", "orders~staged")
OTHERS = ("admin", "wide", "named")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    started = Guarded(Path(tmp_path_factory.mktemp("node")), ENTRIES)
    yield started
    started.close()


@pytest.fixture
def part(guarded: Guarded) -> dict[str, Any]:
    """What alice has staged for a fresh topic."""
    for topic in ("orders", "orders.staged"):
        guarded("DELETE", f"/v1/topics/{topic}", who="admin")
    assert guarded("PUT", "/v1/topics/orders", {}, who="admin").status == 200
    return stage(guarded, "alice", "hers")


def stage(guarded: Guarded, who: str, *bodies: str) -> dict[str, Any]:
    body = {"messages": [{"body": text} for text in bodies]}
    answer = guarded("POST", "/v1/topics/orders/staged", body, who=who)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


def publish(guarded: Guarded, who: str, part: dict[str, Any], batch: int = 0) -> Answer:
    body = {"staged": [part], "application": f"of-{who}", "batch": batch}
    return guarded("POST", "/v1/topics/orders/publish", body, who=who)


def unstage(guarded: Guarded, who: str, part: dict[str, Any]) -> Answer:
    return guarded("POST", "/v1/topics/orders/unstage", {"staged": [part]}, who=who)


def guesses(part: dict[str, Any]) -> list[dict[str, Any]]:
    """What others could make of what they know: everything but the tag, or all that was in a log."""
    place = {name: value for name, value in part.items() if name != "tag"}
    return [place, {**place, "tag": ""}, {**place, "tag": "0" * 32}, part]


def published(guarded: Guarded) -> int:
    found: int = guarded("GET", "/v1/topics/orders/stats", who="admin").json["sent"]
    return found


def test_whoever_staged_messages_publishes_or_drops_them(guarded: Guarded, part: dict[str, Any]):
    other = stage(guarded, "alice", "more", "of them")
    assert unstage(guarded, "alice", other).json == {"count": 2}
    assert publish(guarded, "alice", part).json["rows"] == 1
    assert published(guarded) == 1
    assert publish(guarded, "alice", part).json["duplicate"]


@pytest.mark.parametrize("who", ["bob", "wide", "admin"])
def test_and_nobody_else(guarded: Guarded, part: dict[str, Any], who: str):
    own = stage(guarded, who, "his")
    for guess in guesses(part):
        for answer in (publish(guarded, who, guess), unstage(guarded, who, guess)):
            assert (answer.status, answer.json["code"]) == (400, "invalid_request")
            assert "is not staged here for you" in answer.json["detail"]
    stretched = {**own, "ranges": [[0, 0, 2]], "rows": 2}
    assert publish(guarded, who, stretched).status == 400
    assert published(guarded) == 0
    assert publish(guarded, who, own).status == 200
    assert publish(guarded, "alice", part).status == 200
    assert published(guarded) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"number": -1}, {"number": 2**32}, {"number": 2**70}, {"ranges": [[2**32, 0, 1]]},
        {"ranges": [[0, 0, 2**64]]}, {"ranges": [[0, 1, 0]]}, {"ranges": []}, {"tag": "\u00e9"},
    ],
    ids=str,
)  # fmt: skip
def test_a_handle_with_numbers_that_no_place_has_is_refused(
    guarded: Guarded, part: dict[str, Any], change: dict[str, Any]
):
    for answer in (
        publish(guarded, "alice", part | change),
        unstage(guarded, "alice", part | change),
    ):
        assert (answer.status, answer.json["code"]) == (400, "invalid_request")
    assert publish(guarded, "alice", part).json["rows"] == 1


@pytest.mark.parametrize("who", OTHERS)
@pytest.mark.parametrize("name", NAMES)
def test_no_rule_reaches_what_is_staged(
    guarded: Guarded, part: dict[str, Any], who: str, name: str
):
    topic = f"/v1/topics/{name}"
    for method, path, body in (
        ("GET", "", None), ("GET", "/stats", None), ("GET", "/segments", None),
        ("PATCH", "", {"max_attempts": None}), ("DELETE", "", None), ("POST", "/purge", None),
        ("POST", "/messages", {"body": "x"}), ("POST", "/batches", {"messages": [{"body": "x"}]}),
        ("POST", "/groups/g/receive", {}), ("POST", "/read", {}), ("PUT", "/groups/g", {}),
        ("POST", "/discard", {}), ("POST", "/redrive", {"to": "orders"}),
        ("POST", "/staged", {"messages": [{"body": "x"}]}),
    ):  # fmt: skip
        answer = guarded(method, topic + path, body, who=who)
        assert answer.status in (400, 403, 404), (method, path, answer.body)
    part_of = {"topic": name, "messages": [{"body": "x"}]}
    assert guarded("POST", "/v1/transactions", {"send": [part_of]}, who=who).status in (
        400,
        403,
        404,
    )
    assert guarded("PUT", "/v1/topics/orders~staged", {}, who=who).status in (400, 403)
    assert name not in guarded("GET", "/v1/topics", who=who).json["topics"]
    overview = guarded("GET", "/v1/overview", who=who)
    assert not any("staged" in topic for topic in overview.json["topics"])
    assert publish(guarded, "alice", part).json["rows"] == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("protocol", ["json", "query"])
def test_nor_does_the_sqs_door(guarded: Guarded, part: dict[str, Any], protocol: str, name: str):
    url = {"QueueUrl": f"http://localhost/000000000000/{name}"}
    for action, more in (
        ("SendMessage", {"MessageBody": "x"}), ("ReceiveMessage", {}), ("GetQueueAttributes", {}),
        ("PurgeQueue", {}), ("DeleteQueue", {}),
    ):  # fmt: skip
        for who in OTHERS:
            answer = ask(guarded, guarded.callers[who], protocol, action, url | more)
            assert answer.status in (400, 403), (who, action, answer.body)
    listed = ask(guarded, guarded.callers["admin"], protocol, "ListQueues", {})
    assert b"staged" not in listed.body
    assert publish(guarded, "alice", part).json["rows"] == 1


def test_a_topic_of_such_a_name_has_nothing_to_do_with_it(guarded: Guarded, part: dict[str, Any]):
    made = guarded("PUT", "/v1/topics/orders.staged", {}, who="named")
    assert made.status == 200
    got = guarded("POST", "/v1/topics/orders.staged/groups/g/receive", {}, who="wide")
    assert got.json["messages"] == []
    assert publish(guarded, "alice", part).json["rows"] == 1


def test_the_story_of_a_message_begins_where_it_was_staged(guarded: Guarded, part: dict[str, Any]):
    publish(guarded, "alice", part)
    page = guarded("POST", "/v1/topics/orders/read", {}, who="wide")
    (message,) = page.json["messages"]
    told = guarded("GET", f"/v1/messages/{message['id']}/trace", who="wide")
    assert [row["event"] for row in told.json["rows"]] == ["sent", "published"]


def test_the_client_takes_a_part_to_another_connection(guarded: Guarded, part: dict[str, Any]):
    """As Spark does, whose tasks stage and whose driver publishes."""

    def connected(who: str) -> quiver.Queue:
        token = guarded.callers[who].token
        return quiver.connect(f"quiver://{token}@127.0.0.1:{guarded.node.port}")

    with connected("alice") as task, connected("alice") as driver, connected("bob") as other:
        parts = [task.stage("orders", [b"x"]), task.stage("orders", [b"y"])]
        with pytest.raises(quiver.InvalidRequest, match="not staged here for you"):
            other.publish("orders", parts, application="a", batch=0)
        with pytest.raises(quiver.InvalidRequest, match="not staged here for you"):
            other.unstage("orders", parts)
        assert driver.publish("orders", parts, application="a", batch=0).rows == 2
