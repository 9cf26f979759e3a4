"""What `bench.versions` starts twice: the same program with the code of two commits.

It uses public names only, and of those the ones that both commits have.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import quiver
from bench.brokers.node import node
from bench.brokers.sqs import sqs_peer
from bench.content import batch_of, bodies
from bench.measure import Loop, Side, concurrently, repeated, taken

BATCH, TAKEN, MANY = 20_000, 50_000, 10_000
OPENED = 100_000  # messages in the log of the directory that is opened
GROUP = "g"


def main() -> None:
    """Read `[verb, seconds]`, do it, write `[how many, in what time]`."""
    with ExitStack() as stack:
        sides = Sides(Path(sys.argv[1]), stack)
        for line in sys.stdin:
            verb, seconds = json.loads(line)
            print(json.dumps(sides.named(verb)(seconds)), flush=True)


class Sides:
    """The verbs, each made when it is first asked for."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._made: dict[str, Side] = {}
        self._port: int | None = None
        self._queues: dict[str, quiver.Queue] = {}

    def named(self, name: str) -> Side:
        if name not in self._made:
            where, verb = name.split(": ")
            self._made[name] = self._make(where, verb)
        return self._made[name]

    def _make(self, where: str, verb: str) -> Side:
        if verb.startswith("open"):
            return _opening(self._folder / "opened")
        if verb == "send, 64 tasks":
            return self._stack.enter_context(_tasks(self._url(), 64))
        if "boto3" in verb or "connections" in verb:
            return self._sqs(verb)
        queue = self._queue(where)
        topic = f"t{len(self._made)}"
        queue.create_topic(topic)
        queue.create_group(topic, GROUP)
        return _native(queue, topic, verb)

    def _sqs(self, verb: str) -> Side:
        self._url()
        assert self._port is not None
        peer = sqs_peer("", "", self._port)
        if "connections" in verb:
            assert peer.kept is not None
            return self._stack.enter_context(peer.kept(64))
        if verb.startswith("SendMessage"):
            return repeated(peer.send)

        def fill(count: int) -> None:
            for _ in range(count):
                peer.send()

        def work(count: int) -> None:
            for _ in range(count):
                peer.take()

        return taken(Loop(verb, fill, work, 400), 1)

    def _queue(self, where: str) -> quiver.Queue:
        if where not in self._queues:
            address = self._folder / "data" if where == "embedded" else self._url()
            self._queues[where] = self._stack.enter_context(quiver.connect(address))
        return self._queues[where]

    def _url(self) -> str:
        if self._port is None:
            folder = self._folder / "node"
            folder.mkdir()
            self._port = self._stack.enter_context(node(folder)).port
        return f"quiver://127.0.0.1:{self._port}"


def _native(queue: quiver.Queue, topic: str, verb: str) -> Side:
    batch = batch_of(bodies(BATCH))
    (body,) = bodies(1)

    def send_batch() -> int:
        return queue.send_batch(topic, batch).count

    def send() -> int:
        queue.send(topic, body)
        return 1

    def fill(count: int) -> None:
        for start in range(0, count, BATCH):
            queue.send_batch(topic, batch.slice(0, count - start))

    def table(count: int) -> None:
        while count:
            got = queue.receive_arrow(topic, GROUP, max_messages=min(count, TAKEN))
            got.ack()
            count -= len(got)

    def one(count: int) -> None:
        for _ in range(count):
            (delivery,) = queue.receive(topic, GROUP)
            delivery.ack()

    def many(count: int) -> None:
        while count:
            found = queue.receive(topic, GROUP, max_messages=count)
            assert all(delivery.body for delivery in found)
            queue.ack(found)
            count -= len(found)

    found: dict[str, Callable[[], Side]] = {
        "send_batch of 20,000": lambda: repeated(send_batch),
        "send": lambda: repeated(send),
        "receive_arrow of 50,000, ack": lambda: taken(Loop(verb, fill, table, 1_000_000), TAKEN),
        "receive one, ack": lambda: taken(Loop(verb, fill, one, 5_000), 1),
        "receive 10,000, ack(list)": lambda: taken(Loop(verb, fill, many, 300_000), MANY),
    }
    return found[verb]()


def _opening(folder: Path) -> Side:
    """A directory with a log to replay and groups that stand in the middle of it."""
    with quiver.connect(folder) as queue:
        queue.create_topic("t", partitions=4)
        batch = batch_of(bodies(OPENED // 100))
        for _ in range(100):
            queue.send_batch("t", batch)
            queue.ack(queue.receive("t", GROUP, max_messages=10))

    def step() -> int:
        with quiver.connect(folder) as queue:
            assert queue.stats("t").sent == OPENED
        return OPENED

    return repeated(step)


@contextmanager
def _tasks(url: str, count: int) -> Iterator[Side]:
    (body,) = bodies(1)
    with concurrently(count) as crowd:
        queue = crowd.run(quiver.connect_async(url).__aenter__())
        try:
            crowd.run(queue.create_topic("tasks"))
            yield crowd.side(lambda: queue.send("tasks", body))
        finally:
            crowd.run(queue.aclose())


if __name__ == "__main__":
    main()
