"""`quiver groups`: list, create, seek, pause, resume, delete."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from quiver.cli import directory, output
from quiver.cli.completing import words
from quiver.cli.options import DATA, Data, Group, Json, Topic, Yes, epilog
from quiver.cli.verbs import CommandVerbs
from quiver.errors import InvalidRequest

if TYPE_CHECKING:
    from rich.table import Table

    from quiver.client.sync import Queue
    from quiver.model.stats import GroupStats

POSITIONS: Final = ("earliest", "latest")
SHOWN_MAX: Final = 10  # partitions, in a sentence

app = typer.Typer(
    cls=CommandVerbs,
    help="List, create, seek, pause, resume and delete the groups of a topic.",
    subcommand_metavar="[COMMAND] TOPIC [ARGS]...",
    epilog=epilog(
        [
            "quiver groups orders",
            "quiver groups pause orders billing",
            "quiver groups seek orders billing earliest",
        ],
        "The topic may also come first: quiver groups orders pause billing.",
    ),
)


@app.command("list", epilog=epilog(["quiver groups orders", "quiver groups list orders --json"]))
def list_groups(topic: Topic, as_json: Json = False, data: Data = DATA) -> None:
    """List the groups of a topic and what they are doing."""
    with directory.looked_into(data) as queue:
        directory.require_topic(queue, topic, data)
        groups = queue.groups(topic)
    if as_json:
        output.document([asdict(group) for group in groups.values()])
    elif groups:
        output.show(group_table(groups))
    else:
        output.note(f"{topic} has no groups yet: the first receive makes one.")


@app.command(
    epilog=epilog(
        [
            "quiver groups create orders billing",
            "quiver groups create orders audit --start latest --guarantee at-most-once",
            "quiver groups create orders replay --start 2026-11-01T00:00:00Z",
        ]
    )
)
def create(
    topic: Topic,
    group: Group,
    start: Annotated[
        str,
        typer.Option(
            help="Where it begins: earliest, latest, an offset or a time.",
            autocompletion=words(POSITIONS),
        ),
    ] = "earliest",
    guarantee: Annotated[
        str,
        typer.Option(
            help="at-least-once or at-most-once.",
            autocompletion=words(("at-least-once", "at-most-once")),
        ),
    ] = "at-least-once",
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Make a group before its first receive, to choose where it starts."""
    from quiver.client.arguments import choice
    from quiver.model.topic import Guarantee

    chosen = choice(guarantee, "guarantee", Guarantee)
    with directory.opened(data) as queue:
        directory.require_topic(queue, topic, data)
        queue.create_group(topic, group, start=place(start), guarantee=chosen)
    _done(topic, group, f"Created group {group} of {topic}, from {start}, {guarantee}.",
          as_json=as_json, created=True)  # fmt: skip


SEEK_EPILOG = epilog(
    [
        "quiver seek orders billing --to earliest",
        "quiver seek orders billing --to 2026-11-01T00:00:00Z",
        "quiver groups seek orders billing 100 --partition 0",
    ],
    "It can only go back to messages that the topic's retention has kept. What it passes over counts as "
    "settled by the group, and retention may drop it. quiver seek and quiver groups seek are the same.",
)


@app.command(epilog=SEEK_EPILOG)
def seek(
    topic: Topic,
    group: Group,
    position: Annotated[
        str | None,
        typer.Argument(
            help="earliest, latest, an offset or a time.", autocompletion=words(POSITIONS)
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION", help="The same as an option.", autocompletion=words(POSITIONS)
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this one.")
    ] = None,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Put a group somewhere else in its topic; its leases end."""
    if (position is None) == (to is None):
        raise InvalidRequest(
            "say where the group shall be, once: --to earliest, latest, an offset or a time"
        )
    asked = to or position or ""
    there = place(asked)
    with directory.opened(data) as queue:
        directory.require_topic(queue, topic, data)
        directory.require_group(queue, topic, group)
        before = queue.groups(topic)[group].lag
        queue.seek(topic, group, there, partition=partition)
        lag = queue.groups(topic)[group].lag
        reached = _reached(queue, topic, there, partition)
    passed = max(0, before - lag)
    text = f"Group {group} of {topic} goes on from {reached}"
    if passed:
        # What it had settled behind the new place is unsettled again, and makes the difference smaller.
        least = "at least " if lag else ""
        text += (
            f", and passes over {least}{output.count(passed, 'message')} that it had not settled"
        )
    _done(topic, group, text + ".", as_json=as_json, position=asked, passed_over=passed)


@app.command(epilog=epilog(["quiver groups pause orders billing"]))
def pause(topic: Topic, group: Group, as_json: Json = False, data: Data = DATA) -> None:
    """Stop deliveries to a group; what it holds can still be settled."""
    _change(data, topic, group, "pause")
    _done(topic, group, f"Paused group {group} of {topic}.", as_json=as_json, paused=True)


@app.command(epilog=epilog(["quiver groups resume orders billing"]))
def resume(topic: Topic, group: Group, as_json: Json = False, data: Data = DATA) -> None:
    """Go on delivering to a paused group."""
    _change(data, topic, group, "resume")
    _done(topic, group, f"Resumed group {group} of {topic}.", as_json=as_json, paused=False)


@app.command(epilog=epilog(["quiver groups delete orders billing --yes"]))
def delete(
    topic: Topic, group: Group, yes: Yes = False, as_json: Json = False, data: Data = DATA
) -> None:
    """Delete a group and forget what it has settled."""
    with directory.opened(data) as queue:
        directory.require_topic(queue, topic, data)
        directory.require_group(queue, topic, group)
        lag = queue.groups(topic)[group].lag
        output.confirm(f"Delete group {group} of {topic}, {lag:,} messages behind?", yes=yes)
        queue.delete_group(topic, group)
    _done(topic, group, f"Deleted group {group} of {topic}.", as_json=as_json, deleted=True)


def group_table(groups: Mapping[str, "GroupStats"]) -> "Table":
    """Groups as a table."""
    numbers = ("lag", "ready", "in flight", "delayed", "oldest", "acked", "failed", "dead", "expired",
               "behind")  # fmt: skip
    table = output.table("group", *numbers, "state", numbers=numbers)
    for group in groups.values():
        state = ["paused"] if group.paused else []
        state += [group.guarantee] if group.guarantee != "at-least-once" else []
        state += [output.count(group.members, "member")] if group.members else []
        counts = (group.acked, group.nacked + group.timed_out, group.dead_lettered, group.expired,
                  group.behind_retention)  # fmt: skip
        table.add_row(
            group.group, f"{group.lag:,}", f"{group.ready:,}", f"{group.in_flight:,}",
            f"{group.delayed:,}", output.age(group.oldest_age), *(f"{n:,}" for n in counts),
            ", ".join(state) or "active",
        )  # fmt: skip
    return table


def place(text: str) -> str | int:
    """An offset if it is a number; else a word or a time."""
    return int(text) if text.isdecimal() else text


def _reached(queue: "Queue", topic: str, there: str | int, partition: int | None) -> str:
    """Where a seek has put a group: an offset outside of what a partition has is its begin or end."""
    if isinstance(there, str):
        return there
    kept = queue.offsets(topic, partition=partition)
    offsets = {number: min(max(there, first), end) for number, (first, end) in kept.items()}
    if len(set(offsets.values())) == 1:
        offset = next(iter(offsets.values()))
        why = ", the oldest there is" if offset > there else ", the end" if offset < there else ""
        return f"{offset:,}{why}"
    shown = [f"{offset:,} of partition {number}" for number, offset in offsets.items()]
    more = f" and {len(shown) - SHOWN_MAX} others" if len(shown) > SHOWN_MAX else ""
    return ", ".join(shown[:SHOWN_MAX]) + more


def _change(data: Path, topic: str, group: str, verb: str, *args: Any, **options: Any) -> None:
    with directory.opened(data) as queue:
        directory.require_topic(queue, topic, data)
        directory.require_group(queue, topic, group)
        getattr(queue, verb)(topic, group, *args, **options)


def _done(topic: str, group: str, text: str, *, as_json: bool, **fields: Any) -> None:
    if as_json:
        output.document({"topic": topic, "group": group, **fields})
    else:
        output.say(text)
