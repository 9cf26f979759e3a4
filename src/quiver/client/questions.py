"""The flow of `sql`: what a query names is loaded, then the query is asked."""

from collections.abc import Container
from functools import partial

import pyarrow as pa

from quiver import limits
from quiver.client.flows import Flows
from quiver.client.scanning import Scan
from quiver.client.sql import SELECTED, Evaluator, Name, Place, Sql, bounded, columns_of, empty
from quiver.client.steps import Flow, Work, done
from quiver.errors import InvalidRequest, TopicNotFound

LEDGER = "ledger"


def ask(
    flows: Flows, query: str, bytes_max: int | None = None, sql: Sql | None = None
) -> Flow[pa.Table]:
    """The answer to one SELECT over topics, as they are now; `sql` evaluates it, if not this process."""
    most = limits.SQL_RESULT_BYTES_MAX if bytes_max is None else bytes_max
    if flows.elsewhere:
        return (yield from flows.sql(query))
    bounded(query, "the query")
    sql = Evaluator() if sql is None else sql
    try:
        names, given = yield from done(Work(partial(sql.question, query)))
        topics = yield from flows.topics()
        for parts in names:
            name = ".".join(parts)
            if name in topics:
                yield from _load(flows, sql, name, parts)
            elif name == LEDGER:
                yield from _load_ledger(flows, sql)
            elif name.lower() not in given:
                raise TopicNotFound(
                    f"there is no topic {name!r} to ask about. A name with other characters than "
                    'letters, digits and _ goes into double quotes: from "orders-eu"'
                )
        return (yield from done(Work(partial(sql.answer, most))))
    finally:
        sql.close()


def _load(flows: Flows, sql: Sql, name: str, parts: Name) -> Flow[None]:
    if len(parts) > 2:
        raise InvalidRequest(f'topic {name} must be in double quotes here: "{name}"')
    yield from done(Work(lambda: sql.table(parts, SELECTED, empty())))
    scan = Scan(flows, *(yield from flows.read_start(name)))
    while scan.more:
        page, pending = yield from scan.marked()
        yield from scan.given(page, partial(_add, sql, pending))


def _add(sql: Sql, pending: Container[Place], table: pa.Table) -> None:
    sql.rows(columns_of(table, pending))


def _load_ledger(flows: Flows, sql: Sql) -> Flow[None]:
    """The one place where the name `ledger` gets a meaning, unless a topic has it."""
    reader: pa.RecordBatchReader = yield from flows.ledger_reader(None, None, None)
    yield from done(Work(lambda: sql.table((LEDGER,), "*", reader.schema.empty_table())))
    while (batch := (yield from done(Work(lambda: next(reader, None))))) is not None:
        yield from done(Work(partial(sql.rows, pa.Table.from_batches([batch]))))
