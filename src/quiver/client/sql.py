"""SQL over messages, by DuckDB: a condition on each message, or a question about whole topics.

What people write here only reads. It is one expression, or one SELECT; DuckDB gets messages as Arrow
tables, and neither files nor extensions nor settings are within its reach. What it complains about
becomes an InvalidRequest in its own words. DuckDB is optional and loaded when somebody asks.

Flows ask an object of the protocol `Sql`. `Evaluator` is the one that does it, in this process; a node
has one that sends it all to an `Evaluator` in another process, which it can end.
"""

import json
import os
from collections.abc import Callable, Container, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from quiver import limits
from quiver.batches.output import ID, ORIGIN, OUTPUT_SCHEMA
from quiver.client import shape
from quiver.errors import ExtraMissing, InvalidRequest, LimitExceeded

ORIGIN_NAMES: Final = {  # as columns of their own, since `reason like 'Timeout%'` is what one writes
    "topic": "origin_topic",
    "partition": "origin_partition",
    "offset": "origin_offset",
    "group": "origin_group",
    "attempts": "attempts",
    "reason": "reason",
    "time": "dead_at",
}
FLAT: Final = {
    name: position for position, name in enumerate(ORIGIN_NAMES[field.name] for field in ORIGIN)
}
PLAIN: Final = ("id", "partition", "offset", "key", "body")
REST: Final = ("headers", "priority", "created_at", "deliver_at", "expires_at", "dedup_id")
PENDING: Final = "pending"  # whether a group has it before it; without a group, all are
# Computed where a query uses them, and only there.
TEXT: Final = "try(decode(body))"
SELECTED: Final = ", ".join(
    [
        *(f'"{name}"' for name in PLAIN),
        f"{TEXT} as text",
        f"try_cast({TEXT} as json) as json",
        *REST,
        PENDING,
        *FLAT,
    ]
)
COLUMNS: Final = ", ".join(
    '"offset"' if name == "offset" else name
    for name in (*PLAIN, "text", "json", *REST, PENDING, *FLAT)
)
# No topic has a space in its name, so these are never in the way of one.
GIVEN: Final = "quiver given"
STORED: Final = '"quiver stored"'
INTERRUPT_SECONDS: Final = 0.1  # between two requests to end a query
CLOSE_TRIES: Final = 100  # in case a thread is busy with the database
CLOSE_SECONDS: Final = 0.01  # between two of them
NO_CONDITION: Final = "where is not a condition on one message"
READING: Final = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
CONDITIONS: Final = {
    "BOOLEAN",
    "NULL",
}  # DuckDB would take the number 5 and the word 'yes' for true
JSON_HINT: Final = "json.name is JSON; as text, to compare it with text, it is json->>'$.name'"
NO_SELECT: Final = "the query is not one SELECT"

NO_DUCKDB: Final = (
    'SQL needs DuckDB, which is not installed: pip install ".[sql]" in a clone of Quiver'
)

Name: TypeAlias = tuple[str, ...]  # of a table, in the parts in which a query has written it
Place: TypeAlias = tuple[int, int]  # partition and offset
T = TypeVar("T")
Made = TypeVar("Made", bound="Predicate | Question")


class Sql(Protocol):
    """Evaluates conditions on messages, and one question at a time. Its calls take a while."""

    def check(self, where: str) -> None:
        """Refuse what is not a condition on one message."""

    def places(self, where: str, messages: pa.Table) -> list[Place]:
        """Where the messages are that a condition is true for, in order; columns as `columns_of`."""

    def question(self, query: str) -> tuple[list[Name], list[str]]:
        """Begin with one SELECT: the tables it names, and the names it gives to parts of itself."""

    def table(self, name: Name, selected: str, rows: pa.Table) -> None:
        """What the question finds under a name: columns of `rows`, which are its first rows."""

    def rows(self, rows: pa.Table) -> None:
        """More rows of the table that was named last."""

    def answer(self, bytes_max: int) -> pa.Table:
        """The answer to the question."""

    def close(self) -> None:
        """End what runs, and let go of everything."""


def columns_of(table: pa.Table, pending: Container[Place] | None = None) -> pa.Table:
    """A table of messages with the columns that SQL sees, except those that SQL computes.

    `pending` has partition and offset of those that are; None means all.
    """
    arrays = {name: table[name] for name in (*PLAIN, *REST)}
    arrays[PENDING] = _pending(table, pending)
    for name, position in FLAT.items():
        arrays[name] = pc.struct_field(table["origin"], position)
    return pa.table(arrays).combine_chunks()  # DuckDB takes chunk by chunk, and there may be many


def _pending(table: pa.Table, pending: Container[Place] | None) -> pa.Array:
    if pending is None:
        return pa.repeat(pa.scalar(True), table.num_rows)
    places = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    return pa.array([at in pending for at in places], pa.bool_())


def empty() -> pa.Table:
    """No messages, with their columns."""
    return columns_of(OUTPUT_SCHEMA.append(ID).empty_table())


class Evaluator:
    """`Sql` in this process."""

    def __init__(self) -> None:
        self._gate = Lock()
        self._closed = False
        self._where = ""
        self._predicate: Predicate | None = None  # of that condition
        self._question: Question | None = None

    def check(self, where: str) -> None:
        self._predicate_of(where)

    def places(self, where: str, messages: pa.Table) -> list[Place]:
        return self._predicate_of(where).places(messages)

    def _predicate_of(self, where: str) -> "Predicate":
        if self._predicate is None or self._where != where:
            self.clear()
            self._predicate, self._where = self._kept(Predicate(where)), where
        return self._predicate

    def question(self, query: str) -> tuple[list[Name], list[str]]:
        self.clear()
        asked = self._question = self._kept(Question(query))
        return asked.names, sorted(asked.given)

    def table(self, name: Name, selected: str, rows: pa.Table) -> None:
        self._asked.table(name, selected, rows)

    def rows(self, rows: pa.Table) -> None:
        self._asked.rows(rows)

    def answer(self, bytes_max: int) -> pa.Table:
        return self._asked.answer(bytes_max)

    @property
    def _asked(self) -> "Question":
        assert self._question is not None, "a question comes before its tables and its answer"
        return self._question

    def _kept(self, made: Made) -> Made:
        """What was made, unless everything was closed while it was made."""
        with self._gate:
            if not self._closed:
                return made
        made.close()
        raise InvalidRequest("this query was ended")

    def clear(self) -> None:
        """Let go of the condition or question, for the next one."""
        for held in (self._predicate, self._question):
            if held is not None:
                held.close()
        self._predicate = self._question = None

    def close(self) -> None:
        with self._gate:
            self._closed = True
        self.clear()


class Predicate:
    """A condition on each message, checked before the first one is looked at."""

    def __init__(self, where: str) -> None:
        with ExitStack() as stack:
            self._session = SqlSession()
            stack.callback(self._session.close)
            with refusing(NO_CONDITION, f"columns: {COLUMNS}"):
                self._session.measure(where, "where")
                self._expression = self._parsed(where)
                self._session.chosen(empty(), self._expression)  # names and types
                kinds = self._session.kinds(empty(), self._expression)
            if not kinds <= CONDITIONS:
                raise InvalidRequest(
                    f"{NO_CONDITION}: it is {' and '.join(sorted(kinds - CONDITIONS))}, neither true nor "
                    "false; compare it with something, and in a shell put quotes around the whole of it"
                )
            self.close = stack.pop_all().close

    def _parsed(self, where: str) -> Any:
        expression = self._session.expression(where)
        tree = self._session.parsed(f"select 1 where ({where}\n)", NO_CONDITION)
        if any(node.get("class") == "SUBQUERY" for node in _nodes(tree)):
            raise InvalidRequest(
                f"{NO_CONDITION}: it has a query inside, and messages are looked at one by one; ask "
                "with sql() first, and name what it finds"
            )
        return expression

    def places(self, messages: pa.Table) -> list[Place]:
        """Partition and offset of each message that the condition is true for, in order."""
        with refusing("where fails for a message", "try_cast gives null instead"):
            found = self._session.chosen(messages, self._expression)
        partitions, offsets = found.columns
        return list(zip(partitions.to_pylist(), offsets.to_pylist(), strict=True))


def apart(method: Callable[..., T]) -> Callable[..., T]:
    """Run a method of `SqlSession` in a thread of its own.

    A call of DuckDB is no place for a KeyboardInterrupt: a query hears of it when it is done, and an
    import that it comes across may end the process. So the caller only waits, which Ctrl-C may end.
    """

    @wraps(method)
    def waiting(self: "SqlSession", *args: Any) -> T:
        with ThreadPoolExecutor(1, thread_name_prefix="quiver-sql") as pool:
            with self._gate:
                if self._closed:
                    raise InvalidRequest("this query was ended")
                future = pool.submit(method, self, *args)
                self._running = future
            try:
                return future.result()
            except KeyboardInterrupt:
                while not future.done():
                    self.interrupt()
                    wait([future], INTERRUPT_SECONDS)
                raise

    return waiting


class SqlSession:
    """A DuckDB of our own in memory, that reads what it is given and nothing else."""

    def __init__(self, spill: str = "") -> None:
        self._db: Any = None
        self._loaded = 0
        self._gate = Lock()  # around what callers and `close` change:
        self._running: Future[Any] | None = None
        self._closed = False
        self._open(spill)

    @apart
    def _open(self, spill: str) -> None:
        self.duckdb = _duckdb()
        self._db = self.duckdb.connect(
            ":memory:",
            config={
                "memory_limit": f"{limits.SQL_MEMORY_BYTES_MAX}B",
                "threads": max(min(limits.SQL_THREADS_MAX, (os.cpu_count() or 1) // 2), 1),
                "temp_directory": spill,
                "max_temp_directory_size": f"{limits.SQL_SPILL_BYTES_MAX}B",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "python_enable_replacements": "false",
            },
        )
        self._db.execute(
            "set TimeZone = 'UTC'; set enable_external_access = false; "
            f"set lock_configuration = true; create schema {STORED}"
        )

    @apart
    def measure(self, text: str, what: str) -> None:
        """Refuse a text whose shape would take DuckDB very long, before it does more than split it."""
        shape.measure(_tokens(text, self.duckdb.tokenize(text)), what)

    @apart
    def expression(self, text: str) -> Any:
        """The one expression that a text is, whole, with nothing after it."""
        return self.duckdb.SQLExpression(text)

    @apart
    def parsed(self, query: str, what: str) -> Any:
        """The tree of one SELECT; anything else is refused as `what`."""
        ((text,),) = self._db.execute("select json_serialize_sql(?)", [query]).fetchall()
        try:
            tree = json.loads(text)
        except RecursionError:
            raise InvalidRequest(
                f"{what} that can be understood: it is nested too deeply"
            ) from None
        if tree["error"]:
            said = [what]
            if tree["error_type"] != "not implemented":  # which is all that is no SELECT
                said += [tree["error_message"], _word(query)]
            raise InvalidRequest(": ".join(filter(None, said)))
        if len(tree["statements"]) != 1:
            raise InvalidRequest(f"{what}, but {len(tree['statements'])} statements")
        for node in _nodes(tree):
            kind = str(node.get("type"))
            if kind.endswith("_NODE") and kind not in READING:
                raise InvalidRequest(f"{what}: a part of it writes, and it may only read")
        return tree

    @apart
    def chosen(self, messages: pa.Table, expression: Any) -> pa.Table:
        """Partition and offset of the messages that an expression is true for."""
        with self._given(messages) as given:
            seen = self._db.sql(f"select {SELECTED} from {given}")  # noqa: S608  # our own words
            return seen.filter(expression).select('partition, "offset"').to_arrow_table()

    @apart
    def kinds(self, messages: pa.Table, expression: Any) -> set[str]:
        """The types of an expression; it has several if it speaks of several columns at once."""
        with self._given(messages) as given:
            seen = self._db.sql(f"select {SELECTED} from {given}")  # noqa: S608  # our own words
            return {str(kind).strip('"') for kind in seen.select(expression).types}

    @apart
    def create(self, table: pa.Table) -> str:
        """A table of the columns of this one, and its rows; its name."""
        name = f"{STORED}.t{self._loaded}"
        self._loaded += 1
        with self._given(table) as given:
            self._db.execute(f"create table {name} as from {given}")
        return name

    @apart
    def insert(self, name: str, table: pa.Table) -> None:
        """More rows."""
        with self._given(table) as given:
            self._db.execute(f"insert into {name} from {given}")

    @contextmanager
    def _given(self, table: pa.Table) -> Iterator[str]:
        """A table that DuckDB can see, in this block; its name."""
        self._db.register(GIVEN, table)
        try:
            yield f'"{GIVEN}"'
        finally:
            self._db.unregister(GIVEN)

    @apart
    def show(self, stored: str, parts: tuple[str, ...], selected: str) -> None:
        """Let queries see a stored table under a name, which may be written as schema.table."""
        path = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
        if len(parts) > 1:
            self._db.execute(f"create schema if not exists {path.rpartition('.')[0]}")
        self._db.execute(f"create view {path} as select {selected} from {stored}")  # noqa: S608

    @apart
    def answer(self, query: str, bytes_max: int) -> pa.Table:
        """The result of a query, within bounds."""
        reader = self._db.sql(query).to_arrow_reader(limits.READ_MESSAGES_MAX)
        batches, nbytes = [], 0
        for batch in reader:
            nbytes += batch.nbytes
            if nbytes > bytes_max:
                raise LimitExceeded(
                    f"the answer has more than {bytes_max:,} bytes: select fewer "
                    "columns or rows, or export the topic"
                )
            batches.append(batch)
        return _distinct(pa.Table.from_batches(batches, reader.schema))

    def interrupt(self) -> None:
        """End what runs, if anything does."""
        if self._db is not None:
            self._db.interrupt()

    def close(self) -> None:
        """End what may still run, and let go of everything.

        A thread that a cancelled task has left behind may be in a query, or just about to begin it:
        it is told until it has heard, for DuckDB closes what is just about to begin, and lets it go on.
        If it does not hear, it takes the last reference along.
        """
        with self._gate:
            self._closed = True
        running = self._running
        for _ in range(CLOSE_TRIES):
            if running is None or running.done():
                self._db.close()
                return
            self.interrupt()
            wait([running], CLOSE_SECONDS)


class Question:
    """One SELECT over topics, with room on disk for what does not fit into memory."""

    def __init__(self, query: str) -> None:
        self._query = query
        with ExitStack() as stack:
            spill = TemporaryDirectory(prefix="quiver-sql-", ignore_cleanup_errors=True)
            self.session = SqlSession(stack.enter_context(spill))
            stack.callback(self.session.close)
            with refusing(NO_SELECT):
                self.session.measure(query, "the query")
                tree = self.session.parsed(query, NO_SELECT)
                self.names, self.given = _names(tree)
            self.close = stack.pop_all().close
        self._name = self._stored = ""

    def table(self, name: Name, selected: str, rows: pa.Table) -> None:
        """Load the first rows of a table, and show some of its columns under a name."""
        self._name = ".".join(name)
        with self._loading():
            self._stored = self.session.create(rows)
            self.session.show(self._stored, name, selected)

    def rows(self, rows: pa.Table) -> None:
        """Load more rows."""
        with self._loading():
            self.session.insert(self._stored, rows)

    def _loading(self) -> AbstractContextManager[None]:
        return refusing(f"{self._name} cannot be loaded")

    def answer(self, bytes_max: int) -> pa.Table:
        """Ask."""
        hint = f"topics have the columns {COLUMNS}" if self.names else ""
        with refusing("the query cannot be answered", hint):
            return self.session.answer(self._query, bytes_max)


@contextmanager
def refusing(what: str, hint: str = "") -> Iterator[None]:
    """Say what DuckDB says, as an error of ours."""
    duckdb = _duckdb()
    try:
        yield
    except (MemoryError, duckdb.OutOfMemoryException) as error:
        raise _needs_more(what, error) from error
    except (OSError, pa.ArrowException) as error:  # as Arrow's reader passes on what DuckDB says
        if "Out of Memory" in str(error):
            raise _needs_more(what, error) from error
        raise InvalidRequest(f"{what}: {_sentence(error)}") from error
    except duckdb.Error as error:
        said = _sentence(error)
        hint = JSON_HINT if "Malformed JSON" in said else hint
        raise InvalidRequest(f"{what}: {said}" + (f" ({hint})" if hint else "")) from error


def _needs_more(what: str, error: Exception) -> LimitExceeded:
    """What DuckDB counts is bounded by itself, and all that this process has by the kernel, if at all."""
    counted = " used)" in str(error)
    heap = None if counted else _heap_max()
    most = limits.SQL_MEMORY_BYTES_MAX if heap is None else heap
    return LimitExceeded(f"{what}: {too_much(most)} ({_sentence(error)})")


def _heap_max() -> int | None:
    """The bytes that the kernel lets this process have, if it bounds them."""
    try:
        import resource  # noqa: PLC0415  # Windows has none
    except ImportError:
        return None
    heap = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return None if heap == resource.RLIM_INFINITY else heap


def too_much(bytes_max: int) -> str:
    """A query needs more memory than that, and what can be done about it."""
    return (
        f"it needs more than the {bytes_max:,} bytes of memory it may have; ask about fewer messages "
        "or columns, or make shorter lists and texts"
    )


def _sentence(error: Exception) -> str:
    """What DuckDB says, without the copy of the query and the advice that it adds below."""
    said = str(error).partition("\n\nLINE ")[0].partition("\nPossible solutions")[0]
    return " ".join(said.split()).rstrip(".")


def _tokens(text: str, found: list[tuple[int, Any]]) -> Iterator[str]:
    """The words, names, numbers and signs of a text as DuckDB has split it, without comments and values."""
    encoded = text.encode()
    ends = [*(start for start, _ in found), len(encoded)][1:]
    for (start, kind), end in zip(found, ends, strict=True):
        if kind.name not in ("comment", "string_const"):
            yield encoded[start:end].decode(errors="replace").strip()


def _word(text: str) -> str:
    """The one column whose name is a word of SQL, if that may be what is wrong."""
    return 'offset is a word of SQL, the column is "offset"' if "offset" in text.lower() else ""


def bounded(text: Any, what: str) -> str:
    """What somebody has written, if it is text and not too much of it."""
    if not isinstance(text, str):
        raise InvalidRequest(f"{what} must be a str, not {type(text).__name__}")
    if len(text) > limits.SQL_CHARS_MAX:
        raise InvalidRequest(f"{what} may have at most {limits.SQL_CHARS_MAX:,} characters")
    if not text.isprintable() and text.encode(errors="replace").decode() != text:
        raise InvalidRequest(f"{what} has a lone surrogate, which is not text")
    return text


def _distinct(table: pa.Table) -> pa.Table:
    """Columns that have the same name told apart: x, x_1. Most that read a table need that."""
    names: list[str] = []
    for name in table.column_names:
        free = (f"{name}_{at}" for at in count(1))
        names.append(name if name not in names else next(x for x in free if x not in names))
    return table.rename_columns(names)


def _names(tree: Any) -> tuple[list[Name], set[str]]:
    """What a query takes rows from, each name in the parts it was written in; what `with` names."""
    found: set[Name] = set()
    given: set[str] = set()
    for node in _nodes(tree):
        given |= {entry["key"].lower() for entry in node.get("cte_map", {}).get("map", ())}
        if node.get("type") == "BASE_TABLE":
            written = (node["catalog_name"], node["schema_name"], node["table_name"])
            found.add(tuple(part for part in written if part))
    return sorted(found), given


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object of a tree."""
    waiting = [tree]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found


def demand_duckdb() -> None:
    """Refuse SQL where DuckDB is not installed, without loading it."""
    if find_spec("duckdb") is None:
        raise ExtraMissing(NO_DUCKDB)


def _duckdb() -> Any:
    try:
        return import_module("duckdb")
    except ImportError as error:
        raise ExtraMissing(NO_DUCKDB) from error
