"""What happened, and questions in SQL: tables, as Arrow or as rows in JSON."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quiver import limits
from quiver.client.flows import untold
from quiver.client.questions import ask
from quiver.client.sql import Sql
from quiver.client.steps import Flow
from quiver.errors import InvalidRequest, LimitExceeded
from quiver.model.topic import staged_for
from quiver.server.api.endpoint import ApiCall, ArrowStream, written
from quiver.server.auth import EVERY_TOPIC, Principal
from quiver.server.requests import until_gone
from quiver.wire import shapes


class LedgerQuery(shapes.Shape, frozen=True):
    """Of which topic (or all), from when to when."""

    topic: str | None = None
    start: str | None = None
    end: str | None = None


async def ledger(call: ApiCall) -> Any:
    query: LedgerQuery = call.query
    call.principal.demand("read", EVERY_TOPIC if query.topic is None else query.topic)
    reader = await call.queue.ledger_reader(query.topic, start=query.start, end=query.end)
    if call.arrow:
        return ArrowStream(reader)
    return await _written(lambda: _rows_of(reader))


async def trace(call: ApiCall) -> Any:
    call.principal.demand_somewhere("read")
    message = call.name("message")
    story = told(await call.queue.trace(message), call.principal, message)
    return ArrowStream(story) if call.arrow else await _written(lambda: rows(story))


def told(story: pa.Table, principal: Principal, message: str) -> pa.Table:
    """What a principal may know of a message's story: what happened in topics that it may read."""
    topics = story["topic"].unique().to_pylist()
    readable = [topic for topic in topics if principal.may("read", staged_for(topic))]
    if not readable:
        raise untold(message)
    if len(readable) == len(topics):
        return story
    return story.filter(pc.is_in(story["topic"], pa.array(readable, story["topic"].type)))


async def sql(call: ApiCall, body: shapes.QuestionIn) -> Any:
    def question(sql: Sql) -> Flow[pa.Table]:
        return ask(call.flows, body.query, limits.SQL_ANSWER_BYTES_MAX, sql)

    answer = await until_gone(call.request, call.context.questions.answer(question))
    call.held.demand_room()  # questions wait for each other, and may all have been let in
    return ArrowStream(answer) if call.arrow else await _written(lambda: rows(answer))


async def _written(make: Callable[[], shapes.Rows]) -> bytes:
    try:
        return await written(make)
    except (OverflowError, ValueError, TypeError) as error:
        raise InvalidRequest(
            f"the answer has a value that JSON cannot have ({error}); cast it to VARCHAR, or ask for "
            f"Arrow with Accept: {shapes.ARROW}"
        ) from None


def _rows_of(reader: pa.RecordBatchReader) -> shapes.Rows:
    """The rows of a reader; too many are refused before they are all read."""
    batches, count = [], 0
    for batch in reader:
        batches.append(batch)
        count += batch.num_rows
        if count > limits.API_ROWS_MAX:  # and a row of the ledger is short
            break
    return rows(pa.Table.from_batches(batches, reader.schema))


def rows(table: pa.Table) -> shapes.Rows:
    """A table as JSON has it; bytes are base64."""
    if table.num_rows > limits.API_ROWS_MAX or table.nbytes > limits.API_ROWS_BYTES_MAX:
        raise LimitExceeded(
            f"the answer has more than {limits.API_ROWS_MAX:,} rows or {limits.API_ROWS_BYTES_MAX:,} "
            f"bytes; ask for less, or for Arrow with Accept: {shapes.ARROW}"
        )
    return shapes.Rows(rows=_plain(table).to_pylist())


def _plain(table: pa.Table) -> pa.Table:
    """With texts for times that Python does not have: nanoseconds, and years past 9999."""
    for at, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type) and not _is_python(table[at]):
            table = table.set_column(at, field.name, table[at].cast(pa.string()))
    return table


def _is_python(column: pa.ChunkedArray) -> bool:
    if getattr(column.type, "unit", "") == "ns":
        return False
    try:
        column.to_pylist()
    except (OverflowError, ValueError):
        return False
    return True
