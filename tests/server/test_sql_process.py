"""The processes that evaluate SQL for a node: what they have, when they end, and what is said then."""

import asyncio
import json
import os
import select
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quiver
from quiver import limits
from quiver.client.questions import ask
from quiver.errors import LimitExceeded, Overloaded
from quiver.server.sql.process import SPILL, SqlProcess, remove_what_is_left
from quiver.server.sql.questions import Questions
from tests.server.nodes import Node, start_node
from tests.server.raw import Raw
from tests.server.sql_processes import children, descriptors, environment, has_ended, memory
from tests.server.waiting import PATIENCE_SECONDS, until

pytest.importorskip("duckdb")
pytestmark = pytest.mark.process

FOR_EVER = "select count(*) from range(10000000) a, range(10000000) b where a.range <> b.range"
SECRET = "not for others"


def started(path: Path) -> Node:
    with quiver.connect(path / "data") as queue:
        queue.create_topic("t")
        queue.send("t", "x")
    (path / "tmp").mkdir()
    env = {"TMPDIR": str(path / "tmp"), "QUIVER_TOKEN": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET}
    return start_node(path, env=env)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with started(tmp_path_factory.mktemp("sql")) as node:
        yield node


@pytest.fixture
def node(shared: Node) -> Node:
    """One that has no process for SQL yet, or no more."""
    for pid in children(shared.pid):
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: has_ended(pid))  # type: ignore[misc]
    return shared


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Node]:
    """One that a test may end."""
    with started(tmp_path) as node:
        yield node


def room(node: Node) -> list[Path]:
    """What its processes have for temporary files."""
    return list((node.data.parent / "tmp").iterdir())


def alive(node: Node) -> list[int]:
    return [pid for pid in children(node.pid) if not has_ended(pid)]


def begin(node: Node, query: str) -> Raw:
    raw = Raw(node.port)
    raw.socket.settimeout(PATIENCE_SECONDS)
    body = json.dumps({"query": query}).encode()
    raw.request("POST", "/v1/sql", body, content_type="application/json")
    return raw


def one(node: Node) -> None:
    with begin(node, "select 1 as one") as raw:
        assert json.loads(raw.answer().body) == {"rows": [{"one": 1}]}


def busy(node: Node) -> int:
    """The process of a query that is being computed: it has used a tenth of a second of its processors."""
    ticks = os.sysconf("SC_CLK_TCK") / 10

    def used(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    (pid,) = alive(node)
    begun = used(pid)
    until(lambda: used(pid) > begun + ticks)
    return pid


def test_a_process_has_nothing_of_the_node(node: Node):
    assert alive(node) == [], "nobody has asked anything"
    one(node)
    (pid,) = alive(node)
    found = descriptors(pid)
    (own,) = room(node)
    assert [target.partition(":")[0] for target in found] == [str(own), "pipe", "socket"]
    variables = environment(pid)
    assert SECRET not in variables.values()
    assert set(variables) <= {"PYTHONPATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "TZ"}
    assert os.getsid(pid) == pid, "Ctrl-C in the node's terminal is not for it"
    told = Path(f"/proc/{pid}/limits").read_text().splitlines()
    soft = {line[:25].strip(): line[26:].split()[0] for line in told}
    assert soft["Max data size"] == str(limits.SQL_HEAP_BYTES_MAX)
    assert soft["Max core file size"] == "0"
    assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"
    assert Path(f"/proc/{pid}/cwd").readlink().parent == node.data.parent / "tmp"
    assert memory(pid, "VmRSS") < limits.SQL_KEPT_BYTES_MAX


def test_a_process_is_used_again_if_it_is_clean(node: Node):
    one(node)
    (pid,) = alive(node)
    for query, status in [
        ("select * from t", 200),
        ("select", 400),
        ("select * from nobody", 404),
        ("select error(text) from t", 400),
    ]:
        with begin(node, query) as raw:
            assert raw.answer().status == status
    one(node)
    assert alive(node) == [pid]
    with begin(node, "select len(range(2000000000)) from t") as raw:
        assert raw.answer().status == 429
    one(node)
    assert alive(node) != [pid]


@pytest.mark.parametrize(
    ("number", "status", "code", "said"),
    [
        (signal.SIGSEGV, 422, "query_failed", "ended with SIGSEGV; the node goes on"),
        pytest.param(
            signal.SIGKILL,
            429,
            "limit_exceeded",
            "killed from outside, by the system",
            marks=pytest.mark.check,
        ),
    ],
)
def test_the_end_of_a_process_is_an_error_of_its_query(
    node: Node, number: int, status: int, code: str, said: str
):
    one(node)
    with begin(node, FOR_EVER) as raw:
        os.kill(busy(node), number)
        answer = raw.answer()
        assert (answer.status, answer.problem["code"]) == (status, code)
        assert said in answer.problem["detail"]
    one(node)
    assert len(room(node)) == 1, "only the new process has a directory"


def test_a_process_does_not_mind_the_signals_that_its_node_gets(node: Node):
    one(node)
    (pid,) = alive(node)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    one(node)
    assert alive(node) == [pid]


@pytest.mark.check
def test_a_query_ends_with_its_client(node: Node):
    one(node)
    with begin(node, FOR_EVER):
        pid = busy(node)
    until(lambda: has_ended(pid))
    one(node)


def test_processes_end_with_a_node_that_is_killed(mortal: Node):
    one(mortal)
    with begin(mortal, FOR_EVER):
        pid = busy(mortal)
        mortal.kill()
        until(lambda: has_ended(pid))
    (left,) = room(mortal)
    os.utime(left, (0, 0))
    mortal.restart()
    one(mortal)
    assert left not in room(mortal), "its temporary files are removed by the next one"


def test_processes_end_with_a_node_that_stops(mortal: Node):
    one(mortal)
    (pid,) = alive(mortal)
    assert mortal.stop() == 0
    assert has_ended(pid)
    assert room(mortal) == []


@pytest.mark.check
def test_more_questions_than_may_wait_are_refused(node: Node):
    one(node)
    count = limits.SQL_QUERIES_MAX + limits.SQL_WAITING_MAX
    asking = [begin(node, FOR_EVER) for _ in range(count + 1)]
    sockets = {raw.socket: raw for raw in asking}
    ready, _, _ = select.select(sockets, [], [], PATIENCE_SECONDS)
    problem = sockets[ready[0]].answer().problem
    assert (problem["code"], problem["retryable"]) == ("overloaded", True)
    assert len(alive(node)) == limits.SQL_QUERIES_MAX
    for raw in asking:
        raw.socket.close()
    until(lambda: answers(node))  # when it has noticed that the others have gone


def answers(node: Node) -> bool:
    with begin(node, "select 1 as one") as raw:
        return raw.answer().status == 200


# -- without a node --------------------------------------------------------------------------------


def questions_about(path: Path, question: str, questions: Questions) -> None:
    async def asked() -> None:
        async with quiver.connect_async(path) as queue:
            await questions.answer(lambda sql: ask(queue._flows, question, sql=sql))

    try:
        asyncio.run(asked())
    finally:
        questions.close()


def test_a_process_that_grows_all_the_same_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As where the kernel does not bound its memory: the node looks itself."""
    monkeypatch.setattr(limits, "SQL_PROCESS_BYTES_MAX", 1_000)
    with pytest.raises(LimitExceeded, match="was ended: it needs more than the 1,000 bytes"):
        questions_about(tmp_path, FOR_EVER, Questions())


def test_an_answer_that_is_larger_than_it_should_be_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "SQL_REPLY_BYTES_MAX", 1_000)
    with pytest.raises(LimitExceeded, match="more than 1,000 bytes: select fewer"):
        questions_about(tmp_path, "select range from range(1000)", Questions())


def test_a_process_that_does_not_begin_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "SQL_START_SECONDS", 0.000_1)
    with pytest.raises(Overloaded, match="retry later"):
        questions_about(tmp_path, "select 1", Questions())


@pytest.fixture
def own_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the processes of this test have their temporary files."""
    path = tmp_path / "tmp"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


@pytest.mark.parametrize("end", [lambda process: process.kill("ended"), SqlProcess.close])
def test_a_process_that_is_ended_before_it_starts_is_not_started(
    own_room: Path, end: Callable[[SqlProcess], None]
):
    """As when the client of the first question goes at once, and the end overtakes the start."""
    process = SqlProcess()
    end(process)
    with pytest.raises(quiver.QuiverError, match="was ended before it had started"):
        process.start()
    assert process.pid == 0
    assert list(own_room.iterdir()) == []


def test_a_directory_that_another_node_is_about_to_lock_is_not_removed(own_room: Path):
    """Between the two steps it looks as if its node had been killed."""
    fresh, left = own_room / f"{SPILL}fresh", own_room / f"{SPILL}left"
    for path in (fresh, left):
        path.mkdir()
    os.utime(left, (0, 0))
    remove_what_is_left()
    assert list(own_room.iterdir()) == [fresh]


def test_no_process_without_room_for_its_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(Overloaded, match="No such file or directory; retry later"):
        questions_about(tmp_path, "select 1", Questions())
