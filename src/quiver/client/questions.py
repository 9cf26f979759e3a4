"""The flow of `sql`: what a query names is loaded, then the query is asked."""

from collections.abc import Container
from functools import partial

import pyarrow as pa

from quiver import limits
from quiver.client.flows import Flow, Flows, Place
from quiver.client.scanning import Scan
from quiver.client.sql import SELECTED, Question, Session, columns_of, empty, refusing
from quiver.client.steps import Work
from quiver.errors import InvalidRequest, TopicNotFound

LEDGER = "ledger"


def ask(flows: Flows, query: str, bytes_max: int | None = None) -> Flow[pa.Table]:
    """The answer to one SELECT over topics, as they are now."""
    most = limits.SQL_RESULT_BYTES_MAX if bytes_max is None else bytes_max
    elsewhere = flows.sql(query)
    if elsewhere is not None:
        return (yield from elsewhere)
    question: Question = yield Work(lambda: Question(query))
    try:
        topics = yield from flows.topics()
        for parts in question.names:
            name = ".".join(parts)
            if name in topics:
                yield from _load(flows, question, name, parts)
            elif name == LEDGER:
                yield from _load_ledger(flows, question)
            elif name.lower() not in question.given:
                raise TopicNotFound(
                    f"there is no topic {name!r} to ask about. A name with other characters than "
                    'letters, digits and _ goes into double quotes: from "orders-eu"'
                )
        answer: pa.Table = yield Work(lambda: question.answer(most))
        return answer
    finally:
        question.close()


def _load(flows: Flows, question: Question, name: str, parts: tuple[str, ...]) -> Flow[None]:
    if len(parts) > 2:
        raise InvalidRequest(f'topic {name} must be in double quotes here: "{name}"')
    session = question.session
    with refusing(f"topic {name} cannot be loaded"):
        stored: str = yield Work(lambda: session.create(empty()))
        scan = Scan(flows, *(yield from flows.read_start(name)))
        while scan.more:
            page, pending = yield from scan.marked()
            table = yield from scan.table(page)
            yield Work(partial(_insert, session, stored, table, pending))
        yield Work(lambda: session.show(stored, parts, SELECTED))


def _insert(session: Session, stored: str, table: pa.Table, pending: Container[Place]) -> None:
    session.insert(stored, columns_of(table, pending))


def _load_ledger(flows: Flows, question: Question) -> Flow[None]:
    """The one place where the name `ledger` gets a meaning, unless a topic has it."""
    session = question.session
    with refusing("the ledger cannot be loaded"):
        reader: pa.RecordBatchReader = yield from flows.ledger_reader(None, None, None)
        stored: str = yield Work(lambda: session.create(reader.schema.empty_table()))
        while (batch := (yield Work(lambda: next(reader, None)))) is not None:
            yield Work(partial(session.insert, stored, pa.Table.from_batches([batch])))
        yield Work(lambda: session.show(stored, (LEDGER,), "*"))
