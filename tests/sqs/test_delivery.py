"""Visibility, delays, waiting, deleting, and the counts of all that."""

import json
import socket
import threading
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

import quiver
from quiver.node import receipts
from tests.server.nodes import start_node, until_waiting
from tests.sqs.conftest import client
from tests.sqs.faults import refused

covers = pytest.mark.covers
TEXT = "x"


def send(sqs, url, *bodies, **options):
    return [sqs.send_message(QueueUrl=url, MessageBody=body, **options) for body in bodies]


def receive(sqs, url, **options):
    return sqs.receive_message(QueueUrl=url, **options).get("Messages", [])


def counts(sqs, url):
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return tuple(
        int(found[f"ApproximateNumberOfMessages{kind}"]) for kind in ("", "NotVisible", "Delayed")
    )


@covers("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed", "DeleteMessage")  # fmt: skip
def test_counts_follow_messages_on_their_way(sqs, url):
    send(sqs, url, "a", "b", "c")
    send(sqs, url, "d", DelaySeconds=900)
    assert counts(sqs, url) == (3, 0, 1)
    got = receive(sqs, url, MaxNumberOfMessages=2)
    assert counts(sqs, url) == (1, 2, 1)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got[0]["ReceiptHandle"])
    assert counts(sqs, url) == (1, 1, 1)


def test_up_to_ten_at_a_time(sqs, url):
    send(sqs, url, *map(str, range(12)))
    assert len(receive(sqs, url)) == 1
    got = receive(sqs, url, MaxNumberOfMessages=10)
    assert [message["Body"] for message in got] == [str(at) for at in range(1, 11)]
    assert len(receive(sqs, url, MaxNumberOfMessages=10)) == 1


@covers("InvalidParameterValueException")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"MaxNumberOfMessages": 0}, "Must be between 1 and 10, if provided."),
        ({"MaxNumberOfMessages": 11}, "Must be between 1 and 10, if provided."),
        ({"WaitTimeSeconds": 21}, "Must be >= 0 and <= 20, if provided."),
        ({"WaitTimeSeconds": -1}, "Must be >= 0 and <= 20, if provided."),
        ({"VisibilityTimeout": 43201}, None),
        ({"VisibilityTimeout": -1}, None),
        ({"ReceiveRequestAttemptId": "a"}, None),
    ],
)  # fmt: skip
def test_receives_out_of_bounds_are_refused(sqs, url, options, reason):
    ((name, value),) = options.items()
    text = f"Value {value} for parameter {name} is invalid. Reason: {reason}" if reason else None
    with refused("InvalidParameterValue", text, shape="InvalidParameterValueException"):
        sqs.receive_message(QueueUrl=url, **options)


def test_what_is_received_is_hidden_until_its_visibility_ends(sqs, make):
    url = make(VisibilityTimeout="1")
    (sent,) = send(sqs, url, "a")
    started = time.monotonic()
    assert receive(sqs, url)
    (again,) = receive(sqs, url, WaitTimeSeconds=20, VisibilityTimeout=60, AttributeNames=["All"])
    assert time.monotonic() - started > 0.9
    assert again["MessageId"] == sent["MessageId"]
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    assert not receive(sqs, url, WaitTimeSeconds=2)


def test_a_visibility_of_zero_hides_nothing(sqs, url):
    send(sqs, url, "a")
    for count in ("1", "2", "3"):
        (got,) = receive(sqs, url, VisibilityTimeout=0, AttributeNames=["All"])
        assert got["Attributes"]["ApproximateReceiveCount"] == count


@pytest.mark.slow
@covers("ChangeMessageVisibility")
def test_visibility_is_changed(sqs, url):
    send(sqs, url, "a")
    (got,) = receive(sqs, url, VisibilityTimeout=6)
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=60
    )
    assert not receive(sqs, url, WaitTimeSeconds=8)
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=0
    )
    assert receive(sqs, url)


@covers("ReceiptHandleIsInvalid")
def test_visibility_that_cannot_be_changed(sqs, url):
    send(sqs, url, "a")
    (got,) = receive(sqs, url)
    receipt = got["ReceiptHandle"]

    def change(handle, seconds):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=seconds)

    with refused("InvalidParameterValue"):
        change(receipt, 43201)
    with refused("InvalidParameterValue"):
        change(receipt, -1)
    with refused("MissingParameter"):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt)
    with refused(
        "ReceiptHandleIsInvalid", 'The input receipt handle "junk" is not a valid receipt handle.'
    ):
        change("junk", 1)
    change(receipt, 0)
    change(receipt, 10)  # an expired receipt is accepted, and changes nothing
    (again,) = receive(sqs, url)
    receipt = again["ReceiptHandle"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=receipt)
    text = (
        f"Value {receipt} for parameter ReceiptHandle is invalid. Reason: Message does not exist or is "
        "not available for visibility timeout change."
    )
    with refused("InvalidParameterValue", text):
        change(receipt, 10)


def test_the_sum_of_visibility_has_a_limit(sqs, url):
    send(sqs, url, "a")
    (got,) = receive(sqs, url)
    time.sleep(1.1)  # the limit counts whole seconds since the receive
    text = (
        "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for "
        "the message is beyond the limit [43200 seconds]"
    )
    with refused("InvalidParameterValue", text):
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=43200
        )


@covers("ReceiptHandleIsInvalid")
def test_deleting(sqs, make):
    url = make()
    send(sqs, url, "a")
    (got,) = receive(sqs, url)
    receipt = got["ReceiptHandle"]
    for bad in ("garbage", receipt[:-2] + "AA", "ü", "x" * 2000):
        text = f'The input receipt handle "{bad}" is not a valid receipt handle.'
        with refused("ReceiptHandleIsInvalid", text):
            sqs.delete_message(QueueUrl=url, ReceiptHandle=bad)
    with refused("MissingParameter"):
        sqs.delete_message(QueueUrl=url, ReceiptHandle="")
    with refused("ReceiptHandleIsInvalid"):
        sqs.delete_message(QueueUrl=make(), ReceiptHandle=receipt)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=receipt)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=receipt)
    assert counts(sqs, url) == (0, 0, 0)


def test_a_handle_is_good_for_its_own_message_only(sqs, url):
    for body in ("a", "b", "c"):
        send(sqs, url, body)
    (got,) = receive(sqs, url, MaxNumberOfMessages=1)
    handle = got["ReceiptHandle"]
    native, seal = handle[:-32], handle[-32:]
    receipt, tag = receipts.parse(native)
    assert receipts.text(receipt, tag) == native
    forged = receipts.text(receipt._replace(offset=2), tag)
    for bad in (forged + seal, forged, native, handle.swapcase(), handle + "=", "0" * 32):
        with refused("ReceiptHandleIsInvalid"):
            sqs.delete_message(QueueUrl=url, ReceiptHandle=bad)
        with refused("ReceiptHandleIsInvalid"):
            sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=bad, VisibilityTimeout=5)
    assert counts(sqs, url) == (2, 1, 0)


def test_an_old_receipt_still_deletes_on_a_standard_queue(sqs, url):
    send(sqs, url, "a")
    (got,) = receive(sqs, url, VisibilityTimeout=0)
    assert counts(sqs, url) == (1, 0, 0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    assert counts(sqs, url) == (0, 0, 0)
    assert not receive(sqs, url)


def test_and_takes_it_from_who_has_it_now(sqs, url):
    send(sqs, url, "a")
    (got,) = receive(sqs, url, VisibilityTimeout=0)
    (again,) = receive(sqs, url)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    assert counts(sqs, url) == (0, 0, 0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])


def test_what_is_deleted_late_is_still_in_history_and_there_for_other_groups(shared, sqs, url):
    name = url.rpartition("/")[2]
    with quiver.connect(f"quiver://127.0.0.1:{shared.port}") as queue:
        queue.alter_topic(name, retention="7d")
        queue.create_group(name, "audit")
        send(sqs, url, "in time", "late")
        first, second = receive(sqs, url, MaxNumberOfMessages=2)
        sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        receipt = second["ReceiptHandle"]
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=0)
        sqs.delete_message(QueueUrl=url, ReceiptHandle=receipt)
        assert not receive(sqs, url)
        assert [one.body for one in queue.read(name)] == [b"in time", b"late"]
        got = queue.receive(name, "audit", max_messages=10)
        assert [one.body for one in got] == [b"in time", b"late"]


def test_who_deletes_late_is_not_disturbed_by_others_that_receive(shared, sqs, url):
    handles = []
    for at in range(100):
        send(sqs, url, str(at))
        (got,) = receive(sqs, url, VisibilityTimeout=30)
        handles.append(got["ReceiptHandle"])
    for handle in handles:
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
    deleted = threading.Event()

    def peek():
        other = client(shared)
        while not deleted.is_set():
            receive(other, url, VisibilityTimeout=0, MaxNumberOfMessages=10)

    peekers = [threading.Thread(target=peek) for _ in range(3)]
    for thread in peekers:
        thread.start()
    try:
        for handle in handles:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    finally:
        deleted.set()
        for thread in peekers:
            thread.join()
    assert counts(sqs, url) == (0, 0, 0)


@pytest.mark.parametrize("by_queue", [True, False])
def test_delayed_messages_wake_who_waits(sqs, make, by_queue):
    url = make(DelaySeconds="1" if by_queue else "0")
    started = time.monotonic()
    send(sqs, url, "late", **({} if by_queue else {"DelaySeconds": 1}))
    (got,) = receive(sqs, url, WaitTimeSeconds=20)
    assert got["Body"] == "late"
    assert time.monotonic() - started > 0.9


def test_a_messages_own_delay_wins(sqs, make):
    url = make(DelaySeconds="900")
    send(sqs, url, "now", DelaySeconds=0)
    assert receive(sqs, url)
    text = "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900."
    with refused("InvalidParameterValue", text):
        send(sqs, url, "x", DelaySeconds=901)
    with refused("InvalidParameterValue"):
        send(sqs, url, "x", DelaySeconds=-1)


def test_who_waits_gets_what_comes(shared, sqs, url):
    got = []
    other = client(shared)
    waiter = threading.Thread(target=lambda: got.extend(receive(other, url, WaitTimeSeconds=20)))
    waiter.start()
    until_waiting(shared, 1)
    send(sqs, url, "here")
    waiter.join(10)
    assert [message["Body"] for message in got] == ["here"]
    other.close()


def test_the_queue_says_how_long_to_wait(sqs, make):
    url = make(ReceiveMessageWaitTimeSeconds="1")
    started = time.monotonic()
    assert not receive(sqs, url)
    assert time.monotonic() - started > 0.9
    url = make(ReceiveMessageWaitTimeSeconds="20")
    started = time.monotonic()
    assert not receive(sqs, url, WaitTimeSeconds=0)
    assert time.monotonic() - started < 15


def test_a_client_that_goes_away_takes_no_message(shared, sqs, url):
    address = urlsplit(shared.url)
    connection = HTTPConnection(address.hostname, address.port)
    connection.request(
        "POST", "/", json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20}),
        {"X-Amz-Target": "AmazonSQS.ReceiveMessage", "Content-Type": "application/x-amz-json-1.0"},
    )  # fmt: skip
    until_waiting(shared, 1)
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    until_waiting(shared, 0)
    send(sqs, url, "for somebody else")
    (got,) = receive(sqs, url)
    assert got["Body"] == "for somebody else"


@pytest.fixture
def narrow(tmp_path):
    """A client of a node that lets few messages be in flight."""
    with start_node(tmp_path, env={"QUIVER_SQS_IN_FLIGHT_MESSAGES": "3"}) as node:
        made = client(node)
        yield made
        made.close()


@covers("OverLimit")
def test_only_so_many_are_in_flight(narrow):
    url = narrow.create_queue(QueueName="q")["QueueUrl"]
    for body in "12345":
        send(narrow, url, body)
    got = receive(narrow, url, MaxNumberOfMessages=10)
    assert [message["Body"] for message in got] == ["1", "2", "3"]
    text = (
        "Too many messages have been received without being deleted. Please delete your received "
        "messages or let them timeout before receiving more."
    )
    with refused("OverLimit", text):
        receive(narrow, url)
    assert receive(narrow, url, WaitTimeSeconds=1) == [], "who waits is not refused"
    narrow.delete_message(QueueUrl=url, ReceiptHandle=got[0]["ReceiptHandle"])
    more = receive(narrow, url, MaxNumberOfMessages=10)
    assert [message["Body"] for message in more] == ["4"]


def test_who_waits_is_served_when_fewer_are_in_flight(narrow):
    url = narrow.create_queue(QueueName="q")["QueueUrl"]
    for body in "1234":
        send(narrow, url, body)
    receive(narrow, url, MaxNumberOfMessages=2)
    receive(narrow, url, VisibilityTimeout=1)
    (got,) = receive(narrow, url, WaitTimeSeconds=20)
    assert got["Body"] == "3"


def test_a_fifo_queue_with_as_many_in_flight_seems_empty(narrow):
    url = narrow.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for body in "1234":
        narrow.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId=body, MessageDeduplicationId=body
        )
    assert len(receive(narrow, url, MaxNumberOfMessages=10)) == 3
    assert receive(narrow, url) == []


def test_a_node_that_ends_lets_go_of_those_who_wait(tmp_path):
    with start_node(tmp_path) as node:
        sqs = client(node)
        url = sqs.create_queue(QueueName="q")["QueueUrl"]
        got = []
        waiter = threading.Thread(target=lambda: got.append(receive(sqs, url, WaitTimeSeconds=20)))
        waiter.start()
        until_waiting(node, 1)
        started = time.monotonic()
        assert node.stop() == 0
        waiter.join(10)
        assert time.monotonic() - started < 10
        assert got == [[]]
        sqs.close()


def test_a_queue_that_is_deleted_lets_go_of_those_who_wait(shared, sqs, url):
    faults = []
    other = client(shared)

    def wait():
        try:
            receive(other, url, WaitTimeSeconds=20)
        except other.exceptions.QueueDoesNotExist as error:
            faults.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    until_waiting(shared, 1)
    sqs.delete_queue(QueueUrl=url)
    waiter.join(10)
    assert len(faults) == 1
    other.close()


def test_retention_lets_go_of_old_messages(sqs, make):
    """The shortest that SQS has is a minute, so only the setting is looked at here."""
    url = make(MessageRetentionPeriod="60")
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["MessageRetentionPeriod"])
    assert found["Attributes"] == {"MessageRetentionPeriod": "60"}
