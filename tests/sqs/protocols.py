"""One request in either protocol, and its answer in one form: what tests of both protocols ask with."""

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

from quiver.server.sqs.query import ITEMS, TAGS
from tests.sqs.query import NS, Query

PROTOCOLS: Final = ("json", "query")


class Answer(NamedTuple):
    """What came back. Of an answer that is no error, `code`, `shape` and `message` are empty."""

    status: int
    code: str  # as the query protocol has it
    shape: str  # as JSON has it; the query protocol does not say it
    message: str
    kind: str  # Sender or Receiver
    body: bytes

    @property
    def result(self) -> dict[str, Any]:
        """What an action has said in JSON."""
        found: dict[str, Any] = json.loads(self.body or b"{}")
        return found

    def texts(self, name: str) -> list[str]:
        """The texts of all members of this name, in either protocol."""
        if self.body.startswith(b"<"):
            return [x.text or "" for x in ET.fromstring(self.body).iter(NS + name)]
        return list(_texts(self.result, name))


def _texts(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, dict):
        for each, inside in value.items():
            if each == name and isinstance(inside, str):
                yield inside
            yield from _texts(inside, name)
    elif isinstance(value, list):
        for inside in value:
            yield from _texts(inside, name)


class Asker:
    """Asks a node in one of the protocols."""

    def __init__(self, protocol: str, query: Query) -> None:
        self.protocol = protocol
        self._query = query

    def __call__(self, action: str, path: str = "/", /, **request: Any) -> Answer:
        if self.protocol == "json":
            return self.said_in_json(action, json.dumps(request, default=_base64), path)
        form = urlencode({"Action": action, **dict(fields(action, request))})
        kind = {"content-type": "application/x-www-form-urlencoded"}
        status, _, body = self._query.raw("POST", path, form, kind)
        if status == 200:
            return Answer(status, "", "", "", "", body)
        error = ET.fromstring(body).find(NS + "Error")
        assert error is not None
        code, message, who = (
            error.findtext(NS + name) or "" for name in ("Code", "Message", "Type")
        )
        return Answer(status, code, "", message, who, body)

    def said_in_json(self, action: str, text: str, path: str = "/") -> Answer:
        """Ask with this body, which need not be good JSON."""
        headers = {
            "content-type": "application/x-amz-json-1.0", "x-amz-target": f"AmazonSQS.{action}",
        }  # fmt: skip
        status, got, body = self._query.raw("POST", path, text, headers)
        if status == 200:
            return Answer(status, "", "", "", "", body)
        found = json.loads(body)
        code, _, who = got["x-amzn-query-error"].partition(";")
        shape = found["__type"].removeprefix("com.amazonaws.sqs#")
        return Answer(status, code, shape, found["message"], who, body)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def fields(action: str, request: Any, start: str = "") -> Iterator[tuple[str, str]]:
    """A request as the fields of a form."""
    for name, value in request.items():
        item = start + (f"{action}RequestEntry" if name == "Entries" else ITEMS.get(name, name))
        if isinstance(value, list):
            for at, inside in enumerate(value, 1):
                yield from _field(action, f"{item}.{at}", inside)
            if not value:
                yield item, ""
        elif isinstance(value, dict):
            key = "Key" if name in TAGS else "Name"
            for at, (each, inside) in enumerate(value.items(), 1):
                yield f"{item}.{at}.{key}", each
                yield from _field(action, f"{item}.{at}.Value", inside)
        else:
            yield from _field(action, item, value)


def _field(action: str, name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        yield from fields(action, value, name + ".")
    else:
        yield name, _base64(value) if isinstance(value, bytes) else str(value)
