"""Receipts as text: what a consumer hands back to settle a message, signed by us.

A receipt names topic, group, partition, offset and lease epoch, followed by a keyed BLAKE2b tag
under the secret that the log was founded with. The signature proves that we issued it; whether the
lease still holds is for the core to say.
"""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import Final, NamedTuple

from quiver.errors import ReceiptInvalid

_FIELDS: Final = Struct("<BIIIQQ")
_VERSION: Final = 1
_TAG_BYTES: Final = 16


class Receipt(NamedTuple):
    """A message under a lease."""

    topic: int
    group: int
    partition: int
    offset: int
    epoch: int


def sign(receipt: Receipt, secret: bytes) -> str:
    """The receipt as text."""
    r = receipt
    content = _FIELDS.pack(_VERSION, r.topic, r.group, r.partition, r.offset, r.epoch)
    return urlsafe_b64encode(content + _tag(content, secret)).rstrip(b"=").decode()


def verify(text: str, secret: bytes) -> Receipt:
    """The receipt behind the text, if we issued it."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        data = b64decode(padded, altchars=b"-_", validate=True)
    except (Base64Error, UnicodeEncodeError, ValueError):
        data = b""
    content, tag = data[:-_TAG_BYTES], data[-_TAG_BYTES:]
    if len(content) != _FIELDS.size or not compare_digest(tag, _tag(content, secret)):
        raise ReceiptInvalid(
            "that is not a receipt of this queue; use the receipt of a delivery as it was given"
        )
    version, *fields = _FIELDS.unpack(content)
    if version != _VERSION:
        raise ReceiptInvalid("the receipt was issued by a newer version of Quiver")
    return Receipt(*fields)


def _tag(content: bytes, secret: bytes) -> bytes:
    return blake2b(content, digest_size=_TAG_BYTES, key=secret).digest()
