"""What the shell completes: commands, options, words, and names of the queue in question."""

import shutil
import socket
import subprocess
import threading

import pytest

from quiver.wire.frames import Frame
from tests.cli.program import QUIVER, SECONDS_MAX, Cli
from tests.unit.client.remote.scripted import Peer, scripted


@pytest.fixture
def shop(cli):
    with cli.queue() as queue:
        for topic in ("orders", "orders-eu", "invoices"):
            queue.create_topic(topic)
        queue.create_group("orders", "billing")
        queue.create_group("orders", "shipping")
        queue.create_group("invoices", "archive")
    return cli


def completed(cli: Cli, line: str, **environment: str) -> list[str]:
    """What bash is offered at the end of the line."""
    words = line.split(" ")
    cli.environment = {
        "_QUIVER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1),
        **environment,
    }  # fmt: skip
    return cli().decode().split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("quiver se", ["send", "seek", "seal", "serve"]),
        ("quiver send or", ["orders", "orders-eu"]),
        ("quiver receive inv", ["invoices"]),
        ("quiver read --data data or", ["orders", "orders-eu"]),
        ("quiver receive orders --group b", ["billing"]),
        ("quiver seek orders ", ["billing", "shipping"]),
        ("quiver seek orders billing --to e", ["earliest"]),
        ("quiver topics create x --order ", ["none", "key", "partition"]),
        ("quiver topics create x --retry ex", ["exponential"]),
        ("quiver top --sort l", ["lag"]),
        ("quiver dlq redrive inv", ["invoices"]),
        ("quiver groups se", ["seek"]),
        ("quiver groups orders-", ["orders-eu"]),
        ("quiver groups pause invoices ", ["archive"]),
        ("quiver groups orders --js", ["--json"]),
        ("quiver topics show or", ["orders", "orders-eu"]),
        ("quiver send nothing-like-this", []),
    ],
)
def test_names_words_and_options_are_completed(shop, line, offered):
    assert completed(shop, line) == offered


def test_the_queue_may_come_from_the_environment(shop):
    (shop.directory / "elsewhere").mkdir()
    assert completed(shop, "quiver send inv", QUIVER_DATA=str(shop.data)) == ["invoices"]
    assert completed(shop, "quiver send inv", QUIVER_DATA="elsewhere") == []


@pytest.mark.parametrize("line", ["quiver send or", "quiver seek orders b", "quiver groups or"])
def test_without_a_queue_nothing_is_offered_and_nothing_said(cli, line):
    assert completed(cli, line) == []
    assert not cli.data.exists()
    cli.data.mkdir()
    (cli.data / "wal-1.log").write_bytes(b"not a log")
    (cli.data / "confirmed").write_bytes(b"")
    assert completed(cli, line) == []


def test_a_node_that_does_not_answer_is_not_waited_for(cli):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"quiver://127.0.0.1:{silent.getsockname()[1]}"
        assert completed(cli, "quiver send or", QUIVER_DATA=url) == []
        for thread in threading.enumerate():
            if thread.name == "quiver-completing":  # a process would have ended without it
                thread.join(SECONDS_MAX)


def hostile(peer: Peer, frame: Frame) -> None:
    """What a node could answer that is none of ours."""
    names = ["orders", "ordinary\\$(date)", "or`date`", "or\nder"]
    peer.answer(frame.id, names if b"ListTopics" in frame.head.tobytes() else 0)


def test_a_shell_gets_nothing_that_is_no_name(cli):
    """What zsh is offered, it evaluates."""
    with scripted(hostile) as node:
        url = f"quiver://{node.host}"
        assert completed(cli, "quiver send or", QUIVER_DATA=url) == ["orders"]


def test_a_wrong_address_is_no_error(cli):
    for url in ("kafka://a", "quiver://a b:c", "quiver://h/path"):
        assert completed(cli, "quiver send or", QUIVER_DATA=url) == []


@pytest.mark.process
def test_bash_completes_with_the_script_that_is_shown(shop):
    bash = shutil.which("bash")
    assert bash is not None
    script = """
        eval "$(quiver --show-completion)"
        COMP_WORDS=(quiver send inv); COMP_CWORD=2
        until [ "${COMPREPLY[*]}" ]; do _quiver_completion quiver; done  # a busy machine has none in time
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        [bash, "--norc", "-c", script], capture_output=True, text=True, timeout=SECONDS_MAX, check=True,
        cwd=shop.directory, env={"PATH": f"{QUIVER.parent}:/usr/bin:/bin", "SHELL": bash},
    )  # fmt: skip
    assert (done.stdout.split(), done.stderr) == (["invoices"], "")


def test_help_names_completion_in_two_lines(cli):
    page = cli("--help").decode()
    assert page.count("-completion") == 2


def test_seek_is_a_command_of_its_own(shop):
    with shop.queue() as queue:
        queue.send_batch("orders", ["a", "b", "c"])
    assert shop.json("seek", "orders", "billing", "--to", "2")["position"] == "2"
    (message,) = shop.lines("receive", "orders", "--group", "billing", "--max", "10")
    assert message["offset"] == 2
    shop("seek", "orders", "billing", "earliest")
    shop("groups", "seek", "orders", "billing", "--to", "latest")
    with shop.queue() as queue:
        assert queue.groups("orders")["billing"].lag == 0


@pytest.mark.parametrize("more", [[], ["earliest", "--to", "latest"]])
def test_seek_says_where_once(shop, more):
    shop("seek", "orders", "billing", *more, code=2)
    assert "--to earliest" in shop.error
