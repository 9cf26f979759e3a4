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

FEW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SAFE = sorted(set(INPUTS) - {"DeleteQueue", "PurgeQueue"})  # the others share one queue
FIELDS = sorted({field.encode_name for shape in INPUTS.values() for field in fields(shape)})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["Id", "DataType", "StringValue", "a"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


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
        query.raw("POST", "/", json.dumps(body), {"x-amz-target": f"AmazonSQS.{action}"})
    )
    assert not answer or isinstance(json.loads(answer), dict)


@FEW
@given(body=st.binary(max_size=200), action=st.sampled_from(SAFE))
def test_any_bytes(query, body, action):
    answered(query.raw("POST", "/", body, {"x-amz-target": f"AmazonSQS.{action}"}))
    answered(query.raw("POST", "/", body, {"content-type": "application/x-www-form-urlencoded"}))


PARTS = ["Attribute", "MessageAttribute", "SendMessageBatchRequestEntry", "Tag", "Name", "Value",
         "Key", "1", "2", "0", "-1", "x", "Id", "StringValue", "DataType", "MessageBody", ""]  # fmt: skip


@FEW
@given(
    action=st.sampled_from(SAFE),
    parts=st.dictionaries(
        st.lists(st.sampled_from(PARTS), min_size=1, max_size=12).map(".".join),
        st.text(max_size=20), max_size=8,
    ),
)  # fmt: skip
def test_any_form(query, target, action, parts):
    form = urlencode({"Action": action, "QueueUrl": target, **parts}, errors="replace")
    answered(query.raw("POST", "/", form, {"content-type": "application/x-www-form-urlencoded"}))


@FEW
@given(path=st.text(ascii_letters + ".-_", min_size=1, max_size=40), text=st.text(max_size=20))
def test_any_address(query, path, text):
    answered(query.raw("GET", f"/000000000000/{path}?Action={quote(text, errors='replace')}"))


@settings(max_examples=200, deadline=None)
@given(headers=st.dictionaries(st.text(max_size=10), st.text(max_size=20), max_size=5))
def test_any_headers_become_attributes_that_sqs_would_take(headers):
    attributes, _ = messages.from_headers(headers)
    messages.check_attributes(attributes)
    assert messages.to_headers(attributes, None, None, None) == (
        {name: headers[name] for name in attributes} or None
    )


@settings(max_examples=200, deadline=None)
@given(given_=st.dictionaries(st.text(max_size=30), st.text(max_size=20), max_size=10))
def test_any_fields_are_decoded_or_refused(given_):
    for action in INPUTS:
        with suppress(Fault):
            forms.decode(action, given_)
