"""From a connection to frames: the upgrade of HTTP, as the client sees it. No IO."""

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from quiver import limits
from quiver.client.remote.address import Address
from quiver.errors import InvalidRequest, ProtocolError, QuiverError
from quiver.wire.frames import PATH, PROTOCOL
from quiver.wire.problems import Trouble
from quiver.wire.shapes import Problem

END: Final = b"\r\n\r\n"
DIGITS: Final = re.compile("[0-9]{1,18}")


class NoUpgrade(Exception):
    """What answers speaks HTTP and does not upgrade: an older node, or a proxy before one."""


class Busy(Exception):
    """There is no connection now, and there may be one later."""


def headers(address: Address) -> dict[str, str]:
    """What every request of a client says."""
    said = {} if address.token is None else {"authorization": f"Bearer {address.token}"}
    return said if address.local else {**said, "accept-encoding": "zstd"}


@dataclass(slots=True)
class Handshake:
    """The upgrade of one connection."""

    address: Address
    host: str
    rest: bytes = b""  # what came behind the node's answer: frames
    _head: bytes = b""
    _status: int = 0
    _length: int = 0

    def request(self) -> bytes:
        """What the client writes first."""
        said = {
            "host": self.host, "connection": "Upgrade", "upgrade": PROTOCOL, **headers(self.address),
        }  # fmt: skip
        lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        return f"GET {PATH} HTTP/1.1\r\n{lines}\r\n".encode()

    def feed(self, data: bytes) -> bool:
        """More bytes of the answer (none: it has ended); whether frames follow. An error if not."""
        self.rest += data
        if not self._status:
            head, end, rest = self.rest.partition(END)
            if (
                not self.rest.startswith(b"HTTP/"[: len(self.rest)])
                or len(head) > limits.HEAD_BYTES_MAX
            ):
                raise no_http(self.host)
            if not end:
                if not data:
                    raise ConnectionResetError("the connection was closed during the handshake")
                return False
            self._understand(head.decode("latin-1"))
            self.rest = rest
        if self._status == 101:
            return True
        if data and len(self.rest) < self._length:
            return False
        raise self._refusal()

    def _understand(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        said = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        self._status = _number(first.partition(" ")[2][:3]) or 1
        length = _number(said.get("content-length", "")) or 0
        self._length = min(length, limits.HEAD_BYTES_MAX)
        if self._status == 101 and said.get("upgrade", "").lower() != PROTOCOL:
            raise ProtocolError(
                f"what answers at {self.host} speaks {said.get('upgrade', '')[:80]!r}, and this client "
                f"{PROTOCOL}: use a client and a node of versions that go together"
            )

    def _refusal(self) -> Exception:
        error = refusal(self._status, self.rest)
        return NoUpgrade(f"status {self._status} without an upgrade") if error is None else error


def _number(text: str) -> int | None:
    """What digits of ASCII say, as few as `int` takes in any case; it refuses others that are digits."""
    return int(text) if DIGITS.fullmatch(text) else None


def no_http(host: str) -> QuiverError:
    """What is told of something that does not speak HTTP."""
    return InvalidRequest(
        f"what answers at {host} does not speak HTTP, so it is no node; check the port"
    )


def problem_of(body: bytes) -> Problem | None:
    """What is wrong, if a node says so."""
    try:
        return msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def refusal(status: int, body: bytes) -> QuiverError | Busy | None:
    """What an answer other than 101 means; None if the upgrade did not get to a node that has a wire.

    501 is what a proxy says that knows no upgrade, and 426 what a node says that was not asked for one.
    """
    told = problem_of(body)
    if told is None:
        away = status >= 500 and status != 501
        return Busy(f"status {status}, and not from a node") if away else None
    if status in (429, 503):
        return Busy(told.detail)
    if status in (404, 405, 426):
        return None
    return Trouble(told.code, told.detail).error()
