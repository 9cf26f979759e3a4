"""FIFO queues: groups, order, duplicates, and repeated receives."""

import time

import pytest

from tests.sqs.faults import refused

covers = pytest.mark.covers


def send(sqs, url, body, group="g", dedup=None, **options):
    extra = {} if dedup is False else {"MessageDeduplicationId": dedup or f"{group}-{body}"}
    return sqs.send_message(
        QueueUrl=url, MessageBody=body, MessageGroupId=group, **extra, **options
    )


def receive(sqs, url, count=10, **options):
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=count, **options).get(
        "Messages", []
    )


def bodies(messages):
    return [message["Body"] for message in messages]


def delete(sqs, url, *messages):
    for message in messages:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def give_back(sqs, url, message, after=0):
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=after
    )


@covers("MessageGroupId", "MessageDeduplicationId", "SequenceNumber")
def test_ids_and_sequence_numbers(sqs, fifo_url):
    first = send(sqs, fifo_url, "a", dedup="d1")
    second = send(sqs, fifo_url, "b", dedup="d2")
    assert len(first["SequenceNumber"]) == len(second["SequenceNumber"]) == 20
    assert int(first["SequenceNumber"]) < int(second["SequenceNumber"])
    got = receive(sqs, fifo_url, AttributeNames=["All"])
    assert bodies(got) == ["a", "b"]
    assert got[0]["Attributes"]["MessageGroupId"] == "g"
    assert got[0]["Attributes"]["MessageDeduplicationId"] == "d1"
    assert got[0]["Attributes"]["SequenceNumber"] == first["SequenceNumber"]


def test_a_batch_is_filled_from_one_group_before_the_next(sqs, fifo_url):
    for body, group in (
        ("a1", "a"),
        ("b1", "b"),
        ("a2", "a"),
        ("c1", "c"),
        ("b2", "b"),
        ("a3", "a"),
    ):
        send(sqs, fifo_url, body, group)
    assert bodies(receive(sqs, fifo_url, 4)) == ["a1", "a2", "a3", "b1"]
    assert bodies(receive(sqs, fifo_url, 4)) == ["c1"]
    assert not receive(sqs, fifo_url)


def test_a_group_with_a_message_in_flight_is_hidden_whole(sqs, fifo_url):
    for body in ("1", "2", "3", "4"):
        send(sqs, fifo_url, body)
    first, second = receive(sqs, fifo_url, 2)
    assert not receive(sqs, fifo_url)
    delete(sqs, fifo_url, first)
    assert not receive(sqs, fifo_url), "the second is still in flight"
    delete(sqs, fifo_url, second)
    assert bodies(receive(sqs, fifo_url)) == ["3", "4"]


def test_what_is_given_back_comes_again_unless_an_older_one_is_in_flight(sqs, fifo_url):
    for body in ("1", "2", "3", "4", "5"):
        send(sqs, fifo_url, body)
    first, second, third = receive(sqs, fifo_url, 3)
    give_back(sqs, fifo_url, second)
    assert not receive(sqs, fifo_url), "the first is still in flight"
    give_back(sqs, fifo_url, first)
    again = receive(sqs, fifo_url)
    assert bodies(again) == ["1", "2"], "those behind the third wait for it"
    delete(sqs, fifo_url, third)
    assert not receive(sqs, fifo_url)
    delete(sqs, fifo_url, *again)
    assert bodies(receive(sqs, fifo_url)) == ["4", "5"]


def test_what_times_out_comes_again_before_those_that_are_in_flight(sqs, fifo_url):
    for body in ("1", "2", "3"):
        send(sqs, fifo_url, body)
    first, second = receive(sqs, fifo_url, 2)
    give_back(sqs, fifo_url, first, after=1)
    (again,) = receive(sqs, fifo_url, WaitTimeSeconds=5)
    assert again["Body"] == "1"
    delete(sqs, fifo_url, second)
    assert not receive(sqs, fifo_url)
    delete(sqs, fifo_url, again)
    assert bodies(receive(sqs, fifo_url)) == ["3"]


def test_what_times_out_frees_its_group_in_order(sqs, fifo_url):
    for body in ("1", "2", "3"):
        send(sqs, fifo_url, body)
    assert bodies(receive(sqs, fifo_url, 2, VisibilityTimeout=1)) == ["1", "2"]
    assert bodies(receive(sqs, fifo_url, WaitTimeSeconds=5)) == ["1", "2", "3"]


def test_what_is_given_back_frees_its_group(sqs, fifo_url):
    for body in ("1", "2"):
        send(sqs, fifo_url, body)
    (got,) = receive(sqs, fifo_url, 1)
    give_back(sqs, fifo_url, got)
    assert bodies(receive(sqs, fifo_url)) == ["1", "2"]


@covers("ContentBasedDeduplication")
def test_duplicates_are_stored_once_also_after_delete(sqs, make):
    url = make(fifo=True, ContentBasedDeduplication="true")
    first = send(sqs, url, "same", dedup=False)
    again = send(sqs, url, "same", dedup=False)
    assert again["MessageId"] == first["MessageId"]
    assert again["SequenceNumber"] == first["SequenceNumber"]
    (got,) = receive(sqs, url, AttributeNames=["All"])
    assert got["Attributes"]["MessageDeduplicationId"] == (
        "0967115f2813a3541eaef77de9d9d5773f1c0c04314b0bbfe4ff3b3b1c55b5d5"
    )
    delete(sqs, url, got)
    send(sqs, url, "same", dedup=False)
    assert not receive(sqs, url)
    send(sqs, url, "same", dedup="another")
    assert bodies(receive(sqs, url)) == ["same"]


def test_duplicates_are_looked_for_in_the_whole_queue(sqs, fifo_url):
    send(sqs, fifo_url, "1", "a", dedup="d")
    send(sqs, fifo_url, "2", "b", dedup="d")
    assert bodies(receive(sqs, fifo_url)) == ["1"]


@covers("DeduplicationScope", "FifoThroughputLimit")
def test_or_in_each_group_if_it_was_made_so(sqs, make):
    url = make(
        fifo=True, DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId"
    )
    send(sqs, url, "1", "a", dedup="d")
    send(sqs, url, "2", "b", dedup="d")
    send(sqs, url, "3", "b", dedup="d")
    got = receive(sqs, url, AttributeNames=["All"])
    assert bodies(got) == ["1", "2"]
    assert [message["Attributes"]["MessageDeduplicationId"] for message in got] == ["d", "d"]


def test_the_scope_is_that_of_the_making(sqs, fifo_url):
    sqs.set_queue_attributes(
        QueueUrl=fifo_url,
        Attributes={
            "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId",
        },
    )  # fmt: skip
    send(sqs, fifo_url, "1", "a", dedup="d")
    send(sqs, fifo_url, "2", "b", dedup="d")
    assert bodies(receive(sqs, fifo_url)) == ["1"]


def test_content_based_deduplication_can_be_switched(sqs, fifo_url):
    text = (
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
        "provided explicitly"
    )
    with refused("InvalidParameterValue", text):
        send(sqs, fifo_url, "x", dedup=False)
    sqs.set_queue_attributes(QueueUrl=fifo_url, Attributes={"ContentBasedDeduplication": "true"})
    send(sqs, fifo_url, "x", dedup=False)
    assert bodies(receive(sqs, fifo_url)) == ["x"]


def test_a_purge_forgets_duplicates(sqs, fifo_url):
    send(sqs, fifo_url, "x", dedup="d")
    sqs.purge_queue(QueueUrl=fifo_url)
    send(sqs, fifo_url, "x", dedup="d")
    send(sqs, fifo_url, "x", dedup="d")
    assert bodies(receive(sqs, fifo_url)) == ["x"]


def test_what_fifo_needs_and_standard_does_not_take(sqs, url, fifo_url):
    with refused("MissingParameter", "The request must contain the parameter MessageGroupId."):
        sqs.send_message(QueueUrl=fifo_url, MessageBody="x", MessageDeduplicationId="d")
    for parameter in ("MessageGroupId", "MessageDeduplicationId"):
        ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d", parameter: "with space"}
        text = (
            f"Value with space for parameter {parameter} is invalid. Reason: {parameter} can only "
            "include alphanumeric and punctuation characters. 1 to 128 in length."
        )
        with refused("InvalidParameterValue", text):
            sqs.send_message(QueueUrl=fifo_url, MessageBody="x", **ids)
        ids[parameter] = "x" * 129
        with refused("InvalidParameterValue"):
            sqs.send_message(QueueUrl=fifo_url, MessageBody="x", **ids)
    wrong = "Reason: The request include parameter that is not valid for this queue type."
    with refused(
        "InvalidParameterValue", f"Value d for parameter MessageDeduplicationId is invalid. {wrong}"
    ):
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageDeduplicationId="d")
    with refused(
        "InvalidParameterValue", f"Value 1 for parameter DelaySeconds is invalid. {wrong}"
    ):
        send(sqs, fifo_url, "x", DelaySeconds=1)
    send(sqs, fifo_url, "x", DelaySeconds=0)


def test_a_standard_queue_takes_a_group_too(sqs, url):
    for body in "ab":
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="tenant")
    got = receive(sqs, url, AttributeNames=["MessageGroupId"])
    assert bodies(got) == ["a", "b"]
    assert got[0]["Attributes"] == {"MessageGroupId": "tenant"}


def test_a_delay_of_the_queue(sqs, make):
    url = make(fifo=True, DelaySeconds="1")
    started = time.monotonic()
    send(sqs, url, "1")
    send(sqs, url, "2")
    got = receive(sqs, url, 1, WaitTimeSeconds=20)
    assert time.monotonic() - started > 0.9
    delete(sqs, url, *got)
    assert bodies(got + receive(sqs, url, WaitTimeSeconds=20)) == ["1", "2"]


def test_an_expired_receipt_is_an_error(sqs, fifo_url):
    send(sqs, fifo_url, "x")
    (got,) = receive(sqs, fifo_url, VisibilityTimeout=0)
    receipt = got["ReceiptHandle"]
    reason = "The receipt handle has expired."
    text = f"Value {receipt} for parameter ReceiptHandle is invalid. Reason: {reason}"
    with refused("InvalidParameterValue", text):
        sqs.delete_message(QueueUrl=fifo_url, ReceiptHandle=receipt)
    (again,) = receive(sqs, fifo_url)
    with refused("InvalidParameterValue", text):
        sqs.delete_message(QueueUrl=fifo_url, ReceiptHandle=receipt)
    send(sqs, fifo_url, "y", "other")
    (other,) = receive(sqs, fifo_url)
    answer = sqs.delete_message_batch(
        QueueUrl=fifo_url,
        Entries=[
            {"Id": "old", "ReceiptHandle": receipt},
            {"Id": "new", "ReceiptHandle": other["ReceiptHandle"]},
        ],
    )
    assert answer["Successful"] == [{"Id": "new"}]
    assert [(entry["Id"], entry["Message"]) for entry in answer["Failed"]] == [("old", text)]
    delete(sqs, fifo_url, again, again)  # a second time does no harm


def test_a_receive_can_be_repeated(sqs, fifo_url):
    for body in ("1", "2", "3"):
        send(sqs, fifo_url, body)
    first = receive(sqs, fifo_url, 2, ReceiveRequestAttemptId="try")
    assert bodies(first) == ["1", "2"]
    assert receive(sqs, fifo_url, 2, ReceiveRequestAttemptId="try") == first
    assert not receive(sqs, fifo_url, 2, ReceiveRequestAttemptId="another")
    delete(sqs, fifo_url, first[0])
    assert not receive(sqs, fifo_url, 2, ReceiveRequestAttemptId="try"), "it was touched"
    delete(sqs, fifo_url, first[1])
    assert bodies(receive(sqs, fifo_url, 2, ReceiveRequestAttemptId="try")) == ["3"]


def test_a_repeated_receive_ends_when_visibility_changes(sqs, fifo_url):
    send(sqs, fifo_url, "1")
    (first,) = receive(sqs, fifo_url, 2, ReceiveRequestAttemptId="try")
    sqs.change_message_visibility(
        QueueUrl=fifo_url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=60
    )
    assert not receive(sqs, fifo_url, 2, ReceiveRequestAttemptId="try")
    with refused("InvalidParameterValue"):
        receive(sqs, fifo_url, 2, ReceiveRequestAttemptId="with space")


def test_what_was_not_hidden_is_not_repeated(sqs, fifo_url):
    send(sqs, fifo_url, "1")
    (first,) = receive(sqs, fifo_url, 2, ReceiveRequestAttemptId="try", VisibilityTimeout=0)
    (second,) = receive(sqs, fifo_url, 2, ReceiveRequestAttemptId="try")
    assert first["MessageId"] == second["MessageId"]
    assert first["ReceiptHandle"] != second["ReceiptHandle"]


def test_counts_of_a_group_that_is_hidden(sqs, fifo_url):
    for body in ("1", "2", "3"):
        send(sqs, fifo_url, body)
    receive(sqs, fifo_url, 1)
    found = sqs.get_queue_attributes(QueueUrl=fifo_url, AttributeNames=["All"])["Attributes"]
    assert found["ApproximateNumberOfMessages"] == "2"
    assert found["ApproximateNumberOfMessagesNotVisible"] == "1"
