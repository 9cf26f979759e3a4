"""Whatever comes in, an answer goes out, and it is never ours to be ashamed of."""

import json
from contextlib import suppress
from string import ascii_letters
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from quiver.server.sqs import messages
from quiver.server.sqs import query as forms
from quiver.server.sqs.faults import Fault
from quiver.server.sqs.shapes import INPUTS
from tests.lengths import examples

FEW = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
SAFE = sorted(set(INPUTS) - {"DeleteQueue", "PurgeQueue"})  # the others share one queue
FIELDS = sorted({field.encode_name for shape in INPUTS.values() for field in fields(shape)})
HUGE = "9" * 5_000  # a number that Python does not read
DEEP = "[" * 5_000 + "]" * 5_000
ODD = {"huge number": HUGE, "deep list": DEEP}  # what JSON can say and `json.dumps` cannot
KEYS = ["Id", "DataType", "StringValue", "ReceiptHandle", "Policy", "RedrivePolicy",
        "RedriveAllowPolicy", "VisibilityTimeout", "a"]  # fmt: skip
REDRIVES = [f'{{"deadLetterTargetArn": "a", "maxReceiveCount": {odd}}}' for odd in ODD.values()]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
    | st.sampled_from([*ODD, *ODD.values(), *REDRIVES, 10**4_000]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=8,
)  # fmt: skip


def json_of(body):
    text = json.dumps(body)
    for name, odd in ODD.items():
        text = text.replace(f'"{name}"', odd)
    return text


def answered(raw):
    status, headers, body = raw
    assert status < 500, body
    assert headers["x-amzn-requestid"]
    return status, body


@pytest.fixture(scope="module")
def target(sqs) -> str:
    url: str = sqs.create_queue(QueueName="fuzzed")["QueueUrl"]
    return url


@FEW
@given(
    action=st.sampled_from(SAFE),
    body=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6),
)
def test_any_json(query, target, action, body):
    body = {"QueueUrl": target, **body}
    if "WaitTimeSeconds" in body:
        body["WaitTimeSeconds"] = 0
    _, answer = answered(
        query.raw("POST", "/", json_of(body), {"x-amz-target": f"AmazonSQS.{action}"})
    )
    assert not answer or isinstance(json.loads(answer), dict)


@FEW
@given(body=st.binary(max_size=200), action=st.sampled_from(SAFE))
def test_any_bytes(query, body, action):
    answered(query.raw("POST", "/", body, {"x-amz-target": f"AmazonSQS.{action}"}))
    answered(query.raw("POST", "/", body, {"content-type": "application/x-www-form-urlencoded"}))


PARTS = ["Attribute", "MessageAttribute", "SendMessageBatchRequestEntry", "Tag", "Name", "Value",
         "Key", "1", "2", "0", "-1", HUGE, "x", "Id", "StringValue", "DataType", "MessageBody",
         ""]  # fmt: skip
NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=12).map(".".join)


@FEW
@given(
    action=st.sampled_from(SAFE),
    parts=st.dictionaries(NAMES, st.text(max_size=20) | st.sampled_from([HUGE, DEEP]), max_size=8),
)
def test_any_form(query, target, action, parts):
    form = urlencode({"Action": action, "QueueUrl": target, **parts}, errors="replace")
    answered(query.raw("POST", "/", form, {"content-type": "application/x-www-form-urlencoded"}))


@FEW
@given(path=st.text(ascii_letters + ".-_", min_size=1, max_size=40), text=st.text(max_size=20))
def test_any_address(query, path, text):
    answered(query.raw("GET", f"/000000000000/{path}?Action={quote(text, errors='replace')}"))


@settings(max_examples=examples(200), deadline=None)
@given(headers=st.dictionaries(st.text(max_size=10), st.text(max_size=20), max_size=5))
def test_any_headers_become_attributes_that_sqs_would_take(headers):
    attributes, _ = messages.from_headers(headers)
    messages.check_attributes(attributes)
    assert messages.to_headers(attributes, None, None, None) == (
        {name: headers[name] for name in attributes} or None
    )


@settings(max_examples=examples(200), deadline=None)
@given(given_=st.dictionaries(st.text(max_size=30) | NAMES, st.text(max_size=20), max_size=10))
def test_any_fields_are_decoded_or_refused(given_):
    for action in INPUTS:
        with suppress(Fault):
            forms.decode(action, given_)


@pytest.mark.parametrize("name", [f"Tag.{HUGE}.Key", f"TagKey.{HUGE}", f"Tag.1.{HUGE}"])
def test_a_number_that_is_no_number_of_an_item(query, target, name):
    for action in ("TagQueue", "UntagQueue"):
        form = urlencode({"Action": action, "QueueUrl": target, name: "x"})
        kind = {"content-type": "application/x-www-form-urlencoded"}
        assert answered(query.raw("POST", "/", form, kind))[0] in (200, 400)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_json_that_cannot_be_read(query, target, odd):
    """As a field that is known, as one that is not, and in an attribute that is JSON itself."""
    for field in ("DelaySeconds", "MessageAttributes", "Unknown"):
        body = f'{{"QueueUrl": "{target}", "MessageBody": "x", "{field}": {odd}}}'
        headers = {"x-amz-target": "AmazonSQS.SendMessage"}
        assert answered(query.raw("POST", "/", body, headers))[0] in (200, 400)
    for name in ("Policy", "RedrivePolicy", "RedriveAllowPolicy"):
        value = f'{{"maxReceiveCount": {odd}, "deadLetterTargetArn": {odd}}}'
        body = json.dumps({"QueueUrl": target, "Attributes": {name: value}})
        headers = {"x-amz-target": "AmazonSQS.SetQueueAttributes"}
        assert answered(query.raw("POST", "/", body, headers))[0] == 400
