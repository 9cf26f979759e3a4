"""Windows has the clients of a node, macOS the queue in a directory too; only a node needs `[server]`."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import quiver
from tests.server.nodes import Node, start_node

pytestmark = pytest.mark.process
ELSEWHERE = Path(__file__).with_name("elsewhere.py")

NODE = """
import asyncio, sys, quiver

with quiver.connect(sys.argv[1]) as queue:
    queue.create_topic("t")
    queue.send("t", b"one", key="k")
    with queue.producer("t") as producer:
        producer.send(b"two")
    with queue.consumer("t", "g") as consumer:
        for body, delivery in zip([b"one", b"two"], consumer):
            assert delivery.body == body
            delivery.ack()

async def main():
    async with quiver.connect_async(sys.argv[1]) as queue:
        await queue.send_batch("t", [b"three", b"four"])
        async with queue.transaction() as transaction:
            for delivery in await queue.receive("t", "g", max_messages=10, wait=5):
                transaction.ack(delivery)
        assert (await queue.stats("t")).groups["g"].lag == 0
        await queue.delete_topic("t")

asyncio.run(main())
"""

# Runs each argument as a command line, and prints its exit code.
COMMANDS = """
import shlex, sys
from quiver.cli.run import run
for line in sys.argv[1:]:
    sys.argv = ["quiver", *shlex.split(line)]
    print("code", run(as_json=False), flush=True)
"""

DIRECTORY = """
import sys, quiver
with quiver.connect(sys.argv[1]) as queue:
    queue.create_topic("t")
    queue.send_batch("t", [b"%d" % n for n in range(1000)])
    queue.seal()
    queue.send("t", b"last")
with quiver.connect(sys.argv[1]) as queue:
    try:
        quiver.connect(sys.argv[1])
    except quiver.DirectoryInUse:
        pass
    with quiver.connect(sys.argv[1], read_only=True) as reader:
        assert reader.topics() == ["t"]
    found = queue.receive("t", "g", max_messages=2000)
    assert [one.body for one in found] == [*(b"%d" % n for n in range(1000)), b"last"]
    queue.ack(found)
    queue.backup(sys.argv[1] + "-kept")
quiver.restore(sys.argv[1] + "-kept", sys.argv[1] + "-again")
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with start_node(tmp_path_factory.mktemp("shared")) as node:
        yield node


@pytest.fixture
def url(shared: Node) -> str:
    return f"quiver://127.0.0.1:{shared.port}"


def python(where: str, program: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(ELSEWHERE), where, program, *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def run(where: str, *commands: str) -> "tuple[list[int], subprocess.CompletedProcess[str]]":
    """The exit codes of the commands, and what they said."""
    done = python(where, COMMANDS, *commands)
    lines = done.stdout.splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("code ")], done


@pytest.mark.parametrize("where", ["windows", pytest.param("client", marks=pytest.mark.check)])
def test_a_program_uses_a_node(where: str, url: str):
    done = python(where, NODE, url)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_line_uses_a_node(url: str):
    at = f"--data {url}"
    codes, done = run(
        "windows", "--help", f"topics create jobs {at}", f"send jobs hello {at}", f"top --once {at}",
        f"receive jobs --json {at}", f"topics delete jobs --yes {at}",
    )  # fmt: skip
    assert codes == [0] * 6, done.stderr
    assert '"hello"' in done.stdout


def test_a_directory_is_a_queue_on_macos(tmp_path: Path):
    done = python("macos", DIRECTORY, tmp_path / "data")
    assert (done.returncode, done.stderr) == (0, "")
    with quiver.connect(tmp_path / "data-again") as queue:  # and its files are the same here
        assert queue.stats("t").groups["g"].lag == 0


def test_on_windows_a_directory_cannot_be_a_queue(tmp_path: Path):
    program = f"""
import quiver
for options in {{}}, {{"read_only": True}}:
    try:
        quiver.connect({str(tmp_path)!r}, **options)
    except quiver.PlatformNotSupported as error:
        print(error)
"""
    lines = python("windows", program).stdout.splitlines()
    assert len(lines) == 2
    assert all('its address, such as "quiver://host:7070"' in line for line in lines)
    assert not list(tmp_path.iterdir())


def test_on_windows_commands_that_need_a_directory_say_so(tmp_path: Path):
    at = f"--data {tmp_path}"
    commands = [
        f"serve {at}",
        f"doctor {at}",
        f"send t x {at}",
        f"access add a --allow send:t {at}",
    ]
    codes, done = run("windows", *commands)
    assert codes == [2] * 4, done.stderr
    assert done.stderr.count("run the queue as a node on Linux or macOS") == 4


def test_without_the_extra_a_node_says_what_to_install(tmp_path: Path):
    config = tmp_path / "node.toml"
    config.write_text(f'data = "{tmp_path / "data"}"\n')
    codes, done = run("client", f"serve --data {tmp_path / 'data'}", f"doctor --config {config}")
    assert codes == [2] * 2, done.stderr
    assert done.stderr.count("(httptools, prometheus_client, starlette, uvloop)") == 2
    assert done.stderr.count('pip install ".[server]"') == 2
    assert not (tmp_path / "data").exists()


@pytest.mark.check
def test_without_the_extra_a_directory_is_a_queue_with_an_access_file(tmp_path: Path):
    data = tmp_path / "data"
    assert python("client", DIRECTORY, data).returncode == 0
    codes, done = run("client", f"access add ann --allow send:t --data {data}")
    assert codes == [0], done.stderr
