"""`quiver topics`: list, create, show, purge, delete."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quiver.cli import directory, output
from quiver.cli.groups import group_table
from quiver.cli.options import DATA, Data, Json, Topic, Yes, epilog
from quiver.cli.verbs import Verbs
from quiver.errors import InvalidRequest

if TYPE_CHECKING:
    from quiver.client.sync import Queue
    from quiver.model.topic import Retention, Retry, TopicPolicy

app = typer.Typer(
    cls=Verbs,
    help="List, create, show, purge and delete topics. Alone it lists them.",
    epilog=epilog(["quiver topics", "quiver topics create orders", "quiver topics show orders"]),
)


@app.command("list", epilog=epilog(["quiver topics", "quiver topics list --json | jq '.[].topic'"]))
def list_topics(as_json: Json = False, data: Data = DATA) -> None:
    """List all topics and how they are doing."""
    with directory.opened(data) as queue:
        found = [(queue.stats(name), queue.policy(name)) for name in queue.topics()]
    if as_json:
        output.document([{**asdict(stats), "policy": asdict(policy)} for stats, policy in found])
        return
    if not found:
        output.note(f"{data} has no topics yet. Make one: quiver topics create NAME")
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
        ],
        "The same call again changes nothing; another policy for a topic that exists is refused.",
    )
)
def create(
    topic: Topic,
    partitions: Annotated[int, typer.Option(help="How many partitions.")] = 1,
    order: Annotated[
        str, typer.Option(help="What is kept in order: none, key or partition.")
    ] = "none",
    fair: Annotated[
        bool, typer.Option("--fair", help="Take turns between keys, so that none starves.")
    ] = False,
    partition_by: Annotated[
        str, typer.Option(help="Who goes where: hash (of the key) or round-robin.")
    ] = "hash",
    split_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY", help="Partition by ranges of keys; one for each partition but the first."
        ),
    ] = None,
    retention: Annotated[
        str, typer.Option(help="What is kept when settled: settled (nothing), 7d, 10GB or forever.")
    ] = "settled",
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
        typer.Option(help="The wait before a retry: fixed, linear, exponential, or a time."),
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
    compression: Annotated[str | None, typer.Option(help="Of stored batches: lz4 or zstd.")] = None,
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
        "max_attempts": max_attempts, "dead_letter": dead_letter,
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


@app.command(epilog=epilog(["quiver topics show orders"]))
def show(topic: Topic, as_json: Json = False, data: Data = DATA) -> None:
    """Show a topic's policy, numbers and groups."""
    with directory.opened(data) as queue:
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
    from quiver.client.arguments import make_retry

    if base is None and cap is None and jitter is None:
        return kind
    if kind not in (None, "fixed", "linear", "exponential"):
        raise InvalidRequest(
            "with --retry-base, -cap or -jitter, --retry is fixed, linear or exponential"
        )
    return make_retry(
        kind or "exponential",  # type: ignore[arg-type]  # checked above
        base or "1s",
        cap or "5m",
        jitter=kind != "fixed" if jitter is None else jitter,
    )


# -- a policy in words -----------------------------------------------------------------------------


def _summary(policy: "TopicPolicy") -> str:
    parts = [output.count(policy.partitions, "partition"), f"order {policy.order}"]
    parts.append(f"retention {_retention(policy.retention)}")
    if policy.max_attempts:
        parts.append(f"{output.count(policy.max_attempts, 'attempt')}, then {policy.dead_letter}")
    return ", ".join(parts)


def _describe(policy: "TopicPolicy") -> list[tuple[str, str]]:
    attempts = f"{policy.max_attempts:,}" if policy.max_attempts else "unlimited"
    splits = f" at {', '.join(map(output.visible, policy.split_keys))}" if policy.split_keys else ""
    return [
        ("partitions", f"{policy.partitions}, by {policy.partition_by}{splits}"),
        ("order", policy.order + (", fair between keys" if policy.fair else "")),
        ("retention", _retention(policy.retention)),
        ("attempts", attempts + (f", then {policy.dead_letter}" if policy.dead_letter else "")),
        ("retry", _retry_words(policy.retry)),
        ("dedup window", output.duration(policy.dedup_window_ms / 1000)),
        ("backlog", f"up to {policy.max_backlog:,}" if policy.max_backlog else "unlimited"),
        ("compression", policy.compression or "none"),
        ("ledger", "kept" if policy.ledger else "none"),
    ]


def _retention(retention: "Retention") -> str:
    match retention.kind:
        case "time":
            return output.duration(retention.amount / 1000)
        case "size":
            return output.size(retention.amount)
        case "settled":
            return "until settled"
        case kind:
            return kind


def _retry_words(retry: "Retry") -> str:
    if retry.base_ms == 0:
        return "at once"
    words = f"{retry.kind}, {output.duration(retry.base_ms / 1000)}"
    if retry.kind != "fixed":
        words += f" up to {output.duration(retry.cap_ms / 1000)}"
    return words + (", with jitter" if retry.jitter else "")
