"""`quiver dlq`: what died and why, and what to do about it."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quiver.cli import bodies, directory, output
from quiver.cli.completing import topics
from quiver.cli.options import DATA, Data, Json, Topic, Yes, epilog
from quiver.cli.progress import Bar, bar
from quiver.cli.verbs import CommandVerbs
from quiver.errors import InvalidRequest

if TYPE_CHECKING:
    from quiver.client.results import Record
    from quiver.client.sync import Queue

    Look = Callable[[Record], bool]

REASON_CHARS = 60  # of a reason in a table; `show` has all of it
NO_REASON = "(none given)"

ReasonLike = Annotated[
    str,
    typer.Option(
        "--reason-like", "-r", metavar="TEXT", help="Only those whose reason has this text in it."
    ),
]
Condition = Annotated[
    str | None,
    typer.Option(
        "--where",
        "-w",
        metavar="SQL",
        help="Only those that this is true for, such as \"reason like 'Timeout%'\".",
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="At most so many, oldest first.")
]

app = typer.Typer(
    cls=CommandVerbs,
    help="List, show, redrive and discard dead letters.",
    subcommand_metavar="[COMMAND] [TOPIC] [ARGS]...",
    epilog=epilog(
        [
            "quiver dlq",
            "quiver dlq list orders",
            "quiver dlq redrive orders --reason-like Timeout --dry-run",
        ],
        "TOPIC is the dead-letter topic (orders.dlq) or the topic it serves (orders).",
        'A condition for --where sees one message: id, partition, "offset", key, body, text, json '
        "(json.amount > 5, json->>'$.name' = 'ann'), headers, priority, created_at, reason, attempts, "
        "dead_at, origin_topic, origin_partition, origin_offset, origin_group.",
    ),
)


@app.command(
    "list",
    epilog=epilog(
        [
            "quiver dlq",
            "quiver dlq list orders.dlq --reason-like Timeout",
            "quiver dlq list orders --where \"reason like 'Timeout%' and json.amount > 100\"",
        ]
    ),
)
def list_letters(
    topic: Annotated[
        str | None,
        typer.Argument(
            help="The topic; without one, all dead-letter topics.", autocompletion=topics
        ),
    ] = None,
    reason_like: ReasonLike = "",
    where: Condition = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Show at most so many; all are counted.")
    ] = 50,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """List dead letters, with a count by reason."""
    if topic is None and (where is not None or reason_like):
        raise InvalidRequest(
            "--where and --reason-like choose among the letters of one topic: name it, such as "
            "quiver dlq list orders"
        )
    with directory.looked_into(data) as queue:
        if topic is None:
            _overview(queue, as_json=as_json)
            return
        letters = _resolve(queue, topic, data)
        shown: list[Record] = []
        reasons: Counter[str] = Counter()

        def look(record: "Record") -> bool:
            reasons[reason_of(record)] += 1
            if len(shown) < limit:
                shown.append(record)
            return True

        total = queue.discard(letters, where=_where(reason_like, where, look), dry_run=True)
    if as_json:
        output.document({"topic": letters, "pending": total, "reasons": dict(reasons.most_common()),
                         "letters": [bodies.message(record) for record in shown]})  # fmt: skip
    elif not total:
        output.note(
            f"{letters} has no dead letters" + (" like that." if reason_like or where else ".")
        )
    else:
        _show_letters(letters, shown, reasons, total)


@app.command(epilog=epilog(["quiver dlq show orders 17-0"]))
def show(
    topic: Topic,
    message_id: Annotated[
        str, typer.Argument(metavar="ID", help="The message's id, from `dlq list`.")
    ],
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Show everything about one dead letter."""
    with directory.looked_into(data) as queue:
        letters = _resolve(queue, topic, data)
        found: list[Record] = []

        def is_it(record: "Record") -> bool:
            if record.id == message_id:
                found.append(record)
            return record.id == message_id

        queue.discard(letters, where=is_it, limit=1, dry_run=True)
    if not found:
        raise InvalidRequest(
            f"{letters} has no pending message {output.visible(message_id, 40)!r}; "
            f"`quiver dlq list {letters}` has their ids"
        )
    if as_json:
        output.document(bodies.message(found[0]))
    else:
        _show_letter(found[0])


@app.command(
    epilog=epilog(
        [
            "quiver dlq redrive orders",
            "quiver dlq redrive orders --where \"reason like 'Timeout%'\" --rate 100 --dry-run",
            "quiver dlq redrive orders --to orders-again --limit 10",
        ],
        "Each step is atomic: a redrive that was interrupted can simply be started again.",
    )
)
def redrive(
    topic: Topic,
    reason_like: ReasonLike = "",
    where: Condition = None,
    limit: Limit = None,
    rate: Annotated[float | None, typer.Option(help="Messages a second.")] = None,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where to, if not where they came from.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Send dead letters back to where they came from."""
    with directory.opened(data) as queue:
        letters = _resolve(queue, topic, data)
        if to is not None:
            directory.require_topic(queue, to, data)
        homeless = Counter[str]()

        def has_home(record: "Record") -> bool:
            home = to is not None or record.origin is not None
            homeless["messages"] += not home
            return home

        chosen = _where(reason_like, where, has_home)
        moved = queue.redrive(letters, where=chosen, to=to, rate=rate, limit=limit, dry_run=True)
        lost = homeless["messages"]
        if moved and not dry_run:
            with _moving(f"Redriving {letters}", moved, wanted=not as_json) as shown:
                moved = queue.redrive(
                    letters, where=chosen, to=to, rate=rate, limit=limit, progress=shown.messages
                )
    if as_json:
        output.document({"topic": letters, "redriven": moved, "to": to, "dry_run": dry_run})
        return
    where_to = f"to {to}" if to else "to where they came from"
    verb = "Would redrive" if dry_run else "Redrove"
    output.say(f"{verb} {output.count(moved, 'message')} of {letters} {where_to}.")
    if lost:
        were = output.count(lost, "message was", "messages were")
        output.note(
            f"{were} sent here directly and came from nowhere: say --to TOPIC to move them."
        )


@app.command(
    epilog=epilog(
        ["quiver dlq discard orders --reason-like NoSuchUser", "quiver dlq discard orders --yes"]
    )
)
def discard(
    topic: Topic,
    reason_like: ReasonLike = "",
    where: Condition = None,
    limit: Limit = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Yes = False,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Drop dead letters for ever."""
    with directory.opened(data) as queue:
        letters = _resolve(queue, topic, data)
        chosen = _where(reason_like, where)
        gone = queue.discard(letters, where=chosen, limit=limit, dry_run=True)
        if gone and not dry_run:
            output.confirm(f"Drop {output.count(gone, 'message')} of {letters} for ever?", yes=yes)
            with _moving(f"Emptying {letters}", gone, wanted=not as_json) as shown:
                gone = queue.discard(letters, where=chosen, limit=limit, progress=shown.messages)
    if as_json:
        output.document({"topic": letters, "discarded": gone, "dry_run": dry_run})
    else:
        verb = "Would discard" if dry_run else "Discarded"
        output.say(f"{verb} {output.count(gone, 'message')} of {letters}.")


@contextmanager
def _moving(label: str, total: int, *, wanted: bool) -> Iterator[Bar]:
    """A bar; who interrupts is told how far it got."""
    with bar(label, total, "messages", wanted=wanted) as shown:
        try:
            yield shown
        except KeyboardInterrupt:
            done = output.count(shown.done, "message was", "messages were")
            output.note(f"Interrupted: {done} done; the same command goes on with the rest.")
            raise


def reason_of(record: "Record") -> str:
    """Why a message died."""
    return (record.origin.reason if record.origin is not None else "") or NO_REASON


def _where(text: str, condition: str | None, look: "Look | None" = None) -> Any:
    """Choose by condition and by reason, and tell `look` of each one that was chosen."""
    from quiver.client.moving import SqlAndFunction

    def chosen(record: "Record") -> bool:
        if text and text.casefold() not in reason_of(record).casefold():
            return False
        return look is None or look(record)

    if not text and look is None:
        return condition
    return chosen if condition is None else SqlAndFunction(condition, chosen)


def _dead_letter_topics(queue: "Queue") -> dict[str, list[str]]:
    """Each dead-letter topic with those it serves."""
    found: dict[str, list[str]] = {}
    for name in queue.topics():
        target = queue.policy(name).dead_letter
        if target is not None:
            found.setdefault(target, []).append(name)
    return found


def _resolve(queue: "Queue", topic: str, data: Path) -> str:
    """The dead-letter topic that is meant."""
    directory.require_topic(queue, topic, data)
    if topic in _dead_letter_topics(queue):
        return topic
    target = queue.policy(topic).dead_letter
    if target is None:
        return topic
    directory.require_topic(queue, target, data)
    return target


def _overview(queue: "Queue", *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for letters, served in _dead_letter_topics(queue).items():
        if letters in queue.topics():
            stats = queue.stats(letters)
            rows.append({"topic": letters, "of": served, "pending": stats.depth,
                         "oldest_age": stats.oldest_age})  # fmt: skip
    if as_json:
        output.document(rows)
        return
    if not rows:
        output.note("No topic has dead letters: quiver topics create NAME --max-attempts N")
        return
    table = output.table("topic", "of", "pending", "oldest", numbers=("pending", "oldest"))
    for row in rows:
        table.add_row(row["topic"], ", ".join(row["of"]), f"{row['pending']:,}",
                      output.age(row["oldest_age"]))  # fmt: skip
    output.show(table)


def _show_letters(letters: str, shown: list["Record"], reasons: Counter[str], total: int) -> None:
    table = output.table(
        "id", "from", "group", "attempts", "died", "reason", numbers=("attempts", "died")
    )
    for record in shown:
        table.add_row(*_letter_row(record))
    output.show(table)
    output.say()
    summary = output.table("messages", "reason", numbers=("messages",))
    for reason, number in reasons.most_common(20):
        summary.add_row(f"{number:,}", output.visible(reason, REASON_CHARS))
    output.show(summary)
    output.say()
    text = f"{output.count(total, 'dead letter')} in {letters}"
    text += f", the first {len(shown):,} shown." if len(shown) < total else "."
    output.say(f"{text} Look at one: quiver dlq show {letters} {shown[0].id}")


def _letter_row(record: "Record") -> list[str]:
    came = record.origin
    if came is None:
        return [record.id, "-", "-", "-", output.age(bodies.age_of(record)), NO_REASON]
    return [record.id, f"{came.topic}/{came.partition}/{came.offset}", came.group, f"{came.attempts}",
            output.age(bodies.seconds_since(bodies.moment(came.time_ms))),
            output.visible(reason_of(record), REASON_CHARS)]  # fmt: skip


def _show_letter(record: "Record") -> None:
    rows: list[tuple[str, str]] = [
        ("id", record.id),
        ("here", f"{record.topic}, partition {record.partition}, offset {record.offset}"),
    ]
    if record.origin is not None:
        came: Any = record.origin
        died = bodies.moment(came.time_ms)
        rows += [
            ("from", f"{came.topic}, partition {came.partition}, offset {came.offset}"),
            ("group", came.group),
            ("attempts", f"{came.attempts:,}"),
            ("died", f"{died:%Y-%m-%d %H:%M:%S} UTC, {output.age(bodies.seconds_since(died))} ago"),
            ("reason", output.visible(reason_of(record), keep="\n")),
        ]
    rows += [
        (
            "created",
            f"{record.created_at:%Y-%m-%d %H:%M:%S} UTC, {output.age(bodies.age_of(record))} ago",
        ),
        ("key", "-" if record.key is None else output.visible(record.key)),
        ("priority", f"{record.priority}"),
    ]
    rows += [
        (f"header {output.visible(name)}", output.visible(value))
        for name, value in record.headers.items()
    ]
    rows.append(("body", f"{output.size(len(record.body))}"))
    output.facts(rows)
    output.say()
    output.say(bodies.readable(record.body))
