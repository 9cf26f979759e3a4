"""curl: the SQS protocols by hand, and the node's own API."""

import json
import subprocess
import xml.etree.ElementTree as ET
from hashlib import md5
from typing import Any

import pytest

from tests.clients import environments
from tests.clients.conftest import SECONDS_MAX

pytestmark = [pytest.mark.slow, pytest.mark.process]

NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


def test_the_query_protocol(curl, node):
    def ask(url: str, *form: str) -> ET.Element:
        options = [part for pair in form for part in ("--data-urlencode", pair)]
        status, body = curl(url, *options, "--data", "Version=2012-11-05")
        assert status == 200, body
        return ET.fromstring(body)

    made = ask(node.url, "Action=CreateQueue", "QueueName=jobs")
    assert made.tag == f"{NAMESPACE}CreateQueueResponse"
    url = made.findtext(f".//{NAMESPACE}QueueUrl")
    assert url is not None
    sent = ask(
        url, "Action=SendMessage", "MessageBody=a & b < c €",
        "MessageAttribute.1.Name=shop", "MessageAttribute.1.Value.DataType=String",
        "MessageAttribute.1.Value.StringValue=Zürich",
    )  # fmt: skip
    digest = md5("a & b < c €".encode(), usedforsecurity=False).hexdigest()
    assert sent.findtext(f".//{NAMESPACE}MD5OfMessageBody") == digest
    got = ask(url, "Action=ReceiveMessage", "WaitTimeSeconds=5", "MessageAttributeName.1=All")
    assert got.findtext(f".//{NAMESPACE}Body") == "a & b < c €"
    assert got.findtext(f".//{NAMESPACE}MessageAttribute/{NAMESPACE}Name") == "shop"
    assert got.findtext(f".//{NAMESPACE}StringValue") == "Zürich"
    handle = got.findtext(f".//{NAMESPACE}ReceiptHandle")
    ask(url, "Action=DeleteMessage", f"ReceiptHandle={handle}")
    again = ask(url, "Action=ReceiveMessage", "VisibilityTimeout=0")
    assert again.find(f".//{NAMESPACE}Message") is None


def test_the_query_protocol_by_get(curl, node):
    status, body = curl("--get", node.url, "--data", "Action=CreateQueue&QueueName=jobs")
    assert status == 200, body
    url = ET.fromstring(body).findtext(f".//{NAMESPACE}QueueUrl")
    assert url is not None
    status, body = curl("--get", url, "--data", "Action=SendMessage&MessageBody=hello")
    assert status == 200, body
    status, body = curl("--get", url, "--data", "Action=ReceiveMessage")
    assert ET.fromstring(body).findtext(f".//{NAMESPACE}Body") == "hello"
    status, body = curl("--get", node.url, "--data", "Action=GetQueueUrl&QueueName=nowhere")
    assert status == 400
    code = ET.fromstring(body).findtext(f".//{NAMESPACE}Code")
    assert code == "AWS.SimpleQueueService.NonExistentQueue"


def test_the_json_protocol(curl, node):
    def ask(action: str, **what: object) -> tuple[int, dict]:
        status, body = curl(
            node.url,
            "--header", f"X-Amz-Target: AmazonSQS.{action}",
            "--header", "Content-Type: application/x-amz-json-1.0",
            "--data-binary", "@-",
            given=json.dumps(what),
        )  # fmt: skip
        return status, json.loads(body) if body else {}

    status, made = ask("CreateQueue", QueueName="jobs")
    assert status == 200
    url = made["QueueUrl"]
    for body in ("plain", "\U0001f3f9 and 'quotes' and \"more\" and \t tab"):
        ask("SendMessage", QueueUrl=url, MessageBody=body)
        status, got = ask("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=5)
        assert [message["Body"] for message in got["Messages"]] == [body]
        handle = got["Messages"][0]["ReceiptHandle"]
        assert ask("DeleteMessage", QueueUrl=url, ReceiptHandle=handle) == (200, {})
    status, error = ask("SendMessage", QueueUrl=url, MessageBody="")
    assert status == 400
    assert "message" in error
    status, error = ask("DoMagic")
    assert status == 400
    status, error = ask("GetQueueUrl", QueueName="nowhere")
    assert (status, error["__type"]) == (400, "com.amazonaws.sqs#QueueDoesNotExist")


def test_the_api_of_the_node(curl, node):
    def ask(method: str, path: str, what: object = None, *args: str) -> tuple[int, Any]:
        given = ["--json", json.dumps(what)] if what is not None else []
        status, body = curl("--request", method, *given, *args, f"{node.url}{path}")
        return status, json.loads(body) if body else None

    status, topic = ask("PUT", "/v1/topics/orders", {"order": "key", "max_attempts": 3})
    assert (status, topic["policy"]["order"]) == (200, "key")
    status, _ = ask("POST", "/v1/topics/orders/messages", {"body": {"order": 1}, "key": "ann"})
    assert status == 200
    status, got = ask(
        "POST", "/v1/topics/orders/groups/billing/receive", {"max_messages": 10, "wait": "5s"}
    )
    assert [json.loads(message["body"]) for message in got["messages"]] == [{"order": 1}]
    receipts = [message["receipt"] for message in got["messages"]]
    assert ask("POST", "/v1/settle", {"action": "ack", "receipts": receipts}) == (200, {"count": 1})
    status, stats = ask("GET", "/v1/topics/orders/stats")
    assert stats["topic"] == "orders"
    status, problem = ask("GET", "/v1/topics/nowhere")
    assert (status, problem["code"]) == (404, "topic_not_found")


def test_sqs_and_the_api_share_a_queue(curl, node):
    curl(node.url, "--data", "Action=CreateQueue&QueueName=jobs")
    status, _ = curl(
        "--json", json.dumps({"body": "from Quiver"}), f"{node.url}/v1/topics/jobs/messages"
    )
    assert status == 200
    _, body = curl(f"{node.url}/000000000000/jobs", "--data", "Action=ReceiveMessage")
    assert ET.fromstring(body).findtext(f".//{NAMESPACE}Body") == "from Quiver"
    curl(f"{node.url}/000000000000/jobs", "--data", "Action=SendMessage&MessageBody=from+SQS")
    status, body = curl("--json", "{}", f"{node.url}/v1/topics/jobs/groups/audit/receive")
    assert json.loads(body)["messages"][0]["body"] == "from Quiver"  # a group of its own sees both


@pytest.mark.parametrize("signed", [True], indirect=True)
def test_curl_signs_by_itself(curl, node, keys):
    form = ("--data", "Action=CreateQueue&QueueName=jobs", node.url)
    sign = ("--aws-sigv4", "aws:amz:eu-central-1:sqs", "--user")
    assert curl(*sign, ":".join(keys), *form)[0] == 200
    assert curl(*sign, f"{keys.id}:wrong", *form)[0] == 403
    assert curl(*form)[0] == 403


def test_the_commands_of_the_page(node):
    """What docs/sqs.md shows, as a shell runs it."""
    page = (environments.ROOT / "docs" / "sqs.md").read_text()
    block = page.split("## curl")[1].split("```")[1]
    script = block.partition("\n")[2].replace("$ curl", f"{environments.program('curl')} --silent")
    done = subprocess.run(
        ["sh", "-e"], input=script.replace("127.0.0.1:7070", f"127.0.0.1:{node.port}"),
        capture_output=True, text=True, timeout=SECONDS_MAX, check=True,
    )  # fmt: skip
    received = json.loads(done.stdout.splitlines()[-1].rpartition("</SendMessageResponse>")[2])
    assert [message["Body"] for message in received["Messages"]] == ["a & b"]
