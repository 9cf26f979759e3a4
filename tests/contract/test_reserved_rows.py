"""Reserved messages as rows of a table, in a group that gets each message once at most."""

import pytest

import quiver
from quiver import limits

OWN_SECONDS = limits.RESERVED_MS_MIN / 1000


@pytest.fixture
def rows(queue):
    """Three messages of an at-most-once group: the first has begun, the others are reserved."""
    queue.create_group("t", "g", guarantee="at-most-once")
    queue.send_batch("t", ["0", "1", "2"])
    return queue.receive_arrow("t", "g", max_messages=3, lease=600, begin=1)


@pytest.mark.parametrize("action", ["begin", "ack"])
def test_what_others_have_taken_over_does_not_begin(rows, queue, clock, action):
    clock.advance(OWN_SECONDS)
    (taken,) = queue.receive("t", "g")
    assert taken.text == "1"
    for _ in range(2):  # the second time, all that can begin has begun
        with pytest.raises(quiver.ReceiptExpired) as refusal:
            getattr(rows, action)()
        assert refusal.value.refused == ((0, 1),)
    stats = queue.groups("t")["g"]
    assert (stats.delivered, stats.lag) == (3, 0)


def test_what_has_begun_can_be_begun_and_acked_again(rows, queue):
    rows.begin([False, True, False])
    rows.begin()
    rows.begin()
    rows.ack()
    stats = queue.groups("t")["g"]
    assert (stats.delivered, stats.lag) == (3, 0)
