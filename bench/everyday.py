"""What most programs do, a message at a time, next to what programs of other brokers do.

All brokers run at once, and all sides of a row take turns in the same rounds. Each is used as the
documentation of its client has it, and syncs what it confirms if it can be told to.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from bench.brokers.compare import TURNS, UNIT
from bench.brokers.kafka import kafka
from bench.brokers.nats import nats
from bench.brokers.node import node
from bench.brokers.peer import Peer
from bench.brokers.process import Missing
from bench.brokers.rabbitmq import rabbitmq
from bench.brokers.redis import redis
from bench.brokers.sqs import elasticmq, moto
from bench.content import BODY_BYTES
from bench.measure import Loop, Row, Run, Side, Target, rates, repeated, taken

TASKS = 64
PREFETCHES = (100, 1_000)
RECEIVED = 10_000
JVM_SECONDS = 3.0  # ElasticMQ gets faster for some time
CHUNK = 20  # messages of a loop between two looks at the clock
WARM_UP_SECONDS = 0.5

Start = Callable[[Path], AbstractContextManager[Peer]]
Sides = list[tuple[str, str, Side]]  # whose it is, what it does, and the side


def everyday(run: Run) -> Iterator[Row]:
    """Loops over single messages through the native client, and SendMessage of SQS."""
    with ExitStack() as stack:
        started = stack.enter_context(node(run.folder("quiver")))
        ours = stack.enter_context(started.native())
        peers = list(_started(run, stack, {"redis": redis, "rabbitmq": rabbitmq, "nats": nats,
                                           "kafka, synced": _kafka}))  # fmt: skip
        yield from _native(run, [ours, *peers])
    with ExitStack() as stack:
        synced = stack.enter_context(node(run.folder("quiver"))).sqs()
        memory = stack.enter_context(node(run.folder("quiver"), "memory")).sqs()
        servers = list(_started(run, stack, {"moto": moto, "elasticmq": elasticmq}))
        yield from _sqs(run, synced, memory, servers)


@contextmanager
def _kafka(folder: Path) -> Iterator[Peer]:
    with kafka(folder, synced=True) as (peer, _):
        yield peer


def _started(run: Run, stack: ExitStack, starts: dict[str, Start]) -> Iterator[Peer]:
    for name, start in starts.items():
        try:
            yield stack.enter_context(start(run.folder(name.partition(",")[0])))
        except Missing as missing:
            run.skipped[name] = str(missing)


def _native(run: Run, peers: list[Peer]) -> Iterator[Row]:
    known = [(peer, peer.everyday) for peer in peers if peer.everyday is not None]
    settings = ". ".join(f"{peer.name}: {peer.settings}" for peer in peers)
    sends = [(peer.name, peer.verbs[2], repeated(peer.send_one)) for peer, _ in known]
    yield from _rows(
        run, sends, f"Messages of {BODY_BYTES} B, one after another, each confirmed. {settings}.",
        {"Redis Streams": Target(">=", 0.7)},
    )  # fmt: skip
    yield from _loops(
        run, [(peer.name, more.take_one) for peer, more in known], 1,
        "One message is taken, then acked and the ack is confirmed, then the next.",
        {"Redis Streams": Target(">=", 1)},
    )  # fmt: skip
    ahead = {name: Target(">=", 1) for name in
             ("Redis Streams", "RabbitMQ quorum queue", "NATS JetStream")}  # fmt: skip
    for prefetch in PREFETCHES:
        with ExitStack() as stack:
            loops = [(peer.name, stack.enter_context(more.loop(prefetch))) for peer, more in known]
            collected = [
                (peer.name, stack.enter_context(more.collected(prefetch)))
                for peer, more in known if more.collected is not None
            ]  # fmt: skip
            how = f"A loop over messages that acks each, {prefetch:,} received ahead at most"
            yield from _loops(
                run, loops, CHUNK,
                f"{how}; Kafka commits every five seconds by itself.", ahead,
            )  # fmt: skip
            yield from _loops(
                run, [*collected, *loops], CHUNK,
                f"{how}. Quiver's acks go together with the next request; those that have not "
                "gone yet come again if the process dies, as with Kafka.", ahead,
            )  # fmt: skip
    yield from _loops(
        run,
        [(peer.name, more.take_many) for peer, more in known if more.take_many is not None],
        RECEIVED, "Thousands at a time as objects, the body of each looked at.",
        {"Kafka, synced": Target(">=", 1)},
    )  # fmt: skip
    with ExitStack() as stack:
        crowds = [
            (peer.name, f"{TASKS} x {more.tasks_what}", stack.enter_context(more.tasks(TASKS)))
            for peer, more in known if more.tasks is not None
        ]  # fmt: skip
        yield from _rows(run, crowds, f"{TASKS} lone senders at once, in one process.", {})


def _loops(
    run: Run, loops: list[tuple[str, Loop]], chunk: int, how: str, targets: dict[str, Target]
) -> Iterator[Row]:
    sides = [(name, loop.what, taken(loop, chunk)) for name, loop in loops]
    # Long turns: what was received ahead before one begins must not weigh.
    yield from _rows(run, sides, f"{how} They were sent before, unmeasured.", targets, turns=1)


def _sqs(run: Run, synced: Peer, memory: Peer, servers: list[Peer]) -> Iterator[Row]:
    with ExitStack() as stack:
        sides: Sides = []
        for peer in (synced, memory, *servers):
            assert peer.kept is not None
            what = f"SendMessage, {TASKS} connections"
            if peer is memory:
                what += ", unsynced"
            sides.append((peer.name, what, stack.enter_context(peer.kept(TASKS))))
        how = (
            f"SendMessage with {BODY_BYTES} characters by a lean client (bench/brokers/lean.py), which "
            f"shares the processors with the server. {synced.settings}; "
        )
        how += "; ".join(f"{peer.name} {peer.settings}" for peer in servers)
        for _, _, side in sides:
            side(JVM_SECONDS)
        yield from _rows(run, sides, how, {})


def _rows(
    run: Run, sides: Sides, how: str, targets: dict[str, Target], turns: int = TURNS
) -> Iterator[Row]:
    """The first side against each of the others, all of them measured in the same rounds."""
    for _, _, side in sides:
        side(WARM_UP_SECONDS)
    figures = rates(run, *(side for _, _, side in sides), turns=turns)
    (_, ours, _), mine = sides[0], figures[0]
    for (name, what, _), theirs in zip(sides[1:], figures[1:], strict=True):
        yield Row(ours, mine, f"{name}: {what}", theirs, UNIT, how, targets.get(name))
