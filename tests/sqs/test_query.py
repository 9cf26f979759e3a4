"""The query protocol: forms, addresses, XML, and JSON for those who ask for it."""

import json
from urllib.parse import quote, urlsplit

import pytest

from tests.sqs.query import Query, QueryError

covers = pytest.mark.covers


@pytest.fixture
def queue(query: Query, name) -> str:
    found = query("CreateQueue", QueueName=name()).findtext("QueueUrl")
    assert found is not None
    return found


def refused(call, *args, **fields) -> QueryError:
    with pytest.raises(QueryError) as caught:
        call(*args, **fields)
    return caught.value


def test_lists_and_maps_in_forms(query, name):
    url = query(
        "CreateQueue", QueueName=name(),
        Attribute__1__Name="VisibilityTimeout", Attribute__1__Value="7",
        Attribute__2__Name="DelaySeconds", Attribute__2__Value="0",
        Tag__1__Key="team", Tag__1__Value="a&b",
    ).findtext("QueueUrl")  # fmt: skip
    found = query("GetQueueAttributes", QueueUrl=url, AttributeName__1="VisibilityTimeout",
                  AttributeName__2="QueueArn")  # fmt: skip
    assert {a.findtext("Name"): a.findtext("Value") for a in found.findall("Attribute")} == {
        "VisibilityTimeout": "7",
        "QueueArn": f"arn:aws:sqs:us-east-1:000000000000:{url.rpartition('/')[2]}",
    }
    tags = query("ListQueueTags", QueueUrl=url)
    assert [(t.findtext("Key"), t.findtext("Value")) for t in tags.findall("Tag")] == [
        ("team", "a&b")
    ]
    query("UntagQueue", QueueUrl=url, TagKey__1="team")
    assert query("ListQueueTags", QueueUrl=url).find("Tag") is None
    query("TagQueue", QueueUrl=url, Tag__1__Key="a", Tag__1__Value="b")
    query("SetQueueAttributes", QueueUrl=url, Attribute__Name="DelaySeconds",
          Attribute__1__Name="DelaySeconds", Attribute__1__Value="1")  # fmt: skip
    query("AddPermission", QueueUrl=url, Label="l", AWSAccountId__1="111122223333",
          ActionName__1="SendMessage")  # fmt: skip
    query("RemovePermission", QueueUrl=url, Label="l")
    query("PurgeQueue", QueueUrl=url)


def test_messages_with_attributes(query, queue):
    sent = query(
        "SendMessage", QueueUrl=queue, MessageBody="x",
        MessageAttribute__1__Name="n", MessageAttribute__1__Value__DataType="Number",
        MessageAttribute__1__Value__StringValue="1",
        MessageAttribute__2__Name="b", MessageAttribute__2__Value__DataType="Binary",
        MessageAttribute__2__Value__BinaryValue="AAE=",
        MessageSystemAttribute__1__Name="AWSTraceHeader",
        MessageSystemAttribute__1__Value__DataType="String",
        MessageSystemAttribute__1__Value__StringValue="Root=1",
    )  # fmt: skip
    assert sent.findtext("MD5OfMessageAttributes") == "6d3e0b67e05bf94ede72102c4dc09565"
    assert sent.findtext("MD5OfMessageSystemAttributes")
    got = query("ReceiveMessage", QueueUrl=queue, MessageAttributeName__1="All",
                AttributeName__1="All", MaxNumberOfMessages=1)  # fmt: skip
    found = {
        a.findtext("Name"): (
            a.findtext("Value/DataType"),
            a.findtext("Value/StringValue"),
            a.findtext("Value/BinaryValue"),
        )
        for a in got.findall("Message/MessageAttribute")
    }
    assert found == {"n": ("Number", "1", None), "b": ("Binary", None, "AAE=")}
    system = {a.findtext("Name"): a.findtext("Value") for a in got.findall("Message/Attribute")}
    assert system["AWSTraceHeader"] == "Root=1"
    assert system["ApproximateReceiveCount"] == "1"
    receipt = got.findtext("Message/ReceiptHandle")
    query("ChangeMessageVisibility", QueueUrl=queue, ReceiptHandle=receipt, VisibilityTimeout=60)
    assert query("ReceiveMessage", QueueUrl=queue).find("Message") is None


def test_batches(query, queue):
    sent = query(
        "SendMessageBatch", QueueUrl=queue,
        SendMessageBatchRequestEntry__1__Id="a", SendMessageBatchRequestEntry__1__MessageBody="1",
        SendMessageBatchRequestEntry__2__Id="b",
        SendMessageBatchRequestEntry__2__MessageBody="2\x00",
        SendMessageBatchRequestEntry__10__Id="c", SendMessageBatchRequestEntry__10__MessageBody="3",
    )  # fmt: skip
    assert [e.findtext("Id") for e in sent.findall("SendMessageBatchResultEntry")] == ["a", "c"]
    (failed,) = sent.findall("BatchResultErrorEntry")
    assert failed.findtext("Id") == "b"
    assert failed.findtext("SenderFault") == "true"
    assert failed.findtext("Code") == "InvalidMessageContents"
    got = query("ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=10)
    receipts = [m.findtext("ReceiptHandle") for m in got.findall("Message")]
    changed = query(
        "ChangeMessageVisibilityBatch", QueueUrl=queue,
        ChangeMessageVisibilityBatchRequestEntry__1__Id="a",
        ChangeMessageVisibilityBatchRequestEntry__1__ReceiptHandle=receipts[0],
        ChangeMessageVisibilityBatchRequestEntry__1__VisibilityTimeout=0,
    )  # fmt: skip
    assert changed.findtext("ChangeMessageVisibilityBatchResultEntry/Id") == "a"
    deleted = query(
        "DeleteMessageBatch", QueueUrl=queue,
        DeleteMessageBatchRequestEntry__1__Id="a",
        DeleteMessageBatchRequestEntry__1__ReceiptHandle=receipts[1],
        DeleteMessageBatchRequestEntry__2__Id="junk",
        DeleteMessageBatchRequestEntry__2__ReceiptHandle="junk",
    )  # fmt: skip
    assert deleted.findtext("DeleteMessageBatchResultEntry/Id") == "a"
    assert deleted.findtext("BatchResultErrorEntry/Code") == "ReceiptHandleIsInvalid"
    error = refused(query, "SendMessageBatch", QueueUrl=queue)
    assert error.code == "AWS.SimpleQueueService.EmptyBatchRequest"


def test_dead_letters_and_moves(query, queue, name):
    attribute = query("GetQueueAttributes", QueueUrl=queue, AttributeName__1="QueueArn")
    arn = attribute.findtext("Attribute/Value")
    source = query(
        "CreateQueue", QueueName=name(), Attribute__1__Name="RedrivePolicy",
        Attribute__1__Value=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"}),
    ).findtext("QueueUrl")  # fmt: skip
    found = query("ListDeadLetterSourceQueues", QueueUrl=queue)
    assert [element.text for element in found.findall("QueueUrl")] == [source]
    assert query("StartMessageMoveTask", SourceArn=arn).findtext("TaskHandle")
    tasks = query("ListMessageMoveTasks", SourceArn=arn, MaxResults=1)
    assert tasks.findtext("ListMessageMoveTasksResultEntry/SourceArn") == arn
    error = refused(query, "CancelMessageMoveTask", TaskHandle="junk")
    assert (error.code, error.kind) == ("InvalidParameterValue", "Sender")


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"Action": "Dance"}, "InvalidAction", "The action Dance is not valid for this endpoint."),
        ({"Action": "SendMessage"}, "MissingParameter",
         "The request must contain the parameter MessageBody."),
        ({"Action": "GetQueueAttributes", "AttributeName__1": "Mood"}, "InvalidAttributeName",
         "Unknown Attribute Mood."),
        ({"Action": "ReceiveMessage", "MaxNumberOfMessages": "11"}, "InvalidParameterValue",
         "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, "
         "if provided."),
        ({"Action": "ReceiveMessage", "MaxNumberOfMessages": "many"}, "InvalidParameterValue", None),
        ({"Action": "CreateQueue", "QueueName": "x"}, "InvalidAction",
         "The action CreateQueue is not valid for this endpoint."),
        ({"Action": "ListQueues"}, "InvalidAction",
         "The action ListQueues is not valid for this endpoint."),
    ],
)  # fmt: skip
def test_errors_on_a_queues_own_address(query, queue, fields, code, message):
    for method in ("GET", "POST"):
        if method == "GET":
            error = refused(query.get, queue, **fields)
        else:
            rest = {name: value for name, value in fields.items() if name != "Action"}
            error = refused(query, fields["Action"], queue, **rest)
        assert (error.status, error.kind, error.code) == (400, "Sender", code)
        if message is not None:
            assert error.message == message


def test_everything_works_by_get_on_the_queues_address(query, queue, name):
    assert query.get(queue, Action="SendMessage", MessageBody="x y").findtext("MessageId")
    got = query.get(queue, Action="ReceiveMessage", VisibilityTimeout=0)
    assert got.findtext("Message/Body") == "x y"
    found = query.get(queue, Action="GetQueueAttributes", AttributeName__1="All")
    assert len(found.findall("Attribute")) == 12
    other = query("CreateQueue", QueueName=name()).findtext("QueueUrl")
    assert other is not None
    same = query.get(queue, Action="GetQueueUrl", QueueName=queue.rpartition("/")[2])
    assert same.findtext("QueueUrl") == queue
    different = query.get(queue, Action="GetQueueUrl", QueueName=other.rpartition("/")[2])
    assert different.findtext("QueueUrl") == other
    arn = query.get(queue, Action="GetQueueAttributes", QueueUrl=other, AttributeName__1="QueueArn")
    assert (arn.findtext("Attribute/Value") or "").endswith(other.rpartition("/")[2])
    query.get(queue, Action="DeleteQueue")
    error = refused(query.get, queue, Action="GetQueueAttributes", AttributeName__1="All")
    assert error.code == "AWS.SimpleQueueService.NonExistentQueue"
    assert error.message == "The specified queue does not exist for this wsdl version."


@covers("UnknownOperationException")
@pytest.mark.parametrize("accept", ["*/*", "application/json"])
def test_a_get_that_asks_for_nothing(query, queue, accept):
    status, headers, body = query.raw("GET", urlsplit(queue).path, headers={"accept": accept})
    assert status == 404
    assert b"<UnknownOperationException/>" in body
    assert headers["content-type"] == "text/xml"


def test_json_for_those_who_ask_for_it(query, queue):
    path = urlsplit(queue).path
    asked = {"accept": "application/json"}
    status, headers, body = query.raw(
        "GET", path + "?Action=GetQueueAttributes&AttributeName.1=DelaySeconds", headers=asked
    )
    assert status == 200
    assert headers["content-type"] == "application/json"
    answer = json.loads(body)["GetQueueAttributesResponse"]
    assert answer["GetQueueAttributesResult"] == {
        "Attributes": [{"Name": "DelaySeconds", "Value": "0"}]
    }
    assert answer["ResponseMetadata"]["RequestId"]
    status, _, body = query.raw("GET", path + "?Action=ListQueues", headers=asked)
    assert status == 400
    assert json.loads(body)["Error"] == {
        "Code": "InvalidAction",
        "Detail": None,
        "Message": "The action ListQueues is not valid for this endpoint.",
        "Type": "Sender",
    }


def test_arns_have_the_region_of_the_signature(query, queue):
    path = urlsplit(queue).path + "?Action=GetQueueAttributes&AttributeName.1=QueueArn"
    scope = "AKIDEXAMPLE/20261115/ap-south-1/sqs/aws4_request"
    header = {
        "authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
    }
    for address, headers in (
        (path, header),
        (f"{path}&X-Amz-Credential={quote(scope, safe='')}", {}),
    ):
        _, _, body = query.raw("GET", address, headers=headers)
        assert b"arn:aws:sqs:ap-south-1:000000000000:" in body


def test_the_json_protocol_on_the_queues_address(query, queue):
    status, headers, body = query.raw(
        "POST", urlsplit(queue).path, json.dumps({"MessageBody": "x"}),
        {"x-amz-target": "AmazonSQS.SendMessage", "content-type": "application/x-amz-json-1.0"},
    )  # fmt: skip
    assert status == 200
    assert headers["content-type"] == "application/x-amz-json-1.0"
    assert json.loads(body)["MessageId"]


def test_addresses_are_those_the_client_has_used(query, name):
    queue = name()
    for host in ("localhost:1234", "127.0.0.1", "[::1]:80"):
        _, _, body = query.raw(
            "POST", "/", f"Action=CreateQueue&QueueName={queue}",
            {"host": host, "content-type": "application/x-www-form-urlencoded"},
        )  # fmt: skip
        assert f"<QueueUrl>http://{host}/000000000000/{queue}</QueueUrl>" in body.decode()


@covers("UnknownOperationException", "SerializationException")
@pytest.mark.parametrize(
    ("target", "body", "shape"),
    [
        ("AmazonSQS.Dance", "{}", "UnknownOperationException"),
        ("Elsewhere.SendMessage", "{}", "UnknownOperationException"),
        ("AmazonSQS.ListQueues", "{", "SerializationException"),
        ("AmazonSQS.ListQueues", "[]", "SerializationException"),
        ("AmazonSQS.ListQueues", '{"MaxResults": "one"}', "SerializationException"),
        ("AmazonSQS.SendMessage", '{"MessageBody": 1}', "SerializationException"),
    ],
)
def test_json_that_is_not_understood(query, target, body, shape):
    status, headers, answer = query.raw("POST", "/", body, {"x-amz-target": target})
    assert status == 400
    assert json.loads(answer)["__type"] == f"com.amazonaws.sqs#{shape}"
    assert headers["x-amzn-query-error"].endswith(";Sender")


def test_what_is_unknown_in_a_request_is_passed_over(query, queue):
    status, _, _ = query.raw(
        "POST", "/", json.dumps({"QueueUrl": queue, "MessageBody": "x", "Novelty": 1}),
        {"x-amz-target": "AmazonSQS.SendMessage"},
    )  # fmt: skip
    assert status == 200
