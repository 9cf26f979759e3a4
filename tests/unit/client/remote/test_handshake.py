"""What an answer to the upgrade means, whatever numbers it has."""

import pytest

from quiver.client.remote.address import parse
from quiver.client.remote.handshake import Handshake, NoUpgrade


@pytest.mark.parametrize("status", ["2\xb2\xb2", "\xb9\xb9\xb9", "abc", "000", ""])
def test_a_status_of_other_digits_is_no_upgrade(status: str):
    handshake = Handshake(parse("quiver://a"), "a:7070")
    with pytest.raises(NoUpgrade):
        handshake.feed(f"HTTP/1.1 {status} x\r\n\r\n".encode("latin-1"))


@pytest.mark.parametrize("length", ["\xb2", "1\xb2", "-1", "9" * 5_000, "x"])
def test_a_length_of_other_digits_is_none(length: str):
    handshake = Handshake(parse("quiver://a"), "a:7070")
    with pytest.raises(NoUpgrade, match="status 404"):
        handshake.feed(f"HTTP/1.1 404 x\r\ncontent-length: {length}\r\n\r\n".encode("latin-1"))


def test_a_length_says_what_is_still_to_come():
    handshake = Handshake(parse("quiver://a"), "a:7070")
    assert not handshake.feed(b"HTTP/1.1 404 x\r\ncontent-length: 2\r\n\r\n{")
    with pytest.raises(NoUpgrade):
        handshake.feed(b"}")
