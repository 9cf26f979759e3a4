"""A boot with a clock years ahead, and the way back."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver.client.local import open_flows
from quiver.client.sync import Queue
from quiver.model.units import milliseconds
from quiver.node.clock import SystemClock
from quiver.testing import VirtualClock
from tests.contract.verbs import bodies
from tests.inside import Inside, shard_of

DAY = 86_400
YEAR = 365 * DAY
LEDGER_MS = milliseconds("30d", "ledger_retention")


def opened(path: Path, seconds: float = 0, **options: Any) -> tuple[Queue, VirtualClock]:
    """The queue, by a clock that is so far ahead."""
    clock = VirtualClock(SystemClock().now_ms() + round(seconds * 1000))
    flows, close = open_flows(path, LEDGER_MS, "disk", clock=clock, **options)
    shard = shard_of(flows)
    clock.when_advanced(lambda: shard.ask(Inside(lambda engine: engine.core.check())).wait())
    return Queue(flows, close), clock


def spoil(path: Path) -> None:
    """One boot with a clock ten years ahead, of a queue that was used before; somebody insists."""
    with opened(path)[0] as queue:
        queue.create_topic("t", retention="forever", dedup_window="1h")
        queue.send_batch("t", [b"before", quiver.Message(b"far", delay="7300d")])
    with opened(path, 10 * YEAR, accept_clock=True)[0] as queue:
        queue.send("t", b"ahead", dedup_id="x")
        queue.send("t", b"delayed", delay=60)
        (held,) = queue.receive("t", "g", lease=30)
        assert held.body == b"before"


@pytest.fixture
def spoiled(tmp_path: Path) -> Path:
    spoil(tmp_path)
    return tmp_path


def test_a_clock_years_ahead_is_refused_before_anything_is_written(tmp_path):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t")
    with pytest.raises(
        quiver.ClockJumped, match=r"10.0 years later. If the clock is wrong, set it"
    ):
        opened(tmp_path, 10 * YEAR)
    with quiver.connect(tmp_path) as queue:
        queue.send("t", b"as always")


def test_a_log_of_the_future_is_refused_with_both_times_and_what_to_do(spoiled):
    ahead = datetime.now(UTC) + timedelta(days=3650)
    with pytest.raises(quiver.ClockJumped) as raised:
        quiver.connect(spoiled)
    text = str(raised.value)
    assert f"is of {ahead:%Y-%m-}" in text
    assert f"clock says {datetime.now(UTC):%Y-%m-}" in text
    assert f"quiver doctor {spoiled} --accept-clock" in text
    with quiver.connect(spoiled, read_only=True) as queue:  # looking is always possible
        assert len(bodies(queue.read("t"))) == 4


def test_the_way_back_loses_nothing_and_times_are_right_again(spoiled):
    start = datetime.now(UTC)
    queue, clock = opened(spoiled, accept_clock=True)
    assert bodies(queue.read("t")) == [b"before", b"far", b"ahead", b"delayed"]
    assert queue.send("t", b"again", dedup_id="x").duplicate
    # What was counted from the wrong time has as long to go as before.
    (ahead,) = queue.receive("t", "g")
    assert ahead.body == b"ahead"
    ahead.ack()
    clock.advance(30)
    (before,) = queue.receive("t", "g")
    assert (before.body, before.attempt) == (b"before", 2), "its lease has ended"
    before.ack()
    clock.advance(30)
    assert bodies(queue.receive("t", "g")) == [b"delayed"]
    # What is new has the right times.
    clock.advance(60)
    new_ms = clock.now_ms()
    queue.send("t", b"new", delay=5)
    assert queue.receive("t", "h", max_messages=9)[-1].body == b"delayed"
    clock.advance(5)
    (new,) = queue.receive("t", "h")
    assert abs((new.created_at - start).total_seconds()) < 3_600
    queue.seek("t", "h", datetime.fromtimestamp(new_ms / 1000, UTC))
    assert bodies(queue.receive("t", "h", max_messages=9)) == [b"new"]
    queue.seek("t", "h", start - timedelta(hours=1))
    assert len(queue.receive("t", "h", max_messages=9)) == 4, "all but the one of twenty years"
    # The one that was sent before, with a delay of twenty years, keeps its moment.
    clock.advance(7300 * DAY)
    assert b"far" in bodies(queue.receive("t", "g", max_messages=9))
    queue.close()


@pytest.mark.parametrize("seal", [False, True])
def test_the_repaired_queue_opens_as_always_from_the_log_and_from_a_snapshot(spoiled, seal):
    with quiver.connect(spoiled, accept_clock=True) as queue:
        if seal:
            queue.seal()
    for count in (4, 5):
        with quiver.connect(spoiled) as queue:
            assert queue.stats("t").stored == count
            assert queue.stats("t").oldest_age < 3_600
            queue.send("t", b"more")


def test_a_queue_that_was_closed_for_long_is_opened_as_always(tmp_path):
    with opened(tmp_path)[0] as queue:
        queue.create_topic("t")
    with opened(tmp_path, 200 * DAY)[0] as queue:
        queue.send("t", b"after a while")
    with opened(tmp_path, 199.5 * DAY)[0] as queue:  # less than a day back: as always
        queue.send("t", b"and on")
    with pytest.raises(quiver.ClockJumped, match="days earlier"):
        opened(tmp_path, 198 * DAY)


def test_more_than_a_year_is_accepted_once(tmp_path):
    with opened(tmp_path)[0] as queue:
        queue.create_topic("t")
    opened(tmp_path, 2 * YEAR, accept_clock=True)[0].close()
    opened(tmp_path, 2 * YEAR)[0].close()


def test_only_who_opens_a_directory_to_write_can_accept_the_clock(tmp_path):
    cases: list[tuple[Any, Any]] = [("quiver://127.0.0.1:1", {}), (tmp_path, {"read_only": True})]
    for url, options in cases:
        with pytest.raises(quiver.InvalidRequest, match="accept_clock"):
            quiver.connect(url, accept_clock=True, **options)
