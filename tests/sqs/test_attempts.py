"""What is kept of receives that may be repeated has bounds: in number, in bytes and in time."""

import pytest

from quiver import limits
from quiver.server.sqs.attempts import ATTEMPT_MS, Attempts


def put(attempts, number, size=0, now_ms=0):
    attempts.put((1, f"{number}"), [f"handle {number}"], [{"Body": "x" * size}], now_ms)


def known(attempts, number, now_ms=0):
    return attempts.get((1, f"{number}"), now_ms) is not None


@pytest.fixture
def attempts():
    return Attempts()


def test_the_same_messages_are_given_again(attempts):
    put(attempts, 1, 3)
    assert attempts.get((1, "1"), 0).messages() == [{"Body": "xxx"}]
    assert attempts.get((2, "1"), 0) is None


def test_the_oldest_make_room_in_bytes(attempts):
    size = limits.SQS_ATTEMPTS_BYTES_MAX // 4
    for number in range(6):
        put(attempts, number, size)
        assert attempts.nbytes <= limits.SQS_ATTEMPTS_BYTES_MAX
    assert [number for number in range(6) if known(attempts, number)] == [3, 4, 5]
    put(attempts, 6, limits.SQS_ATTEMPTS_BYTES_MAX)
    assert [number for number in range(7) if known(attempts, number)] == [3, 4, 5]


def test_the_oldest_make_room_in_number(attempts):
    for number in range(limits.SQS_ATTEMPTS_MAX + 1):
        put(attempts, number)
    assert len(attempts) == limits.SQS_ATTEMPTS_MAX
    assert not known(attempts, 0)


def test_time_ends_them(attempts):
    put(attempts, 1)
    put(attempts, 2, now_ms=10)
    assert known(attempts, 1, ATTEMPT_MS - 1)
    put(attempts, 3, now_ms=ATTEMPT_MS)
    assert len(attempts) == 2
    assert not known(attempts, 2, ATTEMPT_MS + 10)


def test_what_was_touched_is_not_given_again(attempts):
    put(attempts, 1)
    put(attempts, 1, 5)  # the same attempt, after the first was of no use
    put(attempts, 2)
    attempts.touched("handle 1")
    attempts.touched("handle 1")
    attempts.touched("never seen")
    assert not known(attempts, 1)
    assert known(attempts, 2)
    attempts.pop((1, "2"))
    assert (len(attempts), attempts.nbytes) == (0, 0)
