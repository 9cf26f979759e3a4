"""What a topic promises: its policy, as values that the log keeps."""

from dataclasses import dataclass, field
from typing import Final, Literal

Order = Literal["none", "key", "partition"]
PartitionBy = Literal["hash", "round-robin", "range"]
Guarantee = Literal["at-least-once", "at-most-once"]
RetryKind = Literal["fixed", "linear", "exponential"]
RetentionKind = Literal["settled", "time", "size", "forever"]
Compression = Literal["lz4", "zstd"]

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
    """What is kept after every group has settled it; an unsettled message is always kept.

    `amount` is milliseconds for "time" and bytes for "size", and unused otherwise.
    """

    kind: RetentionKind = "settled"
    amount: int = 0


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """Everything that makes one topic differ from another."""

    partitions: int = 1
    order: Order = "none"
    fair: bool = False
    partition_by: PartitionBy = "hash"
    split_keys: tuple[str, ...] = ()
    retention: Retention = field(default_factory=Retention)
    max_attempts: int | None = None
    dead_letter: str | None = None
    retry: Retry = field(default_factory=Retry)
    dedup_window_ms: int = 300_000
    max_backlog: int | None = None
    compression: Compression | None = None
    ledger: bool = True

    @property
    def keyed(self) -> bool:
        """Whether delivery looks at keys, so that the core must know them."""
        return self.fair or self.order == "key"


def scramble(seed: int) -> int:
    """A well-mixed 64-bit number made from `seed` (splitmix64): the same everywhere, for ever."""
    mixed = (seed + GOLDEN) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)
