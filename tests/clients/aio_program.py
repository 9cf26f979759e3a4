"""What aiobotocore does with a node, many things at a time; prints as JSON what it found.

This runs in aiobotocore's own environment; endpoint, region and keys are in the variables.
"""

import asyncio
import json

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

SENDERS, CONSUMERS, EACH = 10, 20, 30


async def main() -> None:
    found: dict[str, object] = {}
    connections = AioConfig(max_pool_connections=SENDERS + CONSUMERS)  # all may wait at once
    async with get_session().create_client("sqs", config=connections) as sqs:
        url = (await sqs.create_queue(QueueName="jobs"))["QueueUrl"]
        done: set[str] = set()
        consumers = [asyncio.create_task(consume(sqs, url, done)) for _ in range(CONSUMERS)]
        await asyncio.gather(*(send(sqs, url, sender) for sender in range(SENDERS)))
        await asyncio.gather(*consumers)
        found["done"] = sorted(done)
        attributes = await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        found["left"] = attributes["Attributes"]["ApproximateNumberOfMessages"]

        names = [f"many-{number}" for number in range(7)]
        await asyncio.gather(*(sqs.create_queue(QueueName=name) for name in names))
        pages = sqs.get_paginator("list_queues").paginate(
            QueueNamePrefix="many-", PaginationConfig={"PageSize": 3}
        )
        found["pages"] = [len(page["QueueUrls"]) async for page in pages]
        try:
            await sqs.get_queue_url(QueueName="nowhere")
        except sqs.exceptions.QueueDoesNotExist as error:
            found["refused"] = error.response["Error"]["Code"]
    print(json.dumps(found))


async def send(sqs, url: str, sender: int) -> None:
    for number in range(EACH):
        await sqs.send_message(QueueUrl=url, MessageBody=f"{sender}/{number}")


async def consume(sqs, url: str, done: set[str]) -> None:
    """Receive and delete until everything has been seen by somebody."""
    while len(done) < SENDERS * EACH:
        answer = await sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        for message in answer.get("Messages", ()):
            handle = message["ReceiptHandle"]
            await sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
            done.add(message["Body"])


asyncio.run(main())
