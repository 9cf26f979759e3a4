"""A message as SQS has it and as a topic has it.

The body is the body. A message attribute is a header of its name: a String or Number as it is, a
Binary in base64. What a header cannot say (types other than String, the deduplication id, the trace
header, the sender) is in one more header, `EXTRA`, which only we read. Headers that others sent are
String attributes, if SQS can express them. A body that is not text in the sense of SQS is given in
base64, with the attribute `ENCODING` to say so.
"""

import re
from base64 import b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Iterable, Mapping
from hashlib import md5
from struct import Struct as Layout
from typing import Any, Final

import msgspec

from quiver.server.sqs.faults import Fault, invalid, invalid_parameter
from quiver.server.sqs.shapes import Attribute

EXTRA: Final = "sqs:extra"  # no attribute can have this name
ENCODING: Final = "quiver.body-encoding"
ATTRIBUTES_MAX: Final = 10
NAME_CHARS_MAX: Final = 256

UNSPEAKABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
TOKEN: Final = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
_NAME: Final = re.compile(r"[A-Za-z0-9_\-.\u00c0-\u017f]+")
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_LENGTH: Final = Layout(">I")
_RESERVED: Final = ("aws.", "amazon.")


class Extra(msgspec.Struct, omit_defaults=True):
    """What headers cannot say."""

    types: dict[str, str] = {}
    dedup_id: str | None = None
    trace: str | None = None
    sender: str | None = None


_NO_EXTRA: Final = Extra()
_extra_decoder: Final = msgspec.json.Decoder(Extra)


# -- checks ----------------------------------------------------------------------------------------


def check_body(body: str) -> None:
    """Refuse a body with characters that XML does not have."""
    if body.isascii() and body.isprintable():  # most are, and this is the quicker look
        return
    found = UNSPEAKABLE.search(body)
    if found is not None:
        raise Fault("InvalidMessageContents", _unspeakable(found[0], "the message body"))


def _unspeakable(character: str, place: str) -> str:
    return (
        f"Invalid binary character '#x{ord(character):X}' was found in {place}, the set of allowed "
        "characters is #x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]."
    )


def check_token(value: str, parameter: str) -> None:
    """Refuse a group id or deduplication id that SQS would refuse."""
    if not TOKEN.fullmatch(value):
        raise invalid(
            value,
            parameter,
            f"{parameter} can only include alphanumeric and punctuation characters. "
            "1 to 128 in length.",
        )


def check_attributes(attributes: Mapping[str, Attribute]) -> int:
    """Refuse attributes that SQS would refuse; how many bytes they count for."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise invalid_parameter(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum "
            f"[{ATTRIBUTES_MAX}]."
        )
    nbytes = 0
    for name, attribute in attributes.items():
        _check_name(name)
        kind = _check_value(name, attribute)
        value = _value(attribute)
        nbytes += len(name.encode()) + len(kind.encode()) + len(value)
    return nbytes


def _check_name(name: str) -> None:
    if not name:
        raise invalid_parameter("The request must contain non-empty message attribute names.")
    if len(name) >= NAME_CHARS_MAX:
        raise invalid_parameter(
            f"Message (user) attribute names must be shorter than {NAME_CHARS_MAX} Bytes"
        )
    if not _NAME.fullmatch(name):
        raise invalid_parameter(
            "Message (user) attributes name can only contain upper and lower score characters, "
            "digits, periods, hyphens and underscores. "
        )
    if name.lower().startswith(_RESERVED):
        raise invalid_parameter(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings "
            "are reserved for internal use."
        )
    if name.startswith(".") or name.endswith(".") or ".." in name:
        raise invalid_parameter(
            f"The message attribute name '{name}' is invalid. Attribute name can not start or end "
            "with a period or contain successive periods."
        )


def _check_value(name: str, attribute: Attribute) -> str:
    kind = attribute.data_type
    if not kind:
        raise invalid_parameter(
            f"The message attribute '{name}' must contain non-empty message attribute type."
        )
    base = kind.partition(".")[0]
    if base not in ("String", "Number", "Binary"):
        raise invalid_parameter(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the "
            "following supported type prefixes: Binary, Number, String."
        )
    if len(kind) >= NAME_CHARS_MAX:
        raise invalid_parameter(
            f"Message (user) attribute types must be shorter than {NAME_CHARS_MAX} Bytes"
        )
    _check_lists(attribute)
    found = attribute.binary_value if base == "Binary" else attribute.string_value
    if found is None:
        raise invalid_parameter(
            f"The message attribute '{name}' must contain non-empty message attribute value for "
            f"message attribute type '{kind}'."
        )
    if not found:
        raise invalid_parameter(
            f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'."
        )
    if isinstance(found, str):
        _check_text(found, f"the value of message (user) attribute '{name}'")
        if base == "Number" and not _NUMBER.fullmatch(found.strip()):
            raise invalid_parameter(
                f"Can't cast the value of message (user) attribute '{name}' to a number."
            )
    return kind


def _check_lists(attribute: Attribute) -> None:
    if attribute.string_list_values or attribute.binary_list_values:
        raise Fault("UnsupportedOperation", "Message attribute list values are not supported.")


def _check_text(text: str, place: str) -> None:
    """Unlike those of a body, AWS calls such characters of an attribute a wrong parameter."""
    bad = UNSPEAKABLE.search(text)
    if bad is not None:
        raise invalid_parameter(_unspeakable(bad[0], place))


def check_system(attributes: Mapping[str, Attribute]) -> str | None:
    """The trace header, which is all that a sender may set."""
    trace = None
    for name, attribute in attributes.items():
        if name != "AWSTraceHeader":
            raise invalid_parameter(
                f"The message system attribute '{name}' is invalid. AWSTraceHeader can be sent."
            )
        _check_lists(attribute)
        if attribute.data_type != "String" or not attribute.string_value:
            raise invalid_parameter(
                "Message system attribute 'AWSTraceHeader' must contain a non-empty value of type "
                "'String'."
            )
        _check_text(attribute.string_value, f"the value of message system attribute '{name}'")
        trace = attribute.string_value
    return trace


def _value(attribute: Attribute) -> bytes:
    if attribute.data_type is not None and attribute.data_type.startswith("Binary"):
        return attribute.binary_value or b""
    return (attribute.string_value or "").encode()


# -- digests ---------------------------------------------------------------------------------------


def digest(data: bytes) -> str:
    """MD5 in hexadecimal: a checksum here, no more."""
    return md5(data, usedforsecurity=False).hexdigest()


def digest_attributes(attributes: Mapping[str, Attribute]) -> str:
    """MD5 of attributes in the canonical form, which every SDK computes too."""
    found = md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        kind = attribute.data_type or ""
        for part in (name.encode(), kind.encode()):
            found.update(_LENGTH.pack(len(part)) + part)
        value = _value(attribute)
        found.update(b"\x02" if kind.startswith("Binary") else b"\x01")
        found.update(_LENGTH.pack(len(value)) + value)
    return found.hexdigest()


# -- headers ---------------------------------------------------------------------------------------


def to_headers(
    attributes: Mapping[str, Attribute] | None,
    dedup_id: str | None,
    trace: str | None,
    sender: str | None,
) -> dict[str, str] | None:
    """The headers of a message that is sent."""
    if not (attributes or dedup_id or trace or sender):
        return None
    headers: dict[str, str] = {}
    types: dict[str, str] = {}
    for name, attribute in (attributes or {}).items():
        kind = attribute.data_type or "String"
        if kind.startswith("Binary"):
            headers[name] = b64encode(attribute.binary_value or b"").decode()
        else:
            headers[name] = attribute.string_value or ""
        if kind != "String":
            types[name] = kind
    if types or dedup_id or trace or sender:
        extra = Extra(types, dedup_id, trace, sender)
        headers[EXTRA] = msgspec.json.encode(extra).decode()
    return headers or None


def from_headers(headers: Mapping[str, str]) -> tuple[dict[str, Attribute], Extra]:
    """The attributes of a message, whoever sent it."""
    extra = _NO_EXTRA
    if EXTRA in headers:
        try:
            extra = _extra_decoder.decode(headers[EXTRA])
        except msgspec.DecodeError:  # somebody else's
            extra = _NO_EXTRA
    found: dict[str, Attribute] = {}
    for name, value in headers.items():
        if name == EXTRA:
            continue
        kind = extra.types.get(name, "String")
        if kind.startswith("Binary"):
            attribute = Attribute(data_type=kind, binary_value=_unbase64(value))
        else:
            attribute = Attribute(data_type=kind, string_value=value)
        try:
            _check_name(name)
            _check_value(name, attribute)
        except Fault:  # SQS cannot express it
            continue
        found[name] = attribute
    return found, extra


def _unbase64(text: str) -> bytes:
    try:
        return a2b_base64(text, strict_mode=True)
    except (Base64Error, ValueError):
        return b""


def to_text(body: bytes) -> tuple[str, bool]:
    """The body as SQS can say it, and whether that is base64."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return b64encode(body).decode(), True
    if UNSPEAKABLE.search(text):
        return b64encode(body).decode(), True
    return text, False


def chosen(attributes: dict[str, Attribute], names: Iterable[str]) -> dict[str, Attribute]:
    """Those that were asked for: `All`, by name, or by the beginning of it, as in `trace.*`."""
    prefixes = []
    exact = set()
    for name in names:
        if name in ("All", ".*", "*"):
            return attributes
        if name.endswith(".*"):
            prefixes.append(name[:-2])
        elif name.endswith("*"):
            prefixes.append(name[:-1])
        else:
            exact.add(name)
    start = tuple(prefixes)
    return {
        name: attribute
        for name, attribute in attributes.items()
        if name in exact or (start and name.startswith(start))
    }


def shown(attributes: Mapping[str, Attribute]) -> dict[str, dict[str, Any]]:
    """Attributes as an answer has them."""
    found: dict[str, dict[str, Any]] = {}
    for name, attribute in attributes.items():
        if attribute.binary_value is not None:
            value = {"BinaryValue": b64encode(attribute.binary_value).decode()}
        else:
            value = {"StringValue": attribute.string_value or ""}
        found[name] = {**value, "DataType": attribute.data_type}
    return found
