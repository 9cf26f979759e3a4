"""Messages in files, for export and import: Parquet, or lines of JSON as `read --json` prints them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

from quiver import limits
from quiver.cli import bodies, lines
from quiver.errors import InvalidRequest, MessageTooLarge, QuiverError

if TYPE_CHECKING:
    import pyarrow as pa

    from quiver.batches.rows import Row

Format = Literal["parquet", "json"]

SUFFIXES: Final[dict[str, Format]] = {
    ".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json",
}  # fmt: skip
BATCH_MESSAGES: Final = limits.READ_MESSAGES_MAX
DERIVED: Final = ("attempt",)  # of what is read, not of the message
# A message gets new ones. Some are columns of segments only, which can be imported as they are.
PLACES: Final = ("id", "partition", "offset", "attempt", "origin", "entry", "row", "stored_at")


def format_of(file: str, given: str | None) -> Format:
    """What is asked for, or what the name ends with; a pipe has lines."""
    if given is not None:
        if given not in ("parquet", "json"):
            raise InvalidRequest(f"--format is parquet or json, not {given[:40]!r}")
        return "parquet" if given == "parquet" else "json"
    if file == lines.STDIN:
        return "json"
    found = SUFFIXES.get(Path(file).suffix.lower())
    if found is None:
        raise InvalidRequest(
            f"the name of {file} does not say its format: end it with .parquet or .jsonl, or say "
            "--format"
        )
    return found


# -- writing ---------------------------------------------------------------------------------------


class JsonFile:
    """A line for each message."""

    def __init__(self, file: BinaryIO, topic: str) -> None:
        self._file = file
        self._topic = topic

    def write(self, table: "pa.Table") -> None:
        """Add messages."""
        self._file.writelines(map(self._line, _rows(table)))

    def close(self) -> None:
        """There is nothing to add at the end."""

    def abandon(self) -> None:
        """Nor is there to leave out."""

    def _line(self, row: dict[str, Any]) -> bytes:
        fields: dict[str, Any] = {"id": row["id"], "topic": self._topic}
        fields |= {name: row[name] for name in ("partition", "offset", "key")}
        fields |= {"headers": row["headers"] or {}, "priority": row["priority"]}
        for name in ("created_at", "deliver_at", "expires_at"):
            if row[name] is not None:
                fields[name] = _moment(row[name])
        if row["dedup_id"] is not None:
            fields["dedup_id"] = row["dedup_id"]
        if row["origin"] is not None:
            fields["origin"] = {**row["origin"], "time": _moment(row["origin"]["time"])}
        fields |= bodies.content("body", row["body"])
        return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


class ParquetFile:
    """Columns as they are stored. Pages are collected, so that row groups have a good size."""

    def __init__(self, file: BinaryIO, topic: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from quiver.batches.output import ID, OUTPUT_SCHEMA

        kept = [field for field in OUTPUT_SCHEMA if field.name not in DERIVED]
        self._schema = pa.schema([ID, *kept], metadata={"quiver.topic": topic})
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._tables: list[pa.Table] = []
        self._bytes = 0

    def write(self, table: "pa.Table") -> None:
        """Add messages."""
        self._tables.append(table.select(self._schema.names))
        self._bytes += table.nbytes
        if self._bytes >= limits.PAGE_BYTES:
            self._flush()

    def close(self) -> None:
        """The last messages, and the foot of the file."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Leave the file without its foot, which would come when the writer is collected."""
        self._writer.is_open = False

    def _flush(self) -> None:
        import pyarrow as pa

        if self._tables:
            table = pa.concat_tables(self._tables).replace_schema_metadata(self._schema.metadata)
            self._writer.write_table(table)
        self._tables, self._bytes = [], 0


WRITERS: Final = {"json": JsonFile, "parquet": ParquetFile}


def _rows(table: "pa.Table") -> list[dict[str, Any]]:
    """Rows of plain values; times are numbers, which is much quicker."""
    import pyarrow as pa

    from quiver.batches.output import ORIGIN
    from quiver.batches.schema import TIME

    numbers = pa.struct([pa.field("time", pa.int64()) if field.name == "time" else field
                         for field in ORIGIN])  # fmt: skip
    kinds = {TIME: pa.int64(), ORIGIN: numbers}
    schema = pa.schema([pa.field(f.name, kinds.get(f.type, f.type)) for f in table.schema])
    rows: list[dict[str, Any]] = table.cast(schema).to_pylist(maps_as_pydicts="lossy")
    return rows


def _moment(time_ms: int) -> str:
    return bodies.moment(time_ms).isoformat(timespec="milliseconds")


# -- reading ---------------------------------------------------------------------------------------


def batches(file: str, form: Format, now_ms: int) -> "Iterator[pa.RecordBatch]":
    """The messages of a file in batches that a send takes; what is wrong is refused by its place."""
    return _of_parquet(file) if form == "parquet" else _of_json(file, now_ms)


def _of_json(file: str, now_ms: int) -> "Iterator[pa.RecordBatch]":
    rows: list[Row] = []
    times: list[dict[str, int]] = []
    nbytes = 0
    try:
        for item in lines.of_files([file], "json", keep=lines.TIMES):
            row, moments = _row(item)
            if rows and (len(rows) >= BATCH_MESSAGES or nbytes + row.nbytes > limits.PAGE_BYTES):
                yield _packed(rows, times, now_ms)
                rows, times, nbytes = [], [], 0
            rows.append(row)
            times.append(moments)
            nbytes += row.nbytes
    except QuiverError:  # what came before it counts
        if rows:
            yield _packed(rows, times, now_ms)
        raise
    if rows:
        yield _packed(rows, times, now_ms)


def _row(item: lines.Item) -> "tuple[Row, dict[str, int]]":
    """A line's message, and the times that it says."""
    from quiver.batches.rows import make_row
    from quiver.model.units import timestamp_ms

    fields = dict(item.fields)
    said = [name for name in lines.TIMES if name in fields]
    with lines.located(item):
        moments = {name: timestamp_ms(fields.pop(name), name) for name in said}
        return make_row(**fields), moments


def _packed(rows: "list[Row]", times: list[dict[str, int]], now_ms: int) -> "pa.RecordBatch":
    """Rows as a batch; a time that a line says itself comes before its delay or ttl."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from quiver.batches import schema
    from quiver.batches.rows import pack

    packed = pack(rows, now_ms)
    columns = dict(zip(packed.schema.names, packed.columns, strict=True))
    for name in lines.TIMES:
        said = pa.array([moments.get(name) for moments in times], schema.TIME)
        if said.null_count < len(said):
            columns[name] = pc.coalesce(said, columns[name]) if name in columns else said
    return schema.assemble(columns)


def _of_parquet(file: str) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa
    import pyarrow.parquet as pq

    from quiver.batches.arrow_input import accept

    if file == lines.STDIN:
        raise InvalidRequest("Parquet cannot be read from a pipe: save it as a file first")
    try:
        with pq.ParquetFile(file) as found:
            names = [name for name in found.schema_arrow.names if name not in PLACES]
            done = 0
            for batch in found.iter_batches(_rows_of(found.metadata), columns=names):
                try:
                    yield accept(batch)
                except (InvalidRequest, MessageTooLarge) as error:
                    place = f"rows {done:,} to {done + batch.num_rows:,} of {file}"
                    raise type(error)(f"{place}: {error}") from error
                done += batch.num_rows
    except pa.ArrowException as error:
        raise InvalidRequest(f"{file} is not a Parquet file that can be read: {error}") from error
    except OSError as error:
        raise InvalidRequest(f"cannot read {file}: {error.strerror or error}") from error


def _rows_of(metadata: Any) -> int:
    """How many rows to read at once, by how large they are on the whole."""
    nbytes = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    fit = limits.PAGE_BYTES * metadata.num_rows // max(nbytes, 1)
    return int(max(min(fit, BATCH_MESSAGES), 1))
