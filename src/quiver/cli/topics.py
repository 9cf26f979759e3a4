"""`quiver topics`: list, create, alter, show, compact, purge, delete."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quiver.cli import directory, output
from quiver.cli.completing import words
from quiver.cli.groups import group_table
from quiver.cli.options import DATA, Data, Json, Topic, Yes, epilog
from quiver.cli.verbs import CommandVerbs
from quiver.errors import Forbidden, InvalidRequest

if TYPE_CHECKING:
    from quiver.client.sync import Queue
    from quiver.model.stats import TopicStats
    from quiver.model.topic import Retention, Retry, TopicPolicy

NONE = "none"  # how a shell says None
DROPS = ", and then dropped though unsettled"

app = typer.Typer(
    cls=CommandVerbs,
    help="List, create, alter, show, compact, purge and delete topics. Alone it lists them.",
    epilog=epilog(["quiver topics", "quiver topics create orders", "quiver topics show orders"]),
)


@app.command("list", epilog=epilog(["quiver topics", "quiver topics list --json | jq '.[].topic'"]))
def list_topics(as_json: Json = False, data: Data = DATA) -> None:
    """List all topics and how they are doing."""
    found: list[tuple[TopicStats, TopicPolicy]] = []
    hidden: list[str] = []
    with directory.looked_into(data) as queue:
        for name in queue.topics():
            try:
                found.append((queue.stats(name), queue.policy(name)))
            except Forbidden:
                hidden.append(name)
    if hidden:
        output.note(
            f"You may not observe {', '.join(hidden)}: ask for a rule with the verb observe."
        )
    if as_json:
        output.document([{**asdict(stats), "policy": asdict(policy)} for stats, policy in found])
        return
    if not found and not hidden:
        output.note(f"{data} has no topics yet. Make one: quiver topics create NAME")
    if not found:
        return
    table = output.table(
        "topic", "partitions", "order", "depth", "in flight", "delayed", "oldest", "stored",
        "groups",
        numbers=("partitions", "depth", "in flight", "delayed", "oldest", "stored"),
    )  # fmt: skip
    for stats, policy in found:
        table.add_row(
            stats.topic, f"{stats.partitions}", policy.order, f"{stats.depth:,}",
            f"{stats.in_flight:,}", f"{stats.delayed:,}", output.age(stats.oldest_age),
            f"{stats.stored:,}", ", ".join(stats.groups) or "-",
        )  # fmt: skip
    output.show(table)


@app.command(
    epilog=epilog(
        [
            "quiver topics create orders",
            "quiver topics create orders --partitions 4 --order key --retention 7d",
            "quiver topics create jobs --max-attempts 5 --retry exponential --retry-base 2s",
            "quiver topics create names --partitions 3 --split-key h --split-key q",
            "quiver topics create clicks --retention '7d, 10GB' --drop-unsettled",
        ],
        "The same call again changes nothing; another policy for a topic that exists is refused: "
        "see quiver topics alter.",
    )
)
def create(
    topic: Topic,
    partitions: Annotated[int, typer.Option(help="How many partitions.")] = 1,
    order: Annotated[
        str,
        typer.Option(
            help="What is kept in order: none, key or partition.",
            autocompletion=words(("none", "key", "partition")),
        ),
    ] = "none",
    fair: Annotated[
        bool, typer.Option("--fair", help="Take turns between keys, so that none starves.")
    ] = False,
    partition_by: Annotated[
        str,
        typer.Option(
            help="Who goes where: hash (of the key) or round-robin.",
            autocompletion=words(("hash", "round-robin")),
        ),
    ] = "hash",
    split_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY", help="Partition by ranges of keys; one for each partition but the first."
        ),
    ] = None,
    retention: Annotated[
        str,
        typer.Option(
            help="What is kept when settled: settled (nothing), forever, or some of 7d, 10GB and "
            "compact (the newest of each key), with commas."
        ),
    ] = "settled",
    drop_unsettled: Annotated[
        bool,
        typer.Option("--drop-unsettled", help="Time and size also drop what nobody has settled."),
    ] = False,
    max_attempts: Annotated[
        int | None, typer.Option(help="Then a message goes to the dead letters.")
    ] = None,
    dead_letter: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="The topic for dead letters. [default: TOPIC.dlq, with --max-attempts]",
        ),
    ] = None,
    retry: Annotated[
        str | None,
        typer.Option(
            help="The wait before a retry: fixed, linear, exponential, or a time.",
            autocompletion=words(("fixed", "linear", "exponential")),
        ),
    ] = None,
    retry_base: Annotated[
        str | None, typer.Option(metavar="TIME", help="The first wait. [default: 1s]")
    ] = None,
    retry_cap: Annotated[
        str | None, typer.Option(metavar="TIME", help="The longest wait. [default: 5m]")
    ] = None,
    retry_jitter: Annotated[
        bool | None,
        typer.Option("--retry-jitter/--no-retry-jitter", help="Spread the waits. [default: on]"),
    ] = None,
    dedup_window: Annotated[
        str, typer.Option(metavar="TIME", help="How long dedup ids are remembered.")
    ] = "5m",
    max_backlog: Annotated[
        int | None, typer.Option(help="Refuse sends past so many unsettled messages.")
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(help="Of stored batches: lz4 or zstd.", autocompletion=words(("lz4", "zstd"))),
    ] = None,
    ledger: Annotated[
        bool, typer.Option("--ledger/--no-ledger", help="Write down what happens to messages.")
    ] = True,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Make a topic, and the queue if DIR has none."""
    options: dict[str, Any] = {
        "partitions": partitions, "order": order, "fair": fair,
        "partition_by": split_key or partition_by, "retention": retention,
        "keep_unsettled": not drop_unsettled, "max_attempts": max_attempts, "dead_letter": dead_letter,
        "retry": _retry(retry, retry_base, retry_cap, retry_jitter),
        "dedup_window": dedup_window, "max_backlog": max_backlog, "compression": compression,
        "ledger": ledger,
    }  # fmt: skip
    _check(topic, options)
    with directory.opened(data, create=True) as queue:
        before = queue.topics()
        queue.create_topic(topic, **options)
        policy = queue.policy(topic)
        fresh = [name for name in queue.topics() if name not in before]
    if as_json:
        output.document({"topic": topic, "created": topic in fresh, "policy": asdict(policy)})
        return
    if topic not in fresh:
        output.say(f"{topic} is there already, with this policy.")
        return
    output.say(f"Created {topic}: {_summary(policy)}.")
    for other in fresh:
        if other != topic:
            output.say(f"Created {other} for its dead letters.")


@app.command(
    epilog=epilog(
        [
            "quiver topics alter orders --retention 30d",
            "quiver topics alter clicks --retention '7d, 10GB' --drop-unsettled",
            "quiver topics alter jobs --max-attempts none --max-backlog 10000",
        ],
        "What is not named stays as it is. Partitions and order cannot be changed.",
    )
)
def alter(
    topic: Topic,
    retention: Annotated[
        str | None, typer.Option(help="What is kept when settled, as for create.")
    ] = None,
    keep_unsettled: Annotated[
        bool | None,
        typer.Option(
            "--keep-unsettled/--drop-unsettled",
            help="Whether time and size keep what nobody has settled.",
        ),
    ] = None,
    max_attempts: Annotated[
        str | None, typer.Option(help="Then a message goes to the dead letters; or none.")
    ] = None,
    dead_letter: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic for dead letters.")
    ] = None,
    retry: Annotated[
        str | None,
        typer.Option(
            help="The wait before a retry: fixed, linear, exponential, or a time.",
            autocompletion=words(("fixed", "linear", "exponential")),
        ),
    ] = None,
    dedup_window: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long dedup ids are remembered.")
    ] = None,
    max_backlog: Annotated[
        str | None, typer.Option(help="Refuse sends past so many unsettled messages; or none.")
    ] = None,
    compression: Annotated[
        str | None, typer.Option(help="Of stored batches: lz4, zstd or none.")
    ] = None,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Change a topic's policy."""
    given: dict[str, Any] = {
        "retention": retention, "keep_unsettled": keep_unsettled,
        "max_attempts": _count_or_none(max_attempts, "--max-attempts"),
        "dead_letter": dead_letter, "retry": retry, "dedup_window": dedup_window,
        "max_backlog": _count_or_none(max_backlog, "--max-backlog"), "compression": compression,
    }  # fmt: skip
    changes: Any = {
        key: None if value == NONE else value for key, value in given.items() if value is not None
    }
    if not changes:
        raise InvalidRequest("say what shall change, such as --retention 7d")
    with directory.opened(data) as queue:
        directory.require_topic(queue, topic, data)
        queue.alter_topic(topic, **changes)
        policy = queue.policy(topic)
    if as_json:
        output.document({"topic": topic, "policy": asdict(policy)})
    else:
        output.say(f"Altered {topic}: {_summary(policy)}.")


def _count_or_none(text: str | None, option: str) -> str | int | None:
    if text is None or text == NONE:
        return text
    if not text.isdecimal():
        raise InvalidRequest(f"{option} is a number or {NONE}, not {text[:40]!r}")
    return int(text)


@app.command(epilog=epilog(["quiver topics compact prices"]))
def compact(topic: Topic, as_json: Json = False, data: Data = DATA) -> None:
    """Drop now what newer messages of the same key have superseded."""
    with directory.opened(data) as queue:
        directory.require_topic(queue, topic, data)
        if not queue.policy(topic).retention.compact:
            raise InvalidRequest(
                f"topic {topic!r} keeps more than the newest message of each key; to change that: "
                f"quiver topics alter {topic} --retention compact"
            )
        dropped = queue.compact(topic)
    if as_json:
        output.document({"topic": topic, "dropped": dropped})
    else:
        output.say(f"Compacted {topic}: {output.count(dropped, 'message')} dropped.")


@app.command(epilog=epilog(["quiver topics show orders"]))
def show(topic: Topic, as_json: Json = False, data: Data = DATA) -> None:
    """Show a topic's policy, numbers and groups."""
    with directory.looked_into(data) as queue:
        directory.require_topic(queue, topic, data)
        stats, policy = queue.stats(topic), queue.policy(topic)
    if as_json:
        output.document({**asdict(stats), "policy": asdict(policy)})
        return
    output.say(topic, style="bold")
    output.facts(
        [
            *_describe(policy),
            ("depth", f"{stats.depth:,}"),
            ("in flight", f"{stats.in_flight:,}"),
            ("delayed", f"{stats.delayed:,}"),
            ("oldest", output.age(stats.oldest_age)),
            (
                "stored",
                f"{output.count(stats.stored, 'message')}, {output.size(stats.stored_bytes)}",
            ),
            (
                "sent",
                f"{stats.sent:,} in all, and {output.count(stats.duplicates, 'duplicate')} refused",
            ),
            (
                "dropped",
                f"{stats.dropped:,} by age or size, {stats.compacted:,} by compaction",
            ),
            *([("staged", f"{stats.staged:,}, to be published")] if stats.staged else []),
        ]
    )
    output.say()
    if stats.groups:
        output.show(group_table(stats.groups))
    else:
        output.note("No groups yet: the first receive makes one.")


@app.command(epilog=epilog(["quiver topics purge orders", "quiver topics purge orders --yes"]))
def purge(topic: Topic, yes: Yes = False, as_json: Json = False, data: Data = DATA) -> None:
    """Drop every message of a topic; the topic and its groups stay."""
    with directory.opened(data) as queue:
        depth = _depth(queue, topic, data)
        output.confirm(f"Drop all messages of {topic}, {depth:,} of them unsettled?", yes=yes)
        dropped = queue.purge(topic)
    if as_json:
        output.document({"topic": topic, "dropped": dropped})
    else:
        output.say(f"Purged {topic}: {output.count(dropped, 'unsettled message')} dropped.")


@app.command(epilog=epilog(["quiver topics delete orders", "quiver topics delete orders --yes"]))
def delete(topic: Topic, yes: Yes = False, as_json: Json = False, data: Data = DATA) -> None:
    """Delete a topic with its messages and groups."""
    with directory.opened(data) as queue:
        depth = _depth(queue, topic, data)
        output.confirm(
            f"Delete {topic} and its groups, with {depth:,} unsettled messages?", yes=yes
        )
        queue.delete_topic(topic)
    if as_json:
        output.document({"topic": topic, "deleted": True, "unsettled": depth})
    else:
        output.say(f"Deleted {topic}.")


def _depth(queue: "Queue", topic: str, data: Any) -> int:
    directory.require_topic(queue, topic, data)
    return queue.stats(topic).depth


def _check(topic: str, options: dict[str, Any]) -> None:
    """Find fault with a policy before a directory is made for it."""
    from quiver.client.arguments import name, policy

    rest = {key: value for key, value in options.items() if key not in ("retention", "retry")}
    policy(name(topic, "topic"), retention_=options["retention"], retry_=options["retry"], **rest)


def _retry(
    kind: str | None, base: str | None, cap: str | None, jitter: bool | None
) -> "Retry | str | None":
    from quiver.client.arguments import choice, make_retry
    from quiver.model.topic import RetryKind

    if base is None and cap is None and jitter is None:
        return kind
    given: Any = kind or "exponential"
    choice(given, "--retry with --retry-base, -cap or -jitter", RetryKind)
    return make_retry(
        given,
        base or "1s",
        cap or "5m",
        jitter=kind != "fixed" if jitter is None else jitter,
    )


# -- a policy in words -----------------------------------------------------------------------------


def _summary(policy: "TopicPolicy") -> str:
    parts = [output.count(policy.partitions, "partition"), f"order {policy.order}"]
    kept = "" if policy.keep_unsettled else " (drops unsettled)"
    parts.append(f"retention {_retention(policy.retention)}{kept}")
    if policy.max_attempts:
        parts.append(f"{output.count(policy.max_attempts, 'attempt')}, then {policy.dead_letter}")
    return ", ".join(parts)


def _describe(policy: "TopicPolicy") -> list[tuple[str, str]]:
    attempts = f"{policy.max_attempts:,}" if policy.max_attempts else "unlimited"
    splits = f" at {', '.join(map(output.visible, policy.split_keys))}" if policy.split_keys else ""
    return [
        ("partitions", f"{policy.partitions}, by {policy.partition_by}{splits}"),
        ("order", policy.order + (", fair between keys" if policy.fair else "")),
        ("retention", _retention(policy.retention) + ("" if policy.keep_unsettled else DROPS)),
        ("attempts", attempts + (f", then {policy.dead_letter}" if policy.dead_letter else "")),
        ("retry", _retry_words(policy.retry)),
        ("dedup window", output.duration(policy.dedup_window_ms / 1000)),
        ("backlog", f"up to {policy.max_backlog:,}" if policy.max_backlog else "unlimited"),
        ("compression", policy.compression or "none"),
        ("ledger", "kept" if policy.ledger else "none"),
    ]


def _retention(retention: "Retention") -> str:
    parts = [word for word in ("compact", "settled") if getattr(retention, word)]
    if retention.time_ms is not None:
        parts.append(output.duration(retention.time_ms / 1000))
    if retention.size_bytes is not None:
        parts.append(output.size(retention.size_bytes))
    if retention.forever:
        parts.append("forever")
    return " and ".join(parts) or "until settled"


def _retry_words(retry: "Retry") -> str:
    if retry.base_ms == 0:
        return "at once"
    words = f"{retry.kind}, {output.duration(retry.base_ms / 1000)}"
    if retry.kind != "fixed":
        words += f" up to {output.duration(retry.cap_ms / 1000)}"
    return words + (", with jitter" if retry.jitter else "")
