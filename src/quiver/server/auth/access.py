"""The access file: who may use a node, as TOML that people can read and `quiver access` writes.

    [principals.billing]
    allow = ["send,receive:orders.*"]
    deny = ["receive:orders.internal"]
    tokens = [{ id = "5f0c…", hash = "9b1d…", expires = 2027-01-01T00:00:00Z }]
    keys = [{ id = "QVAK…", secret = "…" }]
    requests_per_second = 200
    bytes_per_second = 10000000
    long_polls = 20

Of a token only a hash is kept. It is a plain SHA-256, because a token is 256 random bits: there is
nothing to guess that a slow hash would make slower; the id in front of it is its salt. The secret of
an AWS key cannot be hashed, because whoever checks a signature must be able to make it. So the file
is a secret, and one that others can read is refused.
"""

import hashlib
import os
import re
import secrets
import stat
from base64 import b32encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec

from quiver import limits
from quiver.errors import InvalidRequest
from quiver.server.auth.principal import Rule
from quiver.server.auth.quotas import Quota
from quiver.storage import system
from quiver.storage.files import DiskFiles, publishing, translated

FILE_NAME: Final = "access.toml"  # in the data directory, unless the configuration says otherwise
TOKEN: Final = re.compile(r"qvt_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Rate = Annotated[float, msgspec.Meta(gt=0)]


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A token as it is kept: enough to know it again, not enough to make it."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}$")]
    hash: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    expires: Moment | None = None

    def __repr__(self) -> str:
        return f"Token({self.id})"


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A key for AWS signatures."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_]{4,128}$")]
    secret: Annotated[str, msgspec.Meta(min_length=16, max_length=128)]
    expires: Moment | None = None

    def __repr__(self) -> str:
        return f"Key({self.id})"


class AccessEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the file says of one principal."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    tokens: tuple[Token, ...] = ()
    keys: tuple[Key, ...] = ()
    requests_per_second: Rate | None = None
    bytes_per_second: Rate | None = None
    long_polls: Annotated[int, msgspec.Meta(ge=0)] | None = None

    def rules(self) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
        """What is allowed, and what is denied."""
        return tuple(map(Rule.parse, self.allow)), tuple(map(Rule.parse, self.deny))

    def quota(self) -> Quota:
        """Its shares."""
        return Quota(self.requests_per_second, self.bytes_per_second, self.long_polls)


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    principals: dict[str, AccessEntry] = {}

    def check(self) -> None:
        """Refuse what types cannot: names, rules, bounds, an id that two have."""
        _at_most(len(self.principals), limits.PRINCIPALS_MAX, "principals")
        ids: set[str] = set()
        for name, entry in self.principals.items():
            check_name(name)
            _at_most(len(entry.allow) + len(entry.deny), limits.RULES_MAX, f"rules of {name}")
            _at_most(len(entry.tokens), limits.CREDENTIALS_MAX, f"tokens of {name}")
            _at_most(len(entry.keys), limits.CREDENTIALS_MAX, f"keys of {name}")
            entry.rules()
            for used in [*(token.id for token in entry.tokens), *(key.id for key in entry.keys)]:
                if used in ids:
                    raise InvalidRequest(f"the id {used} is there twice")
                ids.add(used)


def _at_most(count: int, most: int, what: str) -> None:
    if count > most:
        raise InvalidRequest(f"{count:,} {what} are too many: at most {most:,}")


def check_name(name: str) -> str:
    """The name of a principal."""
    if not NAME.fullmatch(name):
        raise InvalidRequest(
            f"a principal's name must be 1 to 64 letters, digits, '.', '_' or '-', not {name[:40]!r}"
        )
    return name


# -- credentials -----------------------------------------------------------------------------------


def new_token(expires: datetime | None = None) -> tuple[str, Token]:
    """A token, which only its owner will have, and what is kept of it."""
    token_id = secrets.token_hex(8)
    text = f"qvt_{token_id}_{secrets.token_urlsafe(32)}"
    return text, Token(token_id, token_hash(text), expires)


def token_hash(text: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(text.encode()).hexdigest()


def new_key(expires: datetime | None = None) -> Key:
    """A key that looks like those of AWS, whose clients check that."""
    key_id = "QVAK" + b32encode(secrets.token_bytes(10)).decode()
    return Key(key_id, secrets.token_urlsafe(30), expires)


# -- the file --------------------------------------------------------------------------------------


def load(path: Path) -> Access:
    """Read and check the file; whatever is wrong with it is `InvalidRequest`."""
    try:
        access = msgspec.toml.decode(_read(path), type=Access)
        access.check()
    except (
        msgspec.DecodeError,
        ValueError,
        InvalidRequest,
    ) as error:  # a number of 5,000 digits too
        raise InvalidRequest(f"access file {path}: {error}") from None
    except RecursionError:
        raise InvalidRequest(f"access file {path}: something in it is too deep") from None
    return access


def _read(path: Path) -> bytes:
    """The content, of a file that nobody else can read."""
    with translated(path), path.open("rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise InvalidRequest(
                f"others can read or write it, and it has secrets: chmod 600 {path}"
            )
        data = file.read(limits.ACCESS_FILE_BYTES_MAX + 1)
    if len(data) > limits.ACCESS_FILE_BYTES_MAX:
        raise InvalidRequest(f"it is larger than {limits.ACCESS_FILE_BYTES_MAX:,} bytes")
    return data


def save(path: Path, access: Access) -> None:
    """Replace the file at once and durably, with mode 0600.

    Written by root, it belongs to whom it has belonged to, or whose the directory is: to the node.
    """
    access.check()
    files = DiskFiles(path.parent)
    with publishing(files, path.name) as file:
        file.write(0, [to_toml(access).encode()])
        if os.geteuid() == 0:
            owner = (path if path.exists() else path.parent).stat()
            os.chown(path.parent / file.name, owner.st_uid, owner.st_gid)
    files.sync_directory()


@contextmanager
def changing(path: Path) -> Iterator[dict[str, AccessEntry]]:
    """The principals of the file, to be changed in this block and saved after it, by one at a time."""
    system.demand_supported()
    path.parent.mkdir(parents=True, exist_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | system.DIRECTORY)
    try:
        system.lock(directory, wait=True)
        principals = dict(load(path).principals) if path.exists() else {}
        yield principals
        save(path, Access(principals))
    finally:
        os.close(directory)


def to_toml(access: Access) -> str:
    """The file's text."""
    head = "# Kept by `quiver access`, which keeps no comments. Secrets inside: mode 0600.\n\n"
    sorted_ = Access(dict(sorted(access.principals.items())))
    return head + msgspec.toml.encode(sorted_).decode()
