"""What is sent: lines as they are, JSON checked, and every refusal says where."""

import io
import sys
from types import SimpleNamespace

import pytest

from quiver import limits
from quiver.cli import lines
from quiver.errors import InvalidRequest, MessageTooLarge


@pytest.fixture
def stdin(monkeypatch):
    def fill(content):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))

    return fill


def bodies(form="lines"):
    return [item.fields["body"] for item in lines.of_files(["-"], form)]


def test_lines_keep_everything_but_their_end(stdin):
    stdin(b"one\r\n\n\xff\x00\nlast")
    assert bodies() == [b"one\r", b"", b"\xff\x00", b"last"]


def test_arguments_are_sent_byte_for_byte():
    assert [item.fields["body"] for item in lines.of_arguments(["a", "\udcff"])] == [b"a", b"\xff"]


def test_a_line_may_be_as_long_as_a_body_and_no_longer(stdin, monkeypatch):
    monkeypatch.setattr(limits, "BODY_BYTES_MAX", 4)
    stdin(b"1234\n123\n1234")
    assert bodies() == [b"1234", b"123", b"1234"]
    stdin(b"1234\n12345\n")
    with pytest.raises(MessageTooLarge, match="line 2 of stdin has more than 4 bytes"):
        bodies()
    stdin(b"12345")
    with pytest.raises(MessageTooLarge, match="stdin has more than 4 bytes"):
        bodies("whole")


def test_json_lines(stdin):
    stdin(b'{"body": "x", "key": null, "id": "1-0"}\n{"body": null}\n{"body_base64": "AP8="}\n')
    assert [item.fields for item in lines.of_files(["-"], "json")] == [
        {"body": "x"}, {"body": None}, {"body": b"\x00\xff"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [b"nope", b"[]", b"7", b"", b'{"key": "k"}', b'{"body": 1, "body_base64": ""}',
     b'{"body": "x", "colour": 1}', b'{"body_base64": "?"}', b'{"body_base64": 5}', b"\xff",
     b"[" * 100_000],
)  # fmt: skip
def test_bad_json_lines_say_which(stdin, line):
    stdin(b'{"body": 1}\n' + line + b"\n")
    with pytest.raises(InvalidRequest, match="line 2 of stdin"):
        bodies("json")
