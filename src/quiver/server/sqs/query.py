"""The older protocol: forms in, XML out.

A list is `Name.1`, `Name.2`, …; a map is `Name.1.Name` and `Name.1.Value`. What a request may have
follows from its shape, so a form can be as odd as it likes: what is not in the shape is not read.
"""

import re
from collections.abc import Iterable
from types import UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec

from quiver import limits
from quiver.server.sqs import messages
from quiver.server.sqs.faults import Fault, invalid_parameter
from quiver.server.sqs.shapes import INPUTS, Input, Output

XMLNS: Final = "http://queue.amazonaws.com/doc/2012-11-05/"

# The name of one item, where the API names them all.
ITEMS: Final = {
    "Attributes": "Attribute",
    "AttributeNames": "AttributeName",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "MessageAttributeNames": "MessageAttributeName",
    "MessageAttributes": "MessageAttribute",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
    "Tags": "Tag",
    "tags": "Tag",
    "TagKeys": "TagKey",
    "StringListValues": "StringListValue",
    "BinaryListValues": "BinaryListValue",
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Messages": "Message",
    "Failed": "BatchResultErrorEntry",
    "Results": "ListMessageMoveTasksResultEntry",
}
TAGS: Final = ("Tags", "tags")

# Plain JSON has some members under names of its own, and some with null where XML has nothing.
PLAIN_NAMES: Final = {"Messages": "messages", "QueueUrls": "queueUrls"}
PLAIN_MEMBERS: Final = {
    "ListQueues": ("NextToken", "queueUrls"),
    "ReceiveMessage": ("messages",),
    "SendMessage": (
        "MD5OfMessageAttributes", "MD5OfMessageSystemAttributes", "SequenceNumber",
    ),
    "Messages": ("Attributes", "MD5OfMessageAttributes", "MessageAttributes"),  # each of them
}  # fmt: skip
_NUMBER: Final = re.compile(r"[0-9]{1,6}")  # of an item; what is longer is no number of one


class _Member(NamedTuple):
    """How a member of a shape is written in a form."""

    name: str  # in the API
    item: str  # in the form
    kind: type  # str, list or dict
    shape: type[Input] | None  # of what is in the list or map


def form(data: bytes) -> dict[str, str]:
    """The fields of a form."""
    try:
        pairs = parse_qsl(
            data.decode(), keep_blank_values=True, max_num_fields=limits.SQS_FORM_FIELDS_MAX
        )
    except ValueError as error:
        raise invalid_parameter(f"The request is not a form: {error}") from None
    return dict(pairs)


def decode(action: str, fields: dict[str, str]) -> Input:
    """The request of an action."""
    tree: dict[str, Any] = {}
    for name, value in fields.items():
        place = tree
        *path, last = name.split(".", limits.SQS_FORM_DEPTH_MAX)
        for part in path:
            found = place.setdefault(part, {})
            if not isinstance(found, dict):
                break
            place = found
        else:
            place.setdefault(last, value)
    try:
        return msgspec.convert(_values(INPUTS[action], tree), INPUTS[action], strict=False)
    except msgspec.ValidationError as error:
        raise invalid_parameter(f"A parameter has a value of another kind: {error}") from None


def _values(shape: type[Input], tree: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for member in _MEMBERS[shape]:
        value = tree.get(member.item)
        if value is None:
            continue
        if member.kind is str:
            if isinstance(value, str):
                found[member.name] = value
        elif not isinstance(value, dict):
            if member.kind is list and not value:
                found[member.name] = []  # an empty list is an empty field
        elif member.kind is list:
            found[member.name] = [_value(member.shape, item) for item in _numbered(value)]
        else:
            pairs = (item for item in _numbered(value) if isinstance(item, dict))
            found[member.name] = {
                _text(item.get("Key") or item.get("Name")): _value(member.shape, item.get("Value"))
                for item in pairs
            }
    return found


def _value(shape: type[Input] | None, item: Any) -> Any:
    if shape is None:
        return _text(item)
    return _values(shape, item if isinstance(item, dict) else {})


def _text(item: Any) -> str:
    return item if isinstance(item, str) else ""


def _numbered(items: dict[str, Any]) -> Iterable[Any]:
    numbers = [name for name in items if _NUMBER.fullmatch(name)]
    return [items[name] for name in sorted(numbers, key=int)]


def _members(shape: type[Input]) -> list[_Member]:
    found = []
    for field in msgspec.structs.fields(shape):
        kind = next(arg for arg in get_args(field.type) if arg is not type(None))
        assert isinstance(field.type, UnionType)
        inner = get_args(kind)[-1] if get_args(kind) else None
        nested = inner if isinstance(inner, type) and issubclass(inner, Input) else None
        item = ITEMS.get(field.encode_name, field.encode_name)
        if field.encode_name == "Entries" and nested is not None:
            item = nested.__name__
        found.append(_Member(field.encode_name, item, get_origin(kind) or str, nested))
        if nested is not None and nested not in _MEMBERS:
            _MEMBERS[nested] = _members(nested)
    return found


_MEMBERS: Final[dict[type[Input], list[_Member]]] = {}
for _shape in INPUTS.values():
    _MEMBERS[_shape] = _members(_shape)


# -- answers ---------------------------------------------------------------------------------------


def answer(action: str, output: Output | None, request_id: str) -> bytes:
    """What an action has to say, as XML."""
    parts = [f'<?xml version="1.0"?><{action}Response xmlns="{XMLNS}">']
    if output is not None:
        members: list[str] = []
        _write(members, output, action)
        if members:
            parts += [f"<{action}Result>", *members, f"</{action}Result>"]
        else:
            parts.append(f"<{action}Result/>")
    parts.append(
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>"
    )
    return "".join(parts).encode()


def error(fault: Fault, request_id: str) -> bytes:
    """An error, as XML."""
    who = "Sender" if fault.sender else "Receiver"
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{XMLNS}"><Error><Type>{who}</Type>'
        f"<Code>{fault.code}</Code><Message>{_escaped(message_of(fault))}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()


def message_of(fault: Fault) -> str:
    """The fault's text in this protocol."""
    if fault.shape == "QueueDoesNotExist":
        return "The specified queue does not exist for this wsdl version."
    return fault.message


def json_answer(action: str, output: Output | None, request_id: str) -> bytes:
    """As `answer`, for those who ask for `application/json`: the same tree, maps as lists."""
    inside: dict[str, Any] = {"ResponseMetadata": {"RequestId": request_id}}
    if output is not None:
        inside[f"{action}Result"] = _plain(action, output)
    return msgspec.json.encode({f"{action}Response": inside})


def json_error(fault: Fault, request_id: str) -> bytes:
    """As `error`, for those who ask for `application/json`."""
    who = "Sender" if fault.sender else "Receiver"
    inside = {"Code": fault.code, "Detail": None, "Message": message_of(fault), "Type": who}
    return msgspec.json.encode({"Error": inside, "RequestId": request_id})


def _plain(owner: str, members: dict[str, Any]) -> dict[str, Any]:
    """Members of what an action says, or of one item of a list."""
    found = {PLAIN_NAMES.get(name, name): _listed(name, value) for name, value in members.items()}
    return {**dict.fromkeys(PLAIN_MEMBERS.get(owner, ())), **found}


def _listed(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(name, item) if isinstance(item, dict) else item for item in value]
    if not isinstance(value, dict):
        return value
    if name in ITEMS:
        key = "Key" if name in TAGS else "Name"
        return [{key: each, "Value": _listed("", item)} for each, item in value.items()]
    return {each: _listed(each, item) for each, item in value.items()}


def _write(parts: list[str], values: dict[str, Any], action: str) -> None:
    for name, value in values.items():
        item = f"{action}ResultEntry" if name == "Successful" else ITEMS.get(name, name)
        if isinstance(value, list):
            for each in value:
                _write_one(parts, item, each, action)
        elif isinstance(value, dict) and name in ITEMS:
            key = "Key" if name in TAGS else "Name"
            for each, inside in value.items():
                parts.append(f"<{item}><{key}>{_escaped(each)}</{key}>")
                _write_one(parts, "Value", inside, action)
                parts.append(f"</{item}>")
        else:
            _write_one(parts, item, value, action)


def _write_one(parts: list[str], name: str, value: Any, action: str) -> None:
    parts.append(f"<{name}>")
    match value:
        case dict():
            _write(parts, value, action)
        case bool():
            parts.append("true" if value else "false")
        case _:
            parts.append(_escaped(str(value)))
    parts.append(f"</{name}>")


def _escaped(text: str) -> str:
    """XML text. A carriage return would be read as a line feed; what XML cannot say is marked."""
    return escape(messages.UNSPEAKABLE.sub("\ufffd", text), {"\r": "&#xD;", '"': "&quot;"})
