"""Tables of TOML as frozen values: the keys there may be are the fields of a class.

Who writes such a file by hand is told what is wrong in it in their own words: the key, what is expected
there, and which key may have been meant.
"""

import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import msgspec

from quiver.errors import InvalidRequest


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file. Its fields are the keys there may be, with their defaults."""


SectionT = TypeVar("SectionT", bound=Section)
WORDS: Final = {"`str`": "a text", "`int`": "a whole number", "`float`": "a number",
                "`bool`": "true or false", "`object`": "a table", "`array`": "a list"}  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    """What is in a file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"cannot read the configuration {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # TOML, UTF-8, and a number of 5,000 digits
        raise InvalidRequest(f"{path} is not TOML: {error}") from None


def checked(
    told: Mapping[str, Any], kind: type[SectionT], source: str, *, strict: bool = True
) -> SectionT:
    """The value that tables make; `source` is named if they do not. Texts may stand for numbers if not
    `strict`."""
    try:
        return msgspec.convert(told, kind, strict=strict, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{source}: {_explained(str(error), kind)}") from None


def section(kind: Any) -> type[Section] | None:
    """The table that a field of this type is, may be, or has several of."""
    if isinstance(kind, type) and issubclass(kind, Section):
        return kind
    return next(filter(None, map(section, get_args(kind))), None)


def _path(kind: type, value: Any) -> Path:
    assert kind is Path, "the only type that msgspec does not know"
    if not isinstance(value, str | Path):
        raise ValueError("expected a text")
    return Path(value)


def _explained(text: str, kind: type[Section]) -> str:
    """What msgspec found, in the words of somebody who writes the file."""
    what, _, where = text.partition(" - at `$")
    key = re.sub(r"\[[^]]*\]", "", where.rstrip("`")).lstrip(".")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        table = f" in [{key}]" if key else ""
        near = get_close_matches(unknown[1], _fields(kind, key), n=1, cutoff=0.5)
        return f"there is no key {unknown[1]!r}{table}" + (
            f"; did you mean {near[0]!r}?" if near else ""
        )
    if chosen := re.fullmatch(r"Invalid enum value ('.*')", what):
        table, _, name = key.rpartition(".")
        choices = " or ".join(map(repr, _choices(_fields(kind, table)[name])))
        return f"{key}: expected {choices}, got {chosen[1]}"
    for theirs, ours in WORDS.items():
        what = what.replace(theirs, ours)
    return f"{key}: {what[0].lower()}{what[1:]}" if key else what


def _fields(kind: type[Section], key: str) -> dict[str, Any]:
    """The keys that a table has, with their types."""
    for name in filter(None, key.split(".")):
        kind = section(_fields(kind, "")[name]) or kind
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _choices(kind: Any) -> list[str]:
    """The texts that a field may have."""
    if isinstance(kind, str):
        return [kind]
    return [choice for part in get_args(kind) for choice in _choices(part)]
