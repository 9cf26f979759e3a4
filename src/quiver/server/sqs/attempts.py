"""Receives that can be repeated: who has lost the answer asks again by the same attempt id.

Answers are kept for five minutes, unless there are too many or too large ones since: then the oldest
go, and who asks again waits for the visibility to end. One that a message was deleted of, or made
visible, is not given again.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import msgspec

from quiver import limits
from quiver.server.sqs.shapes import Output

ATTEMPT_MS: Final = 300_000

Key = tuple[int, str]  # of the topic, and the attempt id


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a receive was given."""

    until_ms: int
    handles: list[str]
    answer: bytes  # compact, and of a known size

    def messages(self) -> list[Output]:
        """The same again."""
        found: list[Output] = msgspec.json.decode(self.answer)
        return found


class Attempts:
    """The newest attempts, within bounds of number, bytes and time."""

    def __init__(self) -> None:
        self._attempts: OrderedDict[Key, Attempt] = OrderedDict()  # in the order they expire
        self._keys: dict[str, Key] = {}  # of receipt handles
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._attempts)

    def get(self, key: Key, now_ms: int) -> Attempt | None:
        """What an attempt was given, if that is known."""
        self._expire(now_ms)
        return self._attempts.get(key)

    def put(self, key: Key, handles: list[str], messages: list[Output], now_ms: int) -> None:
        """Remember what an attempt was given."""
        self._expire(now_ms)
        self.pop(key)
        made = Attempt(now_ms + ATTEMPT_MS, handles, msgspec.json.encode(messages))
        if len(made.answer) > limits.SQS_ATTEMPTS_BYTES_MAX:  # with relaxed limits
            return
        self._attempts[key] = made
        self._keys.update(dict.fromkeys(handles, key))
        self.nbytes += len(made.answer)
        while self.nbytes > limits.SQS_ATTEMPTS_BYTES_MAX or len(self) > limits.SQS_ATTEMPTS_MAX:
            self.pop(next(iter(self._attempts)))

    def pop(self, key: Key) -> None:
        """Forget an attempt."""
        gone = self._attempts.pop(key, None)
        if gone is not None:
            self.nbytes -= len(gone.answer)
            for handle in gone.handles:
                self._keys.pop(handle, None)

    def touched(self, handle: str) -> None:
        """A message was deleted or its visibility changed: no attempt is given it again."""
        if handle in self._keys:
            self.pop(self._keys[handle])

    def _expire(self, now_ms: int) -> None:
        while self._attempts:
            key, oldest = next(iter(self._attempts.items()))
            if oldest.until_ms > now_ms:
                break
            self.pop(key)
