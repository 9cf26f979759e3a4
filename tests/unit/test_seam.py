"""The checker of seams, which `make lint` runs over our code, finds what it is for."""

from pathlib import Path

import pytest

from tools.seam import faults


def planted(folder: Path, text: str) -> list[str]:
    """What is found in a module of one package, beside another with a private member."""
    root = folder / "quiver"
    for package in ("client", "server"):
        (root / package).mkdir(parents=True)
    (root / "client" / "sync.py").write_text(
        "class Queue:\n    def __init__(self):\n        self._flows = 1\n    def _settle(self): ...\n"
    )
    (root / "server" / "door.py").write_text(text)
    return [line.split("door.py:")[1] for line in faults(root)]


@pytest.mark.parametrize(
    "text",
    [
        "shard.ask(lambda engine: engine.core)",
        "self.broker.watch(number, wait_ms=(lambda: 1)())",
        "flows.ask(Question(lambda engine: 1))",
        "shard.ask(partial(look, names))",
        "def flow():\n    def ask(engine): ...\n    shard.ask(ask)",
        "async def flow():\n    def do(): ...\n    if late:\n        shard.submit(do)",
    ],
)
def test_a_closure_in_a_request_is_a_fault(tmp_path, text):
    (fault,) = planted(tmp_path, text)
    assert "closure" in fault


@pytest.mark.parametrize(
    "text", ["queue._flows.send()", "queue._settle(1)", "from quiver.client.sync import _wake"]
)
def test_a_private_name_of_another_package_is_a_fault(tmp_path, text):
    (fault,) = planted(tmp_path, text)
    assert "private to" in fault


def test_a_class_with_the_name_of_another_is_a_fault(tmp_path):
    (fault,) = planted(tmp_path, "class Door:\n    class Queue: ...")
    assert "Queue is a class of" in fault


def test_the_consensus_core_keeps_the_words_of_its_paper(tmp_path):
    (tmp_path / "quiver" / "raft").mkdir(parents=True)
    (tmp_path / "quiver" / "raft" / "entry.py").write_text("class Queue: ...")
    assert planted(tmp_path, "class Door: ...") == []


@pytest.mark.parametrize(
    "text",
    [
        "shard.ask(FindTopic(name))",
        "pool.submit(lambda: 1)",
        "spark._jvm.stop()",  # of a library
        "self._mine = 1\nother._mine",
        "def ask(engine): ...\nshard.propose(command)",
    ],
)
def test_what_crosses_no_seam_is_fine(tmp_path, text):
    assert planted(tmp_path, text) == []
