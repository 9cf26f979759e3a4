"""Settling with proof: a settle, and what shows that its leases were given out."""

from dataclasses import dataclass

from quiver.limits import TIME_MS_MAX
from quiver.model.commands import Settle


@dataclass(frozen=True, slots=True)
class Settlement:
    """A settle as a client asks for it: with the tag of the lease for each of its `held`, in order.

    `until_ms` is when the first of these leases ends, in the queue's time, as far as the client knows: if
    an answer was lost and the second attempt is refused before then, the first attempt has done it.
    """

    command: Settle
    tags: tuple[bytes, ...]
    until_ms: int = TIME_MS_MAX
