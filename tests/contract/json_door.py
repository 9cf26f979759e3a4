"""Plain HTTP and JSON, as any language has them: nothing of our client between test and node."""

import base64
import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

import quiver
from quiver import AsyncQueue, Message, Origin
from quiver.client import arguments
from quiver.client.flows import Flows
from quiver.client.local import LocalBroker
from quiver.model.stats import TopicStats
from quiver.node.shard import Shard
from quiver.testing import VirtualClock
from quiver.wire.problems import errors

PATIENCE_SECONDS = 60


class JsonQueue:
    """The verbs of `quiver.Queue`, those that are not Python's alone, as requests in JSON."""

    def __init__(self, port: int, close: Callable[[], None]) -> None:
        self._port = port
        self.close = close

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_SECONDS)
        try:
            data = None if body is None else json.dumps(body, default=_plain)
            sent = {"content-type": "application/json"} if body is not None else {}
            connection.request(method, path, data, {**sent, **headers})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            told = json.loads(content)
            assert told["status"] == answer.status
            raise _error(told)
        return json.loads(content) if content else None

    # -- topics

    def create_topic(self, topic: str, **policy: Any) -> None:
        self.call("PUT", f"/v1/topics/{topic}", policy)

    def alter_topic(self, topic: str, **changes: Any) -> None:
        self.call("PATCH", f"/v1/topics/{topic}", changes)

    def delete_topic(self, topic: str) -> None:
        self.call("DELETE", f"/v1/topics/{topic}")

    def topics(self) -> list[str]:
        return self.call("GET", "/v1/topics")["topics"]

    def policy(self, topic: str) -> Any:
        given = self.call("GET", f"/v1/topics/{topic}")["policy"]
        given["retention"] = msgspec.convert(
            given["retention"], quiver.TopicPolicy().retention.__class__
        )
        given["retry"] = msgspec.convert(given["retry"], quiver.Retry)
        return arguments.from_arguments(topic, given)

    def stats(self, topic: str) -> TopicStats:
        return msgspec.convert(self.call("GET", f"/v1/topics/{topic}/stats"), TopicStats)

    def groups(self, topic: str) -> Any:
        return self.stats(topic).groups

    def purge(self, topic: str) -> int:
        return self.call("POST", f"/v1/topics/{topic}/purge")["count"]

    def compact(self, topic: str) -> int:
        return self.call("POST", f"/v1/topics/{topic}/compact")["count"]

    # -- sending

    def send(self, topic: str, body: Any, **given: Any) -> Any:
        headers = {}
        if "dedup_id" in given:
            headers["Idempotency-Key"] = given.pop("dedup_id")
        sent = self.call("POST", f"/v1/topics/{topic}/messages", _message(body, **given), **headers)
        return msgspec.convert(sent, quiver.Sent)

    def send_batch(self, topic: str, messages: Any) -> Any:
        body = {"messages": [_any_message(one) for one in messages]}
        return msgspec.convert(
            self.call("POST", f"/v1/topics/{topic}/batches", body), quiver.SentBatch
        )

    # -- receiving

    def receive(self, topic: str, group: str = "default", **wish: Any) -> list["JsonDelivery"]:
        got = self.call("POST", f"/v1/topics/{topic}/groups/{group}/receive", wish)
        return [JsonDelivery(self, topic, group, one) for one in got["messages"]]

    def settle(self, action: str, items: Any, **how: Any) -> None:
        listed = items if isinstance(items, list | tuple) else [items]
        receipts = [one if isinstance(one, str) else one.receipt for one in listed]
        self.call("POST", "/v1/settle", {"action": action, "receipts": receipts, **how})

    def ack(self, items: Any) -> None:
        self.settle("ack", items)

    def nack(self, items: Any, **how: Any) -> None:
        self.settle("nack", items, **how)

    def extend(self, items: Any, lease: Any) -> None:
        self.settle("extend", items, lease=lease)

    def dead_letter(self, items: Any, **how: Any) -> None:
        self.settle("dead_letter", items, **how)

    def begin(self, items: Any, **how: Any) -> None:
        self.settle("begin", items, **how)

    def release(self, items: Any, **how: Any) -> None:
        self.settle("release", items, **how)

    @contextmanager
    def transaction(self) -> Iterator["JsonTransaction"]:
        collected = JsonTransaction()
        yield collected
        made = self.call("POST", "/v1/transactions", collected.body)
        collected.sent = msgspec.convert(made, list[quiver.SentBatch])

    # -- reading

    def read(self, topic: str, **which: Any) -> Iterator["JsonRecord"]:
        which["limit"] = 3  # so that there are pages, also of a few messages
        page = self.call("POST", f"/v1/topics/{topic}/read", which)
        return self._pages(topic, page)

    def _pages(self, topic: str, page: Any) -> Iterator["JsonRecord"]:
        while True:
            yield from (JsonRecord(topic, one) for one in page["messages"])
            if page["cursor"] is None:
                return
            request = {"cursor": page["cursor"], "limit": 500}
            page = self.call("POST", f"/v1/topics/{topic}/read", request)

    # -- groups and dead letters

    def create_group(self, topic: str, group: str, **how: Any) -> None:
        self.call("PUT", f"/v1/topics/{topic}/groups/{group}", how)

    def delete_group(self, topic: str, group: str) -> None:
        self.call("DELETE", f"/v1/topics/{topic}/groups/{group}")

    def seek(self, topic: str, group: str, to: Any, **where: Any) -> None:
        self.call("POST", f"/v1/topics/{topic}/groups/{group}/seek", {"to": to, **where})

    def pause(self, topic: str, group: str) -> None:
        self.call("POST", f"/v1/topics/{topic}/groups/{group}/pause")

    def resume(self, topic: str, group: str) -> None:
        self.call("POST", f"/v1/topics/{topic}/groups/{group}/resume")

    def redrive(self, topic: str, **which: Any) -> int:
        return self.call("POST", f"/v1/topics/{topic}/redrive", which)["count"]

    def discard(self, topic: str, **which: Any) -> int:
        return self.call("POST", f"/v1/topics/{topic}/discard", which)["count"]


class JsonRecord:
    """A message as an answer has it, with the names of `quiver.Record`."""

    def __init__(self, topic: str, given: dict[str, Any]) -> None:
        self.topic = topic
        self.body = (
            base64.b64decode(given["base64"]) if "base64" in given else given["body"].encode()
        )
        self.id = given["id"]
        self.key = given.get("key")
        self.headers = given.get("headers", {})
        self.priority = given.get("priority", 0)
        self.partition = given["partition"]
        self.offset = given["offset"]
        self.created_at = datetime.fromisoformat(given["created_at"])
        origin = given.get("origin")
        self.origin = None if origin is None else _origin(origin)

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class JsonDelivery(JsonRecord):
    """A message under a lease."""

    def __init__(self, queue: JsonQueue, topic: str, group: str, given: dict[str, Any]) -> None:
        super().__init__(topic, given)
        self._queue = queue
        self.group = group
        self.attempt = given["attempt"]
        self.receipt = given.get("receipt")  # at most once, what has begun has none
        self.epoch = given["epoch"]
        self.reserved = given.get("reserved", False)

    def ack(self) -> None:
        self._queue.ack(self)

    def nack(self, **how: Any) -> None:
        self._queue.nack(self, **how)

    def extend(self, lease: Any) -> None:
        self._queue.extend(self, lease)

    def dead_letter(self, **how: Any) -> None:
        self._queue.dead_letter(self, **how)

    def begin(self, **how: Any) -> None:
        self._queue.begin(self, **how)

    def release(self, **how: Any) -> None:
        self._queue.release(self, **how)


class JsonTransaction:
    """What a transaction will do."""

    def __init__(self) -> None:
        self.body: dict[str, Any] = {"settle": [], "send": []}
        self.sent: list[Any] = []

    def _settle(self, action: str, items: Any, **how: Any) -> None:
        listed = items if isinstance(items, list | tuple) else [items]
        receipts = [one if isinstance(one, str) else one.receipt for one in listed]
        self.body["settle"].append({"action": action, "receipts": receipts, **how})

    def ack(self, items: Any) -> None:
        self._settle("ack", items)

    def nack(self, items: Any, **how: Any) -> None:
        self._settle("nack", items, **how)

    def dead_letter(self, items: Any, **how: Any) -> None:
        self._settle("dead_letter", items, **how)

    def send(self, topic: str, body: Any, **given: Any) -> None:
        self.body["send"].append({"topic": topic, "messages": [_message(body, **given)]})

    def send_batch(self, topic: str, messages: Any) -> None:
        self.body["send"].append({"topic": topic, "messages": [_any_message(m) for m in messages]})


class JsonDoor:
    """HTTP and JSON by hand."""

    shard: Shard

    def open(self, path: Path, clock: VirtualClock, durability: Any = "disk") -> Any:
        from tests.contract.doors import NODE, open_shard

        self.shard, close_shard = open_shard(path, clock)
        NODE.serve(AsyncQueue(lambda _: (Flows(LocalBroker(self.shard), durability), close_shard)))
        return JsonQueue(int(NODE.url.rpartition(":")[2]), NODE.stop_serving)

    def end(self) -> None:
        pass


def _any_message(given: Any) -> dict[str, Any]:
    if isinstance(given, Message):
        fields = {name: value for name, value in asdict(given).items() if value}
        return _message(given.body, **{name: fields[name] for name in fields if name != "body"})
    return _message(given)


def _message(body: Any, **given: Any) -> dict[str, Any]:
    if isinstance(body, bytes):
        return {"base64": base64.b64encode(body).decode(), **given}
    return {"body": body, **given}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(type(value))


def _error(told: dict[str, Any]) -> quiver.QuiverError:
    kind = errors()[told["code"]]
    if issubclass(kind, quiver.ReceiptExpired):
        return kind(told["detail"], tuple(told["refused"]))
    return kind(told["detail"])


def _origin(given: dict[str, Any]) -> Origin:
    time_ms = round(datetime.fromisoformat(given.pop("time")).timestamp() * 1000)
    return Origin(**given, time_ms=time_ms)
