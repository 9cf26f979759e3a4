"""A queue is a topic: what boto3 sends others read, and the other way round."""

import quiver
from tests.server.nodes import start_node
from tests.sqs.conftest import client


def test_what_boto3_sends_is_read_in_python_and_traced_by_its_message_id(tmp_path):
    with start_node(tmp_path) as node:
        sqs = client(node)
        url = sqs.create_queue(QueueName="orders")["QueueUrl"]
        sent = sqs.send_message(
            QueueUrl=url, MessageBody="grüß", MessageGroupId="ann",
            MessageAttributes={
                "colour": {"DataType": "String", "StringValue": "red"},
                "size": {"DataType": "Number", "StringValue": "3"},
                "raw": {"DataType": "Binary", "BinaryValue": b"\x00\x01"},
            },
        )  # fmt: skip
        sqs.close()
        node.stop()
        with quiver.connect(node.data) as queue:
            (got,) = queue.receive("orders", group="others", max_messages=10)
            assert got.body == "grüß".encode()
            assert got.key == "ann"
            assert got.headers["colour"] == "red"
            assert got.headers["size"] == "3"
            assert got.headers["raw"] == "AAE="
            story = queue.trace(sent["MessageId"])
            assert story["event"].to_pylist()[:2] == ["sent", "leased"]
            assert got.id == queue.receive("orders", max_messages=1)[0].id


def test_what_python_sends_is_read_by_boto3(tmp_path):
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("orders.all", partitions=3)
        queue.create_topic("jobs.fifo", order="key")
        queue.send("orders.all", "hi", key="k", headers={"a": "1", "not a name": "x", "empty": ""})
        queue.send("orders.all", b"\xff\x00")
        queue.send("orders.all", "bell\x07")
        queue.send("orders.all", {"n": 1})
        for body in ("1", "2"):
            queue.send("jobs.fifo", body, key="g", dedup_id=f"d{body}")
    with start_node(tmp_path) as node:
        sqs = client(node)
        url = sqs.get_queue_url(QueueName="orders.all")["QueueUrl"]
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert found["ApproximateNumberOfMessages"] == "4"
        assert found["VisibilityTimeout"] == "30"
        got = {}
        for _ in range(4):
            for message in sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"],
                AttributeNames=["All"],
            ).get("Messages", ()):  # fmt: skip
                got[message["Body"]] = message
        assert set(got) == {"hi", "/wA=", "YmVsbAc=", '{"n":1}'}
        assert got["hi"]["MessageAttributes"] == {"a": {"DataType": "String", "StringValue": "1"}}
        assert got["hi"]["Attributes"]["MessageGroupId"] == "k"
        for encoded in ("/wA=", "YmVsbAc="):
            assert got[encoded]["MessageAttributes"] == {
                "quiver.body-encoding": {"DataType": "String", "StringValue": "base64"}
            }
        assert (
            got['{"n":1}']["MessageAttributes"]["content-type"]["StringValue"] == "application/json"
        )
        for message in got.values():
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        jobs = sqs.get_queue_url(QueueName="jobs.fifo")["QueueUrl"]
        again = sqs.send_message(
            QueueUrl=jobs, MessageBody="1", MessageGroupId="g", MessageDeduplicationId="d1"
        )
        messages = sqs.receive_message(
            QueueUrl=jobs, MaxNumberOfMessages=10, AttributeNames=["All"]
        )["Messages"]
        assert [message["Body"] for message in messages] == ["1", "2"]
        assert again["MessageId"] == messages[0]["MessageId"]
        assert messages[0]["Attributes"]["MessageGroupId"] == "g"
        sqs.close()


def test_a_group_of_others_keeps_what_boto3_deletes(tmp_path):
    with start_node(tmp_path) as node:
        sqs = client(node)
        url = sqs.create_queue(QueueName="q")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="x")
        node.stop()
        with quiver.connect(node.data) as queue:
            queue.create_group("q", "audit")
        node.restart()
        (got,) = sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)["Messages"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])  # which is late
        assert "Messages" not in sqs.receive_message(QueueUrl=url)
        sqs.close()
        node.stop()
        with quiver.connect(node.data) as queue:
            assert [message.body for message in queue.receive("q", group="audit")] == [b"x"]
            assert queue.receive("q") == []
