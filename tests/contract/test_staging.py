"""Staged messages: stored, not to be had, and then there all at once, each batch of an application once."""

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

import quiver
from quiver import limits
from quiver.client.flows import together
from tests.contract.verbs import bodies, drain, nothing, take

pytestmark = pytest.mark.python


def texts(queue, topic="t"):
    return [record.body for record in queue.read(topic)]


def test_staged_messages_are_not_to_be_had(queue):
    staged = queue.stage("t", [b"a", b"b"])
    assert (staged.topic, staged.rows, staged.nbytes) == ("t", 2, 2)
    assert nothing(queue)
    assert texts(queue) == []
    stats = queue.stats("t")
    assert (stats.depth, stats.stored, stats.sent, stats.staged) == (0, 0, 0, 2)
    assert queue.topics() == ["t"]


def test_a_batch_appears_as_a_whole_and_in_the_order_it_was_staged(queue):
    first, second = queue.stage("t", [b"a", b"b"]), queue.stage("t", [b"c"])
    queue.send("t", b"before")
    done = queue.publish("t", [second, first], application="etl", batch=0)
    assert (done.rows, done.nbytes, done.duplicate) == (3, 3, False)
    assert drain(queue) == [b"before", b"a", b"b", b"c"]
    assert (queue.stats("t").sent, queue.stats("t").staged) == (4, 0)


def test_what_stage_returns_can_be_taken_elsewhere(world, queue):
    staged = pickle.loads(pickle.dumps(queue.stage("t", [b"a"])))
    queue = world.reopen()
    queue.publish("t", [staged], application="etl", batch=3, run="r")
    assert drain(queue) == [b"a"]


def test_a_batch_is_published_once(queue):
    done = queue.publish("t", [queue.stage("t", [b"a"])], application="etl", batch=7)
    assert not done.duplicate
    again = queue.stage("t", [b"a"])
    told = queue.publish("t", [again], application="etl", batch=7)
    assert (told.rows, told.nbytes, told.duplicate) == (1, 1, True)
    older = queue.publish("t", [again], application="etl", batch=6)
    assert (older.rows, older.duplicate) == (0, True)
    assert drain(queue) == [b"a"]
    assert not queue.publish("t", [again], application="etl", batch=8).duplicate
    assert drain(queue) == [b"a"]


def test_applications_do_not_know_each_other(queue):
    for name in ("one", "two"):
        done = queue.publish("t", [queue.stage("t", [name])], application=name, batch=0)
        assert not done.duplicate
    assert drain(queue) == [b"one", b"two"]
    assert queue.published("t", "one") == 0
    assert queue.published("t", "three") is None


@pytest.mark.parametrize("how", ["reopen", "snapshot_and_reopen"])
def test_what_was_published_is_known_after_a_restart(world, queue, how):
    staged = queue.stage("t", [b"a"])
    waits = queue.stage("t", [b"b", b"c"])
    queue.publish("t", [staged], application="etl", batch=5, run="r")
    queue = getattr(world, how)()
    assert queue.published("t", "etl") == 5
    assert queue.publish("t", [waits], application="etl", batch=5, run="r").duplicate
    assert not queue.publish("t", [waits], application="etl", batch=6, run="r").duplicate
    assert drain(queue) == [b"a", b"b", b"c"]


def test_another_run_under_the_same_name_is_refused(queue):
    queue.publish("t", [queue.stage("t", [b"a"])], application="etl", batch=5, run="one")
    staged = queue.stage("t", [b"b"])
    with pytest.raises(quiver.InvalidRequest, match="run 'two'"):
        queue.publish("t", [staged], application="etl", batch=0, run="two")
    assert drain(queue) == [b"a"]
    queue.publish("t", [staged], application="etl", batch=6, run="one")
    assert drain(queue) == [b"b"]


def test_what_is_no_longer_staged_is_refused_whole(queue):
    gone, there = queue.stage("t", [b"a", b"b"]), queue.stage("t", [b"c"])
    assert queue.unstage("t", [gone]) == 2
    with pytest.raises(quiver.InvalidRequest, match="2 of 3 staged messages are no longer"):
        queue.publish("t", [there, gone], application="etl", batch=0)
    with pytest.raises(quiver.InvalidRequest, match="named twice"):
        queue.publish("t", [there, there], application="etl", batch=0)
    assert nothing(queue)
    queue.publish("t", [there], application="etl", batch=0)
    with pytest.raises(quiver.InvalidRequest, match="stage them again"):
        queue.publish("t", [there], application="etl", batch=1)
    assert drain(queue) == [b"c"]


def test_what_nobody_publishes_goes_after_a_day(world, queue):
    staged = queue.stage("t", [b"a"])
    world.clock.advance(limits.STAGED_SECONDS_MAX - 1)
    assert queue.stats("t").staged == 1
    world.clock.advance(2)
    queue.stage("t", [b"b"])
    assert queue.stats("t").staged == 1
    with pytest.raises(quiver.InvalidRequest, match="dropped for their age"):
        queue.publish("t", [staged], application="etl", batch=0)


def test_an_empty_batch_counts(queue):
    assert queue.publish("t", [], application="etl", batch=0).rows == 0
    assert queue.publish("t", [], application="etl", batch=0).duplicate


def test_everything_about_a_message_goes_along(world, queue):
    queue.create_topic("k", partitions=3, order="key")
    batch = [
        quiver.Message(b"1", key="a", headers={"h": "v"}, priority=3),
        quiver.Message(b"2", key="a"),
        quiver.Message(b"3", key="b", delay=60),
        quiver.Message(b"4", key="c", ttl=30),
    ]
    queue.publish("k", [queue.stage("k", batch)], application="etl", batch=0)
    queue.send("k", b"5", key="a")
    got = queue.receive("k", "g", max_messages=10)
    assert sorted(bodies(got)) == [b"1", b"4"]  # the key's next waits, the delayed one too
    one = next(delivery for delivery in got if delivery.body == b"1")
    assert (one.key, one.headers, one.priority) == ("a", {"h": "v"}, 3)
    queue.ack(got)
    assert bodies(queue.receive("k", "g", max_messages=10)) == [b"2"]
    world.clock.advance(61)
    assert b"3" in bodies(queue.receive("k", "g", max_messages=10))


def test_a_life_ends_also_for_what_was_staged_for_longer(world, queue):
    staged = queue.stage("t", [quiver.Message(b"short", ttl=10), quiver.Message(b"long")])
    world.clock.advance(20)
    queue.publish("t", [staged], application="etl", batch=0)
    assert drain(queue) == [b"long"]


def test_dedup_ids_are_carried_and_not_looked_at(queue):
    queue.send("t", b"a", dedup_id="x")
    staged = queue.stage(
        "t", [quiver.Message(b"b", dedup_id="x"), quiver.Message(b"c", dedup_id="x")]
    )
    queue.publish("t", [staged], application="etl", batch=0)
    assert drain(queue) == [b"a", b"b", b"c"]


def test_a_batch_waits_for_room(queue):
    queue.create_topic("small", max_backlog=2)
    queue.send("small", b"a")
    staged = queue.stage("small", [b"b", b"c"])
    with pytest.raises(quiver.QueueFull):
        queue.publish("small", [staged], application="etl", batch=0)
    queue.ack(queue.receive("small", "g"))
    queue.publish("small", [staged], application="etl", batch=0)
    assert drain(queue, "small") == [b"b", b"c"]


def test_an_old_batch_does_not_wait_for_room(queue):
    queue.create_topic("small", max_backlog=1)
    queue.publish("small", [queue.stage("small", [b"a"])], application="etl", batch=0)
    assert queue.publish("small", [], application="etl", batch=0).duplicate


def test_arrow_is_staged_as_it_is(queue):
    table = pa.table({"body": [b"x"] * 10_000, "key": [str(at) for at in range(10_000)]})
    parts = [queue.stage("t", table.slice(at, 2_500)) for at in range(0, 10_000, 2_500)]
    assert sum(part.rows for part in parts) == 10_000
    assert queue.publish("t", parts, application="etl", batch=0).nbytes == 10_000
    found = pa.concat_tables(queue.read_arrow("t"))
    assert found["key"].to_pylist() == [str(at) for at in range(10_000)]


def test_published_messages_are_sealed_with_their_topic(world, queue):
    staged = queue.stage("t", [str(at) for at in range(500)])
    queue.seal()  # where they are staged
    queue.publish("t", [staged], application="etl", batch=0)
    assert len(texts(queue)) == 500
    queue.seal()
    queue = world.reopen()
    assert texts(queue) == [str(at).encode() for at in range(500)]
    assert len(drain(queue)) == 500


def test_the_ledger_tells_it(queue):
    staged = queue.stage("t", [b"a", b"b"])
    queue.publish("t", [staged], application="etl", batch=0)
    got = take(queue)
    got.ack()
    events = queue.trace(got.id)
    assert events["event"].to_pylist() == ["sent", "published", "leased", "acked"]
    moved = events.to_pylist()[1]
    assert (moved["topic"], moved["to_topic"], moved["to_offset"]) == ("t~staged", "t", 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"application": "a b"},
        {"application": ""},
        {"application": 3},
        {"batch": -1},
        {"batch": True},
        {"batch": "1"},
        {"run": 5},
        {"run": "x" * (limits.REASON_CHARS_MAX + 1)},
        {"staged": [3]},
        {"staged": [quiver.Staged("other", (), 0, 0, 0)]},
        {"staged": [quiver.Staged("t", ((0, 5, 5),), 0, 0, 0)]},
        {"staged": [quiver.Staged("t", ((-1, 0, 1),), 1, 1, 0)]},
        {"staged": [quiver.Staged("t", ((9, 0, 1),), 1, 1, 0)]},
        {"staged": [quiver.Staged("t", ((0, 0, 1),), 1, 1, 0, "no tag")]},
    ],
    ids=str,
)
def test_mistakes_are_said(queue, wrong):
    given = {"staged": [], "application": "etl", "batch": 0, **wrong}
    with pytest.raises(quiver.InvalidRequest):
        queue.publish("t", given.pop("staged"), **given)


def test_a_topic_that_is_not_there_is_said(queue):
    with pytest.raises(quiver.TopicNotFound):
        queue.stage("none", [b"a"])
    with pytest.raises(quiver.TopicNotFound):
        queue.publish("none", [], application="etl", batch=0)
    with pytest.raises(quiver.TopicNotFound):
        queue.published("none", "etl")


def test_what_is_staged_goes_with_its_topic(queue):
    gone = queue.stage("t", [b"mine"])
    queue.delete_topic("t")
    with pytest.raises(quiver.TopicNotFound):
        queue.unstage("t", [gone])
    queue.create_topic("t", partitions=2)
    assert queue.stats("t").staged == 0
    there = queue.stage("t", [b"another's"])
    assert there.number != gone.number
    assert queue.unstage("t", [gone]) == 0
    with pytest.raises(quiver.InvalidRequest, match="stage it again"):
        queue.publish("t", [gone], application="etl", batch=0)
    queue.publish("t", [there], application="etl", batch=0)
    assert queue.publish("t", [gone], application="etl", batch=0).duplicate
    assert drain(queue) == [b"another's"]


@pytest.mark.parametrize(
    "change",
    [
        lambda part: replace(part, tag=""),  # as of a version that made none
        lambda part: replace(part, tag="0" * 32),
        lambda part: replace(part, ranges=((0, 0, 3),)),
        lambda part: replace(part, ranges=((0, 0, 1),)),
        lambda part: replace(part, ranges=((0, 1, 2),)),
        lambda part: replace(part, ranges=((1, 0, 2),)),
        lambda part: replace(part, ranges=((0, 0, 2), (0, 2, 3))),
        lambda part: replace(part, ranges=((0, 0, 3), (0, 0, 3)), tag="0" * 32),
        lambda part: replace(part, ranges=((0, 0, 3), (0, 2, 3)), tag=part.tag),
        lambda part: replace(part, number=part.number + 1),
    ],
)
def test_only_what_was_staged_can_be_published_or_dropped(queue, change):
    queue.create_topic("u", partitions=2)
    mine = queue.stage("t", [b"a", b"b"])
    queue.stage("t", [b"another's"])
    for use in (
        lambda part: queue.publish("t", [part], application="etl", batch=0),
        lambda part: queue.publish("t", [mine, part], application="etl", batch=0),
        lambda part: queue.unstage("t", [part]),
    ):
        with pytest.raises(quiver.InvalidRequest, match=r"stage it again|named twice"):
            use(change(mine))
    assert queue.stats("t").staged == 3
    assert queue.publish("t", [mine], application="etl", batch=0).rows == 2


def test_nobody_can_name_the_topic_where_messages_are_staged(queue):
    queue.stage("t", [b"a"])
    name = "t~staged"
    for use in (
        lambda: queue.create_topic(name),
        lambda: queue.create_topic("dead", dead_letter=name),
        lambda: queue.alter_topic("t", dead_letter=name),
        lambda: queue.alter_topic(name, retention="forever"),
        lambda: queue.delete_topic(name),
        lambda: queue.purge(name),
        lambda: queue.stats(name),
        lambda: queue.policy(name),
        lambda: queue.segments(name),
        lambda: queue.offsets(name),
        lambda: queue.send(name, b"x"),
        lambda: queue.send_batch(name, [b"x"]),
        lambda: queue.stage(name, [b"x"]),
        lambda: queue.publish(name, [], application="etl", batch=0),
        lambda: queue.receive(name),
        lambda: queue.create_group(name, "g"),
        lambda: queue.seek(name, "g", "earliest"),
        lambda: list(queue.read(name)),
        lambda: queue.discard(name),
        lambda: queue.redrive(name, to="t"),
        lambda: queue.redrive("t", to=name),
        lambda: queue.ledger(name),
    ):
        with pytest.raises(quiver.InvalidRequest, match="must be 1 to"):
            use()
    assert (queue.topics(), list(queue.overview().topics)) == (["t"], ["t"])
    assert queue.stats("t").staged == 1


def test_a_topic_with_such_a_name_of_before_is_a_topic_like_any_other(queue):
    queue.create_topic("t.staged")
    queue.send("t.staged", b"x")
    part = queue.stage("t", [b"a"])
    queue.publish("t", [part], application="etl", batch=0)
    assert texts(queue, "t.staged") == [b"x"]
    queue.publish("t.staged", [queue.stage("t.staged", [b"y"])], application="etl", batch=0)
    assert drain(queue, "t.staged") == [b"x", b"y"]
    queue.delete_topic("t.staged")
    assert drain(queue) == [b"a"]


def test_a_batch_of_many_parts_is_said_in_few_words(queue):
    parts = [queue.stage("t", [b"a", b"b"]) for _ in range(5)]
    other = queue.stage("t", [b"c"])
    [whole] = together("t", [*reversed(parts[1:]), parts[0]])
    [*_, rest] = together("t", [parts[0], parts[2], other])
    assert whole == quiver.Staged("t", ((0, 0, 10),), 10, 10, other.number, whole.tag)
    assert rest.ranges == ((0, 0, 2), (0, 4, 6), (0, 10, 11))
    with pytest.raises(quiver.InvalidRequest, match="named twice"):
        together("t", [other, other])
    assert queue.publish("t", [whole], application="etl", batch=0).rows == 10
