"""What proves that somebody has staged messages: a tag that only we can make.

A tag is the exclusive or of a mark for each end of each range, and a mark is keyed BLAKE2b of topic,
partition, offset and owner under the secret that the log was founded with. Where two ranges touch, the
marks of the offset between them cancel out. So who was given the tags of several parts can join them,
ranges and tags, without us: a batch of many parts is a few ranges with one tag.

Nothing else can be made of them. The ranges of a tag do not overlap (`is_of` demands it), so a tag
belongs to one set of messages. From the tags of some sets only those of unions of these sets can be
made, for any other has a mark whose partner is unknown.
"""

import struct
from collections.abc import Iterable
from hashlib import blake2b
from hmac import compare_digest
from itertools import pairwise
from typing import Final, TypeAlias

from quiver.errors import InvalidRequest

Ends: TypeAlias = tuple[int, int, int]  # of a range: partition, start and end

_PLACE: Final = struct.Struct("<IIQ")
_TAG_BYTES: Final = 16


def tag(topic: int, ranges: Iterable[Ends], owner: str, secret: bytes) -> str:
    """The tag of messages in the staging topic of this number, for whom they belong to."""
    whole = 0
    for partition, *ends in ranges:
        for offset in ends:
            content = _PLACE.pack(topic, partition, offset) + owner.encode()
            mark = blake2b(content, digest_size=_TAG_BYTES, key=secret, person=b"staged")
            whole ^= int.from_bytes(mark.digest())
    return _text(whole)


def joined(tags: Iterable[str]) -> str:
    """The tag of several parts together."""
    whole = 0
    for one in tags:
        try:
            whole ^= int(one or "0", 16)
        except ValueError:
            raise InvalidRequest("that is not what stage has returned; give it as it was") from None
    return _text(whole)


def is_of(given: str, topic: int, ranges: Iterable[Ends], owner: str, secret: bytes) -> bool:
    """Whether the tag was made for these messages and this owner."""
    ordered = sorted(ranges)
    if any(one[0] == next_[0] and one[2] > next_[1] for one, next_ in pairwise(ordered)):
        return False
    try:
        own = tag(topic, ordered, owner, secret)
    except struct.error:  # no place has such numbers
        return False
    return compare_digest(given.encode(), own.encode())


def _text(whole: int) -> str:
    return f"{whole:0{2 * _TAG_BYTES}x}"
