"""Answers that were once others than those of AWS, in both protocols."""

import json
from urllib.parse import urlsplit

import pytest

import quiver
from tests.sqs.protocols import PROTOCOLS, Answer, Asker
from tests.sqs.query import Query

LONG = 3600  # seconds, longer than any test


@pytest.fixture(params=PROTOCOLS)
def ask(request, query: Query) -> Asker:
    return Asker(request.param, query)


@pytest.fixture
def text(query: Query):
    """Answers of the query protocol to a GET of a queue's address, as text."""

    def text(url, accept="*/*", **given):
        address = f"{urlsplit(url).path}?" + "&".join(f"{k}={v}" for k, v in given.items())
        status, _, body = query.raw("GET", address, headers={"accept": accept})
        assert status == 200
        return body.decode()

    return text


def well(answer: Answer) -> Answer:
    assert answer.status == 200, answer
    return answer


def refused(answer: Answer, code: str, message: str | None = None, status: int = 400) -> None:
    assert (answer.status, answer.code, answer.kind) == (status, code, "Sender")
    if message is not None:
        assert answer.message == message


def received(ask: Asker, url, **options) -> list[str]:
    """The receipts of what is received."""
    return well(ask("ReceiveMessage", QueueUrl=url, **options)).texts("ReceiptHandle")


def attributes(sqs, url, *names):
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names or ["All"])
    return found.get("Attributes", {})


# -- the older of two receipts ---------------------------------------------------------------------


@pytest.fixture
def older(ask, url) -> str:
    """The receipt of a message that has been received once more since, for an hour."""
    well(ask("SendMessage", QueueUrl=url, MessageBody="x"))
    (receipt,) = received(ask, url, VisibilityTimeout=0)
    assert len(received(ask, url, VisibilityTimeout=LONG)) == 1
    return receipt


def test_the_older_of_two_receipts_makes_a_message_visible(ask, url, older):
    well(ask("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=older, VisibilityTimeout=0))
    assert len(received(ask, url)) == 1


def test_so_it_does_in_a_batch(ask, url, older):
    entry = {"Id": "a", "ReceiptHandle": older, "VisibilityTimeout": 0}
    done = well(ask("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=[entry]))
    assert done.texts("Id") == ["a"]
    assert len(received(ask, url)) == 1


def test_it_also_changes_how_long_the_message_is_hidden(query, url):
    ask = Asker("json", query)
    well(ask("SendMessage", QueueUrl=url, MessageBody="x"))
    (older,) = received(ask, url, VisibilityTimeout=0)
    received(ask, url, VisibilityTimeout=LONG)
    well(ask("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=older, VisibilityTimeout=1))
    assert received(ask, url) == [], "not visible at once"
    assert len(received(ask, url, WaitTimeSeconds=20)) == 1


def test_a_message_that_is_visible_again_stays_so(ask, url):
    well(ask("SendMessage", QueueUrl=url, MessageBody="x"))
    (late,) = received(ask, url, VisibilityTimeout=0)
    well(ask("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=late, VisibilityTimeout=LONG))
    assert len(received(ask, url)) == 1


def test_whoever_lost_the_message_by_it_cannot_settle_it_any_more(shared, ask, url):
    """The fence of leases holds: nothing is settled twice, also by those who use no SQS."""
    name = url.rpartition("/")[2]
    well(ask("SendMessage", QueueUrl=url, MessageBody="x"))
    (older,) = received(ask, url, VisibilityTimeout=0)
    with quiver.connect(f"quiver://127.0.0.1:{shared.port}") as queue:
        (held,) = queue.receive(name, lease=LONG)
        well(ask("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=older, VisibilityTimeout=0))
        (newer,) = queue.receive(name, lease=LONG)
        with pytest.raises(quiver.ReceiptExpired):
            held.ack()
        with pytest.raises(quiver.ReceiptExpired):
            held.extend(LONG)
        newer.ack()


def test_on_a_fifo_queue_it_changes_nothing(ask, fifo_url):
    well(ask("SendMessage", QueueUrl=fifo_url, MessageBody="x", MessageGroupId="g",
             MessageDeduplicationId="d"))  # fmt: skip
    (older,) = received(ask, fifo_url, VisibilityTimeout=0)
    received(ask, fifo_url, VisibilityTimeout=LONG)
    well(
        ask("ChangeMessageVisibility", QueueUrl=fifo_url, ReceiptHandle=older, VisibilityTimeout=0)
    )
    assert received(ask, fifo_url) == []


# -- queues ----------------------------------------------------------------------------------------


def test_a_queue_may_be_its_own_dead_letter_queue(sqs, ask, make):
    url = make(VisibilityTimeout="0")
    arn = attributes(sqs, url, "QueueArn")["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    well(ask("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": policy}))
    assert json.loads(attributes(sqs, url)["RedrivePolicy"])["deadLetterTargetArn"] == arn
    found = sqs.list_dead_letter_source_queues(QueueUrl=url)
    assert found["queueUrls"] == [url]
    sent = well(ask("SendMessage", QueueUrl=url, MessageBody="x"))
    got = [sqs.receive_message(QueueUrl=url)["Messages"][0] for _ in range(5)]
    assert [one["MessageId"] for one in got] == sent.texts("MessageId") * 5
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got[-1]["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    well(ask("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": ""}))
    assert "RedrivePolicy" not in attributes(sqs, url)


def test_without_a_key_there_is_no_period_of_its_reuse(sqs, ask, make):
    url = make()
    keyed = {"KmsMasterKeyId": "mine", "KmsDataKeyReusePeriodSeconds": "6000"}
    well(ask("SetQueueAttributes", QueueUrl=url, Attributes=keyed))
    found = attributes(sqs, url)
    assert {name: found.get(name) for name in keyed} == keyed
    assert found["SqsManagedSseEnabled"] == "false"
    keyless = {"KmsMasterKeyId": "", "KmsDataKeyReusePeriodSeconds": "300"}
    well(ask("SetQueueAttributes", QueueUrl=url, Attributes=keyless))
    found = attributes(sqs, url)
    assert not set(keyed) & set(found)
    assert found["SqsManagedSseEnabled"] == "false", "it stays as the key has left it"
    well(ask("SetQueueAttributes", QueueUrl=url, Attributes={"SqsManagedSseEnabled": "true"}))
    assert attributes(sqs, url)["SqsManagedSseEnabled"] == "true"


def test_a_period_that_is_not_shown_is_still_the_same_queue(ask, name):
    queue, period = name(), {"KmsDataKeyReusePeriodSeconds": "6000"}
    for _ in range(2):
        well(ask("CreateQueue", QueueName=queue, Attributes=period))
    other = {"KmsDataKeyReusePeriodSeconds": "600"}
    refused(ask("CreateQueue", QueueName=queue, Attributes=other), "QueueAlreadyExists")


def test_two_kinds_of_encryption_at_once(ask, url, name):
    both = {"KmsMasterKeyId": "mine", "SqsManagedSseEnabled": "true"}
    text = (
        "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS "
        "SSE or SQS SSE."
    )
    refused(ask("SetQueueAttributes", QueueUrl=url, Attributes=both), "InvalidAttributeName", text)
    refused(ask("CreateQueue", QueueName=name(), Attributes=both), "InvalidAttributeName", text)


@pytest.mark.parametrize("bad", ["http://127.0.0.1/", "http://127.0.0.1", "/", ""])
def test_an_address_without_a_path_is_that_of_no_queue(ask, bad):
    answer = ask("SendMessage", QueueUrl=bad, MessageBody="x")
    text = "The specified queue does not exist"
    text += "." if ask.protocol == "json" else " for this wsdl version."
    refused(answer, "AWS.SimpleQueueService.NonExistentQueue", text)


def test_a_permission_has_seven_actions_at_most(ask, url):
    actions = [
        "ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl",
        "ListDeadLetterSourceQueues", "PurgeQueue", "ReceiveMessage", "SendMessage",
    ]  # fmt: skip
    given = {"QueueUrl": url, "AWSAccountIds": ["1" * 12]}
    well(ask("AddPermission", **given, Label="seven", Actions=actions[:7]))
    answer = ask("AddPermission", **given, Label="eight", Actions=actions)
    refused(answer, "OverLimit", "8 Actions were found, maximum allowed is 7.", 403)


def test_a_label_that_no_policy_has(ask, url):
    text = "Value x for parameter Label is invalid. Reason: can't find label{}."
    answer = ask("RemovePermission", QueueUrl=url, Label="x")
    refused(answer, "InvalidParameterValue", text.format(""))
    well(ask("AddPermission", QueueUrl=url, Label="y", AWSAccountIds=["1" * 12],
             Actions=["SendMessage"]))  # fmt: skip
    answer = ask("RemovePermission", QueueUrl=url, Label="x")
    refused(answer, "InvalidParameterValue", text.format(" on existing policy"))


def test_lists_that_are_there_and_empty(ask, url):
    answer = ask("UntagQueue", QueueUrl=url, TagKeys=[])
    text = "Tag keys must be between 1 and 128 characters in length."
    refused(answer, "InvalidParameterValue", text)
    refused(
        ask("UntagQueue", QueueUrl=url, TagKeys=["a", "b" * 129]), "InvalidParameterValue", text
    )
    answer = ask(
        "AddPermission", QueueUrl=url, Label="l", AWSAccountIds=[], Actions=["SendMessage"]
    )
    text = "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify."
    refused(answer, "InvalidParameterValue", text)


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["", "a" * 129, "a b"], ids=["empty", "long", "with a space"])
def test_group_ids_of_a_standard_queue(ask, url, group):
    text = (
        f"Value {group} for parameter MessageGroupId is invalid. Reason: MessageGroupId can only "
        "include alphanumeric and punctuation characters. 1 to 128 in length."
    )
    answer = ask("SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId=group)
    refused(answer, "InvalidParameterValue", text)


def test_a_message_of_a_batch_that_is_too_long(ask, make):
    url = make(MaximumMessageSize="1024")
    entries = [{"Id": str(n), "MessageBody": "x" * n} for n in (1024, 1025)]
    answer = well(ask("SendMessageBatch", QueueUrl=url, Entries=entries))
    assert answer.texts("Id") == ["1024", "1025"]
    assert answer.texts("Message") == [
        "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes."
    ]
    answer = ask("SendMessage", QueueUrl=url, MessageBody="x" * 1025)
    text = "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    refused(answer, "InvalidParameterValue", text)


# -- moves -----------------------------------------------------------------------------------------


def test_a_second_move_of_the_same_queue(sqs, ask, make):
    dead = make()
    arn = attributes(sqs, dead, "QueueArn")["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = make(RedrivePolicy=policy, VisibilityTimeout="0")
    for body in "0123456789":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    assert len(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]) == 10
    first = well(ask("StartMessageMoveTask", SourceArn=arn, MaxNumberOfMessagesPerSecond=1))
    text = (
        "There is already a task running. Only one active task is allowed for a source queue arn at a "
        "given time."
    )
    refused(ask("StartMessageMoveTask", SourceArn=arn), "InvalidParameterValue", text)
    (handle,) = first.texts("TaskHandle")
    well(ask("CancelMessageMoveTask", TaskHandle=handle))
    gone = ask("CancelMessageMoveTask", TaskHandle=handle)
    refused(gone, "ResourceNotFoundException", "Task does not exist.", 404)


def test_a_handle_that_no_move_has(ask):
    answer = ask("CancelMessageMoveTask", TaskHandle="junk")
    refused(answer, "InvalidParameterValue", "Value for parameter TaskHandle is invalid.")


# -- the query protocol ----------------------------------------------------------------------------


def test_nothing_is_an_empty_element(text, url):
    assert "<ReceiveMessageResult/>" in text(url, Action="ReceiveMessage")
    assert "<GetQueueAttributesResult/>" in text(url, Action="GetQueueAttributes")


def test_what_is_received_as_plain_json(sqs, text, url):
    def receive(**given):
        found = json.loads(text(url, "application/json", Action="ReceiveMessage", **given))
        response = found["ReceiveMessageResponse"]
        assert response["ResponseMetadata"]["RequestId"]
        return response["ReceiveMessageResult"]

    assert receive() == {"messages": None}
    given = {"n": {"DataType": "Number", "StringValue": "1"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=given)
    (got,) = receive(VisibilityTimeout="0")["messages"]
    assert got.pop("ReceiptHandle")
    assert got == {
        "Attributes": None,
        "Body": "x",
        "MD5OfBody": sent["MD5OfMessageBody"],
        "MD5OfMessageAttributes": None,
        "MessageAttributes": None,
        "MessageId": sent["MessageId"],
    }
    names = {"AttributeName.1": "ApproximateReceiveCount", "MessageAttributeName.1": "All"}
    (got,) = receive(**names)["messages"]
    assert got["Attributes"] == [{"Name": "ApproximateReceiveCount", "Value": "2"}]
    assert got["MessageAttributes"] == [{"Name": "n", "Value": given["n"]}]
    assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


def test_what_is_sent_and_listed_as_plain_json(query, text, url, name):
    sent = json.loads(text(url, "application/json", Action="SendMessage", MessageBody="x"))
    result = sent["SendMessageResponse"]["SendMessageResult"]
    assert result.pop("MessageId")
    assert result == {
        "MD5OfMessageAttributes": None,
        "MD5OfMessageBody": "9dd4e461268c8034f5c8564e155c67a6",
        "MD5OfMessageSystemAttributes": None,
        "SequenceNumber": None,
    }

    def listed(prefix):
        path = f"/?Action=ListQueues&QueueNamePrefix={prefix}"
        _, _, body = query.raw("GET", path, headers={"accept": "application/json"})
        return json.loads(body)["ListQueuesResponse"]["ListQueuesResult"]

    assert listed(name("-none")) == {"NextToken": None, "queueUrls": None}
    assert url in listed(url.rpartition("/")[2])["queueUrls"]
