"""A node that need not wait for the disk does not, and still loses nothing when it is killed."""

import re
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.server.nodes import Node, start_node
from tests.server.raw import Raw
from tests.sqs.conftest import client

pytestmark = pytest.mark.process


def syncs(node: Node) -> int:
    with urlopen(f"{node.url}/metrics", timeout=10) as answer:
        found = re.search(
            r"^quiver_log_sync_duration_seconds_count (\d+)", answer.read().decode(), re.MULTILINE
        )
    assert found is not None
    return int(found[1])


def exchange(node: Node) -> int:
    """How many syncs it takes to send three messages and to take and delete one of them."""
    sqs = client(node)
    url = sqs.create_queue(QueueName="t")["QueueUrl"]
    before = syncs(node)
    for body in ("one", "two", "three"):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    (taken,) = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=taken["ReceiptHandle"])
    return syncs(node) - before


def test_every_request_is_synced_unless_the_node_is_told_otherwise(tmp_path: Path):
    with start_node(tmp_path) as node:
        assert exchange(node) == 5


def test_in_memory_nothing_waits_for_the_disk_and_a_killed_node_has_lost_nothing(tmp_path: Path):
    with start_node(tmp_path, env={"QUIVER_DURABILITY": "memory"}) as node:
        assert exchange(node) == 0
        node.kill()
        node.restart()
        sqs = client(node)
        url = sqs.get_queue_url(QueueName="t")["QueueUrl"]
        left = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
        assert sorted(one["Body"] for one in left) == ["three", "two"]


@pytest.mark.parametrize(("wish", "given", "synced"), [
    ("", b'"durability":"memory"', 0), ("?durability=disk", b'"durability":"disk"', 1),
])  # fmt: skip
def test_who_says_what_he_wants_gets_it(tmp_path: Path, wish: str, given: bytes, synced: int):
    with start_node(tmp_path, env={"QUIVER_DURABILITY": "memory"}) as node, Raw(node.port) as raw:
        client(node).create_queue(QueueName="t")
        before = syncs(node)
        answer = raw.ask("POST", f"/v1/topics/t/messages{wish}", b'{"body": "one"}')
        assert given in answer.body
        assert syncs(node) - before == synced
