"""boto3 as a door: what the SQS protocol can express of the verbs of `quiver.Queue`.

Left out, because SQS has no word for it: priority and time to live of a message, several groups, replay and
seek, transactions, reasons, members, and a refusal of old receipts (its DeleteMessage says yes to those).
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

import quiver
from quiver import AsyncQueue
from quiver.client.flows import Flows
from quiver.client.local import LocalBroker
from quiver.node.shard import Shard
from quiver.testing import VirtualClock

BATCH = 10  # SQS takes and gives no more at once
PATIENCE_SECONDS = 30
MISSING = "AWS.SimpleQueueService.NonExistentQueue"


class SqsQueue:
    """Some verbs of `quiver.Queue`, said in SQS."""

    def __init__(self, url: str, close: Callable[[], None]) -> None:
        self._client = boto3.client(
            "sqs", endpoint_url=url, region_name="eu-central-1", aws_access_key_id="x",
            aws_secret_access_key="x", config=Config(retries={"total_max_attempts": 1}),
        )  # fmt: skip
        self._close = close
        self._fifo: set[str] = set()

    def close(self) -> None:
        self._client.close()
        self._close()

    def _url(self, topic: str) -> str:
        name = topic + ".fifo" if topic in self._fifo else topic
        try:
            return self._client.get_queue_url(QueueName=name)["QueueUrl"]
        except ClientError as error:
            if error.response["Error"]["Code"] == MISSING:
                raise quiver.TopicNotFound(str(error)) from None
            raise

    # -- topics

    def create_topic(
        self, topic: str, *, order: str = "none", max_attempts: int = 0, dead_letter: str = ""
    ) -> None:
        attributes = {}
        if order == "key":
            self._fifo.add(topic)
            attributes["FifoQueue"] = "true"
        if dead_letter:
            letters = self._client.create_queue(QueueName=dead_letter)["QueueUrl"]
            arn = self._attribute(letters, "QueueArn")
            attributes["RedrivePolicy"] = (
                f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "{max_attempts}"}}'
            )
        name = topic + ".fifo" if order == "key" else topic
        self._client.create_queue(QueueName=name, Attributes=attributes)

    def topics(self) -> list[str]:
        found = self._client.list_queues().get("QueueUrls", [])
        return sorted(url.rpartition("/")[2].removesuffix(".fifo") for url in found)

    def delete_topic(self, topic: str) -> None:
        self._client.delete_queue(QueueUrl=self._url(topic))

    def purge(self, topic: str) -> None:
        self._client.purge_queue(QueueUrl=self._url(topic))

    def depth(self, topic: str) -> int:
        url = self._url(topic)
        names = ("", "NotVisible", "Delayed")
        return sum(int(self._attribute(url, f"ApproximateNumberOfMessages{n}")) for n in names)

    def _attribute(self, url: str, name: str) -> str:
        found = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=[name])
        return found["Attributes"][name]

    # -- messages

    def send(self, topic: str, body: str, **given: Any) -> None:
        self._client.send_message(QueueUrl=self._url(topic), **self._message(topic, body, **given))

    def send_batch(self, topic: str, bodies: list[str]) -> None:
        for start in range(0, len(bodies), BATCH):
            entries = [
                {"Id": str(at), **self._message(topic, body)}
                for at, body in enumerate(bodies[start : start + BATCH])
            ]
            sent = self._client.send_message_batch(QueueUrl=self._url(topic), Entries=entries)
            assert not sent.get("Failed")

    def _message(
        self, topic: str, body: str, *, key: str | None = None,
        headers: dict[str, str] | None = None, delay: int = 0, dedup_id: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        made: dict[str, Any] = {"MessageBody": body}
        if topic in self._fifo:
            made["MessageGroupId"] = key
            made["MessageDeduplicationId"] = dedup_id or f"{key}/{body}"
        if delay:
            made["DelaySeconds"] = delay
        if headers:
            made["MessageAttributes"] = {
                name: {"DataType": "String", "StringValue": value}
                for name, value in headers.items()
            }
        return made

    def receive(
        self, topic: str, *, max_messages: int = 1, lease: int = 30, wait: int = 0
    ) -> list["SqsDelivery"]:
        url = self._url(topic)
        got = self._client.receive_message(
            QueueUrl=url, MaxNumberOfMessages=min(max_messages, BATCH), VisibilityTimeout=lease,
            WaitTimeSeconds=wait, MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )  # fmt: skip
        return [SqsDelivery(self._client, url, one) for one in got.get("Messages", [])]

    def ack(self, deliveries: list["SqsDelivery"]) -> None:
        entries = [
            {"Id": str(at), "ReceiptHandle": one.receipt} for at, one in enumerate(deliveries)
        ]
        done = self._client.delete_message_batch(QueueUrl=deliveries[0].url, Entries=entries)
        assert not done.get("Failed")

    def redrive(self, topic: str) -> None:
        arn = self._attribute(self._url(topic), "QueueArn")
        self._client.start_message_move_task(SourceArn=arn)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            found = self._client.list_message_move_tasks(SourceArn=arn)["Results"]
            if found[0]["Status"] == "COMPLETED":
                return
            time.sleep(0.02)
        raise AssertionError("the move does not end")


class SqsDelivery:
    """A message that is invisible to others for a while."""

    def __init__(self, client: Any, url: str, given: dict[str, Any]) -> None:
        self._client = client
        self.url = url
        self.receipt = given["ReceiptHandle"]
        self.body = given["Body"].encode()
        self.attempt = int(given["Attributes"]["ApproximateReceiveCount"])
        attributes = given.get("MessageAttributes", {})
        self.headers = {name: value["StringValue"] for name, value in attributes.items()}

    def ack(self) -> None:
        self._client.delete_message(QueueUrl=self.url, ReceiptHandle=self.receipt)

    def nack(self, *, delay: int = 0) -> None:
        self.extend(delay)

    def extend(self, lease: int) -> None:
        self._client.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=self.receipt, VisibilityTimeout=lease
        )


class SqsDoor:
    """boto3, of a node."""

    shard: Shard

    def open(self, path: Path, clock: VirtualClock, durability: Any = "disk") -> Any:
        from tests.contract.doors import NODE, open_shard

        self.shard, close_shard = open_shard(path, clock)
        NODE.serve(AsyncQueue(lambda _: (Flows(LocalBroker(self.shard), durability), close_shard)))
        return SqsQueue(NODE.url.replace("quiver:", "http:"), NODE.stop_serving)

    def end(self) -> None:
        pass
