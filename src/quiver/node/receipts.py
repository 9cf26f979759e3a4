"""Receipts as text: what a consumer hands back to settle a message, signed by us.

A receipt names topic, group, lease epoch, partition and offset, followed by the lease's tag: keyed
BLAKE2b of topic, group and epoch under the secret that the log was founded with. The tag proves that
we gave out the lease, and who was given one can make the receipts of all its messages. Whether the
lease still holds, and holds this message, is for the core to say.

Where a receipt is good beyond its lease it is sealed: a keyed BLAKE2b of all its text follows it, and
who was given one can make no other.
"""

import struct
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path
from secrets import token_bytes
from typing import Final, NamedTuple

from quiver.errors import ReceiptInvalid

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")  # another one after each start of the machine
_FIELDS: Final = struct.Struct("<BIIQIQ")
_LEASE: Final = struct.Struct("<BIIQ")  # how they begin: what the tag is of
_VERSION: Final = 2
_TAG_BYTES: Final = 16
_SEAL_CHARS: Final = 2 * _TAG_BYTES  # it is in hexadecimal


class Receipt(NamedTuple):
    """A message under a lease."""

    topic: int
    group: int
    partition: int
    offset: int
    epoch: int


def until_reboot(secret: bytes) -> bytes:
    """A secret for receipts that are no good after the machine went down.

    Where nothing is synced, leases can be lost with the machine, and what they were known by is given
    to others.
    """
    try:
        boot = BOOT.read_bytes()
    except OSError:
        boot = token_bytes(16)
    return blake2b(boot, key=secret, digest_size=32).digest()


@lru_cache(maxsize=1_024)  # the messages of a lease are settled one after the other
def tag(topic: int, group: int, epoch: int, secret: bytes) -> bytes:
    """What proves that a lease was given out by us."""
    content = _LEASE.pack(_VERSION, topic, group, epoch)
    return blake2b(content, digest_size=_TAG_BYTES, key=secret).digest()


def text(receipt: Receipt, lease_tag: bytes) -> str:
    """The receipt as text."""
    r = receipt
    content = _FIELDS.pack(_VERSION, r.topic, r.group, r.epoch, r.partition, r.offset)
    return urlsafe_b64encode(content + lease_tag).rstrip(b"=").decode()


def verify(text: str, secret: bytes) -> Receipt:
    """The receipt behind the text, if we issued it."""
    receipt, lease_tag = parse(text)
    demand_lease(receipt.topic, receipt.group, receipt.epoch, lease_tag, secret)
    return receipt


def demand_lease(topic: int, group: int, epoch: int, lease_tag: bytes, secret: bytes) -> None:
    """Refuse the tag of a lease that we have not given out."""
    try:
        expected = tag(topic, group, epoch, secret)
    except struct.error:  # no lease has such numbers
        raise _invalid() from None
    if not compare_digest(lease_tag, expected):
        raise _invalid()


def parse(text: str) -> tuple[Receipt, bytes]:
    """What a receipt says, whoever issued it, and the tag of its lease."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        data = b64decode(padded, altchars=b"-_", validate=True)
    except (Base64Error, UnicodeEncodeError, ValueError):
        data = b""
    if len(data) == _FIELDS.size + _TAG_BYTES:
        version, topic, group, epoch, partition, offset = _FIELDS.unpack_from(data)
        if version == _VERSION:
            return Receipt(topic, group, partition, offset, epoch), data[_FIELDS.size :]
    raise _invalid()


def seal(text: str, secret: bytes) -> str:
    """The receipt with a proof that we gave out just this one."""
    return text + _seal(text, secret)


def unseal(sealed: str, secret: bytes) -> str:
    """The receipt that was sealed, if we did that."""
    text, found = sealed[:-_SEAL_CHARS], sealed[-_SEAL_CHARS:]
    if not sealed.isascii() or not compare_digest(found, _seal(text, secret)):
        raise _invalid()
    return text


def _seal(text: str, secret: bytes) -> str:
    content = text.encode("ascii")
    return blake2b(content, digest_size=_TAG_BYTES, key=secret, person=b"sealed").hexdigest()


def _invalid() -> ReceiptInvalid:
    return ReceiptInvalid(
        "that is not a receipt of this queue; use the receipt of a delivery as it was given"
    )
