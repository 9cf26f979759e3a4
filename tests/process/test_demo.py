"""`quiver demo`, run as a user runs it: the count is right, and what it tells really happened."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

import quiver

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(1_000)]

SECONDS_MAX = 900  # about a minute on an idle machine; the demo's own waits are bounded as well
COMMAND = [sys.executable, "-m", "quiver.cli.demo"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def account(folder):
    """The result of one run, which the tests look at from all sides."""
    result = run("--json", str(folder))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return json.loads(result.stdout)


@pytest.fixture
def services(account):
    return {each["service"]: each for each in account["services"]}


def test_nothing_is_lost_and_nothing_is_done_twice(account, services):
    assert (account["lost"], account["duplicated"], account["problems"]) == (0, 0, [])
    assert services.keys() == {"billing", "inventory", "notifications"}
    for each in services.values():
        assert each["sent"] == each["processed"] == account["orders"] > 1_000
        assert each["lost"] == each["duplicated"] == each["unknown"] == []
    assert account["cents_charged"] == account["cents_ordered"] > 0
    assert account["out_of_order"] == 0


def test_the_count_agrees_with_what_is_on_disk(account, folder):
    """Counted here once more, without the demo's own code."""
    for service in ("billing", "notifications"):
        database = sqlite3.connect(folder / f"{service}.sqlite")
        rows, orders = database.execute(
            "SELECT count(*), count(DISTINCT order_id) FROM effects"
        ).fetchone()
        database.close()
        assert rows == orders == account["orders"]
    with quiver.connect(account["data"]) as queue:
        shipped = [record.json()["order_id"] for record in queue.read("shipments")]
        assert queue.stats("orders").sent == account["orders"]
        assert all(group.lag == 0 for group in queue.groups("orders").values())
        assert list(queue.read("orders.dlq")) == []
    assert len(shipped) == len(set(shipped)) == account["orders"]


def test_a_worker_was_killed_with_work_half_done(account, services):
    crash = account["crash"]
    assert crash["exit_code"] == -signal.SIGKILL
    assert 0 < crash["charged"] < crash["held"]
    assert services["billing"]["timed_out"] >= crash["held"]
    assert services["billing"]["retried"] >= crash["held"]
    assert services["billing"]["absorbed"] >= crash["charged"]


def test_failures_were_retried_dead_lettered_and_redriven(account, services):
    mails = services["notifications"]
    reasons = account["dead_letters"]
    assert any(reason.startswith("Timeout") for reason in reasons)
    assert any(reason.startswith("Bad address") for reason in reasons)
    assert mails["dead_lettered"] >= 10
    assert mails["retried"] > 2 * mails["dead_lettered"], "some were retried with success"
    assert account["redriven"] == sum(reasons.values()) >= mails["redriven"] > 0
    assert account["dead_letters_left"] == 0


def test_the_restart_kept_every_waiting_order(account):
    restart = account["restart"]
    assert restart["waiting_after"] == restart["waiting_before"]
    assert restart["waiting_before"]["billing"] > 0, "it was in the middle of the work"


def test_delay_and_priority_were_kept(account):
    assert account["reminder"]["came"] >= account["reminder"]["due"] - 0.001
    assert account["express"]["delivered_as"] < account["express"]["sent_as"]
    assert account["express"]["overtook"] > 0


def test_the_orders_flowed_through_spark(account, folder):
    """Counted once more from the files and the topics, in another way than the demo does."""
    found = account["analysis"]
    assert (found["skipped"], found["problems"]) == ("", [])
    assert found["messages"] == account["orders"] + account["redriven"]
    assert found["parquet"] == found["topic"] == account["orders"] - found["refused"]
    files = duckdb.sql(
        f"select count(*), count(distinct id), sum(cents) from '{folder}/invoices/*.parquet'"
    )
    ((rows, orders, cents),) = files.fetchall()
    with quiver.connect(account["data"]) as queue:
        invoices = {
            record.json()["id"]: record.json()["cents"] for record in queue.read("invoices")
        }
        refused = {record.json()["id"]: record for record in queue.read("invoices.dead")}
    assert rows == orders == len(invoices) == found["topic"]
    assert cents == sum(invoices.values())
    assert len(refused) == found["refused"] > 0
    assert not refused.keys() & invoices.keys()
    reasons = {record.headers["quiver.reason"] for record in refused.values()}
    assert reasons == {"not so: there is an @ in the address"}


def test_the_report_is_written(account, folder):
    page = Path(account["analysis"]["report"])
    assert page == folder / "report" / "index.html"
    assert "orders" in page.read_text()
    assert list((folder / "report" / "tables").glob("*.parquet"))


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_when_the_demo_is_ended(tmp_path, ending):
    demo = subprocess.Popen(
        [*COMMAND, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert demo.stdout is not None
        while "worker processes" not in (line := demo.stdout.readline()):
            assert line, "the demo ended early"
        children = children_of(demo.pid)
        assert len(children) >= 5
        if ending == signal.SIGINT:
            os.killpg(demo.pid, signal.SIGINT)  # as a terminal does on Ctrl-C: everybody gets it
        else:
            os.kill(demo.pid, ending)
        output, _ = demo.communicate(timeout=60)
        assert demo.returncode == (130 if ending == signal.SIGINT else -signal.SIGKILL), output
        assert "Traceback" not in output
        wait_until_gone(children)
    finally:
        demo.kill()
        demo.wait()


def children_of(pid: int) -> list[int]:
    listing = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listing.split()]


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, "worker processes are left behind"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"  # ended, and not yet collected by init
