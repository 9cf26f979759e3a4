"""Who calls: a node whose access file has a principal for every case, and requests in their names."""

import http.client
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from quiver.server.auth import ACCESS_FILE, VERBS, access
from quiver.server.auth.access import Access, AccessEntry, Key
from tests.server.nodes import Node, start_node

TOPIC = "orders"  # what endpoints are tried on
YESTERDAY = datetime.now(UTC) - timedelta(days=1)


@dataclass
class Caller:
    """A principal's credentials."""

    token: str
    key: Key


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def rules() -> dict[str, AccessEntry]:
    """Everybody there is, with their rules."""
    entries = {
        "admin": AccessEntry(allow=("*:*",)),
        "nobody": AccessEntry(),
        "elsewhere": AccessEntry(allow=("*:other*",)),
        "expired": AccessEntry(allow=("*:*",)),
    }
    for verb in VERBS:
        entries[f"only-{verb}"] = AccessEntry(allow=(f"{verb}:{TOPIC}",))
        entries[f"only-{verb}-everywhere"] = AccessEntry(allow=(f"{verb}:*",))
        entries[f"all-but-{verb}"] = AccessEntry(allow=("*:*",), deny=(f"{verb}:{TOPIC}",))
    return entries


def introduce(path: Path, entries: dict[str, AccessEntry]) -> dict[str, Caller]:
    """Write the access file; everybody's credentials."""
    callers, kept = {}, {}
    for name, entry in entries.items():
        expires = YESTERDAY if name == "expired" else None
        text, token = access.new_token(expires)
        key = access.new_key(expires)
        callers[name] = Caller(text, key)
        kept[name] = AccessEntry(
            entry.allow, entry.deny, (token,), (key,), entry.requests_per_second,
            entry.bytes_per_second, entry.long_polls,
        )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    access.save(path, Access(kept))
    wrong, _ = access.new_token()
    callers["unknown"] = Caller(wrong, access.new_key())
    return callers


class Guarded:
    """A real node with an access file."""

    def __init__(
        self, tmp_path: Path, entries: dict[str, AccessEntry] | None = None, *options: str
    ):
        self.path = tmp_path / "data" / ACCESS_FILE
        self.callers = introduce(self.path, rules() if entries is None else entries)
        self.node: Node = start_node(tmp_path, *options)
        self._connection = http.client.HTTPConnection("127.0.0.1", self.node.port, timeout=30)

    def __call__(
        self, method: str, path: str, body: Any = None, *, who: str = "", **headers: str
    ) -> Answer:
        """A request in somebody's name, or in nobody's."""
        if who:
            headers["Authorization"] = f"Bearer {self.callers[who].token}"
        data = json.dumps(body).encode() if body is not None else None
        if data is not None:
            headers["Content-Type"] = "application/json"
        return self.send(method, path, data, headers)

    def send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> Answer:
        """A request as it is."""
        self._connection.request(method, path, data, headers)
        with self._connection.getresponse() as answer:
            return Answer(answer.status, dict(answer.headers), answer.read())

    def log(self) -> str:
        """All that the node has told so far."""
        return "\n".join(map(str, self.node.lines))

    def close(self) -> None:
        self._connection.close()
        self.node.__exit__(None, None, None)
