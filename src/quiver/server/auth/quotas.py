"""What a principal may use: requests and bytes a second, and receives that wait.

Rates are token buckets that hold one second's worth. A request is paid before it is served; bytes
are paid when they have been counted, so a bucket may be in debt, and then the next request waits.
So no size needs to be known in advance, and nobody gets more than a rate and one request.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from quiver.errors import QuotaExceeded


@dataclass(frozen=True, slots=True)
class Quota:
    """The shares of one principal; None is without a bound of its own."""

    requests_per_second: float | None = None
    bytes_per_second: float | None = None
    long_polls: int | None = None


class Bucket:
    """Fills at `rate` a second up to one second's worth, and at least one."""

    __slots__ = ("_level", "_most", "_rate", "_stamp")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._most = self._level = max(rate, 1.0)
        self._stamp = now

    def lacks(self, amount: float, now: float) -> float:
        """For how many seconds it must still fill until it holds `amount`."""
        self._level = min(self._most, self._level + (now - self._stamp) * self._rate)
        self._stamp = now
        return max(0.0, (amount - self._level) / self._rate)

    def take(self, amount: float) -> None:
        """Take out, below zero if need be."""
        self._level -= amount


class Meter:
    """Counts what one principal uses against its quota. Used by one thread, the loop's."""

    def __init__(
        self, quota: Quota | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.quota = quota or Quota()
        self._clock = clock
        self._requests = self._bucket(self.quota.requests_per_second)
        self._bytes = self._bucket(self.quota.bytes_per_second)
        self._waiting = 0

    def _bucket(self, rate: float | None) -> Bucket | None:
        return None if rate is None else Bucket(rate, self._clock())

    def admit(self, name: str) -> None:
        """Count one request of `name`, or refuse it with the time after which it may come again."""
        for bucket, amount, what in ((self._requests, 1, "requests"), (self._bytes, 0, "bytes")):
            if bucket is not None and (lack := bucket.lacks(amount, self._clock())) > 0:
                after = math.ceil(lack)
                raise QuotaExceeded(
                    f"{name} has used up its {what} a second: come again in {after:,} s", after
                )
        if self._requests is not None:
            self._requests.take(1)

    def spend(self, nbytes: int) -> None:
        """Count bytes."""
        if self._bytes is not None:
            self._bytes.take(nbytes)

    def start_waiting(self) -> None:
        """Count a receive that waits, or refuse it."""
        most = self.quota.long_polls
        if most is not None and self._waiting >= most:
            raise QuotaExceeded(
                f"{most} receives wait already, which is all that may: end one, or do not wait"
            )
        self._waiting += 1

    def stop_waiting(self) -> None:
        """It waits no more."""
        self._waiting -= 1
