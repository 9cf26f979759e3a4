"""Where commands run, and directories that have something in them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import quiver
from tests.cli.program import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    made = Cli(tmp_path)
    yield made
    made.close()


@pytest.fixture
def orders(cli: Cli) -> Cli:
    """A directory with a topic that has five messages in it."""
    with cli.queue() as queue:
        queue.create_topic("orders", retention="forever")
        queue.send_batch("orders", [quiver.Message(f"order {n}", key=f"k{n}") for n in range(5)])
    return cli


@pytest.fixture
def letters(cli: Cli) -> Cli:
    """Six dead letters of `jobs` with two reasons, and one message that was sent there directly."""
    with cli.queue() as queue:
        queue.create_topic("jobs", max_attempts=1)
        queue.send_batch("jobs", [f"job {n}" for n in range(6)])
        for got in queue.receive("jobs", "worker", max_messages=6):
            got.nack(reason="TimeoutError: slow" if got.offset % 3 else "ValueError: \x1b[31mbad")
        queue.send("jobs.dlq", "direct")
    return cli
