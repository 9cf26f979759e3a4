"""Node.js: the AWS SDK for JavaScript, and sqs-consumer on top of it."""

import json
from pathlib import Path

import pytest

from tests.clients import environments

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(700)]

EXAMPLE = environments.ROOT / "examples" / "node"


@pytest.mark.parametrize("signed", [False, True], indirect=True)
def test_the_sdk(javascript, node):
    found = json.loads(javascript(Path(__file__).with_name("program.mjs")))
    assert found["url"].startswith(f"{node.url}/")
    assert found["message"] == {
        "same": True,
        "body": "Grüße €",
        "colour": "grün",
        "weight": "1.50",
        "photo": [0, 1, 255],
        "attempts": "1",
    }
    assert found["tags"] == {"team": "blue"}
    assert found["awaited"] == "awaited"
    assert found["bodies"] == 200
    assert found["left"]["VisibilityTimeout"] == "30"
    assert found["left"]["MessageRetentionPeriod"] == "86400"
    for kind in ("", "NotVisible", "Delayed"):
        assert found["left"][f"ApproximateNumberOfMessages{kind}"] == "0"
    assert found["ordered"] == ["a", "b", "c"]
    assert found["pages"] == [2, 2, 1]
    assert found["refusals"] == {
        "QueueDoesNotExist": 400,
        "ReceiptHandleIsInvalid": 404,
        "EmptyBatchRequest": 400,
    }


def test_the_example(javascript, sqs):
    """`examples/node/orders.mjs`: sqs-consumer works off what the SDK sent."""
    said = javascript(EXAMPLE / "orders.mjs").splitlines()
    assert said[-1] == "10 orders done"
    assert sorted(said[:-1]) == [f"order {n} for Zürich" for n in range(10)]
    url = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
    left = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert left["ApproximateNumberOfMessages"] == "0"
    assert left["ApproximateNumberOfMessagesNotVisible"] == "0"
