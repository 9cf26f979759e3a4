"""What is in a message: body, attributes, digests, and what is refused."""

import hashlib
import struct

import pytest

from tests.sqs.faults import refused

covers = pytest.mark.covers


def string(value, kind="String"):
    return {"DataType": kind, "StringValue": value}


def binary(value, kind="Binary"):
    return {"DataType": kind, "BinaryValue": value}


def md5(text):
    return hashlib.md5(text.encode()).hexdigest()


def canonical(attributes):
    """The digest as the developer guide describes it, written down independently."""
    found = b""
    for name in sorted(attributes):
        kind = attributes[name]["DataType"]
        value = attributes[name].get("BinaryValue")
        mark = b"\x02"
        if value is None:
            value, mark = attributes[name]["StringValue"].encode(), b"\x01"
        for part in (name.encode(), kind.encode()):
            found += struct.pack(">I", len(part)) + part
        found += mark + struct.pack(">I", len(value)) + value
    return hashlib.md5(found).hexdigest()


def receive(sqs, url, **options):
    found = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=2, **options)["Messages"]
    return found[0]


ALL_KINDS = {
    "plain": string("text"),
    "custom": string("v", "String.colour"),
    "number": string("-1.5e3", "Number"),
    "int": string("42", "Number.int"),
    "bytes": binary(b"\x00\xff"),
    "picture": binary(b"png", "Binary.png"),
    "unicode": string("grüß \U0001f600"),
    "with.dots-and_more": string("x"),
}


@covers("SendMessage", "ReceiveMessage")
@pytest.mark.parametrize(
    "body",
    ["x", "null", " ", "grüß \U0001f600", "a\r\nb\tc", '<xml a="b">&amp;</xml>', "{}", "%20+&="],
)
def test_bodies_come_back_as_they_were(sqs, query, url, body):
    sent = sqs.send_message(QueueUrl=url, MessageBody=body)
    assert sent["MD5OfMessageBody"] == md5(body)
    assert "MD5OfMessageAttributes" not in sent
    assert "SequenceNumber" not in sent
    got = receive(sqs, url)
    assert got["Body"] == body
    assert got["MD5OfBody"] == md5(body)
    assert got["MessageId"] == sent["MessageId"]
    assert set(got) == {"Body", "MD5OfBody", "MessageId", "ReceiptHandle"}
    assert query("SendMessage", QueueUrl=url, MessageBody=body).findtext("MD5OfMessageBody") == md5(
        body
    )
    assert query("ReceiveMessage", QueueUrl=url).findtext("Message/Body") == body


def test_attributes_of_every_kind_come_back_as_they_were(sqs, url):
    sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=ALL_KINDS)
    assert sent["MD5OfMessageAttributes"] == canonical(ALL_KINDS)
    got = receive(sqs, url, MessageAttributeNames=["All"])
    assert got["MessageAttributes"] == ALL_KINDS
    assert got["MD5OfMessageAttributes"] == canonical(ALL_KINDS)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["All"], {"Help.Me", "Help.You", "Hello", "General"}),
        ([".*"], {"Help.Me", "Help.You", "Hello", "General"}),
        (["Hello"], {"Hello"}),
        (["Hello", "Help.Me", "Nobody"], {"Hello", "Help.Me"}),
        (["Help.*"], {"Help.Me", "Help.You"}),
        (["He*"], {"Help.Me", "Help.You", "Hello"}),
        (["Nobody"], set()),
        ([], set()),
    ],
)
def test_attributes_are_chosen_by_name_and_prefix(sqs, url, names, expected):
    attributes = {name: string(name) for name in ("Help.Me", "Help.You", "Hello", "General")}
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=attributes)
    got = receive(sqs, url, MessageAttributeNames=names)
    assert set(got.get("MessageAttributes", {})) == expected
    wanted = {name: attributes[name] for name in expected}
    assert got.get("MD5OfMessageAttributes") == (canonical(wanted) if wanted else None)


@covers("SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp",
        "AWSTraceHeader")  # fmt: skip
def test_what_the_queue_knows_of_a_message(sqs, url):
    trace = {"AWSTraceHeader": string("Root=1-5759e988-bd862e3fe1be46a994272793")}
    sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageSystemAttributes=trace)
    assert sent["MD5OfMessageSystemAttributes"] == canonical(trace)
    first = receive(sqs, url, AttributeNames=["All"], VisibilityTimeout=0)["Attributes"]
    assert first["SenderId"] == "000000000000"
    assert first["ApproximateReceiveCount"] == "1"
    assert first["AWSTraceHeader"] == trace["AWSTraceHeader"]["StringValue"]
    assert int(first["SentTimestamp"]) <= int(first["ApproximateFirstReceiveTimestamp"])
    assert set(first) == {
        "SenderId", "SentTimestamp", "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp", "AWSTraceHeader",
    }  # fmt: skip
    again = receive(sqs, url, MessageSystemAttributeNames=["All"])["Attributes"]
    assert again == {**first, "ApproximateReceiveCount": "2"}


def test_system_attributes_are_chosen_by_name(sqs, url):
    sqs.send_message(QueueUrl=url, MessageBody="x")
    got = receive(sqs, url, AttributeNames=["SenderId"], VisibilityTimeout=0,
                  MessageSystemAttributeNames=["ApproximateReceiveCount"])  # fmt: skip
    assert set(got["Attributes"]) == {"SenderId", "ApproximateReceiveCount"}
    got = receive(sqs, url, AttributeNames=["Policy"], VisibilityTimeout=0)
    assert "Attributes" not in got
    with refused("InvalidAttributeName", "Unknown Attribute Mood."):
        sqs.receive_message(QueueUrl=url, AttributeNames=["Mood"])


def test_the_trace_header_is_taken_from_the_request_too(sqs, url):
    def add(request, **_):
        request.headers["X-Amzn-Trace-Id"] = "Root=1-abc"

    sqs.meta.events.register_first("before-sign.sqs.SendMessage", add)
    try:
        sent = sqs.send_message(QueueUrl=url, MessageBody="x")
    finally:
        sqs.meta.events.unregister("before-sign.sqs.SendMessage", add)
    assert "MD5OfMessageSystemAttributes" not in sent
    got = receive(sqs, url, AttributeNames=["AWSTraceHeader"])
    assert got["Attributes"] == {"AWSTraceHeader": "Root=1-abc"}


@covers("InvalidMessageContents")
@pytest.mark.parametrize(
    ("character", "number"), [("\x00", "0"), ("\x1b", "1B"), ("\uffff", "FFFF")]
)
def test_characters_that_xml_does_not_have(sqs, url, character, number):
    text = (
        f"Invalid binary character '#x{number}' was found in the message body, the set of allowed "
        "characters is #x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]."
    )
    with refused("InvalidMessageContents", text):
        sqs.send_message(QueueUrl=url, MessageBody=f"a{character}")
    with refused("InvalidParameterValue"):
        sqs.send_message(
            QueueUrl=url, MessageBody="x", MessageAttributes={"a": string(f"a{character}")}
        )


@covers("MissingRequiredParameterException")
def test_a_body_is_needed(sqs, url):
    with refused("MissingParameter", "The request must contain the parameter MessageBody."):
        sqs.send_message(QueueUrl=url, MessageBody="")
    with refused("MissingParameter", "The request must contain the parameter QueueUrl."):
        sqs.send_message(MessageBody="x")


@covers("InvalidParameterValueException")
@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (
            {"a": string("")},
            "Message (user) attribute 'a' must contain a non-empty value of type 'String'.",
        ),
        (
            {"a": {"StringValue": "x"}},
            "The message attribute 'a' must contain non-empty message attribute type.",
        ),
        (
            {"a": {"DataType": "String"}},
            "The message attribute 'a' must contain non-empty message attribute value for message "
            "attribute type 'String'.",
        ),
        (
            {"a": string("x", "Text")},
            "The type of message (user) attribute 'a' is invalid. You must use only the following "
            "supported type prefixes: Binary, Number, String.",
        ),
        (
            {"a": string("many", "Number")},
            "Can't cast the value of message (user) attribute 'a' to a number.",
        ),
        (
            {f"a{at}": string("x") for at in range(11)},
            "Number of message attributes [11] exceeds the allowed maximum [10].",
        ),
        (
            {"AWS.mine": string("x")},
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings "
            "are reserved for internal use.",
        ),
        ({"a b": string("x")}, None),
        ({".a": string("x")}, None),
        ({"a" * 257: string("x")}, None),
    ],
)  # fmt: skip
def test_attributes_that_sqs_refuses(sqs, url, attributes, text):
    with refused("InvalidParameterValue", text):
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=attributes)


@covers("UnsupportedOperation")
def test_lists_are_no_values(sqs, url):
    with refused("AWS.SimpleQueueService.UnsupportedOperation", shape="UnsupportedOperation"):
        sqs.send_message(
            QueueUrl=url, MessageBody="x",
            MessageAttributes={"a": {"DataType": "String", "StringListValues": ["x"]}},
        )  # fmt: skip


def test_size_counts_attributes_and_is_the_queues(sqs, make):
    url = make(MaximumMessageSize="1024")
    text = "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    sqs.send_message(QueueUrl=url, MessageBody="x" * 1024)
    with refused("InvalidParameterValue", text):
        sqs.send_message(QueueUrl=url, MessageBody="x" * 1025)
    with refused("InvalidParameterValue", text):
        sqs.send_message(QueueUrl=url, MessageBody="ü" * 513)
    spent = len("nameString")
    fits = {"name": string("v" * (24 - spent))}
    sqs.send_message(QueueUrl=url, MessageBody="x" * 1000, MessageAttributes=fits)
    with refused("InvalidParameterValue", text):
        sqs.send_message(QueueUrl=url, MessageBody="x" * 1001, MessageAttributes=fits)


def test_a_mebibyte_fits_and_no_more(sqs, url):
    half = 512 * 1024
    attributes = {"a": binary(b"\xff" * (half - len("aBinary")))}
    sqs.send_message(QueueUrl=url, MessageBody="\n" * half, MessageAttributes=attributes)
    got = receive(sqs, url, MessageAttributeNames=["All"])
    assert got["MessageAttributes"] == attributes
    text = "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes."
    with refused("InvalidParameterValue", text):
        sqs.send_message(QueueUrl=url, MessageBody="x" * (half + 1), MessageAttributes=attributes)


def test_other_system_attributes_cannot_be_sent(sqs, url):
    with refused("InvalidParameterValue"):
        sqs.send_message(
            QueueUrl=url, MessageBody="x", MessageSystemAttributes={"SenderId": string("me")}
        )
    with refused("InvalidParameterValue"):
        sqs.send_message(
            QueueUrl=url, MessageBody="x",
            MessageSystemAttributes={"AWSTraceHeader": string("1", "Number")},
        )  # fmt: skip
