"""`quiver send`: bodies from the command line, from files or from stdin."""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from quiver.cli import directory, lines, output
from quiver.cli.options import DATA, Data, Json, Topic, epilog
from quiver.cli.progress import Bar, bar
from quiver.cli.signals import Stop, stoppable
from quiver.errors import InvalidRequest, ProducerFailed, QuiverError

if TYPE_CHECKING:
    from quiver.client.sync import Producer, Queue

LINGER_SECONDS: Final = 0.05  # nobody notices, and batches are larger

EPILOG = epilog(
    [
        "quiver send orders 'first order' 'second order' --create",
        "quiver send orders --key user-42 --header v=1 --delay 30s hello",
        "quiver send logs --file app.log --name import-1",
        "quiver send photos --whole --file a.jpg --file b.jpg",
        "quiver read orders --json | quiver send copy --json-lines -d other --create",
    ],
    "Without a body or --file it sends the lines of stdin. With --name the same input can be sent "
    "again after a failure: what is stored already is skipped, so nothing is lost or doubled.",
    'A line for --json-lines is {"body": …, "key": …, "headers": {…}, "priority": …, "delay": …, '
    '"ttl": …, "dedup_id": …}, where only the body is needed; body_base64 takes bytes.',
)


@dataclass
class Summary:
    """What was sent."""

    topic: str
    sent: int = 0
    duplicates: int = 0
    skipped: int = 0  # stored by an earlier run under the same name
    bytes: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.sent / self.seconds if self.seconds else 0.0


def send(
    topic: Topic,
    bodies: Annotated[
        list[str] | None, typer.Argument(metavar="BODY", help="Each one is a message.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Send its lines; - is stdin. Repeatable."
        ),
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Each file is one message.")] = False,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Each line is a message as JSON.")
    ] = False,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="The key of every message.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header. Repeatable."),
    ] = None,
    priority: Annotated[int, typer.Option(help="0 to 9; higher is delivered first.")] = 0,
    delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="Deliver not before: 30, 5m, 2h.")
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="Drop if not delivered by then.")
    ] = None,
    dedup_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="A message with an id sent before is stored once."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Go on where the last send of this name ended."),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the topic if it is missing.")
    ] = False,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Send messages: arguments, lines of files or of stdin."""
    names = _sources(bodies, file, whole=whole, json_lines=json_lines)
    form: lines.Format = "whole" if whole else "json" if json_lines else "lines"
    shared = {"key": key, "headers": _headers(header), "priority": priority or None, "delay": delay,
              "ttl": ttl, "dedup_id": dedup_id}  # fmt: skip
    shared = {field: value for field, value in shared.items() if value is not None}
    if dedup_id is not None and (len(bodies or ()) + len(names) != 1 or (names and not whole)):
        raise InvalidRequest("a dedup id names one message; to give each its own, use --json-lines")
    items = lines.of_arguments(bodies) if bodies else lines.of_files(names, form)
    _check(topic, shared)
    with directory.opened(data, create=create) as queue:
        if create and topic not in queue.topics():
            queue.create_topic(topic)
        directory.require_topic(queue, topic, data)
        if bodies and len(bodies) == 1 and name is None:
            _send_one(queue, topic, next(items), shared, as_json=as_json)
            return
        total = None if bodies else lines.total_bytes(names)
        with stoppable() as stop:
            sending = Sending(queue, topic, name, stop)
            sending.run(items, shared, total, quiet=as_json)
    _report(sending.summary, stop, as_json=as_json)


def _sources(
    bodies: list[str] | None, file: list[str] | None, *, whole: bool, json_lines: bool
) -> list[str]:
    if bodies and (file or whole or json_lines):
        raise InvalidRequest("give bodies, or --file (with --whole or --json-lines), not both")
    if whole and json_lines:
        raise InvalidRequest("--whole and --json-lines exclude each other")
    if bodies or file:
        return file or []
    if sys.stdin.isatty():
        raise InvalidRequest("nothing to send: give a body, a --file, or pipe lines into it")
    return [lines.STDIN]


def _headers(given: list[str] | None) -> dict[str, str] | None:
    headers = {}
    for header in given or ():
        name, equals, value = header.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"a header is NAME=VALUE, not {output.visible(header, 40)!r}")
        headers[name] = value
    return headers or None


def _check(topic: str, shared: dict[str, Any]) -> None:
    """Find fault with the options before anything is read or made."""
    from quiver.batches.rows import make_row
    from quiver.client.arguments import name

    name(topic, "topic")
    make_row(b"", **shared)


def _send_one(
    queue: "Queue", topic: str, item: lines.Item, shared: dict[str, Any], *, as_json: bool
) -> None:
    started = time.monotonic()
    sent = queue.send(topic, **{**shared, **item.fields})
    summary = Summary(topic, int(not sent.duplicate), int(sent.duplicate), 0, item.nbytes,
                      time.monotonic() - started)  # fmt: skip
    if as_json:
        output.document({**_fields(summary), **asdict(sent)})
    elif sent.duplicate:
        output.say(f"Not sent: {topic} had a message with this dedup id already, {sent.id}.")
    else:
        output.say(f"Sent {sent.id} to {topic}, partition {sent.partition}, offset {sent.offset}.")


class Sending:
    """A stream of messages on its way."""

    def __init__(self, queue: "Queue", topic: str, name: str | None, stop: Stop) -> None:
        self.summary = Summary(topic)
        self._queue = queue
        self._topic = topic
        self._name = name
        self._stop = stop

    def run(
        self, items: Iterator[lines.Item], shared: dict[str, Any], total: int | None, *, quiet: bool
    ) -> None:
        """Send all, or as many as there are before somebody stops us; all of them are stored."""
        started = time.monotonic()
        duplicates = self._queue.stats(self._topic).duplicates
        producer = self._queue.producer(self._topic, name=self._name, linger=LINGER_SECONDS)
        failures: list[QuiverError] = []
        try:
            with bar(f"Sending to {self._topic}", total, "bytes", wanted=not quiet) as shown:
                self._feed(producer, items, shared, shown)
        except QuiverError as error:
            failures.append(error)
        failures += _finish(producer)
        self.summary.duplicates = self._queue.stats(self._topic).duplicates - duplicates
        self.summary.sent = producer.confirmed - self.summary.duplicates
        self.summary.seconds = time.monotonic() - started
        if failures:
            raise self._explained(failures) from failures[0].__cause__

    def _feed(
        self, producer: "Producer", items: Iterator[lines.Item], shared: dict[str, Any], shown: Bar
    ) -> None:
        done, skip = 0, producer.sequence
        if skip:
            output.note(
                f"{self._name} has sent {output.count(skip, 'message')} before: skipping those."
            )
        while (item := self._next(items)) is not None:
            done += item.nbytes
            if self.summary.skipped < skip:
                self.summary.skipped += 1
                continue
            with lines.located(item):
                producer.send(**_merged(shared, item.fields))
            self.summary.bytes += item.nbytes
            shown.update(done, producer.confirmed)

    def _next(self, items: Iterator[lines.Item]) -> lines.Item | None:
        """The next message; None at the end, or when somebody stops us while we wait for input."""
        if self._stop.signal:
            return None
        self._stop.now = True
        try:
            return next(items, None)
        except KeyboardInterrupt:
            return None
        finally:
            self._stop.now = False

    def _explained(self, failures: list[QuiverError]) -> QuiverError:
        """The first failure, with what became of the other messages."""
        error, stored = failures[0], self.summary.sent + self.summary.duplicates
        lost = sum(len(one.unsent) for one in failures if isinstance(one, ProducerFailed))
        text = str(error.__cause__ if isinstance(error, ProducerFailed) else error).rstrip(".")
        text += f". Of this input {output.count(stored, 'message is', 'messages are')} stored"
        if lost:
            text += f", {output.count(lost, 'message was', 'messages were')} refused"
        if self._name:
            text += "; the same command goes on from there"
        return ProducerFailed(text) if isinstance(error, ProducerFailed) else type(error)(text)


def _finish(producer: "Producer") -> list[QuiverError]:
    """Wait until everything is stored or refused; what was refused."""
    refused: list[QuiverError] = []
    while True:
        try:
            producer.flush()
            break
        except ProducerFailed as error:
            refused.append(error)
    producer.close()
    return refused


def _merged(shared: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """A message's own fields before those that all share; headers of both."""
    if not shared:
        return fields
    merged = {**shared, **fields}
    if isinstance(fields.get("headers"), dict) and "headers" in shared:
        merged["headers"] = {**shared["headers"], **fields["headers"]}
    return merged


def _fields(summary: Summary) -> dict[str, Any]:
    return {**asdict(summary), "seconds": round(summary.seconds, 6), "rate": round(summary.rate, 1)}


def _report(summary: Summary, stop: Stop, *, as_json: bool) -> None:
    if as_json:
        output.document(_fields(summary))
    else:
        text = f"Sent {output.count(summary.sent, 'message')} to {summary.topic}, "
        text += f"{output.size(summary.bytes)} in {output.duration(summary.seconds)}"
        text += f", {summary.rate:,.0f} a second." if summary.sent > 1 else "."
        if summary.skipped:
            text += f" Skipped {summary.skipped:,} that an earlier run has stored."
        if summary.duplicates:
            text += f" Left out {output.count(summary.duplicates, 'duplicate')}."
        output.say(text)
    if stop.signal:
        output.note("Stopped before the end of the input; what was read is stored.")
        raise typer.Exit(stop.exit_code)
