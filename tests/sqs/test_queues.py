"""Making queues, finding them, and what they are like."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import quiver
from tests.server.nodes import start_node
from tests.sqs.conftest import client
from tests.sqs.faults import refused

covers = pytest.mark.covers


def attributes(sqs, url, *names):
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names or ["All"]).get(
        "Attributes", {}
    )


@covers("CreateQueue", "GetQueueAttributes", "All", "QueueArn", "CreatedTimestamp",
        "LastModifiedTimestamp")  # fmt: skip
def test_a_new_queue_has_the_defaults(sqs, make):
    url = make()
    found = attributes(sqs, url)
    assert abs(int(found.pop("CreatedTimestamp")) - time.time()) < 60
    assert abs(int(found.pop("LastModifiedTimestamp")) - time.time()) < 60
    name = url.rpartition("/")[2]
    assert found == {
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "DelaySeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "QueueArn": f"arn:aws:sqs:eu-central-1:000000000000:{name}",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
        "VisibilityTimeout": "30",
    }


@covers("FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit")
def test_a_new_fifo_queue_has_some_more(sqs, fifo_url):
    found = attributes(sqs, fifo_url)
    assert found["FifoQueue"] == "true"
    assert found["ContentBasedDeduplication"] == "false"
    assert found["DeduplicationScope"] == "queue"
    assert found["FifoThroughputLimit"] == "perQueue"


@covers("VisibilityTimeout", "DelaySeconds", "MessageRetentionPeriod", "MaximumMessageSize",
        "ReceiveMessageWaitTimeSeconds", "SetQueueAttributes", "Policy")  # fmt: skip
def test_attributes_are_set_when_it_is_made_and_later(sqs, make):
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    url = make(VisibilityTimeout="5", DelaySeconds="7", MessageRetentionPeriod="60")
    sqs.set_queue_attributes(
        QueueUrl=url,
        Attributes={
            "DelaySeconds": "0", "MaximumMessageSize": "2048", "Policy": policy,
            "ReceiveMessageWaitTimeSeconds": "3",
        },
    )  # fmt: skip
    found = attributes(sqs, url)
    assert found["VisibilityTimeout"] == "5"
    assert found["DelaySeconds"] == "0"
    assert found["MessageRetentionPeriod"] == "60"
    assert found["MaximumMessageSize"] == "2048"
    assert found["ReceiveMessageWaitTimeSeconds"] == "3"
    assert found["Policy"] == policy
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    assert "Policy" not in attributes(sqs, url)


@covers("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
def test_encryption_is_kept_and_echoed(sqs, make):
    url = make(KmsMasterKeyId="alias/mine", KmsDataKeyReusePeriodSeconds="60")
    found = attributes(sqs, url)
    assert found["KmsMasterKeyId"] == "alias/mine"
    assert found["KmsDataKeyReusePeriodSeconds"] == "60"
    assert found["SqsManagedSseEnabled"] == "false"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"SqsManagedSseEnabled": "true"})
    found = attributes(sqs, url)
    assert found["SqsManagedSseEnabled"] == "true"
    assert "KmsMasterKeyId" not in found


def test_there_is_one_kind_of_encryption_at_a_time(sqs, name):
    text = (
        "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS "
        "SSE or SQS SSE."
    )
    with refused("InvalidAttributeName", text):
        sqs.create_queue(
            QueueName=name(),
            Attributes={"KmsMasterKeyId": "alias/mine", "SqsManagedSseEnabled": "true"},
        )


def test_only_what_is_asked_for_comes_back(sqs, url):
    assert set(attributes(sqs, url, "QueueArn", "Policy", "DelaySeconds")) == {
        "QueueArn", "DelaySeconds",
    }  # fmt: skip
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url)
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])


@covers("InvalidAttributeName")
def test_attributes_that_there_are_not(sqs, make, name):
    url = make()
    with refused("InvalidAttributeName", "Unknown Attribute Colour."):
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Colour"])
    with refused("InvalidAttributeName", "Unknown Attribute Colour."):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Colour": "red"})
    with refused("InvalidAttributeName", "Unknown Attribute QueueArn."):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"QueueArn": "mine"})
    with refused("InvalidAttributeName", "Unknown Attribute FifoQueue."):
        sqs.create_queue(QueueName=name(), Attributes={"FifoQueue": "false"})
    with refused("InvalidAttributeName", "Unknown Attribute ContentBasedDeduplication."):
        sqs.create_queue(QueueName=name(), Attributes={"ContentBasedDeduplication": "true"})
    text = "You can specify the DeduplicationScope only when FifoQueue is set to true."
    with refused("InvalidAttributeName", text):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"DeduplicationScope": "queue"})


@covers("InvalidAttributeValue")
@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("DelaySeconds", "901"), ("DelaySeconds", "-1"), ("DelaySeconds", ""),
        ("DelaySeconds", "one"), ("DelaySeconds", "99999999999999999999"),
        ("MaximumMessageSize", "1023"), ("MaximumMessageSize", "1048577"),
        ("MessageRetentionPeriod", "59"), ("MessageRetentionPeriod", "1209601"),
        ("ReceiveMessageWaitTimeSeconds", "21"), ("VisibilityTimeout", "43201"),
        ("KmsDataKeyReusePeriodSeconds", "59"), ("SqsManagedSseEnabled", "perhaps"),
        ("Policy", "{"), ("RedriveAllowPolicy", "[]"),
    ],
)  # fmt: skip
def test_values_out_of_bounds_are_refused(sqs, url, name, attribute, value):
    text = f"Invalid value for the parameter {attribute}."
    with refused("InvalidAttributeValue", text):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={attribute: value})
    with refused("InvalidAttributeValue", text):
        sqs.create_queue(QueueName=name(), Attributes={attribute: value})


def test_a_fifo_queue_stays_one(sqs, fifo_url):
    text = (
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
    )
    with refused("InvalidAttributeValue", text):
        sqs.set_queue_attributes(QueueUrl=fifo_url, Attributes={"FifoQueue": "false"})
    with refused("InvalidAttributeValue"):
        sqs.set_queue_attributes(
            QueueUrl=fifo_url, Attributes={"FifoThroughputLimit": "perMessageGroupId"}
        )
    sqs.set_queue_attributes(
        QueueUrl=fifo_url,
        Attributes={
            "FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup",
        },
    )  # fmt: skip
    assert attributes(sqs, fifo_url, "FifoThroughputLimit") == {
        "FifoThroughputLimit": "perMessageGroupId"
    }


@pytest.mark.parametrize("queue", ["with space", "a" * 81, "dot.in", "some.fifo", "ü", "a/b"])
def test_names_that_sqs_refuses(sqs, queue):
    text = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
    with refused("InvalidParameterValue", text):
        sqs.create_queue(QueueName=queue)


@pytest.mark.parametrize("queue", ["plain", "a" * 76 + ".fifo", "x.fifo.fifo", ".fifo"])
def test_names_that_sqs_refuses_for_fifo(sqs, queue):
    text = (
        "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
        "underscores, must end with .fifo suffix and be 1 to 80 in length."
    )
    with refused("InvalidParameterValue", text):
        sqs.create_queue(QueueName=queue, Attributes={"FifoQueue": "true"})


@covers("MissingRequiredParameterException")
def test_a_name_is_needed(sqs):
    text = "The request must contain the parameter QueueName."
    with refused("MissingParameter", text, shape="MissingRequiredParameterException"):
        sqs.create_queue(QueueName="")
    with refused("MissingParameter"):
        sqs.get_queue_url(QueueName="")


@covers("QueueNameExists")
def test_making_it_again_is_fine_unless_it_is_another(sqs, name):
    queue = name()
    url = sqs.create_queue(QueueName=queue, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    assert sqs.create_queue(QueueName=queue)["QueueUrl"] == url
    again = sqs.create_queue(QueueName=queue, Attributes={"VisibilityTimeout": "60"})
    assert again["QueueUrl"] == url
    text = (
        "A queue already exists with the same name and a different value for attribute DelaySeconds"
    )
    with refused("QueueAlreadyExists", text, shape="QueueNameExists"):
        sqs.create_queue(QueueName=queue, Attributes={"DelaySeconds": "1"})


@covers("GetQueueUrl", "QueueDoesNotExist", "InvalidAddress")
def test_queues_are_found_by_name(sqs, make):
    url = make()
    name = url.rpartition("/")[2]
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    found = sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId="111122223333")
    assert found["QueueUrl"] == url
    with refused("AWS.SimpleQueueService.NonExistentQueue", shape="QueueDoesNotExist"):
        sqs.get_queue_url(QueueName="no-such-queue")
    with refused("AWS.SimpleQueueService.NonExistentQueue"):
        sqs.get_queue_url(QueueName="no such name")
    for gone in ("http://127.0.0.1/000000000000/gone", "gone"):
        with refused("AWS.SimpleQueueService.NonExistentQueue"):
            sqs.send_message(QueueUrl=gone, MessageBody="x")
    bad = "http://[/gone"
    with refused("InvalidAddress", f"The address {bad} is not valid for this endpoint."):
        sqs.send_message(QueueUrl=bad, MessageBody="x")


def test_a_name_will_do_for_a_url(sqs, url):
    sqs.send_message(QueueUrl=url.rpartition("/")[2], MessageBody="by name")
    other = url.replace("000000000000", "999999999999")
    assert sqs.receive_message(QueueUrl=other)["Messages"][0]["Body"] == "by name"


@covers("ListQueues")
def test_queues_are_listed_page_by_page(sqs, name):
    prefix = name("-list-")
    urls = [sqs.create_queue(QueueName=f"{prefix}{at}")["QueueUrl"] for at in range(5)]
    assert sqs.list_queues(QueueNamePrefix=prefix)["QueueUrls"] == urls
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=prefix + "none")
    first = sqs.list_queues(QueueNamePrefix=prefix, MaxResults=2)
    assert first["QueueUrls"] == urls[:2]
    second = sqs.list_queues(QueueNamePrefix=prefix, MaxResults=2, NextToken=first["NextToken"])
    assert second["QueueUrls"] == urls[2:4]
    third = sqs.list_queues(QueueNamePrefix=prefix, MaxResults=2, NextToken=second["NextToken"])
    assert third["QueueUrls"] == urls[4:]
    assert "NextToken" not in third
    pages = sqs.get_paginator("list_queues").paginate(
        QueueNamePrefix=prefix, PaginationConfig={"PageSize": 1}
    )
    assert [url for page in pages for url in page.get("QueueUrls", ())] == urls
    with refused("InvalidParameterValue"):
        sqs.list_queues(MaxResults=0)
    with refused("InvalidParameterValue"):
        sqs.list_queues(MaxResults=1001)
    with refused("InvalidParameterValue"):
        sqs.list_queues(MaxResults=1, NextToken="?")


@covers("DeleteQueue", "QueueDeletedRecently")
def test_a_deleted_queue_is_gone_and_its_name_rests_for_a_minute(sqs, make):
    url = make()
    name = url.rpartition("/")[2]
    sqs.delete_queue(QueueUrl=url)
    with refused("AWS.SimpleQueueService.NonExistentQueue"):
        sqs.send_message(QueueUrl=url, MessageBody="late")
    with refused("AWS.SimpleQueueService.NonExistentQueue"):
        sqs.delete_queue(QueueUrl=url)
    text = (
        "You must wait 60 seconds after deleting a queue before you can create another with the "
        "same name."
    )
    with refused("AWS.SimpleQueueService.QueueDeletedRecently", text):
        sqs.create_queue(QueueName=name)


@covers("PurgeQueue", "PurgeQueueInProgress")
def test_a_purge_empties_the_queue_once_a_minute(sqs, url):
    for body in "abc":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=1)
    (held,) = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.purge_queue(QueueUrl=url)
    found = attributes(sqs, url)
    assert [found[f"ApproximateNumberOfMessages{kind}"] for kind in ("", "NotVisible", "Delayed")] == [
        "0", "0", "0",
    ]  # fmt: skip
    sqs.delete_message(QueueUrl=url, ReceiptHandle=held["ReceiptHandle"])
    name = url.rpartition("/")[2]
    text = f"Only one PurgeQueue operation on {name} is allowed every 60 seconds."
    with refused("AWS.SimpleQueueService.PurgeQueueInProgress", text):
        sqs.purge_queue(QueueUrl=url)


@covers("TagQueue", "UntagQueue", "ListQueueTags")
def test_tags(sqs, make):
    url = make(tags={"team": "billing"})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "billing"}
    sqs.tag_queue(QueueUrl=url, Tags={"Team": "B", "team": "post", "empty": ""})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"Team": "B", "team": "post", "empty": ""}
    sqs.untag_queue(QueueUrl=url, TagKeys=["team", "nobody", "empty"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"Team": "B"}
    sqs.untag_queue(QueueUrl=url, TagKeys=["Team"])
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=url)
    with refused("InvalidParameterValue"):
        sqs.tag_queue(QueueUrl=url, Tags={str(at): "x" for at in range(51)})
    with refused("MissingParameter"):
        sqs.tag_queue(QueueUrl=url, Tags={})


@covers("AddPermission", "RemovePermission")
def test_permissions_become_a_policy(sqs, url):
    arn = attributes(sqs, url, "QueueArn")["QueueArn"]
    sqs.add_permission(
        QueueUrl=url, Label="one", AWSAccountIds=["111122223333"], Actions=["ReceiveMessage"]
    )
    sqs.add_permission(
        QueueUrl=url, Label="two", AWSAccountIds=["111122223333", "444455556666"],
        Actions=["SendMessage", "*"],
    )  # fmt: skip
    assert json.loads(attributes(sqs, url, "Policy")["Policy"]) == {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "one",
                "Effect": "Allow",
                "Principal": {"AWS": "arn:aws:iam::111122223333:root"},
                "Action": "SQS:ReceiveMessage",
                "Resource": arn,
            },
            {
                "Sid": "two",
                "Effect": "Allow",
                "Principal": {
                    "AWS": ["arn:aws:iam::111122223333:root", "arn:aws:iam::444455556666:root"]
                },
                "Action": ["SQS:SendMessage", "SQS:*"],
                "Resource": arn,
            },
        ],
    }
    with refused(
        "InvalidParameterValue", "Value one for parameter Label is invalid. Reason: Already exists."
    ):
        sqs.add_permission(
            QueueUrl=url, Label="one", AWSAccountIds=["111122223333"], Actions=["ReceiveMessage"]
        )
    sqs.remove_permission(QueueUrl=url, Label="one")
    sqs.remove_permission(QueueUrl=url, Label="two")
    assert attributes(sqs, url, "Policy") == {}
    text = "Value two for parameter Label is invalid. Reason: can't find label."
    with refused("InvalidParameterValue", text):
        sqs.remove_permission(QueueUrl=url, Label="two")


def test_permissions_that_cannot_be_given(sqs, url):
    right = {"Label": "l", "AWSAccountIds": ["111122223333"], "Actions": ["SendMessage"]}
    for change, text in (
        (
            {"Actions": ["CreateQueue"]},
            "Value SQS:CreateQueue for parameter ActionName is invalid. "
            "Reason: Only the queue owner is allowed to invoke this action.",
        ),
        (
            {"Actions": ["Dance"]},
            "Value SQS:Dance for parameter ActionName is invalid. "
            "Reason: Please refer to the appropriate WSDL for a list of valid actions. ",
        ),
        (
            {"AWSAccountIds": ["me"]},
            "Value [me] for parameter PrincipalId is invalid. Reason: Unable to verify.",
        ),
        (
            {"Label": "no spaces"},
            "Value no spaces for parameter Label is invalid. Reason: Can only include alphanumeric "
            "characters, hyphens, or underscores. 1 to 80 in length.",
        ),
    ):
        with refused("InvalidParameterValue", text):
            sqs.add_permission(QueueUrl=url, **{**right, **change})
    for name in right:
        with refused("MissingParameter", f"The request must contain the parameter {name}."):
            sqs.add_permission(
                QueueUrl=url, **{key: value for key, value in right.items() if key != name}
            )


def test_what_a_queue_is_like_survives_a_restart(tmp_path):
    with start_node(tmp_path) as node:
        sqs = client(node)
        url = sqs.create_queue(
            QueueName="kept.fifo", tags={"a": "b"},
            Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true",
                        "VisibilityTimeout": "77"},
        )["QueueUrl"]  # fmt: skip
        before = attributes(sqs, url)
        sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
        node.restart()
        assert attributes(sqs, url) == {**before, "ApproximateNumberOfMessages": "1"}
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "b"}
        again = sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
        assert again["MessageId"] == sent["MessageId"]
        sqs.close()


def test_limits_can_be_raised_and_strictness_switched_off(tmp_path):
    config = tmp_path / "quiver.toml"
    config.write_text(
        "[sqs]\nstrict = false\ndelay_seconds = 86400\nmessage_bytes = 4194304\n"
        'receive_messages = 100\naccount = "123456789012"\n'
    )
    with start_node(tmp_path, "--config", str(config)) as node:
        sqs = client(node)
        url = sqs.create_queue(QueueName="q", Attributes={"MaximumMessageSize": "4194304"})[
            "QueueUrl"
        ]
        assert url == f"{node.url}/123456789012/q"
        sqs.send_message(QueueUrl=url, MessageBody="x" * 3_000_000)
        sqs.send_message(QueueUrl=url, MessageBody="tomorrow", DelaySeconds=86_400)
        assert len(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=100)["Messages"]) == 1
        sqs.purge_queue(QueueUrl=url)
        sqs.purge_queue(QueueUrl=url)
        sqs.delete_queue(QueueUrl=url)
        assert sqs.create_queue(QueueName="q")["QueueUrl"] == url
        sqs.close()


def test_changes_at_the_same_time_are_all_kept(shared, make):
    url = make()
    with ThreadPoolExecutor(8) as pool:
        clients = [client(shared) for _ in range(8)]
        for _ in pool.map(
            lambda at: clients[at].tag_queue(QueueUrl=url, Tags={f"t{at}": "x"}), range(8)
        ):
            pass
        for made in clients[1:]:
            made.close()
    assert len(clients[0].list_queue_tags(QueueUrl=url)["Tags"]) == 8
    clients[0].close()


def test_labels_that_others_have_set_do_no_harm(tmp_path):
    labels = {"sqs.VisibilityTimeout": "soon", "sqs.Policy": "{", "sqs.created": "then"}
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("odd", labels=labels)
    with start_node(tmp_path) as node:
        sqs = client(node)
        url = sqs.get_queue_url(QueueName="odd")["QueueUrl"]
        assert attributes(sqs, url)["Policy"] == "{"
        sqs.send_message(QueueUrl=url, MessageBody="x")
        assert sqs.receive_message(QueueUrl=url)["Messages"]
        with refused("InvalidAttributeValue"):
            sqs.add_permission(
                QueueUrl=url, Label="l", AWSAccountIds=["1" * 12], Actions=["SendMessage"]
            )
        sqs.close()
