"""Dead-letter queues, who may use them, and moving messages back."""

import asyncio
import json
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from quiver import limits
from quiver.server.sqs import moves
from quiver.server.sqs.service import Move
from tests.server.nodes import start_node
from tests.sqs.conftest import client
from tests.sqs.faults import refused

covers = pytest.mark.covers


def arn_of(sqs, url):
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return found["Attributes"]["QueueArn"]


def policy(arn, count=1):
    return json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": count})


def receive(sqs, url, **options):
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **options).get("Messages", [])


def bodies(messages):
    return [message["Body"] for message in messages]


@pytest.fixture
def pair(sqs, make):
    """A queue and its dead-letter queue."""
    dead = make()
    return make(RedrivePolicy=policy(arn_of(sqs, dead)), VisibilityTimeout="0"), dead


def kill(sqs, url, *names):
    """Send messages and let them die."""
    for body in names:
        sqs.send_message(QueueUrl=url, MessageBody=body)
    for _ in range(10):
        if not receive(sqs, url):
            return
    raise AssertionError("they live on")


@covers("RedrivePolicy", "DeadLetterQueueSourceArn")
def test_after_its_last_attempt_a_message_moves(sqs, make):
    dead = make()
    url = make(RedrivePolicy=policy(arn_of(sqs, dead), 2))
    attributes = {"a": {"DataType": "Number", "StringValue": "1"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=attributes)
    (first,) = receive(sqs, url, VisibilityTimeout=0, AttributeNames=["All"])
    (second,) = receive(sqs, url, VisibilityTimeout=0)
    assert not receive(sqs, url)
    (got,) = receive(sqs, dead, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert got["MessageId"] == sent["MessageId"] == second["MessageId"]
    assert got["MessageAttributes"] == attributes
    assert got["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(sqs, url)
    assert got["Attributes"]["ApproximateReceiveCount"] == "3"
    assert got["Attributes"]["SentTimestamp"] == first["Attributes"]["SentTimestamp"]


def test_in_a_chain_of_queues(sqs, make):
    last = make()
    middle = make(RedrivePolicy=policy(arn_of(sqs, last)), VisibilityTimeout="0")
    url = make(RedrivePolicy=policy(arn_of(sqs, middle)), VisibilityTimeout="0")
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert bodies(receive(sqs, url)) == ["x"]
    assert bodies(receive(sqs, middle)) == ["x"]
    assert bodies(receive(sqs, last)) == ["x"]


def test_fifo_order_is_kept(sqs, make):
    dead = make(fifo=True)
    url = make(fifo=True, RedrivePolicy=policy(arn_of(sqs, dead)), VisibilityTimeout="0",
               ContentBasedDeduplication="true")  # fmt: skip
    for body in ("1", "2", "3"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g")
    assert bodies(receive(sqs, url)) == ["1", "2", "3"]
    got = receive(sqs, dead, AttributeNames=["All"])
    assert bodies(got) == ["1", "2", "3"]
    assert {message["Attributes"]["MessageGroupId"] for message in got} == {"g"}


def test_the_policy_is_shown_and_taken_away(sqs, pair):
    url, dead = pair
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])["Attributes"]
    assert json.loads(found["RedrivePolicy"]) == {
        "deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": 1,
    }  # fmt: skip
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert "RedrivePolicy" not in found
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert receive(sqs, url)
    assert receive(sqs, url)


def test_making_it_again_with_the_same_policy(sqs, make, name):
    arn, queue = arn_of(sqs, make()), name()
    url = sqs.create_queue(QueueName=queue, Attributes={"RedrivePolicy": policy(arn, 3)})
    again = sqs.create_queue(
        QueueName=queue,
        Attributes={
            "RedrivePolicy": json.dumps({"maxReceiveCount": "3", "deadLetterTargetArn": arn})
        },
    )
    assert again["QueueUrl"] == url["QueueUrl"]
    with refused("QueueAlreadyExists"):
        sqs.create_queue(QueueName=queue, Attributes={"RedrivePolicy": policy(arn, 4)})


def test_policies_that_are_refused(sqs, make):
    url, dead, fifo = make(), make(), make(fifo=True)
    arn = arn_of(sqs, dead)
    missing = "Redrive policy does not contain mandatory attribute: "
    for text, reason in (
        ("no json", "Redrive policy is not a valid JSON map."),
        ("[]", "Redrive policy is not a valid JSON map."),
        (json.dumps({"deadLetterTargetArn": arn}), missing + "maxReceiveCount."),
        (json.dumps({"maxReceiveCount": 1}), missing + "deadLetterTargetArn."),
        (
            policy(arn, 0),
            "Invalid value for maxReceiveCount: 0, valid values are from 1 to 1000 both inclusive.",
        ),
        (
            policy(arn, "many"),
            "Invalid value for maxReceiveCount: many, valid values are from 1 to 1000 both inclusive.",
        ),
        (policy("dummy"), "Invalid value for deadLetterTargetArn."),
        (policy(arn + "-gone"), "Dead letter target does not exist."),
        (
            policy(arn_of(sqs, fifo)),
            "Dead-letter queue must be same type of queue as the source.",
        ),
    ):
        with refused(
            "InvalidParameterValue",
            f"Value {text} for parameter RedrivePolicy is invalid. Reason: {reason}",
        ):
            sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": text})


@covers("RedriveAllowPolicy")
def test_a_dead_letter_queue_may_choose_its_sources(sqs, make):
    dead, url = make(), make()
    for allowed, works in (
        ({"redrivePermission": "denyAll"}, False),
        ({"redrivePermission": "byQueue", "sourceQueueArns": []}, False),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [arn_of(sqs, url)]}, True),
        ({"redrivePermission": "allowAll"}, True),
    ):
        text = json.dumps(allowed)
        sqs.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": text})
        found = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["RedriveAllowPolicy"])
        assert found["Attributes"] == {"RedriveAllowPolicy": text}
        change = {"RedrivePolicy": policy(arn_of(sqs, dead))}
        if works:
            sqs.set_queue_attributes(QueueUrl=url, Attributes=change)
        else:
            with refused("InvalidParameterValue"):
                sqs.set_queue_attributes(QueueUrl=url, Attributes=change)


@covers("ListDeadLetterSourceQueues")
def test_sources_are_listed(sqs, make):
    dead = make()
    urls = sorted(make(RedrivePolicy=policy(arn_of(sqs, dead))) for _ in range(3))
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == urls
    assert sqs.list_dead_letter_source_queues(QueueUrl=urls[0])["queueUrls"] == []
    first = sqs.list_dead_letter_source_queues(QueueUrl=dead, MaxResults=2)
    assert first["queueUrls"] == urls[:2]
    rest = sqs.list_dead_letter_source_queues(
        QueueUrl=dead, MaxResults=2, NextToken=first["NextToken"]
    )
    assert rest["queueUrls"] == urls[2:]
    assert "NextToken" not in rest


# -- moving back -----------------------------------------------------------------------------------


def until(sqs, arn, status):
    """The newest task of a queue, once it has this status."""
    task = None
    for _ in range(100):
        (task,) = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
        if task["Status"] == status:
            return task
        time.sleep(0.05)
    raise AssertionError(f"it is still {task}")


@covers("StartMessageMoveTask", "ListMessageMoveTasks")
def test_dead_letters_move_where_they_are_told_to(sqs, make, pair):
    url, dead = pair
    target = make()
    kill(sqs, url, "a", "b")
    started = sqs.start_message_move_task(
        SourceArn=arn_of(sqs, dead), DestinationArn=arn_of(sqs, target)
    )
    assert started["TaskHandle"]
    task = until(sqs, arn_of(sqs, dead), "COMPLETED")
    assert task.pop("StartedTimestamp") > 1_600_000_000_000
    assert task == {
        "Status": "COMPLETED", "SourceArn": arn_of(sqs, dead),
        "DestinationArn": arn_of(sqs, target), "ApproximateNumberOfMessagesMoved": 2,
        "ApproximateNumberOfMessagesToMove": 2,
    }  # fmt: skip
    got = receive(sqs, target, AttributeNames=["All"])
    assert bodies(got) == ["a", "b"]
    assert "DeadLetterQueueSourceArn" not in got[0]["Attributes"]
    assert not receive(sqs, dead)


def test_or_back_to_their_sources(sqs, make):
    dead = make()
    urls = [make(RedrivePolicy=policy(arn_of(sqs, dead)), VisibilityTimeout="0") for _ in range(2)]
    for at, url in enumerate(urls):
        kill(sqs, url, f"{at}")
    sqs.start_message_move_task(SourceArn=arn_of(sqs, dead))
    task = until(sqs, arn_of(sqs, dead), "COMPLETED")
    assert "DestinationArn" not in task
    assert [bodies(receive(sqs, url, AttributeNames=["All"])) for url in urls] == [["0"], ["1"]]


@covers("CancelMessageMoveTask", "ResourceNotFoundException")
def test_a_slow_move_can_be_stopped(sqs, pair):
    url, dead = pair
    kill(sqs, url, *map(str, range(10)))
    arn = arn_of(sqs, dead)
    handle = sqs.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=1)[
        "TaskHandle"
    ]
    (task,) = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
    assert task["Status"] == "RUNNING"
    assert task["TaskHandle"] == handle
    assert task["MaxNumberOfMessagesPerSecond"] == 1
    text = (
        "There is already a task running. Only one active task is allowed for a source queue arn at a "
        "given time."
    )
    with refused("InvalidParameterValue", text):
        sqs.start_message_move_task(SourceArn=arn)
    moved = sqs.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    task = until(sqs, arn, "CANCELLED")
    assert task["ApproximateNumberOfMessagesMoved"] == moved < 10
    assert "TaskHandle" not in task
    with refused("ResourceNotFoundException", "Task does not exist."):
        sqs.cancel_message_move_task(TaskHandle=handle)
    sqs.start_message_move_task(SourceArn=arn)
    until(sqs, arn, "COMPLETED")
    assert len(sqs.list_message_move_tasks(SourceArn=arn, MaxResults=10)["Results"]) == 2


def test_of_moves_that_begin_at_once_one_begins(shared, sqs, pair):
    url, dead = pair
    kill(sqs, url, *map(str, range(10)))
    arn = arn_of(sqs, dead)

    def start(_):
        other = client(shared)
        try:
            return other.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=1)
        except ClientError as error:
            return str(error)
        finally:
            other.close()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(start, range(8)))
    (started,) = [answer for answer in answers if isinstance(answer, dict)]
    assert sum("already a task running" in answer for answer in answers) == 7
    (task,) = sqs.list_message_move_tasks(SourceArn=arn, MaxResults=10)["Results"]
    assert task["TaskHandle"] == started["TaskHandle"]
    sqs.cancel_message_move_task(TaskHandle=started["TaskHandle"])


def move(number, status="RUNNING"):
    return Move(f"{number}", "source", "arn", None, None, 0, 0, status=status)


def test_moves_that_run_are_not_forgotten():
    running = move("running")
    ended = [move(number, "COMPLETED") for number in range(limits.SQS_MOVES_MAX + 5)]
    assert moves.remembered([*ended, running]) == [*ended[:-5], running]


@pytest.mark.parametrize("stop_at_once", [False, True])
def test_a_move_has_ended_however_it_ends(stop_at_once):
    def broken(_):
        raise ZeroDivisionError

    async def run():
        service = SimpleNamespace(flows=SimpleNamespace(target=broken))
        call: Any = SimpleNamespace(service=service)
        one = move("one")
        moves._run(call, one, None)
        if stop_at_once:
            one.job.cancel()
        await asyncio.wait([one.job])
        return one.status, one.reason

    expected = ("CANCELLED", None) if stop_at_once else ("FAILED", "InternalFailure")
    assert asyncio.run(run()) == expected


def test_a_move_whose_target_is_deleted_fails(sqs, make, pair):
    url, dead = pair
    target = make()
    kill(sqs, url, *map(str, range(10)))
    arn = arn_of(sqs, dead)
    sqs.start_message_move_task(
        SourceArn=arn, DestinationArn=arn_of(sqs, target), MaxNumberOfMessagesPerSecond=1
    )
    sqs.delete_queue(QueueUrl=target)
    task = until(sqs, arn, "FAILED")
    assert task["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"


def test_what_did_not_die_elsewhere_has_no_way_back(sqs, pair):
    _, dead = pair
    sqs.send_message(QueueUrl=dead, MessageBody="sent here")
    sqs.start_message_move_task(SourceArn=arn_of(sqs, dead))
    task = until(sqs, arn_of(sqs, dead), "FAILED")
    assert task["FailureReason"] == "CouldNotDetermineMessageSource"
    assert bodies(receive(sqs, dead)) == ["sent here"]


def test_moves_that_are_refused(sqs, make, pair):
    url, dead = pair
    arn, gone = arn_of(sqs, dead), arn_of(sqs, url) + "-gone"
    absent = "The resource that you specified for the {} parameter doesn't exist."
    with refused("ResourceNotFoundException", absent.format("SourceArn")):
        sqs.start_message_move_task(SourceArn=gone)
    with refused("ResourceNotFoundException", absent.format("SourceArn")):
        sqs.list_message_move_tasks(SourceArn="junk")
    with refused("ResourceNotFoundException", absent.format("DestinationArn")):
        sqs.start_message_move_task(SourceArn=arn, DestinationArn=gone)
    with refused(
        "InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue."
    ):
        sqs.start_message_move_task(SourceArn=arn_of(sqs, url))
    with refused("InvalidParameterValue"):
        sqs.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=501)
    with refused("InvalidParameterValue"):
        sqs.list_message_move_tasks(SourceArn=arn, MaxResults=11)
    with refused("InvalidParameterValue", "Value for parameter TaskHandle is invalid."):
        sqs.cancel_message_move_task(TaskHandle="junk")
    handle = b64encode(json.dumps({"taskId": "1", "sourceArn": gone}).encode()).decode()
    with refused("ResourceNotFoundException", absent.format("SourceArn")):
        sqs.cancel_message_move_task(TaskHandle=handle)
    handle = b64encode(json.dumps({"taskId": "1", "sourceArn": arn}).encode()).decode()
    with refused("ResourceNotFoundException", "Task does not exist."):
        sqs.cancel_message_move_task(TaskHandle=handle)
    for call in (
        sqs.start_message_move_task, sqs.cancel_message_move_task, sqs.list_message_move_tasks,
    ):  # fmt: skip
        with refused("MissingParameter"):
            call()


def test_what_is_told_of_a_moved_message_does_not_depend_on_what_the_node_remembers(tmp_path):
    def told(sqs):
        url = sqs.get_queue_url(QueueName="other")["QueueUrl"]
        (got,) = receive(sqs, url, VisibilityTimeout=0, AttributeNames=["All"])
        attributes = got["Attributes"]
        count = int(attributes["ApproximateReceiveCount"])
        return count, attributes.get("DeadLetterQueueSourceArn")

    with start_node(tmp_path) as node:
        sqs = client(node)
        dead, other = (sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("dead", "other"))
        redrive = {"RedrivePolicy": policy(arn_of(sqs, dead)), "VisibilityTimeout": "0"}
        kill(sqs, sqs.create_queue(QueueName="source", Attributes=redrive)["QueueUrl"], "m")
        sqs.start_message_move_task(SourceArn=arn_of(sqs, dead), DestinationArn=arn_of(sqs, other))
        until_moved(sqs, other)
        assert told(sqs) == (1, None)
        node.restart()
        assert told(client(node)) == (2, None)


def until_moved(sqs, url):
    for _ in range(200):
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        if found["ApproximateNumberOfMessages"] == "1":
            return
        time.sleep(0.02)
    raise AssertionError("it was not moved")
