"""`quiver export` and `quiver import`: a topic's messages into a file, and out of one."""

import hashlib
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from quiver.cli import directory, formats, output
from quiver.cli.files import check_replaceable, written
from quiver.cli.lines import STDIN
from quiver.cli.options import (
    DATA,
    Data,
    End,
    Json,
    Most,
    Offset,
    Partition,
    Start,
    Topic,
    Yes,
    epilog,
    until,
)
from quiver.cli.progress import Bar, bar
from quiver.errors import InvalidRequest, QuiverError

if TYPE_CHECKING:
    import pyarrow as pa

    from quiver.client.sync import Queue

EXPORT_EPILOG = epilog(
    [
        "quiver export orders orders.parquet",
        "quiver export orders orders.jsonl --start 2026-11-01T00:00:00Z",
        "quiver export orders - | gzip > orders.jsonl.gz",
    ],
    "It writes what `quiver read` shows, with every field of a message. The file is there when it is "
    "complete. A line of JSON is what `read --json` prints; a body that is not text is body_base64.",
)
IMPORT_EPILOG = epilog(
    [
        "quiver import orders orders.parquet --create",
        "quiver read orders --json | quiver import copy - --name copy-1",
    ],
    "A file is checked as a whole first: if a line is wrong, it is named and nothing is stored. Then "
    "each message is stored once: an import that was interrupted goes on where it was when the same "
    "file is imported again, and a file that is imported already is skipped. To import it twice on "
    "purpose, give another --name.",
    "Input from a pipe cannot be checked first: what comes before a wrong line is stored. With --name "
    "the same input, corrected, goes on from there; without, every run stores all of it.",
    "Kept are body, key, headers, priority, dedup_id and the times created_at, deliver_at and "
    "expires_at. Ids, offsets and the origin of dead letters are new.",
)

FormatOption = Annotated[
    str | None,
    typer.Option("--format", help="parquet or json. [default: by the file's name; - is json]"),
]


def export(
    topic: Topic,
    file: Annotated[
        str, typer.Argument(help="The file to write, .parquet or .jsonl; - is stdout.")
    ],
    format_: FormatOption = None,
    start: Start = None,
    offset: Offset = None,
    end: End = None,
    partition: Partition = None,
    most: Most = None,
    yes: Yes = False,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Write a topic's messages to a file; nothing is leased, acked or changed."""
    form = formats.format_of(file, format_)
    directory.require_queue(data)
    if file == STDIN and as_json:
        raise InvalidRequest("with --json stdout has the report, so the messages need a file")
    if file != STDIN:
        check_replaceable(Path(file), data, yes=yes)
    with directory.looked_into(data) as queue:
        directory.require_topic(queue, topic, data)
        tables = queue.read_arrow(
            topic, start=start, offset=offset, end=until(end), partition=partition
        )
        with _target(file) as target, _finished(formats.WRITERS[form](target, topic)) as writer:
            count = _write(writer, tables, most, quiet=as_json)
    if as_json:
        output.document({"topic": topic, "file": file, "format": form, "exported": count})
    elif file != STDIN:
        output.say(f"Exported {output.count(count, 'message')} of {topic} to {file}.")


def _write(writer: Any, tables: "Iterator[pa.Table]", most: int | None, *, quiet: bool) -> int:
    count = 0
    with bar("Exporting", None, "messages", wanted=not quiet) as shown:
        for table in tables:
            wanted = table if most is None else table.slice(0, most - count)
            writer.write(wanted)
            count += wanted.num_rows
            shown.messages(count)
            if count == most:
                break
    return count


@contextmanager
def _finished(writer: Any) -> Iterator[Any]:
    """A writer that is closed at the end; if something fails, there is no file to finish."""
    try:
        yield writer
        writer.close()
    except BaseException:
        writer.abandon()
        raise


@contextmanager
def _target(file: str) -> Iterator[BinaryIO]:
    if file != STDIN:
        with written(Path(file)) as target:
            yield target
        return
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


# -- import ----------------------------------------------------------------------------------------


@dataclass
class TransferReport:
    """What became of a file."""

    topic: str
    file: str
    imported: int = 0
    duplicates: int = 0
    skipped: int = 0  # stored by an earlier import
    seconds: float = 0.0


def import_(
    topic: Topic,
    file: Annotated[str, typer.Argument(help="The file to read, .parquet or .jsonl; - is stdin.")],
    format_: FormatOption = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Go on where the last import of this name ended. [default: by the file's content]",
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the topic if it is missing.")
    ] = False,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Send the messages of a file, each of them once."""
    form = formats.format_of(file, format_)
    _check_names(topic, name)
    if not create:
        directory.require_queue(data)
    total = _checked(file, form, quiet=as_json)
    report = TransferReport(topic, file)
    with directory.opened(data, create=create) as queue:
        if create and topic not in queue.topics():
            queue.create_topic(topic)
        directory.require_topic(queue, topic, data)
        with bar(f"Importing into {topic}", total, "messages", wanted=not as_json) as shown:
            _import(queue, report, form, name or _name(file), shown)
    if as_json:
        output.document({**asdict(report), "seconds": round(report.seconds, 6)})
        return
    text = f"Imported {output.count(report.imported, 'message')} into {topic} in "
    text += f"{output.duration(report.seconds)}."
    if report.skipped:
        text += f" Skipped {report.skipped:,} that an earlier import has stored."
    if report.duplicates:
        text += f" Left out {output.count(report.duplicates, 'duplicate')}."
    output.say(text)


def _check_names(topic: str, name: str | None) -> None:
    from quiver.client import arguments

    arguments.name(topic, "topic")
    if name is not None:
        arguments.name(name, "--name")


def _checked(file: str, form: formats.Format, *, quiet: bool) -> int | None:
    """How many messages a file has, if all of them can be stored; a pipe can be read only once."""
    if file == STDIN:
        return None
    count = 0
    with bar(f"Checking {file}", None, "messages", wanted=not quiet) as shown:
        for batch in formats.batches(file, form, now_ms=0):
            count += batch.num_rows
            shown.messages(count)
    return count


def _name(file: str) -> str:
    """What an import is known by when it is tried again."""
    if file == STDIN:
        return f"import-{secrets.token_hex(16)}"
    with Path(file).open("rb") as content:
        return f"import-{hashlib.file_digest(content, 'sha256').hexdigest()[:32]}"


def _import(
    queue: "Queue", report: TransferReport, form: formats.Format, name: str, shown: Bar
) -> None:
    started = time.monotonic()

    def batches() -> "Iterator[pa.RecordBatch]":
        for batch in formats.batches(report.file, form, time.time_ns() // 1_000_000):
            yield batch
            shown.messages(shown.done + batch.num_rows)  # the next is wanted, so this one is stored

    try:
        sent = queue.send_batches(report.topic, batches(), name=name)
    except QuiverError as error:
        stored = _at_least(shown.done)
        raise type(error)(f"{str(error).rstrip('.')}. Of this input {stored} stored") from error
    except KeyboardInterrupt:
        output.note(f"Interrupted: of this input {_at_least(shown.done)} stored.")
        raise
    report.imported, report.duplicates, report.skipped = sent.count, sent.duplicates, sent.skipped
    report.seconds = time.monotonic() - started


def _at_least(count: int) -> str:
    """What is known to be stored; a batch that was on its way may be as well."""
    return f"at least {output.count(count, 'message is', 'messages are')}"
