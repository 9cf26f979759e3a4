"""What a topic promises: its policy, as values that the log keeps."""

from dataclasses import dataclass, field, fields
from typing import Final, Literal

from quiver import limits

Order = Literal["none", "key", "partition"]
PartitionBy = Literal["hash", "round-robin", "range"]
Guarantee = Literal["at-least-once", "at-most-once"]
RetryKind = Literal["fixed", "linear", "exponential"]
Compression = Literal["lz4", "zstd"]

STAGED_MS: Final = 1000 * limits.STAGED_SECONDS_MAX
# Behind the name of a topic, the name of the one where its messages are staged. `arguments.name` allows
# no "~", so nobody can ask for such a topic by name, and no user's topic is one.
STAGING: Final = "~staged"
GOLDEN: Final = 0x9E3779B97F4A7C15
MASK: Final = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class Retry:
    """How long a nacked message waits before its next attempt.

    fixed: base, base, base · linear: base, 2 base, 3 base · exponential: base, 2 base, 4 base.
    Never more than `cap_ms`. With jitter the wait is drawn between half of that and all of it.
    """

    kind: RetryKind = "fixed"
    base_ms: int = 0
    cap_ms: int = 300_000
    jitter: bool = False

    def delay_ms(self, attempt: int, seed: int) -> int:
        """The wait after failed attempt number `attempt` (1 is the first); chance comes in as `seed`."""
        match self.kind:
            case "fixed":
                delay = self.base_ms
            case "linear":
                delay = self.base_ms * attempt
            case "exponential":
                delay = self.base_ms << min(attempt - 1, 40)
        delay = min(delay, self.cap_ms)
        if self.jitter and delay > 1:
            half = delay // 2
            delay = half + scramble(seed) % (delay - half + 1)
        return delay


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept after every group has settled it; with no part set, nothing.

    Time and size let go of the oldest, whichever does so first. `compact` keeps the newest message
    of each key; `forever` keeps everything. With `settled`, time and size say only how long a
    message may wait for those who have not settled it.
    """

    time_ms: int | None = None
    size_bytes: int | None = None
    compact: bool = False
    forever: bool = False
    settled: bool = False

    @property
    def bounded(self) -> bool:
        """Whether age or size decide."""
        return self.time_ms is not None or self.size_bytes is not None

    @property
    def keeps(self) -> bool:
        """Whether anything stays that everybody has settled."""
        return not self.settled and (self.bounded or self.compact or self.forever)


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """Everything that makes one topic differ from another."""

    partitions: int = 1
    order: Order = "none"
    fair: bool = False
    partition_by: PartitionBy = "hash"
    split_keys: tuple[str, ...] = ()
    retention: Retention = field(default_factory=Retention)
    keep_unsettled: bool = True  # also from age and size; False lets a group that is behind lose
    max_attempts: int | None = None
    dead_letter: str | None = None
    retry: Retry = field(default_factory=Retry)
    dedup_window_ms: int = 300_000
    max_backlog: int | None = None
    compression: Compression | None = None
    ledger: bool = True
    labels: dict[str, str] = field(default_factory=dict)  # whatever its users want to keep with it

    @property
    def keyed(self) -> bool:
        """Whether delivery looks at keys, so that the core must know them."""
        return self.fair or self.order == "key"

    def staging(self) -> "TopicPolicy":
        """The policy of the topic where messages for this one are staged."""
        return TopicPolicy(
            self.partitions, self.order, self.fair, self.partition_by, self.split_keys,
            Retention(time_ms=STAGED_MS), keep_unsettled=False, compression=self.compression,
            ledger=self.ledger,
        )  # fmt: skip

    def places_like(self, other: "TopicPolicy") -> bool:
        """Whether the same messages would go to the same partitions, with their keys known alike."""
        return not [name for name in differences(self, other) if name in _PLACING]

    def fault(self) -> str | None:
        """Why its parts do not go together, if so. Each may change by itself, so the core asks too."""
        retention = self.retention
        if retention.forever and (retention.bounded or retention.compact):
            return 'retention "forever" keeps everything, so nothing can be combined with it'
        if retention.settled and (retention.compact or not retention.bounded):
            return 'retention "settled" keeps nothing; a time or size with it says how long to wait'
        if retention.settled and self.keep_unsettled:
            return (
                'retention "settled" with a time or size lets go of messages that nobody has settled: '
                "say so with keep_unsettled=False"
            )
        if not self.keep_unsettled and not retention.bounded:
            return 'keep_unsettled=False needs a retention of a time or a size, such as "7d"'
        if retention.compact and self.partition_by == "round-robin":
            return 'retention "compact" needs the messages of a key in one partition'
        return None


# What may change while messages are there. The rest decides where messages are, in which order they
# were promised, and what is known about them.
ALTERABLE: Final = (
    "retention",
    "keep_unsettled",
    "max_attempts",
    "dead_letter",
    "retry",
    "dedup_window_ms",
    "max_backlog",
    "compression",
    "labels",
)
_PLACING: Final = ("partitions", "order", "fair", "partition_by", "split_keys")
_ARGUMENTS: Final = {"dedup_window_ms": "dedup_window", "split_keys": "partition_by"}


def argument_of(name: str) -> str:
    """What users call a field of the policy."""
    return _ARGUMENTS.get(name, name)


def staging_name(topic: str) -> str:
    """The name of the topic where messages for this one are staged."""
    return topic + STAGING


def is_staging(name: str) -> bool:
    """Whether it is a topic where messages are staged."""
    return name.endswith(STAGING)


def staged_for(name: str) -> str:
    """The topic that messages of this one belong to: the one they are staged for, or itself."""
    return name.removesuffix(STAGING)


def differences(one: TopicPolicy, other: TopicPolicy) -> list[str]:
    """The fields in which two policies differ."""
    names = [field_.name for field_ in fields(TopicPolicy)]
    return [name for name in names if getattr(one, name) != getattr(other, name)]


def how_to_change(names: list[str]) -> str:
    """What can be done about fields of a policy that should be others."""
    fixed = list(dict.fromkeys(argument_of(name) for name in names if name not in ALTERABLE))
    if fixed:
        return f"{', '.join(fixed)} cannot be changed: use it as it is, or delete it first"
    words = ", ".join(map(argument_of, names))
    return f"use it as it is, or change {words} with alter_topic"


def scramble(seed: int) -> int:
    """A well-mixed 64-bit number made from `seed` (splitmix64): the same everywhere, for ever."""
    mixed = (seed + GOLDEN) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)
