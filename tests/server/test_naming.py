"""One way of naming a queue works everywhere: a directory or an address, in Python and in every command."""

import asyncio
import json
import sys

import pytest

import quiver
from quiver.cli.run import run
from tests.server.nodes import start_node


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node with one topic, of which two messages are stored."""
    with start_node(tmp_path_factory.mktemp("naming")) as started:
        with quiver.connect(started.url) as queue:
            queue.create_topic("orders")
            queue.send_batch("orders", ["a", "b"])
        yield started


@pytest.fixture
def command(monkeypatch, tmp_path, capfd):
    """Runs a command line in this process; its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QUIVER_DATA", raising=False)

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["quiver", *args])
        code = run(as_json="--json" in args)
        return code, capfd.readouterr()

    return call


ADDRESSES = [
    "quiver://127.0.0.1:{port}",
    "http://127.0.0.1:{port}",
    "http://token@127.0.0.1:{port}/",
]
COMMANDS = [
    ("topics", "--json"), ("topics", "show", "orders", "--json"), ("read", "orders", "--json"),
    ("groups", "orders", "--json"), ("top", "--once", "--json"), ("seal", "--json"),
    ("ledger", "--json"), ("dlq", "--json"),
]  # fmt: skip


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_command_takes_an_address_by_option_and_by_variable(
    node, command, monkeypatch, tmp_path, args, address
):
    url = address.format(port=node.port)
    code, by_option = command(*args, "--data", url)
    assert (code, by_option.err) == (0, "")
    monkeypatch.setenv("QUIVER_DATA", url)
    code, by_variable = command(*args)
    assert (code, by_variable.err) == (0, "")
    assert list(tmp_path.iterdir()) == []  # no directory of that name was made


@pytest.mark.parametrize("args", [("top", "--once", "--json"), ("seal", "--json")], ids=" ".join)
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_command_about_a_whole_queue_takes_it_by_position(
    node, command, monkeypatch, args, address
):
    monkeypatch.setenv("QUIVER_DATA", "elsewhere")  # the position weighs more
    code, said = command(args[0], address.format(port=node.port), *args[1:])
    assert (code, said.err) == (0, "")


def test_a_directory_is_taken_in_the_same_ways(command, monkeypatch, tmp_path):
    with quiver.connect(tmp_path / "here") as queue:
        queue.create_topic("orders")
    for args in (["here"], ["--data", "here"]):
        for name in ("top", "seal", "doctor"):
            more = ["--once"] if name == "top" else []
            assert command(name, *args, *more, "--json")[0] == 0
    monkeypatch.setenv("QUIVER_DATA", "here")
    _, said = command("top", "--once", "--json")
    assert "orders" in json.loads(said.out)["topics"]


@pytest.mark.parametrize(
    "args",
    [("doctor",), ("serve",), ("demo", "--data"), ("access", "list", "--data")],
    ids=" ".join,
)
def test_what_needs_a_directory_refuses_an_address(command, tmp_path, args):
    code, said = command(*args, "http://127.0.0.1:1")
    assert code == 2
    assert "run it where the node's directory is" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_node_does_not_serve_an_address_from_the_environment(command, monkeypatch, tmp_path):
    monkeypatch.setenv("QUIVER_DATA", "quiver://127.0.0.1:1")
    code, said = command("serve")
    assert code == 2
    assert "a node serves a directory" in said.err.lower()
    assert list(tmp_path.iterdir()) == []


def test_both_faces_take_the_url_that_the_node_prints(node):
    with quiver.connect(node.url) as queue:
        assert queue.topics() == ["orders"]

    async def ask():
        async with quiver.connect_async(node.url) as queue:
            return await queue.topics()

    assert asyncio.run(ask()) == ["orders"]


def test_a_repr_says_where_it_is_connected_and_no_token(node):
    shown = f"quiver://127.0.0.1:{node.port}"
    with quiver.connect(f"http://secret@127.0.0.1:{node.port}") as queue:
        assert repr(queue) == f"<Queue {shown}>"
        with queue.producer("orders") as out, queue.producer("orders", name="load") as named:
            assert repr(out) == f"<Producer of orders in {shown}>"
            assert repr(named) == f"<Producer load of orders in {shown}>"
        with queue.consumer("orders", group="g") as inbox:
            assert repr(inbox) == f"<Consumer orders/g in {shown}>"
        with queue.join("orders", "members", "one") as member:
            assert repr(member) == f"<Member one of orders/members in {shown}>"
        with queue.transaction() as tx:
            assert repr(tx) == f"<Transaction in {shown}, 0 to settle, 0 to send>"
        (delivery,) = queue.receive("orders", group="once")
        assert repr(delivery) == "<Delivery orders/0/0 b'a', group='once', attempt=1>"
        assert (
            repr(queue.receive_arrow("orders", "many")) == "<DeliveryBatch orders/many, 2 messages>"
        )

    async def look():
        queue = quiver.connect_async(f"http://secret@127.0.0.1:{node.port}")
        assert repr(queue) == "<AsyncQueue not open>"
        async with queue:
            assert repr(queue) == f"<AsyncQueue {shown}>"
            out = queue.producer("orders")
            assert repr(out) == "<AsyncProducer not open>"
            async with out, queue.consumer("orders", group="g") as inbox:
                assert repr(out) == f"<AsyncProducer of orders in {shown}>"
                assert repr(inbox) == f"<AsyncConsumer orders/g in {shown}>"

    asyncio.run(look())


def test_a_repr_of_a_directory_says_which(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with quiver.connect("data") as queue:
        assert repr(queue) == f"<Queue {tmp_path / 'data'}>"
    with quiver.connect("data", read_only=True) as queue:
        assert repr(queue) == f"<Queue {tmp_path / 'data'}>"
