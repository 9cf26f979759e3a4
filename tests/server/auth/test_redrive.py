"""Who redrives without naming a topic needs the right to send to each topic that messages go back to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import quiver
from quiver.client.sync import flows_of
from quiver.model.commands import Pick, Redrive
from quiver.server.auth.access import AccessEntry
from tests.server.auth.callers import Answer, Guarded
from tests.server.auth.test_sqs_matrix import DENIED, ask, code_of

LETTERS = "letters"
ARN = f"arn:aws:sqs:us-east-1:000000000000:{LETTERS}"
MANAGE = f"manage,read,observe:{LETTERS}"
ENTRIES = {
    "admin": AccessEntry(allow=("*:*",)),
    "none": AccessEntry(allow=(MANAGE,)),
    "orders": AccessEntry(allow=(MANAGE, "send:orders")),
    "denied": AccessEntry(allow=(MANAGE, "send:*"), deny=("send:payments",)),
    "both": AccessEntry(allow=(MANAGE, "send:orders", "send:payments")),
}
TOO_FEW = ("none", "orders", "denied")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    started = Guarded(Path(tmp_path_factory.mktemp("node")), ENTRIES)
    yield started
    started.close()


@pytest.fixture(autouse=True)
def dead_letters(guarded: Guarded) -> None:
    """One of each topic, that of `payments` last."""
    guarded("POST", f"/v1/topics/{LETTERS}/purge", who="admin")
    guarded("PUT", f"/v1/topics/{LETTERS}", {}, who="admin")
    for topic in ("orders", "payments"):
        guarded("PUT", f"/v1/topics/{topic}", {"dead_letter": LETTERS}, who="admin")
        guarded("POST", f"/v1/topics/{topic}/purge", who="admin")
        guarded("POST", f"/v1/topics/{topic}/messages", {"body": topic}, who="admin")
        got = guarded("POST", f"/v1/topics/{topic}/groups/g/receive", {}, who="admin")
        (message,) = got.json["messages"]
        part = {"action": "dead_letter", "receipts": [message["receipt"]]}
        assert guarded("POST", "/v1/settle", part, who="admin").status == 200


def depth(guarded: Guarded, topic: str) -> int:
    found = guarded("GET", f"/v1/topics/{topic}/stats", who="admin").json["depth"]
    assert isinstance(found, int)
    return found


def connected(guarded: Guarded, who: str) -> quiver.Queue:
    return quiver.connect(f"quiver://{guarded.callers[who].token}@127.0.0.1:{guarded.node.port}")


def redrive(guarded: Guarded, who: str, **body: object) -> Answer:
    return guarded("POST", f"/v1/topics/{LETTERS}/redrive", body, who=who)


@pytest.mark.parametrize("body", [{}, {"dry_run": True}, {"limit": 1}], ids=str)
@pytest.mark.parametrize("who", TOO_FEW)
def test_each_topic_is_asked_for_before_anything_moves(
    guarded: Guarded, who: str, body: dict[str, object]
):
    answer = redrive(guarded, who, **body)
    assert (answer.status, answer.json["code"]) == (403, "forbidden")
    assert "may not send on topic" in answer.json["detail"]
    assert depth(guarded, LETTERS) == 2


def test_whatever_a_condition_chooses(guarded: Guarded):
    where = "body = 'orders'"
    assert redrive(guarded, "orders", where=where).status == 403
    assert redrive(guarded, "orders", where=where, to="orders").json == {"count": 1}


def test_who_may_send_to_all_of_them_redrives(guarded: Guarded):
    assert redrive(guarded, "both", dry_run=True).json == {"count": 2}
    assert redrive(guarded, "both").json == {"count": 2}
    assert (depth(guarded, LETTERS), depth(guarded, "payments")) == (0, 1)


@pytest.mark.parametrize("who", TOO_FEW)
def test_a_client_that_drives_it_is_refused_before_anything_moves(guarded: Guarded, who: str):
    with connected(guarded, who) as queue:
        for options in ({}, {"dry_run": True}, {"where": lambda letter: letter.text == "orders"}):
            with pytest.raises(quiver.Forbidden, match="may not send"):
                queue.redrive(LETTERS, **options)
    assert depth(guarded, LETTERS) == 2


def test_and_lets_who_may_do_it(guarded: Guarded):
    with connected(guarded, "both") as queue:
        assert queue.redrive(LETTERS, dry_run=True) == 2
        assert queue.redrive(LETTERS) == 2


def test_each_step_of_it_is_checked_by_itself(guarded: Guarded):
    number = guarded("GET", f"/v1/topics/{LETTERS}", who="admin").json["number"]
    page = guarded("POST", f"/v1/topics/{LETTERS}/read", {"pending": True}, who="admin")
    offsets = {message["body"]: message["offset"] for message in page.json["messages"]}

    def moved(topic: str, who: str) -> int:
        step = Redrive(number, (Pick(0, ((offsets[topic], offsets[topic] + 1),)),))
        with connected(guarded, who) as queue:
            return flows_of(queue).broker.propose(step).wait().count

    for topic, who in (("payments", "orders"), ("orders", "none")):
        with pytest.raises(quiver.Forbidden, match="may not send"):
            moved(topic, who)
    assert moved("orders", "orders") == 1
    assert (depth(guarded, "orders"), depth(guarded, "payments")) == (1, 0)


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_a_move_task_without_a_destination_needs_the_same(guarded: Guarded, protocol: str):
    for who in TOO_FEW:
        caller = guarded.callers[who]
        answer = ask(guarded, caller, protocol, "StartMessageMoveTask", {"SourceArn": ARN})
        assert (answer.status, code_of(answer)) == (403, DENIED)
    shown = ask(
        guarded, guarded.callers["admin"], "json", "ListMessageMoveTasks", {"SourceArn": ARN}
    )
    assert not shown.json.get("Results")
    assert depth(guarded, LETTERS) == 2


def test_a_move_task_is_started_by_who_may_send_to_all_of_them(guarded: Guarded):
    both = guarded.callers["both"]
    assert ask(guarded, both, "json", "StartMessageMoveTask", {"SourceArn": ARN}).status == 200
