"""A message, before it is sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quiver.model.units import Duration


@dataclass(frozen=True, slots=True)
class Message:
    """What a producer hands over. `delay` and `ttl` are durations: seconds, strings such as "5m",
    or a timedelta.

    The body is bytes or str; anything else is sent as JSON.
    """

    body: Any
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    delay: Duration | None = None
    ttl: Duration | None = None
    dedup_id: str | None = None
