"""What a user of Spark says with `option`, checked once, where the plan is made."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec

from quiver import limits
from quiver.client import arguments
from quiver.client.remote.address import is_address
from quiver.errors import InvalidRequest
from quiver.model.units import size_bytes

Spot: TypeAlias = (
    str | int | dict[int, int]
)  # earliest, latest, a time; an offset; one for each partition
# The number of a topic; partition, start, end.
Ranges: TypeAlias = tuple[int, tuple[tuple[int, int, int], ...]]
TOPIC: Final = "topic"  # in an offset of a stream, besides partitions
LOST: Final = "lost"
Table: TypeAlias = Literal["messages", "ledger"]

OURS: Final = {
    name.lower(): name
    for name in (
        "url",
        "topic",
        "table",
        "start",
        "end",
        "application",
        "batch",
        "group",
        "lease",
        "maxRowsPerTrigger",
        "maxBytesPerTrigger",
    )
}
LEASE: Final = "5m"  # a batch of Spark takes longer than a message of a worker
SPARKS: Final = {"path", "checkpointlocation", "queryname"}  # what Spark itself may add
RANGES: Final = (
    "_ranges"  # of offsets instead of start and end: what is not in files, see `history`
)
FULL: Final = "_full"  # seconds for which room in a full topic is waited for, see `pipeline`


@dataclass(frozen=True)
class Options:
    """The options of a read or a write; None for what was not said."""

    url: str  # with an absolute path, if it is a directory: tasks run elsewhere
    topic: str | None
    table: Table
    start: Spot | None
    end: Spot | None
    ranges: Ranges | None
    application: str | None
    batch: int | None
    group: str | None
    lease: float  # seconds
    max_rows: int | None  # of one trigger
    max_bytes: int | None
    full_seconds: float

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Options":
        """The options that Spark hands over, whose names have lost their capitals."""
        said = {name.lower(): value for name, value in given.items()}
        unknown = sorted(said.keys() - OURS.keys() - SPARKS - {RANGES, FULL})
        if unknown:
            raise InvalidRequest(
                f"there is no option {unknown[0]!r}; there are {', '.join(OURS.values())}"
            )
        if "url" not in said:
            raise InvalidRequest(
                'say which queue: option("url", …) with a directory, or the address of a node such as '
                '"quiver://127.0.0.1:7070"'
            )
        table = said.get("table", "messages")
        arguments.choice(table, "table", Table)
        topic = said.get("topic")
        if topic is None and table == "messages":
            raise InvalidRequest('say which topic: option("topic", …)')
        return cls(
            url=absolute(said["url"]),
            topic=None if topic is None else arguments.name(topic, "topic"),
            table="ledger" if table == "ledger" else "messages",
            start=_spot(said.get("start"), "start"),
            end=_spot(said.get("end"), "end"),
            ranges=_ranges(said.get(RANGES)),
            application=_name(said, "application"),
            batch=_number(said, "batch", 0),
            group=_name(said, "group"),
            lease=arguments.lease_ms(said.get("lease", LEASE)) / 1000,
            max_rows=_number(said, "maxrowspertrigger", 1),
            max_bytes=_size(said.get("maxbytespertrigger")),
            full_seconds=float(said.get(FULL, limits.SPARK_FULL_SECONDS)),
        )

    @property
    def topic_name(self) -> str:
        """The topic, where there must be one."""
        assert self.topic is not None
        return self.topic


def absolute(url: str) -> str:
    """The same address, or the whole path of a directory."""
    return url if is_address(url) or "://" in url else os.path.abspath(url)  # noqa: PTH100  # text


def _name(said: Mapping[str, str], option: str) -> str | None:
    value = said.get(option)
    return None if value is None else arguments.name(value, option)


def _number(said: Mapping[str, str], option: str, least: int) -> int | None:
    value = said.get(option)
    if value is None:
        return None
    if not _is_number(value):
        raise InvalidRequest(f"{OURS[option]} is a whole number, not {value[:40]!r}")
    return arguments.whole(int(value), OURS[option], least, 2**62)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _size(value: str | None) -> int | None:
    return None if value is None else max(size_bytes(value, "maxBytesPerTrigger"), 1)


def _ranges(value: str | None) -> Ranges | None:
    return None if value is None else msgspec.json.decode(value, type=Ranges)


def _spot(value: str | None, option: str) -> Spot | None:
    """ "earliest", "latest", a time, an offset for all partitions, or a JSON map of one for each."""
    if value is None or value in ("earliest", "latest"):
        return value
    if _is_number(value):
        return arguments.whole(int(value), option, 0, 2**62)
    if value.lstrip().startswith("{"):
        return _offsets(value, option)
    arguments.position(value)  # a time, or the error that says what else there is
    return value


def _offsets(value: str, option: str) -> dict[int, int]:
    wrong = InvalidRequest(
        f'{option} by partition is a JSON map of offsets, such as {{"0": 5, "1": 7}}, not {value[:60]!r}'
    )
    try:
        found: Any = json.loads(value)
        places = {name: offset for name, offset in found.items() if name not in (TOPIC, LOST)}
        made = {int(partition): offset for partition, offset in places.items()}
    except (ValueError, AttributeError, RecursionError):
        raise wrong from None
    numbers = [*made, *made.values()]
    if not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
        raise wrong
    return made
