"""Durations, sizes and times as people write them, to the integers that Quiver keeps.

Whoever meets a user converts once, here; everything behind counts milliseconds and bytes. Nothing
here asks for the time. Errors never repeat a value in full: it may be megabytes of text.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn, TypeAlias

from quiver import limits
from quiver.errors import InvalidRequest

Duration: TypeAlias = float | str | timedelta  # seconds, or text such as "5m"
Moment: TypeAlias = float | str | datetime  # seconds since 1970, or ISO 8601 text

SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "": 1}
BYTES: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)

_QUANTITY: Final = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([a-zA-Z]{0,3})\s*")
_SHOWN_CHARS: Final = 40
_DECIMAL_BITS_MAX: Final = 1024  # Python refuses to write very large numbers in decimals


def milliseconds(
    value: Duration,
    name: str,
    *,
    max_seconds: float = limits.DURATION_SECONDS_MAX,
) -> int:
    """A duration in whole milliseconds; what is not zero never becomes zero.

    >>> milliseconds("5m", "delay"), milliseconds(0.25, "delay")
    (300000, 250)
    """
    kinds = 'seconds or a string such as "250ms", "30s", "5m", "2h" or "7d"'
    seconds: float
    match value:
        case bool():
            _wrong_kind(value, name, kinds)
        case int() | float():
            seconds = value
        case timedelta():
            seconds = value.total_seconds()
        case str():
            number, unit = _quantity(value, name, SECONDS, kinds)
            seconds = float(number) * SECONDS[unit]
        case _:
            _wrong_kind(value, name, kinds)
    if not 0 <= seconds <= max_seconds:  # written so that NaN is refused too
        raise InvalidRequest(
            f"{name} must be between 0 and {max_seconds:,} seconds, not {shown(value)}"
        )
    return max(1, round(seconds * 1000)) if seconds else 0


def size_bytes(value: int | str, name: str) -> int:
    """A size in bytes: KB, MB, GB, TB are powers of 1000 and KiB, MiB, GiB, TiB of 1024.

    >>> size_bytes("10GB", "retention"), size_bytes("1.5 KiB", "retention")
    (10000000000, 1536)
    """
    kinds = 'bytes or a string such as "500MB", "10GB" or "1GiB"'
    match value:
        case bool():
            _wrong_kind(value, name, kinds)
        case int():
            size = value
        case str():
            number, unit = _quantity(value, name, BYTES, kinds)
            scale = BYTES[unit]
            size = int(number) * scale if number.isdigit() else round(float(number) * scale)
        case _:
            _wrong_kind(value, name, kinds)
    if not 0 <= size <= limits.SIZE_BYTES_MAX:
        raise InvalidRequest(
            f"{name} must be between 0 and {limits.SIZE_BYTES_MAX:,} bytes, not {shown(value)}"
        )
    return size


def timestamp_ms(value: Moment, name: str) -> int:
    """A moment as milliseconds since 1970: ISO 8601 text, a datetime, or seconds since 1970.

    What has no time zone is taken as UTC, as everywhere in Quiver: with the machine's own zone the
    same program would mean different moments on different machines.

    >>> timestamp_ms("2026-11-01T00:00:00Z", "start"), timestamp_ms(1.5, "start")
    (1793491200000, 1500)
    """
    kinds = 'ISO 8601 text such as "2026-11-01T00:00:00Z", a datetime, or seconds since 1970'
    match value:
        case bool():
            _wrong_kind(value, name, kinds)
        case int() | float():
            if not 0 <= value <= limits.TIME_MS_MAX / 1000:
                _wrong_time(name, value, "; numbers are seconds, not milliseconds")
            return min(round(value * 1000), limits.TIME_MS_MAX)
        case str():
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                raise InvalidRequest(f"{name} must be {kinds}, not {shown(value)}") from None
        case datetime():
            moment = value
        case _:
            _wrong_kind(value, name, kinds)
    if moment.utcoffset() is None:
        moment = moment.replace(tzinfo=UTC)
    since = (moment - EPOCH) // MILLISECOND
    if not 0 <= since <= limits.TIME_MS_MAX:
        _wrong_time(name, value)
    return since


def size(nbytes: float) -> str:
    """Bytes as people read them: 999 B, 1.2 kB, 3.4 MB."""
    if nbytes < 1000:
        return f"{nbytes:.0f} B"
    for unit in ("kB", "MB", "GB"):
        nbytes /= 1000
        if nbytes < 999.95:
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes / 1000:.1f} TB"


def duration(seconds: float) -> str:
    """A time span in its two largest units: 20ms, 0.3s, 12s, 4m 12s, 3d 2h."""
    if 0 < seconds < 0.1:
        return f"{max(round(seconds * 1000), 1)}ms"
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s".replace(".0s", "s")
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    for unit, name, lower, lower_name in (
        (86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"),
    ):  # fmt: skip
        if whole >= unit:
            rest = whole % unit // lower
            return f"{whole // unit}{name}" + (f" {rest}{lower_name}" if rest else "")
    return f"{whole}s"


def _quantity(text: str, name: str, units: dict[str, float], kinds: str) -> tuple[str, str]:
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2].lower() not in units:
        raise InvalidRequest(f"{name} must be {kinds}, not {shown(text)}")
    return found[1], found[2].lower()


def _wrong_kind(value: object, name: str, kinds: str) -> NoReturn:
    raise InvalidRequest(f"{name} must be {kinds}, not {type(value).__name__}")


def _wrong_time(name: str, value: object, hint: str = "") -> NoReturn:
    raise InvalidRequest(
        f"{name} must be between the years 1970 and 9999, not {shown(value)}{hint}"
    )


def shown(value: object) -> str:
    """A value as an error has it: not longer than a line, and a text in quotes."""
    if isinstance(value, str):
        return repr(_cut(value))
    if isinstance(value, int) and value.bit_length() > _DECIMAL_BITS_MAX:
        return _cut(hex(value))
    return _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
