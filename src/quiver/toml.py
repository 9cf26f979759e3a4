"""Tables of TOML as frozen values: the keys there may be are the fields of a class.

Who writes such a file by hand is told what is wrong in it in their own words: the key, what is expected
there, and which key may have been meant.
"""

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

import msgspec
import msgspec.inspect

from quiver.errors import InvalidRequest


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file. Its fields are the keys there may be, with their defaults."""


SectionT = TypeVar("SectionT", bound=Section)
WORDS: Final[dict[type[msgspec.inspect.Type], str]] = {
    msgspec.inspect.StrType: "a text",
    msgspec.inspect.IntType: "a whole number",
    msgspec.inspect.FloatType: "a number",
    msgspec.inspect.BoolType: "true or false",
    msgspec.inspect.ListType: "a list",
    msgspec.inspect.VarTupleType: "a list",
    msgspec.inspect.CustomType: "a text",  # a path
}
_KINDS: Final = {str: "a text", int: "a whole number", float: "a number", bool: "true or false",
                 list: "a list"}  # fmt: skip


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
        problem = _problem(told, kind, "", strict=strict) or str(error)
        raise InvalidRequest(f"{source}: {problem}") from None


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


def _problem(value: Any, kind: Any, key: str, *, strict: bool) -> str | None:
    """What is wrong with a value, or with the first of those inside of it that is wrong."""
    try:
        msgspec.convert(value, kind, strict=strict, dec_hook=_path)
    except msgspec.ValidationError as error:
        if isinstance(value, Mapping) and (table := section(kind)) is kind:
            return _inside(value, table, key, strict=strict) or f"{key}: {error}".removeprefix(": ")
        plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        if isinstance(value, Mapping) and get_origin(plain) is dict:
            _, of_values = get_args(plain)
            inside = (
                _problem(one, of_values, f"{key}.{name}", strict=strict)
                for name, one in value.items()
            )
            return _first(inside) or f"{key}: expected a table that is not empty"
        if get_origin(plain) is tuple:
            items = value if isinstance(value, list) else ()
            of_items = get_args(plain)[0]
            problem = _first(_problem(one, of_items, key, strict=strict) for one in items)
            if problem is not None:
                return problem
        elif isinstance(value, Mapping) and table is not None:  # or nothing
            return _problem(value, table, key, strict=strict)
        expected = _words(msgspec.inspect.type_info(kind))
        return f"{key}: expected {expected}, got {_shown(value, expected)}"
    return None


def _inside(told: Mapping[str, Any], kind: type[Section], key: str, *, strict: bool) -> str | None:
    """What is wrong with a table, if that is a key or the value of one."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    where = f" in [{key}]" if key else ""
    for name in told:
        if name not in fields:
            near = get_close_matches(name, fields, n=1, cutoff=0.5)
            return f"there is no key {name!r}{where}" + (
                f"; did you mean {near[0]!r}?" if near else ""
            )
    for name, field in fields.items():
        if name not in told and field.required:
            return f"there must be a key {name!r}{where}"
    return _first(
        _problem(told[name], field.type, f"{key}.{name}".lstrip("."), strict=strict)
        for name, field in fields.items()
        if name in told
    )


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


def _words(info: msgspec.inspect.Type) -> str:
    """What a value of this type is called by somebody who writes the file."""
    match info:
        case msgspec.inspect.UnionType():
            types = [one for one in info.types if not isinstance(one, msgspec.inspect.NoneType)]
            return " or ".join(map(_words, types))
        case msgspec.inspect.LiteralType():
            return " or ".join(map(repr, info.values))
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            bounds = [(">", info.gt), (">=", info.ge), ("<", info.lt), ("<=", info.le)]
            limits = " and ".join(f"{sign} {bound}" for sign, bound in bounds if bound is not None)
            return f"{WORDS[type(info)]} {limits}".rstrip()
        case msgspec.inspect.VarTupleType() if info.min_length:
            return "a list that is not empty"
        case _:
            return WORDS.get(type(info), "a table")


def _shown(value: Any, expected: str) -> str:
    """What is there instead: its type, or, if the type is right, the value."""
    found = "a table" if isinstance(value, Mapping) else _KINDS.get(type(value), repr(value))
    fits = any(one.startswith((found, "'")) for one in expected.split(" or "))
    return repr(value) if fits or (isinstance(value, int) and "a number" in expected) else found
