"""The AWS command line does every SQS action on a node."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(700)]


@pytest.mark.parametrize("signed", [False, True], indirect=True)
def test_a_message_from_its_sending_to_its_deletion(aws):
    url = aws("create-queue", queue_name="jobs", attributes={"VisibilityTimeout": "30"})["QueueUrl"]
    assert aws("get-queue-url", queue_name="jobs")["QueueUrl"] == url
    attributes = {
        "colour": {"DataType": "String", "StringValue": "grün"},
        "weight": {"DataType": "Number.float", "StringValue": "1.50"},
        "photo": {"DataType": "Binary", "BinaryValue": "raw"},
    }
    sent = aws("send-message", queue_url=url, message_body="Grüße €", message_attributes=attributes)
    got = aws(
        "receive-message", queue_url=url, wait_time_seconds="5",
        message_attribute_names=["All"], message_system_attribute_names=["All"],
    )["Messages"]  # fmt: skip
    assert [m["MessageId"] for m in got] == [sent["MessageId"]]
    assert got[0]["Body"] == "Grüße €"
    attributes["photo"]["BinaryValue"] = "cmF3"  # printed in base64
    assert got[0]["MessageAttributes"] == attributes
    assert got[0]["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert got[0]["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert got[0]["Attributes"]["ApproximateReceiveCount"] == "1"
    assert aws("receive-message", queue_url=url) is None  # it is in flight
    handle = got[0]["ReceiptHandle"]
    aws("change-message-visibility", queue_url=url, receipt_handle=handle, visibility_timeout="0")
    again = aws(
        "receive-message", queue_url=url, wait_time_seconds="5",
        attribute_names=["ApproximateReceiveCount"],
    )["Messages"]  # fmt: skip
    assert again[0]["Attributes"] == {"ApproximateReceiveCount": "2"}
    aws("delete-message", queue_url=url, receipt_handle=again[0]["ReceiptHandle"])
    assert counts(aws, url) == (0, 0, 0)


def test_batches(aws):
    url = aws("create-queue", queue_name="jobs")["QueueUrl"]
    entries = [{"Id": f"e{n}", "MessageBody": f"body {n}"} for n in range(9)]
    late = {"Id": "late", "MessageBody": "later", "DelaySeconds": 900}
    sent = aws("send-message-batch", queue_url=url, entries=[*entries, late])
    assert {entry["Id"] for entry in sent["Successful"]} == {*(e["Id"] for e in entries), "late"}
    assert counts(aws, url) == (9, 0, 1)
    got = aws("receive-message", queue_url=url, max_number_of_messages="10")["Messages"]
    assert sorted(m["Body"] for m in got) == [f"body {n}" for n in range(9)]
    handles = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(got)]
    changed = aws(
        "change-message-visibility-batch",
        queue_url=url,
        entries=[{**handle, "VisibilityTimeout": 0} for handle in handles[:4]],
    )
    assert len(changed["Successful"]) == 4
    assert counts(aws, url) == (4, 5, 1)
    deleted = aws(
        "delete-message-batch",
        queue_url=url,
        entries=[*handles[4:], {"Id": "odd", "ReceiptHandle": "nonsense"}],
    )
    assert len(deleted["Successful"]) == 5
    assert [(f["Id"], f["Code"]) for f in deleted["Failed"]] == [("odd", "ReceiptHandleIsInvalid")]
    aws("purge-queue", queue_url=url)
    assert counts(aws, url) == (0, 0, 0)


def test_a_fifo_queue(aws):
    url = aws(
        "create-queue",
        queue_name="jobs.fifo",
        attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"},
    )["QueueUrl"]
    for body in ("one", "two", "two", "three"):  # the second "two" is a duplicate
        aws("send-message", queue_url=url, message_body=body, message_group_id="g")
    got = aws(
        "receive-message", queue_url=url, max_number_of_messages="10", attribute_names=["All"]
    )["Messages"]
    assert [m["Body"] for m in got] == ["one", "two", "three"]
    assert {m["Attributes"]["MessageGroupId"] for m in got} == {"g"}
    numbers = [int(m["Attributes"]["SequenceNumber"]) for m in got]
    assert numbers == sorted(set(numbers))


def test_queues_their_attributes_tags_and_permissions(aws):
    urls = [aws("create-queue", queue_name=f"many-{n}")["QueueUrl"] for n in range(3)]
    aws("create-queue", queue_name="other")
    assert aws("list-queues", queue_name_prefix="many-")["QueueUrls"] == urls
    pages = aws("list-queues", page_size="1", queue_name_prefix="many-")["QueueUrls"]
    assert pages == urls
    url = urls[0]
    aws("set-queue-attributes", queue_url=url, attributes={"DelaySeconds": "7"})
    assert attributes_of(aws, url, "DelaySeconds") == {"DelaySeconds": "7"}
    aws("tag-queue", queue_url=url, tags={"team": "blue", "stage": "test"})
    aws("untag-queue", queue_url=url, tag_keys=["stage"])
    assert aws("list-queue-tags", queue_url=url) == {"Tags": {"team": "blue"}}
    aws(
        "add-permission", queue_url=url, label="readers",
        aws_account_ids=["123456789012"], actions=["ReceiveMessage"],
    )  # fmt: skip
    policy = json.loads(attributes_of(aws, url, "Policy")["Policy"])
    assert [statement["Sid"] for statement in policy["Statement"]] == ["readers"]
    aws("remove-permission", queue_url=url, label="readers")
    aws("delete-queue", queue_url=url)
    assert aws("list-queues", queue_name_prefix="many-")["QueueUrls"] == urls[1:]


def test_dead_letters_and_their_way_back(aws):
    dead = aws("create-queue", queue_name="dead")["QueueUrl"]
    arn = attributes_of(aws, dead, "QueueArn")["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = aws("create-queue", queue_name="jobs", attributes={"RedrivePolicy": policy})["QueueUrl"]
    sources = aws("list-dead-letter-source-queues", queue_url=dead)
    assert sources["queueUrls"] == [url]
    aws("send-message", queue_url=url, message_body="doomed")
    assert aws("receive-message", queue_url=url, visibility_timeout="0")["Messages"]
    assert aws("receive-message", queue_url=url) is None
    assert counts(aws, dead) == (1, 0, 0)
    task = aws("start-message-move-task", source_arn=arn)["TaskHandle"]
    back = aws("receive-message", queue_url=url, wait_time_seconds="20")["Messages"]
    assert [m["Body"] for m in back] == ["doomed"]
    tasks = aws("list-message-move-tasks", source_arn=arn)["Results"]
    assert tasks[0]["Status"] == "COMPLETED"
    assert tasks[0]["ApproximateNumberOfMessagesMoved"] == 1
    error = aws("cancel-message-move-task", task_handle=task, error=True)
    assert "(ResourceNotFoundException)" in error or "(UnsupportedOperation)" in error


def test_what_is_refused(aws):
    refused: dict[str, tuple[str, dict[str, Any]]] = {
        "AWS.SimpleQueueService.NonExistentQueue": ("get-queue-url", {"queue_name": "nowhere"}),
        "InvalidParameterValue": ("create-queue", {"queue_name": "with spaces"}),
        "InvalidAttributeName": ("create-queue", {"queue_name": "q", "attributes": {"Odd": "1"}}),
    }
    for code, (action, options) in refused.items():
        error = aws(action, error=True, **options)
        assert error.startswith(f"An error occurred ({code}) when calling the"), error
    url = aws("create-queue", queue_name="jobs")["QueueUrl"]
    error = aws("delete-message", queue_url=url, receipt_handle="nonsense", error=True)
    assert error.startswith("An error occurred (ReceiptHandleIsInvalid)"), error


@pytest.mark.parametrize("signed", [True], indirect=True)
def test_a_wrong_secret_is_refused(aws, settings):
    settings["AWS_SECRET_ACCESS_KEY"] = "wrong"
    assert "(SignatureDoesNotMatch)" in aws("list-queues", error=True)
    settings["AWS_ACCESS_KEY_ID"] = "nobody"
    assert "(InvalidClientTokenId)" in aws("list-queues", error=True)


def attributes_of(aws: Callable[..., Any], url: str, *names: str) -> dict[str, str]:
    found = aws("get-queue-attributes", queue_url=url, attribute_names=list(names))
    return found["Attributes"]


def counts(aws: Callable[..., Any], url: str) -> tuple[int, ...]:
    """Messages to be had, in flight and delayed."""
    found = attributes_of(aws, url, "All")
    kinds = ("", "NotVisible", "Delayed")
    return tuple(int(found[f"ApproximateNumberOfMessages{kind}"]) for kind in kinds)
