"""The ledger: what happened to messages, told once and truly."""

import pyarrow as pa
import pytest

import quiver
from quiver import limits
from tests.contract.verbs import drain, take
from tests.properties.ledger import sums


def events(table: pa.Table) -> list[str]:
    return table["event"].to_pylist()


def rows(table: pa.Table, *names: str) -> list[tuple]:
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


@pytest.fixture
def jobs(queue):
    """Topic "jobs" gives up after two attempts."""
    queue.create_topic("jobs", max_attempts=2)
    return queue


def live_through_everything(queue, clock) -> str:
    """Sent, leased, timed out, nacked, given up, redriven and acked; the message's id."""
    queue.send_batch("jobs", [b"before", b"before"])
    sent = queue.send("jobs", b"it")
    queue.ack(queue.receive("jobs", "g", max_messages=2))
    clock.advance(1)
    take(queue, "jobs", lease=10, consumer="w1")
    clock.advance(11)
    got = take(queue, "jobs", lease=10, consumer="w2")
    got.extend(60)
    clock.advance(2)
    got.nack(reason="Timeout: no answer")
    clock.advance(3)
    assert queue.redrive("jobs.dlq") == 1
    take(queue, "jobs", consumer="w3").ack()
    return sent.id


STORY = [
    ("sent", 0, None, None, None, None),
    ("leased", 1, "g", "w1", 1, None),
    ("timed_out", 12, "g", "w1", 1, None),
    ("leased", 12, "g", "w2", 2, None),
    ("extended", 12, "g", "w2", None, None),
    ("nacked", 14, "g", "w2", 2, "Timeout: no answer"),
    ("dead_lettered", 14, "g", None, 2, "Timeout: no answer"),
    ("redriven", 17, "g", None, None, None),
    ("leased", 17, "g", "w3", 1, None),
    ("acked", 17, "g", "w3", 1, None),
]


def told(queue, message_id: str) -> list[tuple]:
    """The story, with seconds since the send."""
    story = queue.trace(message_id).to_pylist()
    start = story[0]["time"]
    return [
        (x["event"], (x["time"] - start).total_seconds(), x["group"], x["consumer"], x["attempt"],
         x["reason"])
        for x in story
    ]  # fmt: skip


def test_a_trace_tells_the_true_story(jobs, clock):
    message_id = live_through_everything(jobs, clock)
    assert told(jobs, message_id) == STORY


def test_a_trace_knows_every_place_of_the_message(jobs, clock):
    message_id = live_through_everything(jobs, clock)
    story = jobs.trace(message_id)
    assert set(story["count"].to_pylist()) == {1}
    places = dict.fromkeys(rows(story, "topic", "partition", "offset"))
    assert list(places) == [("jobs", 0, 2), ("jobs.dlq", 0, 0), ("jobs", 0, 3)]
    moves = [x for x in rows(story, "event", "to_topic", "to_partition", "to_offset") if x[1]]
    assert moves == [("dead_lettered", "jobs.dlq", 0, 0), ("redriven", "jobs", 0, 3)]


def test_the_story_is_the_same_after_a_restart_and_after_a_snapshot(jobs, world, clock):
    message_id = live_through_everything(jobs, clock)
    assert told(world.reopen(), message_id) == STORY
    queue = world.snapshot_and_reopen()
    assert told(queue, message_id) == STORY
    queue.send("jobs", b"later")
    assert events(queue.ledger("jobs"))[-1] == "sent"
    assert told(world.snapshot_and_reopen(), message_id) == STORY


def test_the_sums_are_those_of_the_stats(jobs, clock):
    live_through_everything(jobs, clock)
    jobs.create_group("jobs", "fast", guarantee="at-most-once")
    jobs.send("jobs", b"x", dedup_id="a")
    jobs.send("jobs", b"x", dedup_id="a")
    jobs.send("jobs", b"y", ttl=1)
    assert len(drain(jobs, "jobs", "fast")) == 2  # one was redriven for the other group alone
    clock.advance(2)
    jobs.send("jobs", b"z")
    found = sums(jobs.ledger().to_pylist())
    stats = jobs.stats("jobs")
    assert found["jobs", None] == {"sent": stats.sent, "duplicate": stats.duplicates}
    assert stats.duplicates == 1
    for name, group in stats.groups.items():
        numbers = {x: getattr(group, x) for x in ("delivered", "redelivered", "acked", "nacked",
                   "timed_out", "dead_lettered", "redriven", "expired")}  # fmt: skip
        assert numbers == {x: found["jobs", name][x] for x in numbers}
        assert sum(numbers.values())
    assert stats.groups["g"].expired == 1


def test_what_happens_to_many_at_once_is_one_row(queue):
    queue.send_batch("t", [b"x"] * 1_000)
    queue.receive_arrow("t", "g", max_messages=1_000).ack()
    assert rows(queue.ledger(), "event", "offset", "count") == [
        ("sent", 0, 1_000), ("leased", 0, 1_000), ("acked", 0, 1_000)
    ]  # fmt: skip


def test_one_row_also_where_messages_are_handled_one_by_one(queue):
    queue.create_topic("k", order="key", max_attempts=1)
    batch = [quiver.Message(b"x", key=str(at % 100), dedup_id=str(at)) for at in range(100)]
    queue.send_batch("k", batch)
    queue.nack(queue.receive("k", "g", max_messages=100), reason="no")
    assert rows(queue.ledger(), "event", "offset", "count") == [
        ("sent", 0, 100), ("leased", 0, 100), ("nacked", 0, 100), ("dead_lettered", 0, 100)
    ]  # fmt: skip


def test_a_topic_without_a_ledger_is_not_in_it(queue):
    queue.create_topic("quiet", ledger=False, max_attempts=1)
    sent = queue.send("quiet", b"x", ttl=5)
    take(queue, "quiet").nack()
    queue.redrive("quiet.dlq")
    assert queue.policy("quiet.dlq").ledger is False
    assert queue.ledger().num_rows == 0
    with pytest.raises(quiver.MessageNotFound, match="ledger=False"):
        queue.trace(sent.id)


def test_a_move_is_told_if_one_of_its_topics_keeps_a_ledger(queue):
    queue.create_topic("quiet", ledger=False, dead_letter="t")
    queue.send("quiet", b"x")
    take(queue, "quiet").dead_letter(reason="no")
    assert rows(queue.ledger("t"), "event", "topic", "to_topic") == [
        ("dead_lettered", "quiet", "t")
    ]


def test_the_ledger_can_be_asked_for_a_topic_and_a_time(jobs, clock):
    jobs.send("t", b"early")
    clock.advance(10)
    jobs.send("jobs", b"x")
    take(jobs, "jobs").dead_letter()
    middle = jobs.ledger("jobs")["time"][0].as_py()
    clock.advance(10)
    jobs.send("t", b"late")
    assert events(jobs.ledger("t")) == ["sent", "sent"]
    assert events(jobs.ledger("jobs.dlq")) == ["dead_lettered"]
    assert events(jobs.ledger("t", end=middle)) == ["sent"]
    assert events(jobs.ledger(start=middle)) == ["sent", "leased", "dead_lettered", "sent"]
    assert jobs.ledger(start=middle, end=middle).num_rows == 0
    assert jobs.ledger("nobody").schema == jobs.ledger().schema


def test_filters_also_work_on_what_is_on_disk(jobs, world, clock):
    jobs.send("t", b"early")
    clock.advance(10)
    queue = world.snapshot_and_reopen()
    queue.send("t", b"late")
    late = queue.ledger()["time"][1].as_py()
    queue = world.snapshot_and_reopen()
    assert rows(queue.ledger(start=late), "event", "offset") == [("sent", 1)]
    assert rows(queue.ledger(end=late), "event", "offset") == [("sent", 0)]
    assert queue.ledger("jobs").num_rows == 0


def test_the_ledger_can_be_read_a_part_at_a_time(jobs, world):
    jobs.send("t", b"x")
    queue = world.snapshot_and_reopen()
    queue.send("t", b"y")
    reader = queue.ledger_reader("t")
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.read_all() == queue.ledger("t")


def test_a_reader_shows_the_moment_it_was_asked_for(jobs, world):
    jobs.send("t", b"x")
    reader = jobs.ledger_reader()
    jobs.send("t", b"y")
    assert reader.read_all().num_rows == 1


def test_an_id_that_nobody_knows_is_an_error_that_says_why(queue):
    sent = queue.send("t", b"x")
    entry = int(sent.id.partition("-")[0])
    for unknown in (f"{entry}-1", f"{entry + 1}-0", "0-0"):
        with pytest.raises(quiver.MessageNotFound, match="ledger_retention"):
            queue.trace(unknown)


@pytest.mark.parametrize("wrong", ["", "1", "1-", "a-b", "1-2-3", "-1-0", 12, None, b"1-0"])
def test_what_is_no_id_is_refused(queue, wrong):
    with pytest.raises(quiver.InvalidRequest, match="message id"):
        queue.trace(wrong)


def test_each_group_is_in_the_story(queue):
    queue.create_group("t", "b")
    sent = queue.send("t", b"x")
    take(queue, "t", "a").ack()
    take(queue, "t", "b").ack()
    assert rows(queue.trace(sent.id), "event", "group")[1:] == [
        ("leased", "a"), ("acked", "a"), ("leased", "b"), ("acked", "b")
    ]  # fmt: skip


def test_each_message_of_a_batch_has_its_own_story(queue):
    sent = queue.send_batch("t", [b"a", b"b", b"c"])
    got = queue.receive("t", "g", max_messages=3)
    got[1].ack()
    (placed,) = sent.placed
    stories = [events(queue.trace(f"{placed.index}-{row}")) for row in range(3)]
    assert stories == [["sent", "leased"], ["sent", "leased", "acked"], ["sent", "leased"]]


def test_a_delayed_message_is_sent_with_its_time(queue, clock):
    queue.send_batch("t", [quiver.Message(b"x", delay=60)] * 2 + [quiver.Message(b"y")])
    found = queue.ledger().to_pylist()
    assert [(x["count"], x["until"] and (x["until"] - x["time"]).total_seconds())
            for x in found] == [(2, 60.0), (1, None)]  # fmt: skip


def test_a_message_that_nobody_received_ends_its_life_in_the_ledger(queue, clock):
    sent = queue.send("t", b"x", ttl=1)
    clock.advance(2)
    queue.send("t", b"y")
    assert rows(queue.trace(sent.id), "event", "group") == [("sent", None), ("expired", None)]


def test_a_purge_and_a_discard_are_told(queue):
    one, two = queue.send("t", b"x"), queue.send("t", b"y")
    queue.discard("t", where=lambda message: message.body == b"x")
    queue.purge("t")
    assert events(queue.trace(one.id)) == ["sent", "discarded"]
    assert events(queue.trace(two.id)) == ["sent", "purged"]


def test_what_retention_takes_is_told(queue, clock):
    queue.create_topic("r", retention=60, keep_unsettled=False)
    acked, unread = queue.send("r", b"acked"), queue.send("r", b"unread")
    take(queue, "r").ack()
    clock.advance(61)
    queue.send("r", b"later")
    assert events(queue.trace(acked.id)) == ["sent", "leased", "acked", "dropped"]
    assert rows(queue.trace(unread.id), "event", "group") == [
        ("sent", None), ("lost", "g"), ("dropped", None)
    ]  # fmt: skip
    stats = queue.stats("r")
    assert (stats.dropped, stats.groups["g"].behind_retention) == (2, 1)


def test_what_compaction_takes_is_told(queue):
    queue.create_topic("c", retention="compact")
    old = queue.send("c", b"old", key="k")
    queue.send("c", b"new", key="k")
    for delivery in queue.receive("c", "g", max_messages=2):
        delivery.ack()
    assert queue.compact("c") == 1
    assert events(queue.trace(old.id)) == ["sent", "leased", "acked", "compacted"]
    assert queue.stats("c").compacted == 1


def test_a_seek_is_a_part_of_the_story_of_what_the_group_had(queue):
    queue.create_topic("s", retention="forever")
    old, new = queue.send("s", b"old"), queue.send("s", b"new")
    take(queue, "s").ack()
    queue.seek("s", "g", "earliest")
    take(queue, "s").ack()
    assert events(queue.trace(old.id)) == ["sent", "leased", "acked", "sought", "leased", "acked"]
    assert events(queue.trace(new.id)) == ["sent"]
    queue.delete_group("s", "g")
    assert events(queue.trace(old.id))[-1] == "group_deleted"


def test_members_ack_by_commit(queue):
    sent = queue.send("t", b"x")
    with queue.join("t", "team", "ann") as member:
        member.fetch()
        member.commit()
    assert rows(queue.trace(sent.id), "event", "group", "consumer")[1:] == [
        ("acked", "team", "ann")
    ]


def test_a_story_ends_with_its_topic(queue):
    sent = queue.send("t", b"x")
    queue.delete_topic("t")
    queue.create_topic("t")
    again = queue.send("t", b"another at the same offset")
    take(queue).ack()
    assert events(queue.trace(sent.id)) == ["sent", "topic_deleted"]
    assert events(queue.trace(again.id)) == ["sent", "leased", "acked"]


def test_a_refused_request_leaves_no_trace(queue):
    queue.create_topic("small", max_backlog=1)
    queue.send("small", b"x")
    with pytest.raises(quiver.QueueFull):
        queue.send("small", b"y")
    got = take(queue, "small")
    got.ack()
    with pytest.raises(quiver.ReceiptExpired):
        got.ack()
    assert events(queue.ledger()) == ["sent", "leased", "acked"]


def test_a_transaction_is_told_with_both_its_parts(queue):
    queue.create_topic("out")
    queue.send("t", b"in")
    with queue.transaction() as tx:
        tx.ack(take(queue))
        tx.send("out", b"result")
    assert rows(queue.ledger(), "event", "topic")[-2:] == [("acked", "t"), ("sent", "out")]


@pytest.mark.parametrize("wrong", ["yes", 1, None])
def test_ledger_is_true_or_false(queue, wrong):
    with pytest.raises(quiver.InvalidRequest, match="ledger must be True or False"):
        queue.create_topic("x", ledger=wrong)


def offsets(table: pa.Table) -> list[int]:
    return [
        row["offset"] + at for row in table.to_pylist() for at in range(row["count"])
        if row["event"] == "sent"
    ]  # fmt: skip


def test_rows_are_neither_missing_nor_doubled_while_snapshots_are_saved(queue, world, monkeypatch):
    monkeypatch.setattr(limits, "LEDGER_ROWS_MAX", 7)
    monkeypatch.setattr(limits, "LEDGER_FILES_MAX", 4)
    for sent in range(1, 120):
        queue.send("t", b"x")
        assert offsets(queue.ledger()) == [*range(sent)]
    assert any(path.name.startswith("ledger-") for path in world.path.iterdir())
    assert offsets(world.reopen().ledger()) == [*range(119)]


def test_a_reader_goes_on_when_its_files_are_gone(queue, world, monkeypatch):
    monkeypatch.setattr(limits, "LEDGER_FILES_MAX", 2)
    for _ in range(2):
        queue.send("t", b"x")
        queue = world.snapshot_and_reopen()
    reader = queue.ledger_reader()
    before = {path.name for path in world.path.iterdir() if path.name.startswith("ledger-")}
    queue.send("t", b"x")
    queue = world.snapshot_and_reopen()
    after = {path.name for path in world.path.iterdir() if path.name.startswith("ledger-")}
    assert before.isdisjoint(after), "the old ones were merged and removed"
    assert offsets(reader.read_all()) == [0, 1]
    assert offsets(queue.ledger()) == [0, 1, 2]


@pytest.mark.parametrize("wrong", ["soon", -1, None, "30x"])
def test_the_retention_of_the_ledger_is_a_duration(tmp_path, wrong):
    for connect in (quiver.connect, quiver.connect_async):
        with pytest.raises(quiver.InvalidRequest, match="ledger_retention"):
            connect(tmp_path / "data", ledger_retention=wrong)
    assert not (tmp_path / "data").exists()


def test_old_rows_go_with_the_retention_that_connect_was_given(tmp_path):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t")
        queue.send("t", b"x")
        queue.seal()
        queue.seal()
        assert offsets(queue.ledger()) == [0]
    with quiver.connect(tmp_path, ledger_retention=0) as queue:
        while queue.ledger().num_rows:  # as soon as a millisecond has passed
            queue.seal()
        assert queue.stats("t").sent == 1
