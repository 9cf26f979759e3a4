"""One queue for every client: what one sends, any other receives, and Quiver too."""

import json
import xml.etree.ElementTree as ET

import pytest

from tests.clients.conftest import run_quiver

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(700)]

COLOUR = {"colour": {"DataType": "String", "StringValue": "grün"}}
PROGRAM = """
import * as aws from "@aws-sdk/client-sqs";
const sqs = new aws.SQSClient({});
const { QueueUrl } = await sqs.send(new aws.GetQueueUrlCommand({ QueueName: "jobs" }));
"""
SEND = """
const MessageAttributes = { colour: { DataType: "String", StringValue: "grün" } };
await sqs.send(new aws.SendMessageCommand({ QueueUrl, MessageBody: "Node", MessageAttributes }));
"""
RECEIVE = """
const { Messages } = await sqs.send(new aws.ReceiveMessageCommand({ QueueUrl }));
console.log(Messages[0].Body);
"""


def test_what_one_sends_every_other_receives(aws, javascript, curl, sqs, node, tmp_path):
    address = ("--data", f"quiver://127.0.0.1:{node.port}")

    def node_program(code: str) -> str:
        program = tmp_path / "jobs.mjs"
        program.write_text(PROGRAM + code)
        return javascript(program).strip()

    url = sqs.create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="boto3", MessageAttributes=COLOUR)
    aws("send-message", queue_url=url, message_body="AWS CLI", message_attributes=COLOUR)
    node_program(SEND)
    fields = ("Name=colour", "Value.DataType=String", "Value.StringValue=grün")
    attribute = [part for f in fields for part in ("--data-urlencode", f"MessageAttribute.1.{f}")]
    curl(url, "--data", "Action=SendMessage&MessageBody=curl", *attribute)
    run_quiver("send", "jobs", "Quiver", "--header", "colour=grün", *address)

    everything = {"boto3", "AWS CLI", "Node", "curl", "Quiver"}
    lines = run_quiver("receive", "jobs", "--group", "audit", "--max", "10", "--json", *address)
    audited = [json.loads(line) for line in lines.splitlines()]
    assert {message["body"] for message in audited} == everything
    assert {message["headers"]["colour"] for message in audited} == {"grün"}

    got = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"][0]
    assert got["MessageAttributes"] == COLOUR
    _, page = curl(url, "--data", "Action=ReceiveMessage")
    name = ".//{http://queue.amazonaws.com/doc/2012-11-05/}Body"
    received = {
        got["Body"],
        aws("receive-message", queue_url=url)["Messages"][0]["Body"],
        node_program(RECEIVE),
        ET.fromstring(page).findtext(name),
        json.loads(run_quiver("receive", "jobs", "--json", *address))["body"],
    }
    assert received == everything  # they share the group "default": each got another one
