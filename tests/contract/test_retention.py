"""What a topic keeps, for how long, who is told when something is gone, and how that is changed."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

import quiver
from quiver import BehindRetention, Message, limits
from quiver.model.topic import Retention
from tests.contract.verbs import bodies, drain, nothing, take

HOUR = 3600
DAY = 24 * HOUR


def ago(clock, seconds):
    return datetime.fromtimestamp(clock.now_ms() / 1000, UTC) - timedelta(seconds=seconds)


def warning(told):
    """The first one, which must be of our kind."""
    message = told[0].message
    assert isinstance(message, BehindRetention)
    return message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("settled", Retention()),
        ("forever", Retention(forever=True)),
        ("7d", Retention(time_ms=7 * DAY * 1000)),
        (2.5, Retention(time_ms=2500)),
        ("10GB", Retention(size_bytes=10**10)),
        ("7d, 10GB", Retention(time_ms=7 * DAY * 1000, size_bytes=10**10)),
        ("10GB,7d", Retention(time_ms=7 * DAY * 1000, size_bytes=10**10)),
        ("compact", Retention(compact=True)),
        ("compact, 1h, 1KiB", Retention(3_600_000, 1024, compact=True)),
    ],
)
def test_retention_is_said_in_words(queue, text, parts):
    queue.create_topic("h", retention=text)
    assert queue.policy("h").retention == parts
    queue.alter_topic("h", retention="forever")
    queue.alter_topic("h", retention=parts)
    assert queue.policy("h").retention == parts


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retention": "7d, 8d"}, "another of its kind"),
        ({"retention": "compact, compact"}, "another of its kind"),
        ({"retention": "settled, 7d"}, "say so with keep_unsettled=False"),
        ({"retention": "settled, compact"}, "keeps nothing"),
        ({"retention": "settled, forever"}, "keeps nothing"),
        ({"retention": Retention(settled=True)}, "keeps nothing"),
        ({"retention": "forever, 7d"}, "keeps everything"),
        ({"retention": "7d,"}, "retention must be"),
        ({"retention": "compact", "partition_by": "round-robin"}, "key in one partition"),
        ({"keep_unsettled": False}, "needs a retention of a time or a size"),
        ({"keep_unsettled": False, "retention": "compact"}, "needs a retention of a time"),
        ({"keep_unsettled": 0}, "True or False"),
    ],
)
def test_what_contradicts_itself_is_refused(queue, options, text):
    with pytest.raises(quiver.InvalidRequest, match=text):
        queue.create_topic("h", **options)
    assert "h" not in queue.topics()


# -- by time and by size ---------------------------------------------------------------------------


def test_what_is_settled_goes_at_once_and_the_rest_when_it_is_too_old(queue, clock):
    queue.create_topic("h", retention="settled, 1h", keep_unsettled=False)
    queue.send_batch("h", [b"done"])
    queue.send_batch("h", [b"waits"])
    queue.receive("h", "g")[0].ack()
    assert [record.body for record in queue.read("h")] == [b"waits"]
    assert queue.stats("h").dropped == 0
    clock.advance(HOUR)
    with pytest.warns(quiver.BehindRetention):
        assert queue.receive("h", "g") == []
    assert queue.stats("h").stored == 0
    assert (queue.stats("h").dropped, queue.groups("h")["g"].behind_retention) == (1, 1)


def test_of_time_and_size_the_first_to_let_go_decides(queue, clock):
    queue.create_topic("h", retention="1h, 1KB")
    queue.create_group("h", "g")
    queue.send("h", b"old")
    clock.advance(HOUR)
    queue.send_batch("h", [b"x" * 400])
    queue.send_batch("h", [b"y" * 400])
    queue.send_batch("h", [b"z" * 400])
    assert len(drain(queue, "h")) == 4
    assert [body[:1] for body in bodies(queue.read("h"))] == [b"y", b"z"]
    clock.advance(HOUR)
    queue.send("h", b"new")
    assert bodies(queue.read("h")) == [b"new"]
    stats = queue.stats("h")
    assert (stats.dropped, stats.stored) == (4, 1)
    assert stats.groups["g"].behind_retention == 0


def test_time_and_size_never_take_what_a_group_has_not_settled(queue, clock):
    queue.create_topic("h", retention="1h, 100B", partitions=2)
    queue.create_group("h", "g")
    for at in range(20):
        queue.send("h", bytes(50) + str(at).encode(), key=str(at))
        clock.advance(HOUR)
    assert queue.stats("h").stored == 20
    assert len(drain(queue, "h")) == 20
    assert queue.stats("h").groups["g"].behind_retention == 0


def test_by_size_the_oldest_of_all_partitions_goes_first(queue, clock):
    queue.create_topic("h", retention="310B", partitions=2, partition_by=["m"])
    for at in range(6):
        queue.send("h", b"%d" % at + bytes(99), key="am"[at % 2])
        clock.advance(1)
    assert [body[:1] for body in bodies(queue.read("h"))] == [b"3", b"4", b"5"]


def test_a_message_that_waits_does_not_cost_more_history_than_the_size_says(queue, world, clock):
    queue.create_topic("h", retention="500B")
    queue.send("h", b"slow" + bytes(96))
    held = take(queue, "h", lease=7 * DAY)
    for at in range(6):
        queue.send("h", b"%d" % at + bytes(99))
        clock.advance(1)
    drain(queue, "h")
    queue = world.snapshot_and_reopen()  # which looks behind the one that is held
    assert [body[:1] for body in bodies(queue.read("h"))] == [b"s", b"2", b"3", b"4", b"5"]
    queue.ack(held.receipt)


def test_an_idle_topic_lets_go_of_what_has_become_too_old(queue, clock):
    queue.create_topic("h", retention="1h")
    queue.send_batch("h", [b"a", b"b"])
    drain(queue, "h")
    clock.advance(HOUR - 1)
    assert queue.stats("h").stored == 2
    clock.advance(limits.CHORES_SECONDS)
    stats = queue.stats("h")
    assert (stats.stored, stats.dropped) == (0, 2)


# -- unsettled messages, where the policy says so ----------------------------------------------------


def test_a_group_that_is_behind_is_told_once_how_many_it_lost(queue, clock):
    queue.create_topic("h", retention="1h", keep_unsettled=False)
    queue.create_group("h", "slow")
    queue.create_group("h", "fast")
    queue.send_batch("h", [b"a", b"b", b"c"])
    assert len(drain(queue, "h", "fast")) == 3
    clock.advance(HOUR)
    queue.send("h", b"d")
    groups = queue.groups("h")
    assert (groups["slow"].behind_retention, groups["slow"].lag) == (3, 1)
    assert groups["fast"].behind_retention == 0
    with pytest.warns(BehindRetention, match="had not settled: 3") as told:
        got = queue.receive("h", "slow", max_messages=10)
    assert bodies(got) == [b"d"]
    found = warning(told)
    assert (found.topic, found.group, found.count) == ("h", "slow", 3)
    assert drain(queue, "h", "fast") == [b"d"]
    assert nothing(queue, "h", "slow")
    assert queue.groups("h")["slow"].behind_retention == 3
    assert queue.stats("h").dropped == 3


def test_a_warning_points_at_the_line_that_received(world, clock):
    world.queue.create_topic("h", retention="1h", keep_unsettled=False)
    world.queue.create_group("h", "g")
    world.queue.send("h", b"a")
    clock.advance(HOUR)
    with pytest.warns(BehindRetention) as told:
        world.queue.receive("h", "g")
    assert "/quiver/" not in told[0].filename


def test_nobody_is_told_of_a_loss_that_is_not_theirs(queue, clock):
    queue.create_topic("h", retention="1h", keep_unsettled=False)
    queue.send("h", b"a")
    clock.advance(HOUR)
    assert nothing(queue, "h", "new")
    assert queue.stats("h").dropped == 1


def test_a_loss_is_told_also_after_a_restart(queue, world, clock):
    queue.create_topic("h", retention="1h", keep_unsettled=False)
    queue.create_group("h", "g")
    queue.send("h", b"a")
    clock.advance(HOUR + limits.CHORES_SECONDS)
    queue = world.snapshot_and_reopen()
    with pytest.warns(BehindRetention, match="had not settled: 1"):
        assert nothing(queue, "h")
    queue = world.reopen()
    assert nothing(queue, "h")


def test_a_receive_that_waits_is_told_with_its_answer(queue, world, clock):
    queue.create_topic("h", retention="1h", keep_unsettled=False)
    queue.create_group("h", "g")
    queue.send("h", b"a")
    clock.advance(HOUR)

    def wait_for_another():
        waiting = world.in_background(queue.receive, "h", "g", wait=20)
        queue.send("h", b"b")
        return bodies(waiting.result())

    with pytest.warns(BehindRetention, match="had not settled: 1"):
        assert wait_for_another() == [b"b"]


def test_what_somebody_holds_can_be_lost_too_and_settles_no_more(queue, clock):
    queue.create_topic("h", retention="1h", keep_unsettled=False, order="key")
    queue.send("h", b"a", key="k")
    held = take(queue, "h", lease=7 * DAY)
    clock.advance(HOUR)
    queue.send("h", b"b", key="k")
    with pytest.raises(quiver.ReceiptExpired):
        held.ack()
    with pytest.warns(BehindRetention, match="had not settled: 1"):
        assert take(queue, "h").body == b"b"
    stats = queue.stats("h").groups["g"]
    assert (stats.behind_retention, stats.in_flight, stats.acked) == (1, 1, 0)


def test_a_transaction_is_done_whole_also_when_retention_comes_between(queue, clock):
    queue.create_topic("h", retention="100B", keep_unsettled=False)
    queue.send_batch("h", [b"a", b"b"])
    held = queue.receive("h", "g", max_messages=2)
    with queue.transaction() as tx:
        tx.ack(held[0])
        tx.send("h", bytes(90))
        tx.ack(held[1])
    stats = queue.stats("h").groups["g"]
    assert (stats.acked, stats.behind_retention, stats.lag) == (2, 0, 1)


def test_size_drops_the_oldest_whoever_wants_it(queue):
    queue.create_topic("h", retention="250B", keep_unsettled=False)
    queue.create_group("h", "g")
    for at in range(5):
        queue.send("h", b"%d" % at + bytes(99))
    with pytest.warns(BehindRetention, match="had not settled: 3"):
        got = queue.receive("h", "g", max_messages=10)
    assert [body[:1] for body in bodies(got)] == [b"3", b"4"]


def test_members_are_told_too(queue, clock):
    queue.create_topic("h", retention="1h", keep_unsettled=False)
    member = queue.join("h", "g", "m", session=DAY)
    queue.send_batch("h", [b"a", b"b"])
    assert len(member.fetch()) == 2
    clock.advance(HOUR)
    queue.send("h", b"c")
    with pytest.warns(BehindRetention, match="had not settled: 2") as told:
        assert bodies(member.fetch()) == [b"c"]
    assert warning(told).group == "g"
    member.commit()
    assert queue.groups("h")["g"].lag == 0
    member.leave()


# -- asking for what is gone -----------------------------------------------------------------------


@pytest.fixture
def shortened(queue, clock):
    """Topic "h" had 0 to 10, an hour apart; retention has kept 7 to 10. Returns the queue."""
    queue.create_topic("h", retention="4h")
    for at in range(10):
        queue.send("h", str(at))
        clock.advance(HOUR)
    queue.send("h", b"10")
    return queue


def test_who_asks_for_an_offset_that_is_gone_is_told_where_it_starts(shortened):
    with pytest.warns(
        BehindRetention, match=r"reading topic 'h' starts at offset 7.*not at offset 2"
    ):
        assert bodies(shortened.read("h", offset=2)) == [b"7", b"8", b"9", b"10"]
    with pytest.warns(BehindRetention, match=r"group 'g' .* offset 7 of partition 0") as told:
        shortened.create_group("h", "g", start=2)
    assert (warning(told).topic, warning(told).group) == ("h", "g")
    with pytest.warns(BehindRetention, match="not at offset 6"):
        shortened.seek("h", "g", 6)
    assert drain(shortened, "h") == [b"7", b"8", b"9", b"10"]


def test_who_asks_for_a_time_that_is_gone_is_told_where_it_starts(shortened, clock):
    with pytest.warns(BehindRetention, match="not at 2026-01-01T02:00:00"):
        assert len(bodies(shortened.read("h", start="2026-01-01T02:00:00Z"))) == 4
    with pytest.warns(BehindRetention):
        shortened.create_group("h", "g", start=ago(clock, 4 * HOUR))
    with pytest.warns(BehindRetention):
        shortened.seek("h", "g", ago(clock, 5 * HOUR))


def test_nobody_is_told_who_gets_all_that_was_asked_for(shortened, clock):
    for start in ("earliest", "latest", 7, 9, ago(clock, 3 * HOUR), ago(clock, 0)):
        shortened.create_group("h", "g", start=start)
        shortened.seek("h", "g", start)
        list(shortened.read("h", **({"offset": start} if start in (7, 9) else {"start": start})))
        shortened.delete_group("h", "g")


def test_what_a_person_took_out_is_not_missed(queue):
    queue.create_topic("h", retention="forever")
    queue.send_batch("h", [b"a", b"b"])
    queue.purge("h")
    queue.send("h", b"c")
    queue.create_group("h", "g", start=0)
    assert bodies(queue.read("h", offset=0)) == [b"c"]


# -- changing it later -----------------------------------------------------------------------------


def test_a_topic_keeps_more_or_less_from_the_moment_it_is_altered(queue, world, clock):
    queue.send_batch("t", [b"a", b"b"])
    queue.alter_topic("t", retention="forever")
    drain(queue)
    assert bodies(queue.read("t")) == [b"a", b"b"]
    queue = world.reopen()
    assert queue.policy("t").retention == Retention(forever=True)
    clock.advance(HOUR)
    queue.alter_topic("t", retention="30m")
    assert bodies(queue.read("t")) == []
    queue = world.snapshot_and_reopen()
    assert queue.policy("t").retention == Retention(time_ms=1_800_000)


def test_every_part_of_a_policy_that_may_change_does(queue):
    changes = {
        "retention": "7d, 1GB", "keep_unsettled": False, "max_attempts": 4, "dead_letter": "d",
        "retry": "linear", "dedup_window": "1h", "max_backlog": 7, "compression": "zstd",
    }  # fmt: skip
    for name, value in changes.items():
        queue.alter_topic("t", **{name: value})
    queue.create_topic("other", **changes)
    assert queue.policy("t") == queue.policy("other")
    assert "d" in queue.topics()
    queue.alter_topic("t", max_attempts=None, max_backlog=None, compression=None, retry=None)
    policy = queue.policy("t")
    assert (policy.max_attempts, policy.max_backlog, policy.compression) == (None, None, None)
    assert policy.dead_letter == "d", "who is not named stays"


def test_attempts_bring_a_dead_letter_topic_along(queue):
    queue.alter_topic("t", max_attempts=1)
    assert queue.policy("t").dead_letter == "t.dlq"
    queue.send("t", b"x")
    take(queue).nack()
    assert take(queue, "t.dlq").body == b"x"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"partitions": 2}, "partitions cannot be changed"),
        ({"order": "key", "retention": "7d"}, "order cannot be changed"),
        ({"fair": True}, "fair cannot be changed"),
        ({"partition_by": ["a"]}, "partition_by cannot be changed"),
        ({"colour": "red"}, "a topic has no 'colour'"),
        ({}, "say what shall change"),
        ({"retention": "soon"}, "retention must be"),
        ({"keep_unsettled": False}, "needs a retention of a time or a size"),
        ({"dead_letter": "t"}, "its own dead-letter topic"),
    ],
)
def test_what_cannot_be_altered_is_refused_and_nothing_changes(queue, changes, text):
    before = queue.policy("t")
    with pytest.raises(quiver.InvalidRequest, match=text):
        queue.alter_topic("t", **changes)
    assert queue.policy("t") == before
    with pytest.raises(quiver.TopicNotFound):
        queue.alter_topic("missing", retention="7d")


def test_making_a_topic_differently_says_what_differs_and_what_to_do(queue):
    with pytest.raises(quiver.TopicExists, match="change retention, dedup_window with alter_topic"):
        queue.create_topic("t", retention="7d", dedup_window=1)
    with pytest.raises(quiver.TopicExists, match="partitions, order cannot be changed"):
        queue.create_topic("t", partitions=2, order="key", retention="7d")


def test_a_sender_that_was_there_before_meets_the_new_limit(queue):
    with queue.producer("t", linger=0) as producer:
        producer.send(b"a")
        producer.flush()
        queue.alter_topic("t", max_backlog=1)
        with pytest.raises(quiver.QueueFull):
            queue.send("t", b"b")
        queue.alter_topic("t", max_backlog=None)
        producer.send(b"c")
    assert drain(queue) == [b"a", b"c"]


def test_a_shorter_dedup_window_counts_for_ids_that_are_known(queue, clock):
    queue.send("t", b"a", dedup_id="x")
    queue.alter_topic("t", dedup_window=10)
    clock.advance(9)
    assert queue.send("t", b"b", dedup_id="x").duplicate
    clock.advance(1)
    assert not queue.send("t", b"c", dedup_id="x").duplicate
    queue.alter_topic("t", dedup_window=HOUR)
    clock.advance(10)
    assert not queue.send("t", b"d", dedup_id="x").duplicate


# -- the newest of each key ------------------------------------------------------------------------


@pytest.fixture
def prices(queue):
    """Topic "p" is compacted; returns the queue."""
    queue.create_topic("p", retention="compact", partitions=2)
    return queue


def values(queue, topic="p"):
    return sorted((record.key or "", record.body) for record in queue.read(topic))


def test_compaction_keeps_the_newest_of_each_key_and_all_without_one(prices, world):
    for at in range(3):
        prices.send_batch("p", [Message(f"{key}{at}", key=key) for key in "abc"])
        prices.send("p", f"none{at}")
    assert prices.compact("p") == 6
    kept = [
        ("", b"none0"),
        ("", b"none1"),
        ("", b"none2"),
        ("a", b"a2"),
        ("b", b"b2"),
        ("c", b"c2"),
    ]
    assert values(prices) == kept
    assert prices.compact("p") == 0
    stats = prices.stats("p")
    assert (stats.compacted, stats.dropped) == (6, 0)
    assert values(world.snapshot_and_reopen()) == kept


def test_compaction_reads_segments_and_log_alike(prices, world):
    keys = "abcdef"
    for at in range(4):
        prices.send_batch("p", [Message(f"{key}{at}", key=key) for key in keys])
        if at % 2 == 0:
            prices.seal()
    assert prices.compact("p") == 18
    newest = [(key, f"{key}3".encode()) for key in keys]
    assert values(prices) == newest
    prices.seal()
    assert values(prices) == newest
    prices.send("p", b"a4", key="a")
    assert prices.compact("p") == 1
    assert values(world.reopen())[0] == ("a", b"a4")


@pytest.mark.parametrize("seal", [False, True])
def test_a_replay_begins_at_an_offset_or_a_time_in_segments_as_in_the_log(queue, clock, seal):
    queue.create_topic("h", retention="forever")
    for at in range(6):
        queue.send("h", str(at))
        clock.advance(60)
        if seal and at in (2, 4):
            queue.seal()
    three = ago(clock, 180)
    assert bodies(queue.read("h", offset=3)) == [b"3", b"4", b"5"]
    assert bodies(queue.read("h", start=three)) == [b"3", b"4", b"5"]
    assert bodies(queue.read("h", start=ago(clock, 300), end=three)) == [b"1", b"2"]
    queue.create_group("h", "new", start=three)
    queue.create_group("h", "g", start="latest")
    queue.seek("h", "g", three)
    assert drain(queue, "h", "new") == drain(queue, "h") == [b"3", b"4", b"5"]
    queue.seek("h", "g", 1)
    assert drain(queue, "h") == [b"1", b"2", b"3", b"4", b"5"]


def test_what_a_group_has_not_settled_is_compacted_later(prices):
    prices.create_group("p", "slow")
    for at in range(3):
        prices.send("p", f"{at}", key="k")
    held = take(prices, "p", "slow")
    held.ack()
    leased = take(prices, "p", "slow")
    assert prices.compact("p") == 1
    assert values(prices) == [("k", b"1"), ("k", b"2")]
    leased.ack()
    assert prices.compact("p") == 1
    assert drain(prices, "p", "slow") == [b"2"]
    assert prices.compact("p") == 0
    assert values(prices) == [("k", b"2")]


def test_a_tombstone_goes_a_day_later_and_only_as_the_last_of_its_key(prices, clock):
    prices.create_group("p", "slow")
    prices.send("p", b"old", key="k")
    prices.send("p", b"", key="k")
    prices.send("p", b"")
    clock.advance(DAY)
    assert prices.compact("p") == 0
    assert [m.body for m in prices.read("p")] == [b"old", b"", b""], "old would come back to life"
    drain(prices, "p", "slow")
    assert prices.compact("p") == 1
    assert prices.compact("p") == 1
    assert values(prices) == [("", b"")]


def test_a_young_tombstone_stays_for_those_who_read_once_a_day(prices, clock):
    prices.send("p", b"", key="k")
    clock.advance(DAY - 1)
    assert prices.compact("p") == 0
    clock.advance(1)
    assert prices.compact("p") == 1


def test_compact_with_a_time_also_drops_the_newest_when_it_is_too_old(queue, clock):
    queue.create_topic("p", retention="compact, 1h")
    queue.send("p", b"a", key="a")
    clock.advance(HOUR / 2)
    queue.send_batch("p", [Message(b"b", key="b"), Message(b"c", key="b")])
    queue.compact("p")
    assert queue.stats("p").compacted == 1
    clock.advance(HOUR / 2)
    queue.send("p", b"d", key="d")
    assert values(queue, "p") == [("b", b"c"), ("d", b"d")]


def test_more_keys_than_fit_are_compacted_in_several_readings(prices, monkeypatch):
    monkeypatch.setattr(limits, "COMPACT_KEYS_MAX", 5)
    monkeypatch.setattr(limits, "COMPACT_PICKS_MAX", 7)
    monkeypatch.setattr(limits, "COMPACT_PAGE_MESSAGES", 13)
    keys = [f"key-{at}" for at in range(60)]
    for at in range(3):
        prices.send_batch("p", [Message(f"{at}", key=key) for key in keys])
    assert prices.compact("p") == 120
    assert values(prices) == sorted((key, b"2") for key in keys)


def test_a_topic_compacts_itself_now_and_then(prices, clock):
    prices.create_topic("other", retention="compact")
    for at in range(3):
        prices.send("p", f"{at}", key="k")
    clock.advance(limits.CHORES_SECONDS)
    prices.compact("other")  # comes after the pass that has begun by itself
    assert values(prices) == [("k", b"2")]
    prices.send("p", b"3", key="k")
    clock.advance(limits.CHORES_SECONDS)
    prices.compact("other")
    assert prices.stats("p").compacted == 2, "one message more is not worth a pass"


def test_only_a_compacted_topic_is_compacted(prices):
    with pytest.raises(quiver.InvalidRequest, match=r'alter_topic.*retention="compact"'):
        prices.compact("t")
    with pytest.raises(quiver.TopicNotFound):
        prices.compact("missing")
    prices.send_batch("t", [Message(b"1", key="k"), Message(b"2", key="k")])
    prices.alter_topic("t", retention="compact")
    assert prices.compact("t") == 1


def test_the_newest_of_each_key_survives_compaction_under_concurrent_writes(prices):
    keys = [f"key-{at}" for at in range(7)]
    writers, rounds = 4, 60
    prices.create_group("p", "g")

    def write(writer):
        sent = []
        for at in range(rounds):
            key = keys[(at * (writer + 1)) % len(keys)]
            body = f"{writer}-{at}".encode()
            sent.append((key, prices.send("p", body, key=key).offset, body))
        return sent

    def consume():
        while len(seen) < writers * rounds:
            for delivery in prices.receive("p", "g", max_messages=20, wait=1):
                seen.append(delivery.body)
                delivery.ack()

    def compact():
        while len(seen) < writers * rounds:
            prices.compact("p")
            prices.seal()

    seen: list[bytes] = []
    with ThreadPoolExecutor(writers + 2) as pool:
        helpers = [pool.submit(consume), pool.submit(compact)]
        sent = [
            one for done in [pool.submit(write, n) for n in range(writers)] for one in done.result()
        ]
        for helper in helpers:
            helper.result()
    prices.compact("p")
    newest: dict[str, tuple[int, bytes]] = {}
    for key, offset, body in sent:
        newest[key] = max(newest.get(key, (-1, b"")), (offset, body))
    assert values(prices) == sorted((key, body) for key, (_, body) in newest.items())
    assert sorted(seen) == sorted(body for _, _, body in sent), "and the group had every one"
    assert prices.stats("p").compacted == writers * rounds - len(newest)


def test_nothing_is_compacted_where_something_cannot_be_read(prices, world):
    prices.send_batch("p", [Message(str(at), key=str(at % 5)) for at in range(50)])
    prices.seal()
    prices.send_batch("p", [Message(str(at), key=str(at % 5)) for at in range(50)])
    prices = world.reopen()
    for file in world.path.glob("p@*.parquet"):
        file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(quiver.CorruptSegment):
        prices.compact("p")
    assert prices.stats("p").compacted == 0


def test_closing_the_queue_ends_a_compaction(prices, monkeypatch):
    monkeypatch.setattr(limits, "COMPACT_PAGE_MESSAGES", 1)
    prices.send_batch("p", [Message(str(at), key=str(at % 5)) for at in range(300)])
    with ThreadPoolExecutor(1) as pool:
        compacting = pool.submit(prices.compact, "p")
        prices.close()
        ended = compacting.exception(30)
        assert isinstance(ended, quiver.QueueClosed | quiver.OutcomeUnknown | None)
    with pytest.raises(quiver.QueueClosed):
        prices.compact("p")


def test_retention_warns_of_nothing_by_default(queue, clock):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for at in range(5):
            queue.send("t", str(at))
            clock.advance(DAY)
        assert len(drain(queue)) == 5


def test_what_is_moved_one_by_one_has_each_its_own_time(queue, clock):
    queue.create_topic("h", retention="forever")
    queue.send_batch("h", [b"a", b"b"])
    for body in (b"a", b"b"):
        clock.advance(60)
        assert queue.redrive("h", to="h", where=lambda record, body=body: record.body == body) == 1
    assert bodies(queue.read("h", start=ago(clock, 0))) == [b"b"]
    assert bodies(queue.read("h", start=ago(clock, 60))) == [b"a", b"b"]
