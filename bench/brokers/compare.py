"""The node next to other brokers: what they carry, and how long a lone send takes."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from statistics import quantiles

from bench.brokers.kafka import Tools
from bench.brokers.kafka import kafka as start_kafka
from bench.brokers.nats import nats
from bench.brokers.node import Node, node
from bench.brokers.peer import Peer
from bench.brokers.process import Missing
from bench.brokers.rabbitmq import rabbitmq
from bench.brokers.redis import redis
from bench.brokers.sqs import CLIENTS, elasticmq, moto, nothing
from bench.content import BODY_BYTES
from bench.measure import Row, Run, Side, Step, Target, rates, repeated, repeated_until, times

UNIT = "msgs/s"
TURNS = 4  # fewer than usual: a batch of some brokers takes half a second
WARM_UP_SECONDS = 3.0  # of each side, before the first round: brokers on a JVM get faster
LONE_SENDS = 100  # of each side, in each round
PAUSE_SECONDS = 0.005  # before each of them: low load

Start = Callable[[Path], AbstractContextManager[Peer]]


def brokers(run: Run) -> Iterator[Row]:
    """Batches through the native client, against brokers that sync before they confirm."""
    starts: dict[str, Start] = {"redis": redis, "rabbitmq": rabbitmq, "nats": nats}
    with node(run.folder("quiver")) as ours, ours.native() as native:
        for name, start in starts.items():
            yield from _against(run, native, name, start, Target(">=", 10))


def sqs(run: Run) -> Iterator[Row]:
    """One message at a time through boto3, against servers that keep messages in memory."""
    with node(run.folder("quiver")) as ours:
        yield from _sqs(run, ours)
        yield from _against(run, ours.sqs(), "nothing", nothing, None)  # what boto3 itself takes


def sqs_unsynced(run: Run) -> Iterator[Row]:
    """The same with a node that, like these servers, does not wait for the disk."""
    with node(run.folder("quiver"), "memory") as ours:
        yield from _sqs(run, ours)


def _sqs(run: Run, ours: Node) -> Iterator[Row]:
    starts: dict[str, Start] = {"moto": moto, "elasticmq": elasticmq}
    for name, start in starts.items():
        yield from _against(run, ours.sqs(), name, start, Target(">=", 2))


def kafka(run: Run) -> Iterator[Row]:
    """Batches through the native client, against Kafka with and without syncs."""
    with node(run.folder("quiver")) as ours, ours.native() as native:
        for name, synced in (("kafka", False), ("kafka, synced", True)):
            try:
                with start_kafka(run.folder("kafka"), synced=synced) as (peer, tools):
                    yield from _rows(run, native, peer, Target(">=", 2))
                    yield from _tools(run, native, peer, tools, Target(">=", 2))
            except Missing as missing:
                run.skipped[name] = str(missing)


def _against(run: Run, ours: Peer, name: str, start: Start, target: Target | None) -> Iterator[Row]:
    try:
        with start(run.folder(name)) as theirs:
            yield from _rows(run, ours, theirs, target)
    except Missing as missing:
        run.skipped[name] = str(missing)


def _rows(run: Run, ours: Peer, theirs: Peer, target: Target | None) -> Iterator[Row]:
    our_sends, our_takes = _both_ways(ours)
    their_sends, their_takes = _both_ways(theirs)
    for side in (our_sends, their_sends, our_takes, their_takes):
        side(WARM_UP_SECONDS)
    sent, puts, taken, gets = rates(
        run, our_sends, their_sends, our_takes, their_takes, turns=TURNS
    )
    how = f"messages of {BODY_BYTES} B, one client process, one thread. {ours.settings}; "
    how += f"{theirs.name} {theirs.settings}"
    for at, (mine, other) in enumerate(((sent, puts), (taken, gets))):
        yield Row(
            ours.verbs[at], mine, f"{theirs.name}: {theirs.verbs[at]}", other, UNIT,
            f"{how}." if at == 0 else "What the row above has sent, taken and acked.",
            target,
        )  # fmt: skip
    if ours.crowd is not None and theirs.crowd is not None:
        with ours.crowd() as our_crowd, theirs.crowd() as their_crowd:
            for crowd in (our_crowd, their_crowd):
                crowd(WARM_UP_SECONDS)
            mine, other = rates(run, our_crowd, their_crowd, turns=1)
        yield Row(
            "send, receive, delete", mine, f"{theirs.name}: the same", other, UNIT,
            f"{CLIENTS} client processes on one queue.", target,
        )  # fmt: skip
    for name, mine, other in _lone_sends(run, ours, theirs):
        yield Row(
            f"{ours.verbs[2]}, {name}", mine, f"{theirs.name}: {theirs.verbs[2]}", other, "ms",
            f"A lone {BODY_BYTES} B message, confirmed, {PAUSE_SECONDS * 1000:g} ms after the last; "
            f"{LONE_SENDS} in each round.", target and Target("<=", 1),
        )  # fmt: skip


def _both_ways(peer: Peer) -> tuple[Side, Side]:
    """A side that sends for a while, and one that takes what it has sent."""
    waiting = 0

    def send(seconds: float) -> tuple[int, float]:
        nonlocal waiting
        done, passed = repeated(peer.send)(seconds)
        waiting += done
        return done, passed

    def take(seconds: float) -> tuple[int, float]:
        nonlocal waiting
        done, passed = repeated_until(waiting, peer.take)(seconds)
        waiting -= done
        return done, passed

    return send, take


def _lone_sends(run: Run, *peers: Peer) -> Iterator[tuple[str, list[float], list[float]]]:
    """The p50 and the p99 of single sends in milliseconds, by round, ours and theirs."""
    figures: dict[int, list[list[float]]] = {50: [[], []], 99: [[], []]}
    for counts in run.turns():
        spent: list[list[float]] = [[], []]
        for _ in range(LONE_SENDS):
            for side, peer in enumerate(peers):
                time.sleep(PAUSE_SECONDS)
                start = time.perf_counter()
                peer.send_one()
                spent[side].append((time.perf_counter() - start) * 1000)
        if counts:
            for percent, found in figures.items():
                for side, samples in enumerate(spent):
                    found[side].append(quantiles(samples, n=100)[percent - 1])
    for percent, (ours, theirs) in figures.items():
        yield f"p{percent}", ours, theirs


def _tools(run: Run, ours: Peer, theirs: Peer, tools: Tools, target: Target) -> Iterator[Row]:
    """Kafka's own programs say how fast they were; we do as many messages."""
    messages = 200_000 if run.quick else 500_000
    groups = count()

    def rate(step: Step) -> float:
        done, passed = repeated_until(messages, step)(0)
        return done / passed

    sent, puts, taken, gets = times(
        run,
        lambda: rate(ours.send),
        lambda: tools.produce(messages),
        lambda: rate(ours.take),
        lambda: tools.consume(messages, f"tools-{next(groups)}"),
    )
    yield Row(
        ours.verbs[0], sent, f"{theirs.name}: ProducerPerformance", puts, UNIT,
        f"{messages:,} messages of {BODY_BYTES} B; Kafka's own tool as it comes (acks=all), a new "
        "process each time, its warm-up not counted; the figure is the one it prints.", target,
    )  # fmt: skip
    yield Row(
        ours.verbs[1], taken, f"{theirs.name}: ConsumerPerformance", gets, UNIT,
        "The same number, from the beginning, in a new group; the tool commits now and then by "
        "itself, and its figure is that of fetching alone.", target,
    )  # fmt: skip
