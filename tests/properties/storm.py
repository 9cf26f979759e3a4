"""Long random lives of a `DeliveryMachine`, each made from one number, and short ones from failed ones.

Hypothesis is good at finding and explaining small things; a bug that takes two hundred steps of
traffic is found sooner by plain chance. Both call the same rules of the same machine. A life that
fails is cut down to the steps that matter before it is reported.
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import Any

from quiver.model.commands import Position
from quiver.model.topic import ALTERABLE, Retention, Retry, TopicPolicy

Draw = Callable[[Random], dict[str, Any]]
Rules = dict[str, tuple[int, Draw]]  # how often, and with what

MINIMISE_SECONDS = 60
KEYS = (None, "a", "b", "t/1", "t/2", "u/1")
RETENTIONS = [
    *[Retention()] * 3,
    Retention(time_ms=30),
    Retention(time_ms=100),
    Retention(size_bytes=300),
    Retention(time_ms=200, size_bytes=500),
    Retention(forever=True),
    Retention(time_ms=60, settled=True),
    *[Retention(compact=True)] * 2,
    Retention(compact=True, time_ms=200),
]
FEATURES = ("keys", "priorities", "delays", "lives", "ids")


@dataclass(frozen=True)
class Step:
    """A rule and its arguments."""

    rule: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"state.{self.rule}({', '.join(f'{k}={v!r}' for k, v in self.arguments.items())})"


def steps_of(seed: int, length: int, rules: Rules | None = None) -> list[Step]:
    """The life that a number stands for."""
    rules = rules or RULES
    chance = Random(seed)
    names = [name for name in rules if chance.random() < 0.9]
    weights = [rules[name][0] * chance.choice([1, 1, 3]) for name in names]
    first = Step("found", {"first": policy(chance), "second": policy(chance), **start(chance)})
    rest = chance.choices(names, weights, k=length)
    return [first, *(Step(name, rules[name][1](chance)) for name in rest)]


def live(machine: Callable[[], Any], steps: list[Step]) -> None:
    """Go through all steps and the end."""
    state = machine()
    for step in steps:
        getattr(state, step.rule)(**step.arguments)
    state.teardown()


def storm(machine: Any, seed: int, length: int, rules: Rules | None = None) -> None:
    """Live a life; if it fails, say with how few steps it fails. Rules that are None never happen."""
    steps = [
        step for step in steps_of(seed, length, rules) if getattr(machine, step.rule) is not None
    ]
    problem = failure(machine, steps)
    if problem is not None:
        steps, problem = minimised(machine, steps, problem)
        told = "\n".join(str(step) for step in steps)
        where = "".join(traceback.format_tb(problem.__traceback__)[-6:])
        raise AssertionError(
            f"seed {seed}, {length} steps: {problem!r}\n{where}\nstate = {machine.__name__}()\n"
            f"{told}\nstate.teardown()"
        ) from problem


def failure(machine: Callable[[], Any], steps: list[Step]) -> Exception | None:
    try:
        live(machine, steps)
    except Exception as problem:  # noqa: BLE001  # whatever it is
        return problem
    return None


def minimised(
    machine: Callable[[], Any], steps: list[Step], problem: Exception
) -> tuple[list[Step], Exception]:
    """Leave steps out, many at once and then one by one, as long as it fails."""
    until = monotonic() + MINIMISE_SECONDS
    size = len(steps) // 2
    while size >= 1 and monotonic() < until:
        at = 1  # the machine is always founded
        while at < len(steps) and monotonic() < until:
            fewer = steps[:at] + steps[at + size :]
            found = failure(machine, fewer) if len(fewer) < len(steps) else None
            if found is not None:
                steps, problem = fewer, found
            else:
                at += size
        size //= 2
    return steps, problem


# -- what can happen -------------------------------------------------------------------------------


def policy(chance: Random) -> TopicPolicy:
    pick = chance.choice
    return TopicPolicy(
        partitions=pick([1, 1, 2, 3]),
        order=pick(["none", "key", "partition"]),
        fair=pick([True, False]),
        partition_by=pick(["hash", "hash", "round-robin"]),
        retention=pick(RETENTIONS),
        keep_unsettled=pick([True, False]),
        max_attempts=pick([None, 1, 2, 3]),
        dead_letter=pick([None, "dead", "dead", "dead", "b"]),
        retry=Retry(
            pick(["fixed", "linear", "exponential"]),
            pick([0, 0, 1, 10, 40]),
            pick([30, 100, 300_000]),
            pick([True, False]),
        ),
        dedup_window_ms=pick([0, 20, 200, 5_000]),
        max_backlog=pick([None, None, None, 6, 15]),
        compression=pick([None, None, "lz4"]),
    )


def start(chance: Random) -> dict[str, Any]:
    features = {feature for feature in FEATURES if chance.random() < 0.5}
    return {"features": features, "specs": [row(chance) for _ in range(chance.randrange(7))]}


def row(chance: Random) -> tuple[Any, ...]:
    return (
        chance.choice(KEYS),
        chance.choice([0, 0, 0, 1, 5, 9]),
        chance.choice([0, 0, 0, 0, 10, 50, 150]),
        chance.choice([0, 0, 0, 0, 15, 60, 200]),
        chance.choice([None, None, None, "x", "y", "z"]),
    )


def rows(chance: Random) -> list[tuple[Any, ...]]:
    return [row(chance) for _ in range(chance.choice([1, 1, 2, 3, 5]))]


def requests(chance: Random) -> list[Any]:
    return [rows(chance) for _ in range(chance.choice([1, 1, 1, 2, 3]))]


def topic(chance: Random) -> str:
    return chance.choice(["a", "a", "a", "a", "b", "dead"])


def group(chance: Random) -> str:
    return chance.choice(["one", "one", "one", "one", "two", "three"])


def count(chance: Random) -> int:
    return chance.choice([1, 1, 2, 3, 5, 8, 100])


def delay(chance: Random) -> int | None:
    return chance.choice([None, None, 0, 10, 100])


def action(chance: Random) -> str:
    settling = ["ack", "ack", "ack", "nack", "nack", "extend", "dead_letter", "dismiss"]
    return chance.choice([*settling, "begin", "begin", "release"])


def begin(chance: Random) -> int | None:
    return chance.choice([None, None, None, 0, 1, 2])


def ends(chance: Random) -> list[tuple[str, int, int | None]]:
    return [
        (action(chance), chance.choice([1, 1, 2, 100]), delay(chance))
        for _ in range(chance.choice([0, 1, 1, 2, 3]))
    ]


def sends(chance: Random) -> list[tuple[str, Any]]:
    return [(topic(chance), rows(chance)) for _ in range(chance.choice([1, 1, 2]))]


def mostly(chance: Random) -> bool:
    return chance.random() < 0.8


def position(chance: Random) -> Position:
    start = chance.choice(["earliest", "earliest", "latest", "offset", "time"])
    return Position(start, chance.randrange(13), chance.choice([None, None, 0, 1, 2]))  # type: ignore[arg-type]


def picks(chance: Random) -> list[tuple[int, int, int]]:
    return [
        (chance.randrange(3), chance.randrange(13), chance.choice([1, 2, 5, 20]))
        for _ in range(chance.choice([1, 1, 2]))
    ]


def survival(chance: Random) -> str | int:
    outcomes: list[str | int] = ["none", "all", chance.randrange(1_000)]
    return chance.choice(outcomes)


def times(chance: Random) -> int:
    return chance.choice([1, 5, 10, 20, 50, 100, 300, 1_000])


RULES: Rules = {
    "produce": (
        12,
        lambda c: {
            "topic": topic(c),
            "requests": requests(c),
            "late": not mostly(c),
            "sync": mostly(c),
        },
    ),
    "produce_under_a_name": (
        4,
        lambda c: {
            "act": c.choice(["open", "next", "next", "next", "again", "overlap", "ahead", "old"]),
            "topic": topic(c),
            "name": c.choice("pq"),
            "specs": rows(c),
        },
    ),
    "receive": (
        8,
        lambda c: {
            "topic": topic(c),
            "group": group(c),
            "count": count(c),
            "lease_ms": c.choice([10, 20, 50, 200]),
            "per_key": c.choice([1, 1, 1, 2, 3]),
            "begin": c.choice([None, None, None, None, 0, 1]),
            "sync": mostly(c),
        },
    ),
    "reserve": (
        6,
        lambda c: {
            "group": group(c),
            "count": count(c),
            "begin": c.choice([0, 0, 1, 2]),
            "lease_ms": c.choice([100, 1_000, 5_000]),
        },
    ),
    "begin": (
        6,
        lambda c: {
            "which": c.randrange(10),
            "part": (c.randrange(4), c.choice([1, 1, 2, 100])),
            "lease_ms": c.choice([0, 0, 50, 500]),
        },
    ),
    "receive_in_need": (
        4,
        lambda c: {"group": group(c), "count": count(c), "begin": begin(c)},
    ),
    "consume": (
        12,
        lambda c: {"topic": topic(c), "group": group(c), "count": count(c), "ends": ends(c)},
    ),
    "settle": (
        8,
        lambda c: {
            "action": action(c),
            "which": c.randrange(10),
            "part": (c.randrange(4), c.choice([1, 2, 3, 100])),
            "delay_ms": delay(c),
            "sync": mostly(c),
        },
    ),
    "settle_many": (
        2,
        lambda c: {
            "action": c.choice(["ack", "nack", "extend", "dismiss", "begin", "release"]),
            "which": [c.randrange(6) for _ in range(c.randrange(2, 5))],
        },
    ),
    "forge": (
        2,
        lambda c: {
            "which": c.randrange(6),
            "what": c.choice(["epoch", "partition", "offset", "group", "topic"]),
            "by": c.choice([1, -1, 5]),
            "action": action(c),
        },
    ),
    "transact": (
        3,
        lambda c: {
            "which": [c.randrange(5) for _ in range(c.randrange(4))],
            "action": c.choice(["ack", "ack", "nack", "dead_letter"]),
            "sends": sends(c)[: c.randrange(3)],
        },
    ),
    "consume_and_produce": (4, lambda c: {"count": count(c), "sends": sends(c)}),
    "wait": (8, lambda c: {"ms": times(c)}),
    "wait_until_something_is_due": (5, lambda c: {}),
    "tick": (3, lambda c: {"act": c.choice(["tick", "sweep", "back"])}),
    "rise": (1, lambda c: {"level": c.choice([1, 2, 2, 3])}),
    "set_peers": (1, lambda c: {"peers": c.choice([b"", b"a", b"a b"])}),
    "operate": (
        3,
        lambda c: {
            "act": c.choice(["seek", "seek", "pause", "resume", "resume", "purge", "delete"]),
            "topic": topic(c),
            "group": group(c),
            "position": position(c),
        },
    ),
    "redrive": (
        3,
        lambda c: {
            "topic": c.choice(["a", "b", "dead", "dead", "dead"]),
            "picks": picks(c),
            "to": c.choice([None, None, None, "a", "b"]),
        },
    ),
    "discard": (2, lambda c: {"topic": topic(c), "picks": picks(c)}),
    "create_group": (
        2,
        lambda c: {
            "topic": topic(c),
            "group": group(c),
            "position": position(c),
            "guarantee": c.choice(["at-least-once", "at-most-once"]),
        },
    ),
    "make_topics": (
        1,
        lambda c: {"act": c.choice(["delete", "create", "create", "differ"]), "topic": topic(c)},
    ),
    "alter": (
        2,
        lambda c: {
            "topic": topic(c),
            "policy": policy(c),
            "fields": c.sample([*ALTERABLE, "order"], c.choice([1, 1, 2, 3])),
        },
    ),
    "survey": (1, lambda c: {"topic": topic(c)}),
    "compact": (6, lambda c: {"which": c.randrange(4), "now": mostly(c), "topic": topic(c)}),
    "join": (
        1,
        lambda c: {
            "topic": topic(c),
            "group": group(c),
            "member": c.choice(["m1", "m2", "m3"]),
            "session_ms": times(c),
        },
    ),
    "be_a_member": (
        4,
        lambda c: {
            "act": c.choice(["beat", "beat", "commit", "commit", "commit", "leave"]),
            "which": c.randrange(6),
            "member": c.choice(["m1", "m2", "m3"]),
            "partition": c.randrange(3),
            "offset": c.randrange(13),
        },
    ),
    "gather": (3, lambda c: {"count": c.randrange(2, 5)}),
    "snapshot": (3, lambda c: {"act": c.choice(["begin", "save", "finish", "whole"])}),
    "close_or_crash_and_open": (
        3,
        lambda c: {"act": c.choice(["close", "crash"]), "survival": survival(c)},
    ),
    "crash_soon": (
        2,
        lambda c: {
            "operations": c.randrange(1, 10),
            "late": c.random() < 0.5,
            "survival": survival(c),
        },
    ),
    "fill_or_free_the_disk": (
        2,
        lambda c: {"free": c.choice([None, None, c.randrange(2_000)])},
    ),
}

# One group at work on one topic, a message or two at a time: turns between keys are taken and lost.
WORK: Rules = {
    "produce": (
        2,
        lambda c: {"topic": "a", "requests": [rows(c)], "late": False, "sync": True},
    ),
    "receive": (
        3,
        lambda c: {
            "topic": "a",
            "group": "one",
            "count": c.choice([1, 1, 2]),
            "lease_ms": c.choice([20, 200]),
            "per_key": c.choice([1, 1, 2, 3]),
            "begin": None,
            "sync": True,
        },
    ),
    "consume": (
        2,
        lambda c: {
            "topic": "a",
            "group": "one",
            "count": c.choice([1, 1, 2]),
            "ends": [(c.choice(["ack", "nack", "release"]), 1, 0)],
        },
    ),
    "settle": (
        3,
        lambda c: {
            "action": c.choice(["nack", "dismiss", "release"]),
            "which": c.randrange(6),
            "part": (c.randrange(3), 1),
            "delay_ms": 0,
            "sync": True,
        },
    ),
    "wait": (1, lambda c: {"ms": c.choice([1, 20])}),
}
