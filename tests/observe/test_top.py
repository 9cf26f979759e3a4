"""`quiver top`: fits any terminal, says what is so, survives a node that goes away, ends cleanly."""

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import quiver
from quiver.cli import top
from quiver.cli.board import SORTS, Board, Look
from tests.cli.program import Cli
from tests.server.nodes import Node

PATIENCE_SECONDS = 30
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\r")


def overview_of(path: Path) -> quiver.Overview:
    with quiver.connect(path) as queue:
        queue.create_topic("orders", max_attempts=1)
        queue.create_topic("a-topic-with-" + "a-very-long-name-" * 10)
        for group in ("billing", "shipping"):
            queue.create_group("orders", group)
        queue.send_batch("orders", [b"x"] * 500)
        held = queue.receive("orders", "billing", max_messages=100)
        queue.ack(held[:50])
        queue.nack(held[50:60], reason="Timeout")
        queue.pause("orders", "shipping")
        for at in range(3):
            queue.create_topic(f"t{at:04}")
        return queue.overview()


def drawn(board: Board, width: int, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, highlight=False)
    console.print(board)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Look:
    return Look(overview_of(tmp_path_factory.mktemp("top")), 100.0)


@pytest.mark.parametrize("width", [20, 40, 80, 100, 140, 300])
def test_no_line_is_wider_than_the_terminal(look: Look, width: int):
    for line in drawn(Board("data", look, look), width):
        assert len(line.rstrip()) <= width


def test_eighty_columns_show_what_matters_most(look: Look):
    text = drawn(Board("data", look), 80)
    assert text[2].split() == [
        "topic",
        "/",
        "group",
        "lag",
        "leased",
        "oldest",
        "in/s",
        "out/s",
        "dead",
    ]
    (orders,) = [line.split() for line in text if line.startswith("orders ")]
    assert orders[:3] == ["orders", "500", "40"]
    (billing,) = [line.split() for line in text if line.startswith("  billing ")]
    assert (billing[1], billing[2], billing[-1]) == ("440", "40", "10")
    wide = drawn(Board("data", look), 140)
    assert any("paused" in line for line in wide)
    assert any("dead letters" in line for line in wide)


@pytest.mark.parametrize("height", [5, 8, 24])
def test_a_thousand_topics_fit_into_any_height(look: Look, height: int):
    one = look.overview.topics["t0000"]
    many = {f"t{at:04}": replace(one, topic=f"t{at:04}") for at in range(1_000)}
    overview = replace(look.overview, topics={**look.overview.topics, **many})
    board = Board("data", Look(overview, 0.0), foot="q quit", fits=True)
    lines = drawn(board, 80, height)
    assert len(lines) == height
    assert "more lines" in lines[-1]
    assert "q quit" in lines[-1]


def test_rates_are_what_was_counted_since_the_look_before(look: Look):
    topics = dict(look.overview.topics)
    orders = topics["orders"]
    billing = replace(orders.groups["billing"], delivered=orders.groups["billing"].delivered + 30)
    topics["orders"] = replace(
        orders, arrived=orders.arrived + 400, groups={**orders.groups, "billing": billing}
    )
    topics["t0000"] = replace(topics["t0000"], arrived=0)
    later = Look(replace(look.overview, topics=topics), look.seconds + 2)
    text = drawn(Board("data", later, look), 80)
    (row,) = [line.split() for line in text if line.startswith("orders ")]
    assert row[-3:-1] == ["200", "15.0"]
    again = Look(look.overview, later.seconds + 2)
    text = drawn(Board("data", again, later), 80)
    (row,) = [line.split() for line in text if line.startswith("orders ")]
    assert row[-3] == "-", "a topic that was made again has no rate yet"


@pytest.mark.parametrize("sort", top.SORTS)
def test_every_order_shows_every_topic(look: Look, sort: str):
    text = "\n".join(drawn(Board("data", look, sort=sort), 300))
    assert all(name[:40] in text for name in look.overview.topics)
    assert set(top.SORTS) == set(SORTS)


def test_a_pattern_leaves_others_out(look: Look):
    text = "\n".join(drawn(Board("data", look, pattern="t000*"), 80))
    assert "t0001" in text
    assert "billing" not in text


# -- the command -----------------------------------------------------------------------------------


def test_once_of_a_directory_as_text_and_as_json(tmp_path: Path):
    overview_of(tmp_path)
    cli = Cli(tmp_path)
    assert "  billing" in cli("top", tmp_path, "--once").decode()
    found = cli.json("top", tmp_path, "--once", "--topic", "ord*")
    assert set(found["topics"]) == {"orders", "orders.dlq"}
    assert found["topics"]["orders"]["groups"]["billing"]["lag"] == 440
    assert found["storage"]["log_files"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere", "--once"], 2, "no queue"),
        (["data", "--sort", "size"], 2, "--sort must be one of"),
        (["quiver://127.0.0.1:1", "--once"], 3, "127.0.0.1:1"),
        (["ftp://127.0.0.1:1", "--once"], 2, "quiver://"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, arguments: list[str], code: int, said: str):
    cli = Cli(tmp_path)
    cli("top", *arguments, code=code)
    assert said in cli.error


class Terminal:
    """A `quiver top` on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.controller, terminal = pty.openpty()
        self.before = termios.tcgetattr(terminal)
        self.resize(24, 80)
        environment = {**os.environ, "TERM": "xterm"}
        environment.pop("COLUMNS", None)  # of pytest's workers; it would outweigh the terminal's
        self.process = subprocess.Popen(
            [sys.executable, "-m", "quiver.cli", "top", "--every", "0.3", *arguments],
            stdin=terminal, stdout=terminal, stderr=terminal, env=environment,
        )  # fmt: skip
        self.terminal = terminal
        self.seen = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.controller, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.controller, keys.encode())

    def until(self, text: str) -> None:
        """Read on until it shows this, after what was seen so far."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, f"no {text!r} in {self.seen[-2_000:]!r}"
            if select.select([self.controller], [], [], left)[0]:
                shown = os.read(self.controller, 65_536).decode(errors="replace")
                self.seen += CONTROL.sub("", shown)
        self.seen = self.seen.partition(text)[2]

    def end(self) -> int:
        """The exit code; whatever it still writes is read, so that it can."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self.controller], [], [], 0.05)[0]:
                os.read(self.controller, 65_536)
        return self.process.wait(1)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.controller)
        os.close(self.terminal)


@contextmanager
def on_terminal(*arguments: str) -> Iterator[Terminal]:
    terminal = Terminal(*arguments)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.mark.process
def test_it_sorts_resizes_and_ends_with_the_terminal_as_it_was(tmp_path: Path):
    overview_of(tmp_path)
    with on_terminal(str(tmp_path)) as terminal:
        terminal.until("orders")
        terminal.until("by lag")
        terminal.press("s")
        terminal.until("by rate")
        terminal.resize(20, 130)
        terminal.until("acked/s")
        terminal.press("q")
        assert terminal.end() == 0
        assert termios.tcgetattr(terminal.terminal) == terminal.before


@pytest.mark.process
def test_a_signal_ends_it_as_a_shell_expects(tmp_path: Path):
    overview_of(tmp_path)
    with on_terminal(str(tmp_path)) as terminal:
        terminal.until("by lag")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 128 + signal.SIGINT
        assert termios.tcgetattr(terminal.terminal) == terminal.before


@pytest.mark.check
@pytest.mark.process
def test_a_node_that_hangs_does_not_hang_the_screen(node: Node):
    with on_terminal(f"quiver://127.0.0.1:{node.port}") as terminal:
        terminal.until("0 topics")
        node.signal(signal.SIGSTOP)
        try:
            terminal.until("waiting for one")
            terminal.press("s")
            terminal.until("by rate")
            node.signal(signal.SIGCONT)
            terminal.until("by rate")
            node.signal(signal.SIGSTOP)
            terminal.until("waiting for one")
            terminal.press("q")
            assert terminal.end() == 0
        finally:
            node.signal(signal.SIGCONT)


@pytest.mark.process
def test_a_token_is_not_shown(tmp_path: Path, node: Node):
    cli = Cli(tmp_path)
    shown = cli("top", f"quiver://sesame@127.0.0.1:{node.port}", "--once").decode()
    assert shown.startswith(f"quiver://127.0.0.1:{node.port}\n")
    assert "sesame" not in shown + cli.error


@pytest.mark.process
def test_a_node_that_goes_away_is_tried_again(tmp_path: Path, node: Node):
    with on_terminal(f"quiver://127.0.0.1:{node.port}") as terminal:
        terminal.until("0 topics")
        node.kill()
        terminal.until("no answer since")
        with quiver.connect(node.data) as queue:
            queue.create_topic("orders")
        node.restart()
        terminal.until("1 topic ")
        terminal.press("q")
        assert terminal.end() == 0
