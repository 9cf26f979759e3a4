"""What `quiver seek` says about where a group is now, and what it passed over."""

import pytest

import quiver
from tests.cli.program import Cli


@pytest.fixture
def numbers(cli: Cli) -> Cli:
    """Ten messages from offset 10 on, of which the group has settled none."""
    with cli.queue() as queue:
        queue.create_topic("numbers")
        queue.send_batch("numbers", [str(n) for n in range(10)])
        queue.ack(queue.receive("numbers", "first", max_messages=10))
        queue.create_group("numbers", "bill", start="latest")
        queue.send_batch("numbers", [str(n) for n in range(10, 20)])
    return cli


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("5", "goes on from 10, the oldest there is.\n"),
        ("10", "goes on from 10.\n"),
        ("13", "goes on from 13, and passes over at least 3 messages that it had not settled.\n"),
        ("99", "goes on from 20, the end, and passes over 10 messages that it had not settled.\n"),
        ("latest", "goes on from latest, and passes over 10 messages that it had not settled.\n"),
    ],
)
def test_a_seek_says_where_the_group_is_and_what_it_passed_over(numbers, asked, said):
    with numbers.queue() as queue:
        before = queue.groups("numbers")["bill"].lag
    assert before == 10
    out = numbers("seek", "numbers", "bill", asked).decode()
    assert out == f"Group bill of numbers {said}"


def test_a_seek_in_partitions_says_where_each_of_them_is(cli):
    with cli.queue() as queue:
        queue.create_topic("t", partitions=2, partition_by=["m"])
        queue.send_batch("t", [quiver.Message("x", key=key) for key in "aaaaz"])
        queue.create_group("t", "g")
    out = cli("groups", "seek", "t", "g", "3").decode()
    assert "from 3 of partition 0, 1 of partition 1, and passes over at least 4 messages" in out


def test_a_seek_for_programs_counts_what_was_passed_over(numbers):
    said = numbers.json("seek", "numbers", "bill", "--to", "latest")
    assert said == {"topic": "numbers", "group": "bill", "position": "latest", "passed_over": 10}


def test_nothing_ready_says_why(numbers):
    with numbers.queue() as queue:
        held = queue.receive("numbers", "bill", max_messages=10, lease="1h")
        assert len(held) == 10
    assert numbers("receive", "numbers", "-g", "bill") == b""
    assert "are ready for group bill (10 in flight)." in numbers.error
    numbers("groups", "pause", "numbers", "bill")
    assert numbers("receive", "numbers", "-g", "bill") == b""
    assert "for group bill (the group is paused, 10 in flight)." in numbers.error
    numbers("groups", "seek", "numbers", "bill", "latest")
    numbers("groups", "resume", "numbers", "bill")
    assert numbers("receive", "numbers", "-g", "bill") == b""
    assert "are ready for group bill.\n" in numbers.error
