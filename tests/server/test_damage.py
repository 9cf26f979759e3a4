"""What a node cannot read of a damaged segment is left out, and whoever asked is warned."""

import warnings

import pytest

import quiver
from tests.server.nodes import start_node


def test_a_query_over_many_damaged_pages_is_answered_with_a_few_warnings(tmp_path):
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("t", retention="forever")
        queue.send_batch("t", [b"x"] * 10_000)
        queue.seal()
        queue.send("t", b"y")
    (damaged,) = tmp_path.glob("data/t@*.parquet")
    damaged.write_bytes(b"PAR1" + bytes(damaged.stat().st_size - 4))
    with start_node(tmp_path) as node, quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
        with pytest.warns(quiver.UnreadableMessages, match="were left out") as warned:
            assert queue.sql("select count(*) as found from t")["found"].to_pylist() == [1]
        assert 1 <= len(warned) <= 50


@pytest.mark.parametrize("read", ["read", "read_arrow", "receive", "receive_arrow"])
def test_callers_elsewhere_are_warned_of_what_is_left_out(tmp_path, read):
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("t", retention="forever")
        queue.create_group("t", "g")
        for body in (b"a", b"b", b"c"):
            queue.send("t", body)
            queue.seal()
    damaged = sorted(tmp_path.glob("data/t@*.parquet"))[1]
    content = damaged.read_bytes()
    damaged.write_bytes(b"PAR1" + bytes(len(content) - 4))
    ask = {
        "read": lambda: len(list(queue.read("t"))),
        "read_arrow": lambda: sum(len(table) for table in queue.read_arrow("t")),
        "receive": lambda: len(queue.receive("t", "g", max_messages=9)),
        "receive_arrow": lambda: len(queue.receive_arrow("t", "g", max_messages=9).table),
    }[read]
    with start_node(tmp_path) as node, quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
        with pytest.warns(quiver.UnreadableMessages, match="1 messages were left out"):
            assert ask() == 2
        damaged.write_bytes(content)
        queue.seek("t", "g", "earliest")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert ask() == 3
