"""What `quiver send` sends: arguments, lines, whole files, or lines of JSON."""

import base64
import binascii
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from quiver import limits
from quiver.errors import InvalidRequest, MessageTooLarge, QuiverError

Format = Literal["lines", "whole", "json"]

STDIN: Final = "-"
JSON_OVERHEAD: Final = 2 * limits.MIB  # of a line besides the body: names, key, headers
FIELDS: Final = {"body", "body_base64", "key", "headers", "priority", "delay", "ttl", "dedup_id"}
TIMES: Final = frozenset(
    {"created_at", "deliver_at", "expires_at"}
)  # `import` keeps them, `send` does not
# What `receive`, `read` and `export` print besides, so that their output can be sent again.
IGNORED: Final = {"id", "topic", "partition", "offset", "group", "attempt", "receipt",
                  "origin"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """A message's fields, where it comes from, and how many bytes were read for it."""

    fields: dict[str, Any]
    source: str
    line: int
    nbytes: int

    @property
    def where(self) -> str:
        """Where it comes from, for an error."""
        return f"line {self.line:,} of {self.source}" if self.line else self.source


def of_arguments(bodies: list[str]) -> Iterator[Item]:
    """Each argument is a message, byte for byte as the shell gave it."""
    for number, body in enumerate(bodies, 1):
        content = os.fsencode(body)
        yield Item({"body": content}, f"argument {number}", 0, len(content))


def of_files(
    names: list[str], form: Format, *, keep: frozenset[str] = frozenset()
) -> Iterator[Item]:
    """The messages in some files, in order; "-" is stdin. Of what `send` ignores, `keep` some."""
    for name in names:
        source = "stdin" if name == STDIN else name
        with _opened(name) as file:
            if form == "whole":
                yield _whole(file, source)
                continue
            most = (
                limits.BODY_BYTES_MAX
                if form == "lines"
                else 2 * limits.BODY_BYTES_MAX + JSON_OVERHEAD
            )
            for number, line in enumerate(_lines(file, source, most), 1):
                content = line.removesuffix(b"\n")
                fields: dict[str, Any] = {"body": content}
                if form == "json":
                    fields = _fields(content, source, number, FIELDS | keep)
                yield Item(fields, source, number, len(line))


def total_bytes(names: list[str]) -> int | None:
    """The size of all files together, if that can be known."""
    try:
        sizes = [os.fstat(0) if name == STDIN else Path(name).stat() for name in names]
    except OSError:  # whoever opens it will say so
        return None
    return sum(size.st_size for size in sizes) or None  # pipes have size 0


@contextmanager
def located(item: Item) -> Iterator[None]:
    """Say where a message comes from if it is refused."""
    try:
        yield
    except MessageTooLarge as error:
        raise MessageTooLarge(f"{item.where}: {error}") from error
    except InvalidRequest as error:
        raise InvalidRequest(f"{item.where}: {error}") from error


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    try:
        if name == STDIN:
            yield sys.stdin.buffer
            return
        with open(name, "rb") as file:  # noqa: PTH123  # the name is shown as it was given
            yield file
    except QuiverError:
        raise
    except OSError as error:
        raise InvalidRequest(f"cannot read {name}: {error.strerror}") from error


def _lines(file: BinaryIO, source: str, most: int) -> Iterator[bytes]:
    number = 0
    while line := file.readline(most + 2):
        number += 1
        if len(line) > most + line.endswith(b"\n"):
            raise MessageTooLarge(
                f"line {number:,} of {source} has more than {most:,} bytes: send the file as one "
                "message with --whole, or large content by its address"
            )
        yield line


def _whole(file: BinaryIO, source: str) -> Item:
    content = file.read(limits.BODY_BYTES_MAX + 1)
    if len(content) > limits.BODY_BYTES_MAX:
        raise MessageTooLarge(
            f"{source} has more than {limits.BODY_BYTES_MAX:,} bytes, which is the most a message may "
            "have: keep it where it is and send its address"
        )
    return Item({"body": content}, source, 0, len(content))


def _fields(line: bytes, source: str, number: int, wanted: set[str]) -> dict[str, Any]:
    where = f"line {number:,} of {source}"
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{where} is not JSON: {error}") from None
    if not isinstance(fields, dict) or len(fields.keys() & {"body", "body_base64"}) != 1:
        raise InvalidRequest(f'{where} must be an object such as {{"body": "…", "key": "…"}}')
    if unknown := sorted(fields.keys() - FIELDS - TIMES - IGNORED):
        known = ", ".join(sorted(FIELDS))
        raise InvalidRequest(f"{where} has a field {unknown[0]!r}; there are {known}")
    fields = {name: value for name, value in fields.items() if name in wanted and value is not None}
    if "body_base64" in fields:
        fields["body"] = _bytes(fields.pop("body_base64"), where)
    fields.setdefault("body", None)  # {"body": null} is JSON too
    return fields


def _bytes(text: Any, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise InvalidRequest(f"{where}: body_base64 is not base64: {error}") from None
