"""Every endpoint with no, wrong, expired, insufficient and right credentials, against a real node.

The cases are made from the table of endpoints. The right credentials are always the least ones: one
verb, on that topic. The insufficient ones are the most: everything but that verb on that topic, and
everything on other topics.
"""

import re
from typing import Any

import pytest

from quiver.server.api.table import ENDPOINTS
from quiver.server.auth import VERBS
from tests.server.auth.callers import TOPIC

STRANGERS: list[tuple[str, dict[str, str]]] = [
    ("nobody at all", {}),
    ("no scheme", {"Authorization": "qvt_0123456789abcdef_" + "x" * 43}),
    ("a password", {"Authorization": "Basic YWRtaW46YWRtaW4="}),
    ("an unknown token", {"who": "unknown"}),
    ("an expired token", {"who": "expired"}),
]
EVERYWHERE = {"/v1/sql": "read", "/v1/seal": "manage"}  # about all topics at once
IN_BODY = ["/v1/settle", "/v1/transactions", "/v1/ledger", "/v1/messages/{message}/trace"]
FOR_ALL_KNOWN = ["/v1", "/v1/topics", "/v1/overview"]


def name_of(endpoint):
    return f"{endpoint.method} {endpoint.path}"


def path_of(endpoint):
    names = {"topic": TOPIC, "group": "g", "member": "m", "producer": "p", "message": "1-0"}
    names["application"] = "etl"
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], endpoint.path)


@pytest.fixture(autouse=True)
def topics(guarded):
    for topic in (TOPIC, "other"):
        assert (
            guarded("PUT", f"/v1/topics/{topic}", {"retention": "forever"}, who="admin").status
            == 200
        )


def test_every_endpoint_has_a_verb_or_is_known_here():
    assert {e.path for e in ENDPOINTS if e.verb is None} == {*IN_BODY, *FOR_ALL_KNOWN}
    assert {e.path for e in ENDPOINTS if e.verb and "{topic}" not in e.path} == {*EVERYWHERE}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=name_of)
@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda stranger: stranger[0])
def test_strangers_are_refused(guarded, endpoint, stranger):
    answer = guarded(endpoint.method, path_of(endpoint), {}, **stranger[1])
    assert (answer.status, answer.json["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("endpoint", [e for e in ENDPOINTS if e.verb], ids=name_of)
def test_only_who_may_gets_in(guarded, endpoint):
    verb, path = endpoint.verb, path_of(endpoint)
    right = f"only-{verb}-everywhere" if endpoint.path in EVERYWHERE else f"only-{verb}"
    others = [f"only-{other}" for other in VERBS if other != verb]
    if endpoint.path in EVERYWHERE:
        others.append(f"only-{verb}")
    body: Any = None if endpoint.body is None else {}
    for who in ("nobody", "elsewhere", f"all-but-{verb}", *others):
        answer = guarded(endpoint.method, path, body, who=who)
        assert (who, answer.status, answer.json["code"]) == (who, 403, "forbidden")
    answer = guarded(endpoint.method, path, body, who=right)
    assert answer.status not in (401, 403), answer.body
    assert answer.status < 500, answer.body


# -- endpoints that look at who asks by themselves -------------------------------------------------


def test_what_the_node_is_and_which_topics_are_seen(guarded):
    assert guarded("GET", "/v1", who="nobody").status == 200

    def seen(who):
        return guarded("GET", "/v1/topics", who=who).json["topics"]

    assert seen("nobody") == []
    assert seen("elsewhere") == ["other"]
    assert seen("only-send") == [TOPIC]
    assert set(seen("admin")) >= {TOPIC, "other"}


def test_an_overview_has_what_may_be_observed(guarded):
    def shown(who):
        answer = guarded("GET", "/v1/overview", who=who)
        return set(answer.json["topics"]) if answer.status == 200 else answer.status

    assert shown("nobody") == shown("only-send") == 403
    assert shown("only-observe") == {TOPIC}
    assert shown("elsewhere") == {"other"}
    assert shown("only-observe-everywhere") >= {TOPIC, "other"}
    assert TOPIC not in shown("all-but-observe")


def test_files_are_shown_to_who_may_observe_all(guarded):
    def files(who):
        return guarded("GET", "/v1/overview", who=who).json["storage"]

    assert files("only-observe") is files("elsewhere") is files("all-but-observe") is None
    assert files("only-observe-everywhere")["log_files"] > 0


def received(guarded):
    guarded("POST", f"/v1/topics/{TOPIC}/messages", {"body": "x"}, who="only-send")
    got = guarded("POST", f"/v1/topics/{TOPIC}/groups/g/receive", {"wait": 5}, who="only-receive")
    return got.json["messages"][0]


def test_a_receipt_is_worth_nothing_to_who_may_not_receive(guarded):
    receipt = received(guarded)["receipt"]
    for action in ("ack", "nack", "extend", "dead_letter"):
        body: Any = {"action": action, "receipts": [receipt]}
        body |= {"lease": 30} if action == "extend" else {}
        for who in ("nobody", "elsewhere", "all-but-receive", "only-send", "only-manage"):
            assert guarded("POST", "/v1/settle", body, who=who).status == 403
            inside = {"settle": [body]}
            assert guarded("POST", "/v1/transactions", inside, who=who).status == 403
    body = {"action": "ack", "receipts": [receipt]}
    assert guarded("POST", "/v1/settle", body, who="only-receive").json == {"count": 1}


def test_a_transaction_needs_every_right_it_uses(guarded):
    receipt = received(guarded)["receipt"]
    body = {
        "settle": [{"action": "ack", "receipts": [receipt]}],
        "send": [{"topic": TOPIC, "messages": [{"body": "y"}]}],
    }
    for who in ("nobody", "only-send", "only-receive", "all-but-send", "all-but-receive"):
        assert guarded("POST", "/v1/transactions", body, who=who).status == 403
    assert guarded("POST", "/v1/transactions", body, who="admin").status == 200


def test_the_ledger_is_read_by_topic_or_as_a_whole(guarded):
    for path in ("/v1/ledger", f"/v1/ledger?topic={TOPIC}"):
        for who in ("nobody", "elsewhere", "all-but-read", "only-observe"):
            assert (path, guarded("GET", path, who=who).status) == (path, 403)
        assert guarded("GET", path, who="only-read-everywhere").status == 200
    assert guarded("GET", "/v1/ledger", who="only-read").status == 403
    assert guarded("GET", f"/v1/ledger?topic={TOPIC}", who="only-read").status == 200


def test_who_may_not_read_a_message_does_not_learn_that_it_exists(guarded):
    message = received(guarded)["id"]
    path, nowhere = (f"/v1/messages/{name}/trace" for name in (message, "999-0"))
    for who in ("only-read", "only-read-everywhere", "admin"):
        assert guarded("GET", path, who=who).status == 200
    for who in ("nobody", "only-observe", "only-manage-everywhere"):
        assert guarded("GET", path, who=who).status == 403
        assert guarded("GET", nowhere, who=who).status == 403
    for who in ("elsewhere", "all-but-read"):
        found, missing = (guarded("GET", it, who=who) for it in (path, nowhere))
        assert (found.status, found.json["code"]) == (404, "message_not_found")
        assert missing.json["detail"] == found.json["detail"].replace(message, "999-0")


def test_a_dead_letter_topic_and_a_target_need_a_right_of_their_own(guarded):
    body = {"max_attempts": 2, "dead_letter": "other"}
    assert guarded("PATCH", f"/v1/topics/{TOPIC}", body, who="only-manage").status == 403
    assert guarded("PUT", f"/v1/topics/{TOPIC}", body, who="only-manage").status == 403
    assert guarded("PUT", "/v1/topics/new", body, who="only-manage-everywhere").status == 200
    default = {"max_attempts": 2}  # <topic>.dlq, which is another topic, too
    assert guarded("PATCH", f"/v1/topics/{TOPIC}", default, who="only-manage").status == 403
    assert guarded("PUT", f"/v1/topics/{TOPIC}", default, who="only-manage").status == 403
    redrive = {"to": TOPIC}
    assert guarded("POST", f"/v1/topics/{TOPIC}/redrive", redrive, who="only-manage").status == 403


def test_a_condition_needs_the_right_to_read(guarded):
    """Its error quotes the body, and so does a count, a question at a time."""
    guarded("POST", f"/v1/topics/{TOPIC}/messages", {"body": "secret"}, who="only-send")
    refused = [
        "only-manage",
        "only-manage-everywhere",
        "only-read",
        "all-but-read",
        "all-but-manage",
    ]
    for where in ("error(text)", "text = 'secret'", "("):
        asked = {
            "redrive": {"where": where, "to": "other", "dry_run": True},
            "discard": {"where": where, "dry_run": True},
        }
        for action, body in asked.items():
            path = f"/v1/topics/{TOPIC}/{action}"
            for who in refused:
                answer = guarded("POST", path, body, who=who)
                assert (action, who, answer.status) == (action, who, 403)
                assert b"secret" not in answer.body
            answer = guarded("POST", path, body, who="admin")
            assert (action, where, answer.status) == (action, where, 200 if "=" in where else 400)
    move = {"dry_run": True}  # without a condition, nothing is read
    assert guarded("POST", f"/v1/topics/{TOPIC}/discard", move, who="only-manage").status == 200


# -- beside the doors ------------------------------------------------------------------------------


def test_health_and_the_description_are_for_everybody(guarded):
    for path in ("/health/live", "/health/ready", "/openapi.json"):
        assert guarded("GET", path).status == 200
        assert guarded("GET", path, who="unknown").status == 200


def test_metrics_are_for_who_may_observe_every_topic(guarded):
    for _, caller in STRANGERS:
        assert guarded("GET", "/metrics", **caller).status == 401
    for who in ("nobody", "only-observe", "all-but-observe", "only-read-everywhere"):
        assert guarded("GET", "/metrics", who=who).status == 403
    answer = guarded("GET", "/metrics", who="only-observe-everywhere")
    assert answer.status == 200
    assert b"# TYPE" in answer.body
