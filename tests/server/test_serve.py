"""A node starts, answers and ends."""

from urllib.request import urlopen

from tests.server.nodes import Node


def test_a_node_answers_and_ends_in_order(node: Node):
    with urlopen(f"{node.url}/health/live", timeout=10) as answer:
        assert answer.status == 200
    assert node.stop() == 0
