"""Every SQS action, in both protocols, with no, wrong, expired, insufficient and right signatures."""

import json
import re
from typing import Any
from urllib.parse import urlencode

import pytest

from quiver.server.auth import VERBS
from quiver.server.sqs.door import ACTIONS
from tests.server.auth.callers import TOPIC, Answer, Caller, Guarded
from tests.unit.server.auth.requests import changed, signed
from tools.sqs import CODES, NOT_MODELLED

QUEUE = f"http://localhost/000000000000/{TOPIC}"
ARN = f"arn:aws:sqs:us-east-1:000000000000:{TOPIC}"
ENTRY = {"Id": "a", "ReceiptHandle": "x"}
ON_QUEUE: dict[str, Any] = {"QueueUrl": QUEUE}

# What each action needs, and parameters that are good enough to be asked who one is
NEEDS: dict[str, tuple[str, dict[str, Any]]] = {
    "AddPermission": (
        "manage",
        {**ON_QUEUE, "Label": "l", "AWSAccountIds": ["1"], "Actions": ["*"]},
    ),
    "CancelMessageMoveTask": ("manage", {}),
    "ChangeMessageVisibility": (
        "receive",
        {**ON_QUEUE, "ReceiptHandle": "x", "VisibilityTimeout": 1},
    ),
    "ChangeMessageVisibilityBatch": ("receive", {**ON_QUEUE, "Entries": [ENTRY]}),
    "CreateQueue": ("manage", {"QueueName": TOPIC}),
    "DeleteMessage": ("receive", {**ON_QUEUE, "ReceiptHandle": "x"}),
    "DeleteMessageBatch": ("receive", {**ON_QUEUE, "Entries": [ENTRY]}),
    "DeleteQueue": ("manage", ON_QUEUE),
    "GetQueueAttributes": ("observe", ON_QUEUE),
    "GetQueueUrl": ("", {"QueueName": TOPIC}),
    "ListDeadLetterSourceQueues": ("observe", ON_QUEUE),
    "ListMessageMoveTasks": ("manage", {"SourceArn": ARN}),
    "ListQueueTags": ("observe", ON_QUEUE),
    "ListQueues": ("", {}),
    "PurgeQueue": ("manage", ON_QUEUE),
    "ReceiveMessage": ("receive", ON_QUEUE),
    "RemovePermission": ("manage", {**ON_QUEUE, "Label": "l"}),
    "SendMessage": ("send", {**ON_QUEUE, "MessageBody": "x"}),
    "SendMessageBatch": ("send", {**ON_QUEUE, "Entries": [{"Id": "a", "MessageBody": "x"}]}),
    "SetQueueAttributes": ("manage", {**ON_QUEUE, "Attributes": {"VisibilityTimeout": "30"}}),
    "StartMessageMoveTask": ("manage", {"SourceArn": ARN}),
    "TagQueue": ("manage", {**ON_QUEUE, "Tags": {"a": "b"}}),
    "UntagQueue": ("manage", {**ON_QUEUE, "TagKeys": ["a"]}),
}
WITH_VERB = sorted(action for action, (verb, _) in NEEDS.items() if verb)
PROTOCOLS = ["json", "query"]
DENIED = "AccessDenied"
# What an action itself may answer, and not who asks whether one may: some of it has the status 403, too
OF_ACTIONS = {each.code for each in (*CODES.values(), *NOT_MODELLED.values())} - {
    "MissingParameter"
}

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def message_of(
    protocol: str, action: str, parameters: dict[str, Any]
) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a request."""
    if protocol == "json":
        kind = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{action}"}
        return kind, json.dumps(parameters).encode()
    fields = {"Action": action, "Version": "2012-11-05", **flat(action, parameters)}
    return {"Content-Type": "application/x-www-form-urlencoded"}, urlencode(fields).encode()


def flat(action: str, parameters: dict[str, Any]) -> dict[str, str]:
    """Parameters as the query protocol has them."""
    found: dict[str, str] = {}
    for name, value in parameters.items():
        if name == "Entries":
            for key, text in value[0].items():
                found[f"{action}RequestEntry.1.{key}"] = str(text)
        elif isinstance(value, dict):
            ((key, text),) = value.items()
            where = name.removesuffix("s") + ".1."
            found |= {where + ("Key" if name == "Tags" else "Name"): key, where + "Value": text}
        elif isinstance(value, list):
            one = {"AWSAccountIds": "AWSAccountId", "Actions": "ActionName", "TagKeys": "TagKey"}
            found[f"{one[name]}.1"] = value[0]
        else:
            found[name] = str(value)
    return found


def ask(
    guarded: Guarded, caller: Caller, protocol: str, action: str, parameters: dict[str, Any],
    change: Any = lambda scope: scope,
) -> Answer:  # fmt: skip
    """A request that botocore has signed, perhaps changed afterwards."""
    headers, body = message_of(protocol, action, parameters)
    url = f"http://127.0.0.1:{guarded.node.port}/"
    scope = change(signed(caller.key, body, url=url, headers=headers))
    given = {name.decode(): value.decode() for name, value in scope["headers"]}
    return guarded.send("POST", "/", body, given)


def code_of(answer: Answer) -> str:
    """What SQS calls the error."""
    if answer.headers.get("content-type", "").startswith("application/x-amz-json"):
        return answer.headers.get("x-amzn-query-error", "").partition(";")[0]
    found = re.search(rb"<Code>([^<]+)</Code>", answer.body)
    return found[1].decode() if found else ""


@pytest.fixture(autouse=True)
def topics(guarded):
    for topic in (TOPIC, "other"):
        assert guarded("PUT", f"/v1/topics/{topic}", who="admin").status in (200, 409)


def test_every_action_is_here():
    assert set(NEEDS) == set(ACTIONS)


@each_protocol
@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_strangers_are_refused(guarded, action, protocol):
    parameters = NEEDS[action][1]
    cases = [
        ("unknown", lambda scope: scope, "InvalidClientTokenId"),
        ("expired", lambda scope: scope, "InvalidClientTokenId"),
        ("admin", lambda scope: changed(scope, "authorization", lambda _: None),
         "MissingAuthenticationToken"),
        ("admin", lambda scope: changed(scope, "authorization", lambda _: b"Bearer x"),
         "IncompleteSignature"),
        ("admin", lambda scope: changed(scope, "authorization", lambda value: value[:-4] + b"0000"),
         "SignatureDoesNotMatch"),
        ("admin", lambda scope: changed(scope, "x-amz-date", lambda _: b"20200101T000000Z"),
         "SignatureDoesNotMatch"),
    ]  # fmt: skip
    for who, change, code in cases:
        answer = ask(guarded, guarded.callers[who], protocol, action, parameters, change)
        assert (answer.status, code_of(answer)) == (403, code)


@each_protocol
@pytest.mark.parametrize(
    "action", [action for action in WITH_VERB if action != "CancelMessageMoveTask"]
)
def test_only_who_may_gets_in(guarded, action, protocol):
    verb, parameters = NEEDS[action]
    others = [f"only-{other}" for other in VERBS if other != verb]
    for who in ("nobody", "elsewhere", f"all-but-{verb}", *others):
        answer = ask(guarded, guarded.callers[who], protocol, action, parameters)
        assert (who, answer.status, code_of(answer)) == (who, 403, DENIED)
    answer = ask(guarded, guarded.callers[f"only-{verb}"], protocol, action, parameters)
    assert answer.status == 200 or code_of(answer) in OF_ACTIONS, answer.body


@each_protocol
def test_a_queue_is_seen_by_who_may_do_anything_there(guarded, protocol):
    for who, sees in (("nobody", False), ("elsewhere", False), ("only-send", True)):
        answer = ask(guarded, guarded.callers[who], protocol, "GetQueueUrl", {"QueueName": TOPIC})
        assert (answer.status == 200) == sees
        listed = ask(guarded, guarded.callers[who], protocol, "ListQueues", {})
        assert listed.status == 200
        assert (f"/{TOPIC}".encode() in listed.body) == sees
        assert (b"/other" in listed.body) == (who == "elsewhere")


@each_protocol
def test_a_dead_letter_queue_and_a_destination_need_a_right_of_their_own(guarded, protocol):
    other = ARN.replace(TOPIC, "other")
    policy = json.dumps({"deadLetterTargetArn": other, "maxReceiveCount": 2})
    redrive = {**ON_QUEUE, "Attributes": {"RedrivePolicy": policy}}
    move = {"SourceArn": ARN, "DestinationArn": other}
    who = guarded.callers["only-manage"]
    for action, parameters in (("SetQueueAttributes", redrive), ("StartMessageMoveTask", move)):
        answer = ask(guarded, who, protocol, action, parameters)
        assert (answer.status, code_of(answer)) == (403, DENIED)


def test_a_receipt_is_worth_nothing_on_another_queue_or_to_who_may_not_receive(guarded):
    admin = guarded.callers["admin"]
    ask(guarded, admin, "json", "SendMessage", {**ON_QUEUE, "MessageBody": "x"})
    got = ask(guarded, admin, "json", "ReceiveMessage", {**ON_QUEUE, "WaitTimeSeconds": 5})
    handle = got.json["Messages"][0]["ReceiptHandle"]
    delete = {**ON_QUEUE, "ReceiptHandle": handle}
    elsewhere = {**delete, "QueueUrl": QUEUE.replace(TOPIC, "other")}
    for who, parameters, code in (
        ("all-but-receive", delete, DENIED),
        ("elsewhere", delete, DENIED),
        ("elsewhere", elsewhere, "ReceiptHandleIsInvalid"),
    ):
        answer = ask(guarded, guarded.callers[who], "json", "DeleteMessage", parameters)
        assert code_of(answer) == code
    assert ask(guarded, admin, "json", "DeleteMessage", delete).status == 200


def test_boto3_is_let_in_or_told_why_not(guarded):
    import boto3
    from botocore.exceptions import ClientError

    def client(who, secret=None):
        key = guarded.callers[who].key
        return boto3.client(
            "sqs", endpoint_url=f"http://127.0.0.1:{guarded.node.port}", region_name="eu-west-1",
            aws_access_key_id=key.id, aws_secret_access_key=secret or key.secret,
        )  # fmt: skip

    def refusal(sqs):
        with pytest.raises(ClientError) as refused:
            sqs.send_message(QueueUrl=url, MessageBody="x")
        return refused.value.response["Error"]["Code"]

    sqs = client("admin")
    url = sqs.get_queue_url(QueueName=TOPIC)["QueueUrl"]
    assert sqs.send_message(QueueUrl=url, MessageBody="hello")["MessageId"]
    assert refusal(client("unknown")) == "InvalidClientTokenId"
    assert refusal(client("admin", "wrong" * 8)) == "SignatureDoesNotMatch"
    assert refusal(client("nobody")) == DENIED
    assert client("only-send").send_message(QueueUrl=url, MessageBody="hello")["MessageId"]
