"""RabbitMQ quorum queues."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from threading import local
from typing import Any

from bench.brokers.peer import Everyday, Peer
from bench.brokers.process import Missing, Server, free_port, program
from bench.content import bodies
from bench.measure import Loop, Side, by_threads

BATCH = 1_000
QUEUE = "t"
QUORUM = {"x-queue-type": "quorum"}
ANSWER_SECONDS_MAX = 30.0
ADVICE = "apt-get install rabbitmq-server"
HOMES = Path("/usr/lib/rabbitmq/lib")  # Debian: the programs on the PATH insist on its own user


@contextmanager
def rabbitmq(folder: Path) -> Iterator[Peer]:
    """A node of RabbitMQ, whose quorum queue confirms when its log is synced, through pika."""
    program("rabbitmq-server", advice=ADVICE)
    homes = sorted(HOMES.glob("rabbitmq_server-*/sbin"))
    if not homes:
        raise Missing(f"there is no {HOMES}/rabbitmq_server-*, where Debian has it: {ADVICE}")
    try:
        import pika
    except ImportError:
        raise Missing("pika is not installed: make setup") from None
    port, names = free_port(), free_port()
    env = _environment(folder, port, names)
    with ExitStack() as stack:
        # Erlang would start this one by itself, and leave it behind.
        directory = Server([program("epmd", advice="apt-get install erlang-base")], folder, env=env)
        stack.enter_context(directory).wait_for_port(names)
        server = stack.enter_context(Server([homes[-1] / "rabbitmq-server"], folder, env=env))
        server.wait_for_port(port)
        parameters = pika.ConnectionParameters(port=port, heartbeat=0)  # some wait for their turn
        with pika.BlockingConnection(parameters) as blocking:
            channel = blocking.channel()
            channel.queue_declare(QUEUE, durable=True, arguments=QUORUM)
            channel.confirm_delivery()
            content = bodies(BATCH)
            publisher = stack.enter_context(Publisher(parameters, content))
            consumer = stack.enter_context(Consumer(parameters))

            def send_one() -> int:
                channel.basic_publish("", QUEUE, content[0], Publisher.persistent)
                return 1

            yield Peer(
                "RabbitMQ quorum queue",
                f"{homes[-1].parent.name.rpartition('-')[2]}, one node, publisher confirms (its log "
                f"is synced before), pika {version('pika')}",
                publisher.send, consumer.take, send_one,
                (
                    f"{BATCH:,} publishes, then their confirms",
                    f"consume, prefetch {Consumer.prefetch:,}, ack multiple",
                    "publish + confirm",
                ),
                everyday=_everyday(stack, parameters, content),
            )  # fmt: skip


def _everyday(stack: ExitStack, parameters: Any, content: list[bytes]) -> Everyday:
    import pika

    def declared(name: str, prefetch: int) -> tuple[Any, Any, Callable[[int], None]]:
        """A connection and a channel for it, and what fills it."""
        connection = stack.enter_context(pika.BlockingConnection(parameters))
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments=QUORUM)
        channel.basic_qos(prefetch_count=prefetch)
        publisher = stack.enter_context(Publisher(parameters, content, name))

        def fill(count: int) -> None:
            for start in range(0, count, BATCH):
                publisher.send(min(BATCH, count - start))

        return connection, channel, fill

    def got() -> Loop:
        _, channel, fill = declared("one", 1)

        def work(count: int) -> None:
            while count:
                method, _, _ = channel.basic_get("one")
                if method is not None:  # what is confirmed is there a moment later
                    channel.basic_ack(method.delivery_tag)
                    count -= 1

        return Loop("basic_get, basic_ack", fill, work, 2_000)

    def consumed(prefetch: int) -> Loop:
        name = f"loop-{prefetch}"
        connection, channel, fill = declared(name, prefetch)
        left = 0

        def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
            nonlocal left
            channel.basic_ack(method.delivery_tag)
            left -= 1

        channel.basic_consume(name, on_message)

        def work(count: int) -> None:
            nonlocal left
            left += count  # a few more than asked for may have come the last time
            while left > 0:
                connection.process_data_events(time_limit=1)

        return Loop(f"basic_consume, prefetch {prefetch:,}, basic_ack each", fill, work, 20_000)

    @contextmanager
    def threads(count: int) -> Iterator[Side]:
        with ExitStack() as connections:
            channels: SimpleQueue[Any] = SimpleQueue()
            for number in range(count):
                connection = connections.enter_context(pika.BlockingConnection(parameters))
                channel = connection.channel()
                if number == 0:
                    channel.queue_declare("tasks", durable=True, arguments=QUORUM)
                channel.confirm_delivery()
                channels.put(channel)

            def work(seconds: float) -> tuple[int, float]:
                mine = local()

                def send() -> int:
                    if not hasattr(mine, "channel"):
                        mine.channel = channels.get()
                        channels.put(mine.channel)
                    mine.channel.basic_publish("", "tasks", content[0], Publisher.persistent)
                    return 1

                return by_threads(count, send)(seconds)

            yield work

    return Everyday(
        got(), lambda prefetch: nullcontext(consumed(prefetch)),
        tasks=threads, tasks_what="publish + confirm, a thread and a connection each",
    )  # fmt: skip


def _environment(folder: Path, port: int, names: int) -> dict[str, str]:
    """Everything in the folder and on loopback, nothing of what the system has configured."""
    return {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "logs"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "no-plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }


class Channel:
    """A channel of pika's event loop, which this thread runs until there is a reason to stop."""

    def __init__(self, parameters: Any) -> None:
        import pika

        self._connection = pika.SelectConnection(parameters, on_open_callback=self._on_open)
        self._channel: Any = None
        self._loop = self._connection.ioloop
        self._run()

    def _run(self) -> None:
        """Until something stops it; an answer that does not come is an error."""
        alarm = self._loop.call_later(ANSWER_SECONDS_MAX, self._give_up)
        self._loop.start()
        self._loop.remove_timeout(alarm)

    def _give_up(self) -> None:
        raise TimeoutError(f"RabbitMQ did not answer within {ANSWER_SECONDS_MAX:g} s")

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        self._prepare(channel)

    def _prepare(self, channel: Any) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.add_on_close_callback(lambda *_: self._loop.stop())
        self._connection.close()
        self._run()


class Publisher(Channel):
    """Publishes a batch, then waits until all of it is confirmed."""

    persistent: Any = None

    def __init__(self, parameters: Any, content: list[bytes], queue: str = QUEUE) -> None:
        import pika

        Publisher.persistent = pika.BasicProperties(delivery_mode=2)
        self._content = content
        self._queue = queue
        self._published = 0  # tags of messages count from 1
        self._settled = 0  # all up to this tag are confirmed
        self._open: set[int] = set()
        super().__init__(parameters)

    def _prepare(self, channel: Any) -> None:
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._loop.stop())

    def send(self, count: int = BATCH) -> int:
        for body in self._content[:count]:
            self._channel.basic_publish("", self._queue, body, self.persistent)
        self._open.update(range(self._published + 1, self._published + count + 1))
        self._published += count
        self._run()
        return count

    def _on_confirm(self, frame: Any) -> None:
        assert frame.method.NAME == "Basic.Ack", "a message was refused"
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            self._open.difference_update(range(self._settled + 1, tag + 1))
            self._settled = tag
        else:
            self._open.discard(tag)
        if not self._open:
            self._loop.stop()


class Consumer(Channel):
    """Lets messages be pushed to it, and acks each batch with one ack."""

    prefetch = 2 * BATCH

    def _prepare(self, channel: Any) -> None:
        self._taken = 0
        channel.basic_qos(prefetch_count=self.prefetch, callback=lambda _: self._loop.stop())

    def take(self) -> int:
        if not self._channel.consumer_tags:
            self._channel.basic_consume(QUEUE, self._on_message)
        self._run()
        return BATCH

    def _on_message(self, channel: Any, method: Any, _: Any, body: bytes) -> None:
        self._taken += 1
        if self._taken % BATCH == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
            self._loop.stop()
