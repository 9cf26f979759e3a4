"""Requests as a guard sees them, signed by botocore as a real client signs them."""

import json
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

URL = "http://127.0.0.1:7070/"
JSON = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.SendMessage"}
QUERY = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}


def scope(method="POST", url=URL, headers=()):
    """An ASGI scope."""
    parts = urlsplit(url)
    return {
        "type": "http",
        "method": method,
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
    }


def bearer(text):
    return scope(headers=[("Authorization", f"Bearer {text}")])


def signed(
    key, body=b"", *, method="POST", url=URL, headers=None, session=None, region="us-east-1"
):
    """The scope of a request that botocore has signed."""
    request = AWSRequest(method=method, url=url, data=body, headers=headers or {})
    SigV4Auth(Credentials(key.id, key.secret, session), "sqs", region).add_auth(request)
    found = [("Host", urlsplit(url).netloc), *request.headers.items()]
    return scope(method, url, found)


def changed(given, name, change):
    """The scope with one header changed; a change to None leaves it out."""
    headers = []
    for key, before in given["headers"]:
        value = change(before) if key == name.encode() else before
        headers += [(key, value)] if value is not None else []
    return {**given, "headers": headers}


def send_message(body):
    return json.dumps({"QueueUrl": URL + "000000000000/orders", "MessageBody": body}).encode()
