"""Message ids for the world outside: a UUID that is a place in the log, and back.

Of its 122 free bits (RFC 9562, version 8) the entry has 60, the row 30 and a mark 32: two directories
have different marks, so no two messages have one id.
"""

import re
from typing import Final

UUID: Final = re.compile(
    r"([0-9a-f]{8})-([0-9a-f]{4})-8([0-9a-f]{3})-([89ab][0-9a-f]{3})-([0-9a-f]{12})"
)


def uuid_text(index: int, row: int, mark: int) -> str:
    """The id of row `row` of entry `index`."""
    assert 0 <= index < 1 << 60
    assert 0 <= row < 1 << 30
    low = 1 << 63 | row << 32 | mark
    text = f"{index >> 12:012x}8{index & 0xFFF:03x}{low:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def place_of(text: str) -> tuple[int, int] | None:
    """Entry and row of such an id; None if it is not one."""
    found = UUID.fullmatch(text)
    if found is None:
        return None
    index = int(found[1] + found[2] + found[3], 16)
    low = int(found[4] + found[5], 16)
    return index, low >> 32 & (1 << 30) - 1
