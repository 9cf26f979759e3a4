"""Arguments as users give them, checked and turned into what commands carry."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias, TypedDict, get_args

from quiver import limits
from quiver.errors import InvalidRequest
from quiver.model.commands import Position
from quiver.model.ids import place_of
from quiver.model.topic import (
    ALTERABLE,
    Compression,
    Order,
    PartitionBy,
    Retention,
    Retry,
    RetryKind,
    TopicPolicy,
    argument_of,
    how_to_change,
)
from quiver.model.units import Duration, milliseconds, shown, size_bytes, timestamp_ms

NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
MESSAGE_ID: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
POSITIONS: Final = 'a position is "earliest", "latest", an offset (int) or a time'
KEPT: Final = ("compact", "forever", "settled")
DEAD_LETTER_SUFFIX: Final = ".dlq"
SHADOWED: Final = {"retention": "retention_", "retry": "retry_"}  # as `policy` calls them
PositionLike: TypeAlias = (
    Literal["earliest", "latest"] | int | str | datetime
)  # an int is an offset


class TopicOptions(TypedDict, total=False):
    """What `alter_topic` can change; the meaning of each is that of `create_topic`."""

    retention: str | float | timedelta
    keep_unsettled: bool
    max_attempts: int | None
    dead_letter: str | None
    retry: Retry | RetryKind | Duration | None
    dedup_window: Duration
    max_backlog: int | None
    compression: Compression | None
    labels: Mapping[str, str] | None


def name(value: Any, what: str) -> str:
    """A topic, group, member or producer name."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{what} must be a str, not {type(value).__name__}")
    if not NAME.fullmatch(value) or value in (".", "..") or len(value) > limits.NAME_CHARS_MAX:
        raise InvalidRequest(
            f"{what} must be 1 to {limits.NAME_CHARS_MAX} letters, digits, '.', '_' or '-', "
            f"not {value[:40]!r}"
        )
    return str(value)  # a plain one: a subclass cannot be stored


def whole(value: Any, what: str, low: int, high: int) -> int:
    """An integer in a range; True is not 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{what} must be an int, not {type(value).__name__}")
    if not low <= value <= high:
        raise InvalidRequest(f"{what} must be between {low:,} and {high:,}, not {shown(value)}")
    return int(value)


def choice(value: Any, what: str, options: Any) -> Any:
    """One of a few words; `options` is a Literal, or has them."""
    allowed = get_args(options) or options
    if value not in allowed:
        words = ", ".join(map(repr, allowed))
        raise InvalidRequest(
            f"{what} must be one of {words}, not {str(value)[:40]!r}{meant(value, allowed)}"
        )
    return str(value)


def meant(value: Any, words: Iterable[str]) -> str:
    """The end of a sentence about a word that is not known: which may have been meant, if so."""
    if not isinstance(value, str):
        return ""
    near = get_close_matches(value[: limits.NAME_CHARS_MAX].lower(), words, n=3, cutoff=0.6)
    return f": did you mean {' or '.join(map(repr, near))}?" if near else ""


def text(value: Any, what: str) -> str:
    """Free text that is only kept, cut to its limit."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{what} must be a str, not {type(value).__name__}")
    return value[: limits.REASON_CHARS_MAX].encode(errors="replace").decode()


def lease_ms(value: Any) -> int:
    """A lease's length."""
    length = milliseconds(value, "lease", max_seconds=limits.LEASE_SECONDS_MAX)
    if length == 0:
        raise InvalidRequest("lease must be more than 0; to give a message back, nack it")
    return length


def rate(value: Any) -> float:
    """Messages a second."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise InvalidRequest("rate must be a number of messages per second, more than 0")
    return value


def position(to: Any, partition: int | None = None) -> Position:
    """ "earliest", "latest", an offset (int), or a time (ISO text or datetime)."""
    if partition is not None:
        whole(partition, "partition", 0, limits.PARTITIONS_MAX)
    if to in ("earliest", "latest"):
        return Position(to, 0, partition)
    if isinstance(to, int) and not isinstance(to, bool):
        return Position("offset", whole(to, "offset", 0, 2**62), partition)
    if isinstance(to, str | datetime):
        try:
            return Position("time", timestamp_ms(to, "the position"), partition)
        except InvalidRequest as error:
            hint = meant(to, ("earliest", "latest"))
            raise InvalidRequest(f"{POSITIONS}: {error}{hint}") from None
    raise InvalidRequest(f"{POSITIONS}, not {type(to).__name__}")


def times(start: Any, end: Any) -> tuple[int | None, int | None]:
    """The ends of a span of time, each of which may be left out."""
    return (
        None if start is None else timestamp_ms(start, "start"),
        None if end is None else timestamp_ms(end, "end"),
    )


def message_id(value: Any) -> tuple[int, int]:
    """Entry and row of a message."""
    place = place_of(value) if isinstance(value, str) else None
    if place is not None:
        return place  # as SQS has it
    found = MESSAGE_ID.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidRequest(
            'a message id is the text that `send` returned as `id`, such as "12-0", not '
            f"{str(value)[:40]!r}"
        )
    return int(found[1]), int(found[2])


def retention(value: Any) -> Retention:
    """ "settled", "forever", or parts: a time, a size, "compact" or "settled", as in "compact, 7d"."""
    if isinstance(value, Retention):
        return _checked_retention(value)
    if not isinstance(value, str):
        return Retention(time_ms=milliseconds(value, "retention"))
    words = [word.strip() for word in value.split(",")]
    if words == ["settled"]:
        return Retention()
    found: dict[str, Any] = {}
    for word in words:
        part, amount = _retention_part(word)
        if part in found:
            raise InvalidRequest(f"retention has {word[:40]!r} and another of its kind; give one")
        found[part] = amount
    return Retention(**found)


def _retention_part(word: str) -> tuple[str, Any]:
    if word in KEPT:
        return word, True
    if word[:1].isalpha():
        raise InvalidRequest(
            'retention must be "settled", "forever", "compact", a time such as "7d" or a size such as '
            f'"10GB", not {word[:40]!r}{meant(word, KEPT)}'
        )
    if word.lower().endswith("b"):
        return "size_bytes", size_bytes(word, "retention")
    return "time_ms", milliseconds(word, "retention")


def _checked_retention(value: Retention) -> Retention:
    for amount in (value.time_ms, value.size_bytes):
        if amount is not None:
            whole(amount, "amount of retention", 0, 2**62)
    flags: tuple[Any, ...] = (value.compact, value.forever, value.settled)
    if not all(isinstance(flag, bool) for flag in flags):
        raise InvalidRequest("compact, forever and settled of retention must be True or False")
    return value


def retry(value: Any) -> Retry:
    """A `Retry`, the name of a kind, or a fixed delay."""
    if value is None:
        return Retry()
    if isinstance(value, Retry):
        choice(value.kind, "the kind of retry", RetryKind)
        whole(value.base_ms, "base_ms of retry", 0, limits.DURATION_SECONDS_MAX * 1000)
        whole(value.cap_ms, "cap_ms of retry", 0, limits.DURATION_SECONDS_MAX * 1000)
        if not isinstance(value.jitter, bool):
            raise InvalidRequest("jitter of retry must be True or False")
        return value
    kinds = get_args(RetryKind)
    if value in kinds:
        return make_retry(value)
    if isinstance(value, str) and value[:1].isalpha():
        raise InvalidRequest(
            'retry must be "fixed", "linear", "exponential", a time such as "30s", or None for no '
            f"wait, not {value[:40]!r}{meant(value, kinds)}"
        )
    return Retry("fixed", milliseconds(value, "retry"))


def make_retry(
    kind: RetryKind = "exponential",
    base: Duration = 1.0,
    cap: Duration = "5m",
    *,
    jitter: bool = True,
) -> Retry:
    """How long failed messages wait: "fixed", "linear" or "exponential" steps of `base` up to `cap`.

    With jitter each wait is drawn between half of the step and all of it, so that messages that
    failed together do not all come back together.

    Args:
        kind: "fixed" (base, base, …), "linear" (base, 2 base, …) or "exponential" (base, 2 base, 4
            base, …).
        base: The first wait.
        cap: No wait is longer.
        jitter: Whether each wait is drawn between half of it and all of it.
    """
    if not isinstance(jitter, bool):
        raise InvalidRequest("jitter must be True or False")
    return Retry(
        choice(kind, "kind", RetryKind),
        milliseconds(base, "base"),
        milliseconds(cap, "cap"),
        jitter,
    )


def policy(
    topic: str,
    *,
    partitions: Any,
    order: Any,
    fair: Any,
    partition_by: Any,
    retention_: Any,
    keep_unsettled: Any,
    max_attempts: Any,
    dead_letter: Any,
    retry_: Any,
    dedup_window: Any,
    max_backlog: Any,
    compression: Any,
    ledger: Any,
    labels: Any = None,
) -> TopicPolicy:
    """A topic's policy, whole and consistent."""
    whole(partitions, "partitions", 1, limits.PARTITIONS_MAX)
    for flag, what in ((fair, "fair"), (keep_unsettled, "keep_unsettled"), (ledger, "ledger")):
        if not isinstance(flag, bool):
            raise InvalidRequest(f"{what} must be True or False")
    split_keys: tuple[str, ...] = ()
    if isinstance(partition_by, list | tuple):
        split_keys, partition_by = _split_keys(partition_by, partitions), "range"
    elif partition_by == "range":
        raise InvalidRequest(
            f"for ranges give the {partitions - 1} keys at which partitions begin, in order: "
            'partition_by=["k", "t"] makes three'
        )
    choice(partition_by, "partition_by", PartitionBy)
    choice(order, "order", Order)
    if order == "partition" and fair:
        raise InvalidRequest('fair=True has no meaning with order="partition": there are no turns')
    if order == "key" and partition_by == "round-robin":
        raise InvalidRequest('order="key" needs the messages of a key in one partition')
    if max_attempts is not None:
        whole(max_attempts, "max_attempts", 1, 1_000_000)
        dead_letter = dead_letter or topic + DEAD_LETTER_SUFFIX
    if dead_letter is not None and name(dead_letter, "dead_letter") == topic:
        raise InvalidRequest("a topic cannot be its own dead-letter topic")
    if max_backlog is not None:
        whole(max_backlog, "max_backlog", 1, 2**62)
    made = TopicPolicy(
        partitions=partitions,
        order=order,
        fair=fair,
        partition_by=partition_by,
        split_keys=split_keys,
        retention=retention(retention_),
        keep_unsettled=keep_unsettled,
        max_attempts=max_attempts,
        dead_letter=dead_letter,
        retry=retry(retry_),
        dedup_window_ms=milliseconds(dedup_window, "dedup_window"),
        max_backlog=max_backlog,
        compression=None
        if compression is None
        else choice(compression, "compression", Compression),
        ledger=ledger,
        labels=_labels(labels),
    )
    fault = made.fault()
    if fault is not None:
        raise InvalidRequest(fault)
    return made


def _labels(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(
        isinstance(part, str) for pair in value.items() for part in pair
    ):
        raise InvalidRequest('labels must be a mapping of texts, such as {"team": "billing"}')
    try:
        nbytes = sum(len(part.encode()) for pair in value.items() for part in pair)
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"labels must be text that UTF-8 can express: {error}") from error
    if nbytes > limits.LABELS_BYTES_MAX:
        raise InvalidRequest(
            f"labels may have {limits.LABELS_BYTES_MAX:,} bytes in all, not {nbytes:,}"
        )
    return dict(sorted(value.items()))


def altered(
    topic: str, policy_: TopicPolicy, changes: dict[str, Any]
) -> tuple[TopicPolicy, list[str]]:
    """The policy with some arguments of `create_topic` changed, and the fields that this is about."""
    known = {argument_of(field.name): field.name for field in fields(TopicPolicy)}
    unknown = [name for name in changes if name not in known]
    if unknown:
        hint = meant(unknown[0], known)
        raise InvalidRequest(f"a topic has no {unknown[0]!r}; it has {', '.join(known)}{hint}")
    if not changes:
        raise InvalidRequest('say what shall change, such as retention="7d"')
    named = [known[name] for name in changes]
    if any(name not in ALTERABLE for name in named):
        raise InvalidRequest(f"topic {topic!r} is there already; {how_to_change(named)}")
    given = {**of_policy(policy_), **changes}
    made = from_arguments(topic, given)
    if made.dead_letter != policy_.dead_letter and "dead_letter" not in named:
        named.append("dead_letter")  # the one that max_attempts brings along
    return made, named


def begins(begin: Any, wait_ms: int) -> int | None:
    """How many messages a receive begins; None is all of them."""
    if begin is None:
        return None
    count = whole(begin, "begin", 0, limits.RECEIVE_MESSAGES_MAX)
    if count == 0 and wait_ms:
        raise InvalidRequest(
            "a receive that begins nothing looks ahead and does not wait; leave wait out, or begin "
            "at least 1"
        )
    return count


def from_arguments(topic: str, given: Mapping[str, Any]) -> TopicPolicy:
    """The policy that these arguments of `create_topic` make."""
    return policy(topic, **{SHADOWED.get(name, name): value for name, value in given.items()})


def of_policy(policy_: TopicPolicy) -> dict[str, Any]:
    """The arguments of `create_topic` that make such a policy."""
    names = {argument_of(field.name): field.name for field in fields(TopicPolicy)}
    given = {name: getattr(policy_, field) for name, field in names.items()}
    given["partition_by"] = list(policy_.split_keys) or policy_.partition_by
    given["dedup_window"] = policy_.dedup_window_ms / 1000
    return given


def _split_keys(keys: list[Any] | tuple[Any, ...], partitions: int) -> tuple[str, ...]:
    if not all(map(_is_key, keys)) or list(keys) != sorted(set(keys)):
        raise InvalidRequest(
            f"split keys must be different strings in order, of 1 to {limits.KEY_BYTES_MAX:,} bytes"
        )
    if len(keys) != partitions - 1:
        raise InvalidRequest(
            f"{partitions} ranges need {partitions - 1} split keys, not {len(keys)}"
        )
    return tuple(keys)


def _is_key(value: Any) -> bool:
    try:
        return isinstance(value, str) and 1 <= len(value.encode()) <= limits.KEY_BYTES_MAX
    except UnicodeEncodeError:  # a lone surrogate
        return False
