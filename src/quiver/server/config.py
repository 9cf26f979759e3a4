"""One `Config`: from a TOML file, `QUIVER_*` variables and options, in this order of growing weight."""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from quiver import limits
from quiver.errors import InvalidRequest

PREFIX: Final = "QUIVER_"


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file. Its fields are the keys there may be, with their defaults."""


class Bounds(Section, frozen=True):
    """What one node takes on at a time. The defaults and their reasons are in `quiver.limits`."""

    head_seconds: float = limits.HEAD_SECONDS_MAX
    body_pause_seconds: float = limits.BODY_PAUSE_SECONDS_MAX
    idle_seconds: float = limits.IDLE_SECONDS_MAX
    drain_seconds: float = limits.DRAIN_SECONDS_MAX
    connections: int = limits.CONNECTIONS_MAX
    in_flight_bytes: int = limits.IN_FLIGHT_BYTES_MAX


class AccessFile(Section, frozen=True):
    """Who may use the node. Without a file of this name, the one in the data directory counts."""

    file: Path | None = None


class TlsFiles(Section, frozen=True):
    """A certificate and its key, both in PEM; they are read again when they change."""

    cert: Path
    key: Path


class Config(Section, frozen=True):
    """Everything a node can be told."""

    data: Path = Path("data")
    listen: str = "127.0.0.1:7070"
    hosts: tuple[str, ...] = ()  # names by which clients may call this node, besides localhost
    insecure: bool = False  # listen beyond this machine without authentication
    bounds: Bounds = Bounds()
    access: AccessFile = AccessFile()
    tls: TlsFiles | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where to listen."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the node."""
        host = self.address[0]
        return host == "localhost" or ipaddress.ip_address(host).is_loopback


def load(
    path: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    options: Mapping[str, Any] | None = None,
) -> Config:
    """The configuration: file, then environment, then options that are not None."""
    told: dict[str, Any] = {}
    if path is not None:
        try:
            told = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidRequest(
                f"cannot read the configuration {path}: {error.strerror}"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{path} is not TOML: {error}") from None
    for key in ("data", "listen"):
        if value := environment.get(PREFIX + key.upper()):
            told[key] = value
    told |= {key: value for key, value in (options or {}).items() if value is not None}
    try:
        return msgspec.convert(told, Config)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{path or 'the configuration'}: {error}") from None
