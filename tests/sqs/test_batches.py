"""Ten at a time: what succeeds beside what fails, and what refuses the whole."""

from typing import Any

import pytest

from tests.sqs.faults import refused

covers = pytest.mark.covers
SERVICE = "AWS.SimpleQueueService."


@covers("SendMessageBatch")
def test_messages_are_sent_in_order_and_failures_stand_beside(sqs, url):
    attributes = {"n": {"DataType": "Number", "StringValue": "1"}}
    answer = sqs.send_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "one", "MessageBody": "1", "MessageAttributes": attributes},
            {"Id": "bad", "MessageBody": "x\x00"},
            {"Id": "two", "MessageBody": "2"},
            {"Id": "late", "MessageBody": "3", "DelaySeconds": 901},
            {"Id": "none", "MessageBody": ""},
        ],
    )
    assert [entry["Id"] for entry in answer["Successful"]] == ["one", "two"]
    assert set(answer["Successful"][0]) == {
        "Id", "MessageId", "MD5OfMessageBody", "MD5OfMessageAttributes",
    }  # fmt: skip
    assert [(entry["Id"], entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]] == [
        ("bad", "InvalidMessageContents", True),
        ("late", "InvalidParameterValue", True),
        ("none", "MissingParameter", True),
    ]
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in got] == ["1", "2"]


def test_an_empty_list_is_left_out_of_sends_only(sqs, url):
    answer = sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "x"}])
    assert "Failed" not in answer
    answer = sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "\x00"}])
    assert "Successful" not in answer
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=[{"Id": "a", "ReceiptHandle": "junk"}])
    assert answer["Successful"] == []
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    entry = {"Id": "a", "ReceiptHandle": message["ReceiptHandle"]}
    answer = sqs.change_message_visibility_batch(
        QueueUrl=url, Entries=[{**entry, "VisibilityTimeout": 60}]
    )
    assert answer["Failed"] == []
    assert sqs.delete_message_batch(QueueUrl=url, Entries=[entry])["Failed"] == []


def test_fifo_batches(sqs, fifo_url):
    entries = [
        {"Id": str(at), "MessageBody": str(at), "MessageGroupId": "g",
         "MessageDeduplicationId": str(at // 2)}
        for at in range(6)
    ]  # fmt: skip
    for entry, text in (
        (
            {"MessageDeduplicationId": "u"},
            "The request must contain the parameter MessageGroupId.",
        ),
        (
            {"MessageGroupId": "g"},
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly",
        ),
    ):
        with refused("InvalidParameterValue", text):
            sqs.send_message_batch(
                QueueUrl=fifo_url, Entries=[*entries, {"Id": "bad", "MessageBody": "x", **entry}]
            )
    entries.append(
        {"Id": "bad", "MessageBody": "x", "MessageGroupId": " ", "MessageDeduplicationId": "d"}
    )
    answer = sqs.send_message_batch(QueueUrl=fifo_url, Entries=entries)
    ids = [entry["MessageId"] for entry in answer["Successful"]]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert all(len(entry["SequenceNumber"]) == 20 for entry in answer["Successful"])
    assert [(entry["Id"], entry["Code"]) for entry in answer["Failed"]] == [
        ("bad", "InvalidParameterValue")
    ]
    got = sqs.receive_message(QueueUrl=fifo_url, MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in got] == ["0", "2", "4"]


def call(sqs, action, url, entries):
    return getattr(sqs, action)(QueueUrl=url, Entries=entries)


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "send_message_batch": ("SendMessageBatchRequestEntry", {"MessageBody": "x"}),
    "delete_message_batch": ("DeleteMessageBatchRequestEntry", {"ReceiptHandle": "x"}),
    "change_message_visibility_batch": (
        "ChangeMessageVisibilityBatchRequestEntry", {"ReceiptHandle": "x", "VisibilityTimeout": 1},
    ),
}  # fmt: skip


@covers("EmptyBatchRequest", "TooManyEntriesInBatchRequest", "InvalidBatchEntryId",
        "BatchEntryIdsNotDistinct")  # fmt: skip
@pytest.mark.parametrize("action", KINDS)
def test_batches_that_are_refused_whole(sqs, url, action):
    kind, entry = KINDS[action]
    text = f"There should be at least one {kind} in the request."
    with refused(SERVICE + "EmptyBatchRequest", text, shape="EmptyBatchRequest"):
        call(sqs, action, url, [])
    text = "Maximum number of entries per request are 10. You have sent 11."
    with refused(SERVICE + "TooManyEntriesInBatchRequest", text):
        call(sqs, action, url, [{"Id": str(at), **entry} for at in range(11)])
    text = (
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
        "It can be at most 80 letters long."
    )
    for bad in ("", "a.b", "x" * 81, "ü"):
        with refused(SERVICE + "InvalidBatchEntryId", text):
            call(sqs, action, url, [{"Id": "good", **entry}, {"Id": bad, **entry}])
    with refused(SERVICE + "BatchEntryIdsNotDistinct", "Id twin repeated."):
        call(sqs, action, url, [{"Id": "twin", **entry}, {"Id": "twin", **entry}])
    with refused("MissingParameter"):
        call(sqs, action, url, [entry])
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


@covers("BatchRequestTooLong")
def test_a_batch_may_have_a_mebibyte(sqs, make):
    url = make()
    half = "x" * 524_288
    entries = [{"Id": "a", "MessageBody": half}, {"Id": "b", "MessageBody": half}]
    assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 2
    entries[1]["MessageBody"] += "x"
    text = "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes."
    with refused(SERVICE + "BatchRequestTooLong", text):
        sqs.send_message_batch(QueueUrl=url, Entries=entries)


def test_one_message_that_is_too_long_for_the_queue_fails_alone(sqs, make):
    url = make(MaximumMessageSize="1024")
    answer = sqs.send_message_batch(
        QueueUrl=url,
        Entries=[{"Id": "a", "MessageBody": "x"}, {"Id": "b", "MessageBody": "x" * 1025}],
    )
    assert [entry["Id"] for entry in answer["Successful"]] == ["a"]
    assert answer["Failed"] == [
        {
            "Id": "b", "SenderFault": True, "Code": "InvalidParameterValue",
            "Message": "One or more parameters cannot be validated. Reason: Message must be shorter "
                       "than 1024 bytes.",
        }
    ]  # fmt: skip


@covers("DeleteMessageBatch", "ChangeMessageVisibilityBatch")
def test_deleting_and_changing_many(sqs, url):
    for body in "abcd":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    receipts = [message["ReceiptHandle"] for message in got]
    answer = sqs.change_message_visibility_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "back", "ReceiptHandle": receipts[0], "VisibilityTimeout": 0},
            {"Id": "longer", "ReceiptHandle": receipts[1], "VisibilityTimeout": 900},
            {"Id": "junk", "ReceiptHandle": "junk", "VisibilityTimeout": 1},
            {"Id": "never", "ReceiptHandle": receipts[2], "VisibilityTimeout": 99_999},
        ],
    )
    assert answer["Successful"] == [{"Id": "back"}, {"Id": "longer"}]
    assert {entry["Id"]: entry["Code"] for entry in answer["Failed"]} == {
        "junk": "ReceiptHandleIsInvalid", "never": "InvalidParameterValue",
    }  # fmt: skip
    (again,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert again["Body"] == "a"
    answer = sqs.delete_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "1", "ReceiptHandle": again["ReceiptHandle"]},
            {"Id": "2", "ReceiptHandle": receipts[1]},
            {"Id": "junk", "ReceiptHandle": "junk"},
            {"Id": "none", "ReceiptHandle": ""},
        ],
    )
    assert answer["Successful"] == [{"Id": "1"}, {"Id": "2"}]
    assert {entry["Id"]: entry["Code"] for entry in answer["Failed"]} == {
        "junk": "ReceiptHandleIsInvalid", "none": "MissingParameter",
    }  # fmt: skip
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert found["ApproximateNumberOfMessages"] == "0"
    assert found["ApproximateNumberOfMessagesNotVisible"] == "2"
