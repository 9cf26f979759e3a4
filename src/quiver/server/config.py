"""One `NodeConfig`: from a TOML file, `QUIVER_*` variables and options, in this order of growing weight.

The file's keys are the fields of the classes below. A variable is named as its key: `listen` is
QUIVER_LISTEN, `idle_seconds` in `[bounds]` is QUIVER_BOUNDS_IDLE_SECONDS; lists have commas.
"""

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from quiver import limits, toml
from quiver.errors import InvalidRequest
from quiver.model.replies import Durability
from quiver.toml import Section, section

PREFIX: Final = "QUIVER_"
ELSEWHERE: Final = ("QUIVER_TOKEN",)  # what clients read
# Kubernetes and Docker tell every container so where a service named quiver is.
SERVICE: Final = re.compile(r"(.*_SERVICE_HOST|.*_PORT(_.*)?)")
ALIKE: Final = 0.65  # of two names, 1 if they are the same: the other was meant
DEFAULT_PORT: Final = 7070

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Bytes = Annotated[int, msgspec.Meta(ge=limits.MIB)]
Names = tuple[str, ...]


class NodeBounds(Section, frozen=True):
    """What a node takes on at a time. The defaults and their reasons are in `quiver.limits`."""

    head_seconds: Seconds = limits.HEAD_SECONDS_MAX
    body_pause_seconds: Seconds = limits.BODY_PAUSE_SECONDS_MAX
    body_seconds: Seconds = limits.BODY_SECONDS_MAX
    answer_pause_seconds: Seconds = limits.ANSWER_PAUSE_SECONDS_MAX
    idle_seconds: Seconds = limits.IDLE_SECONDS_MAX
    drain_seconds: Seconds = limits.DRAIN_SECONDS_MAX
    connections: Count = limits.CONNECTIONS_MAX
    connections_per_peer: Count = limits.CONNECTIONS_PER_PEER_MAX
    in_flight_bytes: Bytes = limits.IN_FLIGHT_BYTES_MAX
    sql_queries: Annotated[int, msgspec.Meta(ge=1, le=64)] = limits.SQL_QUERIES_MAX
    sql_seconds: Seconds = limits.SQL_SECONDS_MAX


class LogConfig(Section, frozen=True):
    """What is written to stderr. "auto" is text for a terminal, else JSON; "debug" has every request."""

    format: Literal["auto", "json", "text"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class AccessFile(Section, frozen=True):
    """Who may use the node. Without a file of this name, the one in the data directory counts."""

    file: Path | None = None


class TlsFiles(Section, frozen=True):
    """A certificate and its key, both in PEM; they are read again when they change."""

    cert: Path
    key: Path


class Sqs(Section, frozen=True):
    """The SQS door. What AWS refuses is refused, unless a bound is raised here."""

    strict: bool = True  # a minute between deleting a queue and making it again, between two purges
    account: Annotated[str, msgspec.Meta(pattern="^[0-9]{12}$")] = "000000000000"  # in URLs, ARNs
    region: str = "us-east-1"  # in ARNs, for requests that are not signed
    message_bytes: Annotated[int, msgspec.Meta(ge=1024, le=limits.BODY_BYTES_MAX)] = (
        limits.SQS_MESSAGE_BYTES_MAX
    )
    delay_seconds: Count = limits.SQS_DELAY_SECONDS_MAX
    visibility_seconds: Annotated[int, msgspec.Meta(ge=1, le=limits.LEASE_SECONDS_MAX)] = (
        limits.SQS_VISIBILITY_SECONDS_MAX
    )
    retention_seconds: Annotated[int, msgspec.Meta(ge=60, le=limits.DURATION_SECONDS_MAX)] = (
        limits.SQS_RETENTION_SECONDS_MAX
    )
    wait_seconds: Annotated[int, msgspec.Meta(ge=0, le=limits.WAIT_SECONDS_MAX)] = (
        limits.SQS_WAIT_SECONDS_MAX
    )
    receive_messages: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = (
        limits.SQS_RECEIVE_MESSAGES_MAX
    )
    batch_entries: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = limits.SQS_BATCH_ENTRIES_MAX
    in_flight_messages: Count = limits.SQS_IN_FLIGHT_MAX  # of a queue


class NodeConfig(Section, frozen=True):
    """Everything a node can be told."""

    data: Path = Path("data")
    listen: str = f"127.0.0.1:{DEFAULT_PORT}"
    hosts: Names = ()  # names by which clients may call this node, besides localhost
    insecure: bool = False  # listen beyond this machine without authentication
    durability: Durability = "disk"  # of what does not say it: as in `quiver.connect`
    bounds: NodeBounds = NodeBounds()
    access: AccessFile = AccessFile()
    tls: TlsFiles | None = None
    log: LogConfig = LogConfig()
    sqs: Sqs = Sqs()

    def __post_init__(self) -> None:
        _ = self.address  # or it says what is wrong with it

    @property
    def address(self) -> tuple[str, int]:
        """Where to listen: an IP address and a port, 0 for any that is free."""
        host, _, port = self.listen.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise ValueError(
                f"listen is {self.listen!r}; it must be an address and a port, such as "
                f"127.0.0.1:{DEFAULT_PORT}, 0.0.0.0:{DEFAULT_PORT} or [::1]:{DEFAULT_PORT}"
            )
        try:
            return str(ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)), int(
                port
            )
        except ValueError:
            raise ValueError(
                f"listen is {self.listen!r}, and {host!r} is not an IP address; 127.0.0.1 is for "
                "this machine only, 0.0.0.0 for every network it is in"
            ) from None

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the node."""
        return ipaddress.ip_address(self.address[0]).is_loopback


def load(
    path: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    options: Mapping[str, Any] | None = None,
) -> NodeConfig:
    """The configuration: file, then environment, then options that are not None."""
    told = toml.read(path) if path is not None else {}
    toml.checked(told, NodeConfig, str(path))
    _check_names(environment)
    for keys, kind in _fields(NodeConfig):
        if value := environment.get(_variable(keys)):
            names = [name.strip() for name in value.split(",")]
            told = _merged(told, _nested(keys, names if kind == Names else value))
    toml.checked(told, NodeConfig, "the environment", strict=False)
    given = {key: value for key, value in (options or {}).items() if value is not None}
    return toml.checked(_merged(told, given), NodeConfig, "the options", strict=False)


def _check_names(environment: Mapping[str, str]) -> None:
    """Refuse a variable that seems to be one of ours and is not; others may have theirs."""
    names = {_variable(keys): keys for keys, _ in _fields(NodeConfig)}
    tables = tuple(_variable(keys[:1]) + "_" for keys in names.values() if len(keys) > 1)
    for name, value in environment.items():
        if not name.startswith(PREFIX) or not value or name in names or name in ELSEWHERE:
            continue
        bare = [known.removeprefix(PREFIX) for known in names]
        near = get_close_matches(name.removeprefix(PREFIX), bare, n=1, cutoff=ALIKE)
        if (near or name.startswith(tables)) and not SERVICE.fullmatch(name):
            meant = (
                f"did you mean {PREFIX}{near[0]}?" if near else "quiver serve knows none like it"
            )
            raise InvalidRequest(f"the environment: there is no variable {name}; {meant}")


def _variable(keys: tuple[str, ...]) -> str:
    return PREFIX + "_".join(keys).upper()


def _merged(told: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    tables = {key: {**told.get(key, {}), **value} for key, value in more.items()
              if isinstance(value, dict)}  # fmt: skip
    return {**told, **more, **tables}


def _nested(keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    return {keys[0]: _nested(keys[1:], value)} if len(keys) > 1 else {keys[0]: value}


def _fields(
    kind: type[Section], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key with its type, those of tables after the table's name."""
    for field in msgspec.structs.fields(kind):
        keys = (*above, field.name)
        table = section(field.type)
        if table is not None:
            yield from _fields(table, keys)
        else:
            yield keys, field.type
