"""boto3: resources, paginators, threads, and a node that crashes under it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

pytestmark = pytest.mark.process

SENDERS = 4
KILLS = 3
PATIENCE = 60.0  # seconds until everything that was confirmed must have come


@pytest.fixture
def options(node, keys):
    """What a session's clients and resources are made with."""
    return {
        "endpoint_url": node.url,
        "region_name": "eu-central-1",
        "aws_access_key_id": keys.id,
        "aws_secret_access_key": keys.secret,
        "config": Config(retries={"mode": "standard", "total_max_attempts": 10}),
    }


def test_resources(options):
    sqs = boto3.resource("sqs", **options)
    queue = sqs.create_queue(QueueName="jobs", Attributes={"DelaySeconds": "0"})
    queue.send_message(
        MessageBody="hello",
        MessageAttributes={"colour": {"DataType": "String", "StringValue": "green"}},
    )
    (message,) = queue.receive_messages(WaitTimeSeconds=5, MessageAttributeNames=["col*"])
    assert message.body == "hello"
    assert message.message_attributes["colour"]["StringValue"] == "green"
    message.change_visibility(VisibilityTimeout=60)
    queue.load()
    assert queue.attributes["ApproximateNumberOfMessagesNotVisible"] == "1"
    message.delete()
    assert [found.url for found in sqs.queues.filter(QueueNamePrefix="jo")] == [queue.url]
    assert sqs.get_queue_by_name(QueueName="jobs").url == queue.url
    queue.delete()
    sqs.meta.client.close()


@pytest.mark.slow
def test_what_was_confirmed_outlives_crashes_of_the_node(node, options):
    """Threads send while the node is killed again and again; boto3 tries again by itself."""
    sqs = boto3.client("sqs", **options)
    url = sqs.create_queue(QueueName="jobs")["QueueUrl"]
    confirmed: set[str] = set()
    ended = threading.Event()

    def send(sender: int) -> None:
        number = 0
        while not ended.is_set():
            body = f"{sender}/{number}"
            number += 1
            try:
                sqs.send_message(QueueUrl=url, MessageBody=body)
            except (
                BotoCoreError,
                ClientError,
            ):  # ten attempts did not do: nobody promised anything
                continue
            confirmed.add(body)

    with ThreadPoolExecutor(SENDERS) as threads:
        senders = [threads.submit(send, sender) for sender in range(SENDERS)]
        try:
            for kills in range(KILLS):
                wait_until(lambda kills=kills: len(confirmed) >= 100 * (kills + 1))
                node.kill()
                node.restart()
            wait_until(lambda: len(confirmed) >= 100 * (KILLS + 1))
        finally:
            ended.set()
    for sender in senders:
        sender.result()

    found: set[str] = set()
    while got := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        found |= {message["Body"] for message in got}
        handles = [{"Id": m["MessageId"], "ReceiptHandle": m["ReceiptHandle"]} for m in got]
        deleted = sqs.delete_message_batch(QueueUrl=url, Entries=handles)
        assert deleted.get("Failed", []) == []
    sqs.close()
    assert confirmed <= found


def wait_until(true) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
