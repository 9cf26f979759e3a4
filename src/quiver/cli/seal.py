"""`quiver seal`: put the messages that are kept into Parquet files now, and say into which."""

from dataclasses import asdict, dataclass
from pathlib import Path

from quiver.cli import directory, output
from quiver.cli.options import DATA, Data, Json, Where, epilog

EPILOG = epilog(
    ["quiver seal", "quiver seal --json | jq -r '.files[].file'"],
    "It happens by itself as the log grows. Call it before another program reads the files.",
)


@dataclass(frozen=True, slots=True)
class SealReport:
    """One file that was made, in which there may be messages of older ones that are now gone."""

    file: str
    messages: int
    bytes: int


def seal(where: Where = None, as_json: Json = False, data: Data = DATA) -> None:
    """Write all messages that are kept into Parquet files, for other programs to read."""
    data = where or data
    if directory.address(data) is not None:
        with directory.opened(data) as queue:
            queue.seal()
        if as_json:
            output.document({"sealed": True})
        else:
            output.say("The node has written all messages that are kept.")
        return
    with directory.opened(data) as queue:
        before = _names(data)
        queue.seal()
        written = [_look(data / name) for name in _names(data) if name not in before]
    messages = sum(one.messages for one in written)
    nbytes = sum(one.bytes for one in written)
    if as_json:
        files = [asdict(one) for one in written]
        output.document({"files": files, "messages": messages, "bytes": nbytes})
        return
    if not written:
        output.say("Nothing to write: every message that is kept is in a segment already.")
        return
    table = output.table("file", "messages", "bytes", numbers=("messages", "bytes"))
    for one in written:
        table.add_row(one.file, f"{one.messages:,}", f"{one.bytes:,}")
    output.show(table)
    output.say(
        f"Wrote {output.count(messages, 'message')} into {output.count(len(written), 'file')}, "
        f"{output.size(nbytes)}."
    )


def _names(path: Path) -> list[str]:
    from quiver.storage import segment
    from quiver.storage.files import DiskFiles

    return segment.names(DiskFiles(path, read_only=True))


def _look(path: Path) -> SealReport:
    from pyarrow.parquet import read_metadata

    return SealReport(path.name, read_metadata(path).num_rows, path.stat().st_size)
