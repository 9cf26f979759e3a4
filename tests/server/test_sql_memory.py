"""Whatever SQL does with memory and time, the node lives, stays small, and answers the next question.

Run with -s to see the figures.
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver import limits
from tests.server.nodes import Node, start_node
from tests.server.raw import Raw
from tests.server.sql_processes import MIB, Watch

pytest.importorskip("duckdb")
pytestmark = pytest.mark.process

GROWTH_BYTES_MAX = 200 * MIB
PATIENCE_SECONDS = 100
JSON = "application/json"
HUGE = 2_000_000_000
LONG = 1_000_000_000  # a text of so many characters has more than a process for SQL may have
MANY = 120_000_000  # and so has a list of so many numbers
# Each takes a gigabyte or more in one call of a function, which DuckDB does not count and cannot interrupt.
# They have a column of the message, so that nothing is computed before there is one.
GREEDY = {
    "range": f'len(range("offset", {MANY})) > 1',
    "generate_series": f'len(generate_series("offset", {MANY})) > 1',
    "repeat": f"len(repeat(text, {LONG})) > 1",
    "list_resize": f'len(list_resize(["offset"], {MANY}, 7)) > 1',
    "format": f"len(format('{{:>{LONG}}}', text)) > 1",
    "printf": f"len(printf('%{LONG}s', text)) > 1",
    "lambda": f'len(list_transform(range("offset", {MANY // 3}), lambda x: x::varchar || text)) > 1',
    "lambdas": 'len(list_transform(range(12000), lambda x: range("offset", 12000))) > 1',
    "hugeint": f'len(range("offset", {MANY // 2})::hugeint[]) > 1',
    "array_to_string": f"len(array_to_string(list_resize([text], {MANY}, 'abc'), ',')) > 1",
}
SLOW = {  # a character or an element at a time: time ends them, or memory in the end
    "lpad": f"len(lpad(text, {HUGE}, 'ab')) > 1",
    "string_split": "len(string_split(repeat(',', 400000000), ',')) > 1",
    "levenshtein": "levenshtein(repeat(text, 100000), repeat('ab', 100000)) > 1",
}
QUERIES = {
    "recursion": "with recursive r(n, s) as (select 1, 'x' union all select n + 1, s || s from r "
    "where n < 60) select max(len(s)) from r",
    "join": "select a.range, count(*) from range(10000000) a, range(10000000) b "
    "where a.range <> b.range group by a.range",
    "result": "select repeat('x', 1000000) as x from range(100000)",
    "one value": f"select repeat('x', {HUGE // 2}) as x",
    "aggregate": f"select list(range::hugeint) from range({HUGE})",
    "views": ", ".join(
        ["with v0 as (select 1 as x)"]
        + [
            f"v{n} as not materialized (select a.x from v{n - 1} a, v{n - 1} b)"
            for n in range(1, 26)
        ]
    )
    + " select count(*) from v25",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    path: Path = tmp_path_factory.mktemp("sql")
    with quiver.connect(path / "data") as queue:
        queue.create_topic("t")
        queue.create_group("t", "g")
        queue.send("t", "x")
    with start_node(path, env={"QUIVER_BOUNDS_SQL_SECONDS": "8"}) as started:
        fine(started)
        yield started


def asked(node: Node, path: str, body: Any) -> tuple[int, Any]:
    with Raw(node.port) as raw:
        raw.socket.settimeout(PATIENCE_SECONDS)
        answer = raw.ask("POST", path, json.dumps(body).encode(), content_type=JSON)
        return answer.status, json.loads(answer.body)


def discard(node: Node, where: str) -> tuple[int, Any]:
    return asked(node, "/v1/topics/t/discard", {"where": where, "dry_run": True})


def sql(node: Node, query: str) -> tuple[int, Any]:
    return asked(node, "/v1/sql", {"query": query})


def fine(node: Node) -> None:
    """All slots answer, at once."""
    both = at_once(lambda: discard(node, "text = 'x'"), lambda: sql(node, "select text from t"))
    assert both == [(200, {"count": 1}), (200, {"rows": [{"text": "x"}]})]


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as threads:
        return [call.result() for call in [threads.submit(call) for call in calls]]


def refused_within_bounds(
    node: Node, record: Callable[[str, str], None], *calls: Callable[[], tuple[int, Any]]
) -> None:
    with Watch(node.pid) as watch:
        answers = at_once(*calls)
    print(f"\n{watch}: {answers[0][1].get('detail', answers[0][1])}")
    record("memory", str(watch))
    assert watch.growth < GROWTH_BYTES_MAX
    assert watch.child <= limits.SQL_PROCESS_BYTES_MAX
    fine(node)
    for status, problem in answers:
        assert (status, problem["code"]) == (429, "limit_exceeded"), problem
        assert problem["detail"].count("ask") + problem["detail"].count("select fewer"), problem


@pytest.mark.parametrize("elements", [MANY, HUGE])
def test_two_conditions_at_once_that_want_all_memory(
    node: Node, elements: int, record_property: Any
):
    where = f"len(range({elements})) > 1"
    refused_within_bounds(node, record_property, *[lambda: discard(node, where)] * 2)


@pytest.mark.check
@pytest.mark.parametrize("greedy", GREEDY)
def test_a_condition_that_wants_all_memory_is_refused(
    node: Node, greedy: str, record_property: Any
):
    where = GREEDY[greedy]
    refused_within_bounds(node, record_property, lambda: discard(node, where))
    query = f"select count(*) from t where {where}"
    refused_within_bounds(node, record_property, lambda: sql(node, query))


@pytest.mark.check
@pytest.mark.parametrize("slow", SLOW)
def test_a_condition_that_hears_nothing_is_ended(node: Node, slow: str, record_property: Any):
    where = SLOW[slow]
    refused_within_bounds(node, record_property, *[lambda: discard(node, where)] * 2)


@pytest.mark.check
@pytest.mark.parametrize("query", QUERIES)
def test_a_question_that_wants_too_much_is_refused(node: Node, query: str, record_property: Any):
    refused_within_bounds(node, record_property, lambda: sql(node, QUERIES[query]))


def test_a_path_that_would_hold_the_binder_is_refused_before_it(node: Node):
    where = "json" + ".a" * 48_000 + " = 1"
    answers = at_once(*[lambda: discard(node, where)] * 2)
    fine(node)
    for status, problem in answers:
        assert (status, problem["code"]) == (400, "invalid_request")
        assert f"at most {limits.SQL_PATH_NAMES_MAX} names" in problem["detail"]
