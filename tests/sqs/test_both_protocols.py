"""The first things that anybody does, in JSON and in the query protocol."""

import pytest

from tests.sqs.faults import refused
from tests.sqs.query import Query, QueryError


def test_a_message_goes_from_boto3_to_boto3(sqs, url):
    sent = sqs.send_message(QueueUrl=url, MessageBody="hello")
    assert sent["MD5OfMessageBody"] == "5d41402abc4b2a76b9719d911017c592"
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == "hello"
    assert message["MessageId"] == sent["MessageId"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)


def test_a_message_goes_from_form_to_xml(query: Query, name):
    queue = name()
    url = query("CreateQueue", QueueName=queue).findtext("QueueUrl")
    assert url is not None
    assert url.endswith(f"/000000000000/{queue}")
    assert query("GetQueueUrl", QueueName=queue).findtext("QueueUrl") == url
    assert query("ListQueues", QueueNamePrefix=queue).findtext("QueueUrl") == url
    sent = query("SendMessage", QueueUrl=url, MessageBody="<a>\r\n&amp;</a>")
    got = query("ReceiveMessage", QueueUrl=url)
    assert got.findtext("Message/Body") == "<a>\r\n&amp;</a>"
    assert got.findtext("Message/MessageId") == sent.findtext("MessageId")
    receipt = got.findtext("Message/ReceiptHandle")
    query("DeleteMessage", QueueUrl=url, ReceiptHandle=receipt)
    query("DeleteQueue", QueueUrl=url)
    with pytest.raises(QueryError) as caught:
        query("SendMessage", QueueUrl=url, MessageBody="late")
    assert caught.value.code == "AWS.SimpleQueueService.NonExistentQueue"
    assert caught.value.message == "The specified queue does not exist for this wsdl version."


def test_a_queue_that_is_not_there(sqs):
    with refused(
        "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.",
        shape="QueueDoesNotExist",
    ):  # fmt: skip
        sqs.get_queue_url(QueueName="nowhere")
