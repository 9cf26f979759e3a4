"""A client that does what no client should."""

import json
import re
import socket
import time
from types import TracebackType
from typing import Any, Self

PATIENCE_SECONDS = 20


class Answer:
    """What came back."""

    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = dict(line.lower().split(": ", 1) for line in lines)
        self.body = body

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        found: dict[str, Any] = json.loads(self.body)
        return found


class Raw:
    """One connection, as bytes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        self._ahead = b""

    def send(self, *parts: bytes) -> None:
        self.socket.sendall(b"".join(parts))

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        told = {"host": "localhost", "content-length": str(len(body))} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode(), body)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        self.request(method, path, body, **headers)
        return self.answer()

    def answer(self) -> Answer:
        while b"\r\n\r\n" not in self._ahead:
            self._more()
        head, _, self._ahead = self._ahead.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        expected = int(length[1]) if length else 0
        while len(self._ahead) < expected:
            self._more()
        body, self._ahead = self._ahead[:expected], self._ahead[expected:]
        return Answer(head, body)

    def _more(self) -> None:
        piece = self.socket.recv(65_536)
        assert piece, f"the connection was closed after {self._ahead!r}"
        self._ahead += piece

    def rest(self) -> bytes:
        """What comes until the node closes it."""
        while piece := self.socket.recv(65_536):
            self._ahead += piece
        return self._ahead

    def is_closed(self) -> bool:
        """Whether the node closes it, sooner or later."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True

    def trickle(self, piece: bytes, pause: float) -> None:
        """Send the same piece again and again until nobody wants it any more."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        self.socket.settimeout(pause)
        try:
            while time.monotonic() < deadline:
                self.socket.sendall(piece)
                try:
                    found = self.socket.recv(65_536)
                except TimeoutError:
                    continue
                self._ahead += found
                if not found or b"\r\n\r\n" in self._ahead:
                    return
        except ConnectionError:
            return
        finally:
            self.socket.settimeout(PATIENCE_SECONDS)
        raise AssertionError("it was never cut")

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
