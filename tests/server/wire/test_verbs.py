"""What each verb does, and in which order requests of a connection are done."""

import time
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from quiver import limits
from quiver.batches.codec import HEADER, decode, encode_whole
from quiver.batches.rows import make_row, pack
from quiver.errors import (
    InvalidBatch,
    InvalidRequest,
    ProtocolError,
    ReceiptInvalid,
    TopicExists,
    TopicNotFound,
)
from quiver.model import commands, errands, queries
from quiver.model.commands import Pick, Position
from quiver.model.replies import Published, Settled, Staged
from quiver.model.topic import Retention, TopicPolicy
from quiver.wire import frames, values
from quiver.wire.frames import Flag, Verb
from quiver.wire.values import BatchHead, PageOut, PlacedOut, SendHead, TransactHead, encode, named
from tests.server.raw import Raw
from tests.server.wire.frames_client import Wire, settle_of

pytestmark = pytest.mark.process


def zstd(data):
    return pa.compress(data, "zstd", asbytes=True)


def run(wire, errand, payload=b"", flags=0):
    number = wire.send_frame(Verb.ERRAND, named(errand), payload, flags)
    return wire.value(number, values.answer_type(type(errand)))


def table_of(frame):
    return pa.ipc.open_stream(pa.py_buffer(frame.payload)).read_all()


# -- sending ---------------------------------------------------------------------------------------


def test_a_message_has_all_that_it_was_sent_with(wire, topic):
    sent = wire.send(topic, b"body", key="ann", headers={"a": "b"}, priority=3, dedup_id="d")
    again = wire.send(topic, b"body", dedup_id="d")
    assert again.duplicate
    assert (again.partition, again.offset) == (sent.partition, sent.offset)
    out, frame = wire.value(wire.submit_receive(topic), values.ReceivedOut)
    batch = decode(frame.payload)
    (row,) = batch.to_pylist()
    assert (row["body"], row["key"], row["priority"]) == (b"body", "ann", 3)
    assert dict(row["headers"]) == {"a": "b"}
    assert (out.slices[0].index, out.slices[0].row) == (sent.index, sent.row)


def test_delays_count_from_when_the_node_has_the_message(wire, topic):
    wire.send(topic, b"later", delay_ms=300)
    assert wire.receive(topic)[1] == []
    assert wire.receive(topic, wait_ms=5_000)[1] == [b"later"]


def test_many_lone_messages_are_told_where_each_is(wire, topic):
    numbers = [wire.submit(topic, b"%d" % at) for at in range(200)]
    placed = [wire.value(number, PlacedOut)[0] for number in numbers]
    assert [one.offset for one in placed] == list(range(200))
    assert all(one.count == 1 for one in placed)
    page = wire.ask(queries.ReadStats(wire.ask(queries.ListTopics((topic,)))[0]))
    assert page.depth == 200


def test_a_batch_is_stored_as_a_whole(wire, topic):
    placed = wire.send_batch(topic, [b"a", b"b", b"c"])
    assert [(one.offset, one.count) for one in placed] == [(0, 3)]
    assert wire.receive(topic)[1] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("count", [10, 50_000])
def test_a_batch_may_be_compressed_and_its_times_relative(wire, topic, count):
    batch = pack([make_row(b"x" * 20, delay=0.2, ttl=600) for _ in range(count)], 0)
    flags = Flag.SYNC | Flag.RELATIVE | Flag.ZSTD
    number = wire.send_frame(Verb.BATCH, encode(BatchHead(topic)), zstd(encode_whole(batch)), flags)
    begun_ms = time.time() * 1000
    placed, _ = wire.value(number, list[PlacedOut])
    assert sum(one.count for one in placed) == count
    out, frame = wire.value(wire.submit_receive(topic, wait_ms=10_000), values.ReceivedOut)
    row = decode(frame.payload).slice(0, 1).to_pylist()[0]
    assert 0 < row["expires_at"].timestamp() * 1000 - begun_ms < 660_000
    wire.settle(out)


def test_a_producer_sends_each_batch_once(wire, topic):
    opened = wire.propose(commands.OpenProducer(topic, "p"))
    batch = encode_whole(pack([make_row(b"a")], 0))
    head = encode(BatchHead(topic, ("p", opened.epoch, 0)))
    for duplicate in (False, True):
        number = wire.send_frame(Verb.BATCH, head, batch, Flag.SYNC)
        ((placed,), _) = wire.value(number, list[PlacedOut])
        assert placed.duplicate is duplicate


@pytest.mark.parametrize(
    "payload",
    [b"", b"x", b"\x01" * 15, bytes(100), encode_whole(pack([make_row(b"a")], 0), "zstd"),
     bytes(encode_whole(pack([make_row(b"a" * 500)], 0), "lz4")),
     bytes(encode_whole(pack([make_row(b"a")], 0)))[:-8]],
    ids=["nothing", "a byte", "short", "zeros", "small zstd", "lz4", "cut"],
)  # fmt: skip
def test_what_is_no_batch_is_refused(wire, topic, payload):
    whole = bytes(memoryview(payload))
    number = wire.send_frame(Verb.BATCH, encode(BatchHead(topic)), whole)
    if whole[1:2] == b"\x00" and len(whole) > 200:  # compression did not make it smaller
        wire.value(number, list[PlacedOut])
        return
    with pytest.raises(InvalidBatch):
        wire.value(number, list[PlacedOut])
    wire.ping()


def test_no_buffer_of_a_batch_may_be_compressed(wire, topic):
    batch = pack([make_row(b"a" * 10_000)], 0)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    message = reader.read_next_message().serialize()
    head = HEADER.pack(1, 0, 1, 1, message.size)
    number = wire.send_frame(Verb.BATCH, encode(BatchHead(topic)), head + message.to_pybytes())
    with pytest.raises(InvalidBatch, match="compressed buffers"):
        wire.value(number, list[PlacedOut])


# -- receiving and settling ------------------------------------------------------------------------


def test_every_action_of_a_settle(wire, topic):
    wire.send_batch(topic, [b"%d" % at for at in range(3)])
    got, _ = wire.receive(topic, count=3, begin=1)
    assert [part.reserved for part in got.slices] == [False, True]
    assert wire.settle(got, "begin", lease_ms=5_000).count == 3
    assert wire.settle(got, "extend", lease_ms=60_000).deadline_ms > got.deadline_ms
    assert wire.settle(got, "release").count == 3
    got, _ = wire.receive(topic, count=3)
    assert {part.attempt for part in got.slices} == {1}
    assert wire.settle(got, "nack", delay_ms=0, reason="no").count == 3
    got, _ = wire.receive(topic, count=3)
    assert {part.attempt for part in got.slices} == {2}
    assert wire.settle(got).count == 3
    settled = wire.settle(got)
    assert (settled.count, len(settled.refused)) == (0, 1)


def test_a_settle_needs_the_tag_of_its_lease(wire, topic):
    wire.send(topic, b"x")
    got, _ = wire.receive(topic)
    for tag in (b"", b"\x00" * 16, got.tag[:-1], got.tag + b"x"):
        forged = values.ReceivedOut(
            got.topic, got.group, got.epoch, got.deadline_ms, got.slices, tag=tag
        )
        with pytest.raises(ReceiptInvalid):
            wire.settle(forged)
    assert wire.settle(got).count == 1


def test_a_large_receive_comes_whole(wire, topic):
    bodies = [b"%06d" % at + b"x" * 100 for at in range(60_000)]
    wire.send_batch(topic, bodies)
    got, found = wire.receive(topic, count=100_000)
    assert found == bodies
    assert wire.settle(got).count == len(bodies)


def test_an_answer_is_compressed_for_who_can_read_it(connect, topic):
    wire = connect(accept_encoding="gzip, zstd")
    wire.send(topic, b"x" * 100_000)
    wire.send(topic, b"small")
    number = wire.submit_receive(topic, count=1)
    frame = wire.answer(number)
    assert frame.flags & Flag.ZSTD
    assert len(frame.payload) < 10_000
    wire.told[number] = [frame]
    assert wire.received(number)[1] == [b"x" * 100_000]
    number = wire.submit_receive(topic)
    frame = wire.answer(number)
    assert not frame.flags & Flag.ZSTD


def test_a_receive_waits_for_the_first_message(wire, connect, topic):
    number = wire.submit_receive(topic, wait_ms=20_000)
    wire.ping()
    connect().send(topic, b"x")
    assert wire.received(number)[1] == [b"x"]


def test_a_settle_and_the_next_receive_are_written_at_once(wire, topic):
    """And done in this order, so what the settle lets go of is had by the receive."""
    ordered = wire.topic("ordered", TopicPolicy(order="partition"))
    wire.send_batch(ordered, [b"a", b"b"])
    got, _ = wire.receive(ordered, count=1)
    for expected in (b"b", None):
        settling = wire.submit_settle(got)
        receiving = wire.submit_receive(ordered, count=1, wait_ms=100)
        assert wire.value(settling, Settled)[0].count == 1
        got, bodies = wire.received(receiving)
        assert bodies == ([expected] if expected else [])


def test_large_batches_keep_their_place_among_small_ones(wire, topic):
    """They are understood in a thread, and what comes behind them waits for that."""
    large = encode_whole(pack([make_row(b"L" * 500) for _ in range(20_000)], 0))
    small = encode_whole(pack([make_row(b"s")], 0))
    numbers = [
        wire.send_frame(Verb.BATCH, encode(BatchHead(topic)), payload, Flag.SYNC)
        for payload in (large, small, small, large, small)
    ]
    offsets = [wire.value(number, list[PlacedOut])[0][0].offset for number in numbers]
    assert offsets == [0, 20_000, 20_001, 20_002, 40_002]


def test_a_transaction_is_all_or_nothing(wire, topic):
    other = wire.topic("transact.other")
    wire.send(topic, b"in")
    got, _ = wire.receive(topic)
    one, two = (bytes(encode_whole(pack([make_row(body)], 0))) for body in (b"out", b"too"))
    head = TransactHead((settle_of(got),), ((topic, len(one)), (other, len(two))))
    number = wire.send_frame(Verb.TRANSACT, encode(head), one + two, Flag.SYNC)
    sent, _ = wire.value(number, list[list[PlacedOut]])
    assert [len(placed) for placed in sent] == [1, 1]
    again = wire.send_frame(Verb.TRANSACT, encode(head), one + two, Flag.SYNC)
    with pytest.raises(Exception, match=r"no longer hold|lease"):
        wire.value(again, object)
    assert wire.receive(topic)[1] == [b"out"]
    assert wire.receive(other)[1] == [b"too"]
    for sizes in ([len(one)], [len(one), len(two) + 1], [-1, 1 + len(one + two)]):
        head = TransactHead((), tuple((topic, size) for size in sizes))
        number = wire.send_frame(Verb.TRANSACT, encode(head), one + two)
        with pytest.raises(InvalidRequest):
            wire.value(number, object)


# -- other commands and questions ------------------------------------------------------------------


def test_topics_and_groups_are_managed(wire):
    policy = TopicPolicy(partitions=3, max_attempts=2, dead_letter="made.dlq")
    number = wire.topic("made", policy)
    assert wire.topic("made", policy) == number
    with pytest.raises(TopicExists):
        wire.topic("made", TopicPolicy(partitions=2))
    assert wire.find("made").policy == policy
    assert {"made", "made.dlq"} <= set(wire.ask(queries.ListTopics()))
    wire.propose(commands.CreateGroup(number, "g", Position("latest")))
    wire.propose(commands.PauseGroup(number, "g", paused=True))
    wire.propose(commands.Seek(number, "g", Position("earliest")))
    wire.propose(commands.DeleteGroup(number, "g"))
    changed = TopicPolicy(partitions=3, compression="zstd", max_attempts=2, dead_letter="made.dlq")
    wire.propose(commands.AlterTopic(number, changed, ("compression",)))
    assert wire.find("made").policy.compression == "zstd"
    wire.send(number, b"x")
    assert wire.propose(commands.Purge(number)).count == 1
    wire.propose(commands.DeleteTopic(number))
    for ask in (lambda: wire.find("made"), lambda: wire.send(number, b"x"),
                lambda: wire.receive(number)):  # fmt: skip
        with pytest.raises(TopicNotFound):
            ask()


def test_a_topic_that_was_made_again_is_another_one(wire, connect):
    first = wire.topic("again", TopicPolicy(partitions=2))
    other = connect()
    other.send(first, b"x", key="k")
    wire.propose(commands.DeleteTopic(first))
    second = wire.topic("again")
    with pytest.raises(TopicNotFound):
        other.send(first, b"x")
    assert other.send(second, b"x").partition == 0


def test_what_changes_through_another_door_is_known_here(wire, connect, node):
    number = wire.topic("doors")
    wire.send(number, b"x")
    with Raw(node.port) as raw:
        assert raw.ask("PATCH", "/v1/topics/doors", b'{"compression": "lz4"}',
                       content_type="application/json").status == 200  # fmt: skip
        wire.send_batch(number, [b"x" * 5_000])
        assert raw.ask("DELETE", "/v1/topics/doors").status == 204
        with pytest.raises(TopicNotFound):
            wire.send(number, b"x")
        assert raw.ask("PUT", "/v1/topics/doors", b'{"partitions": 4}',
                       content_type="application/json").status == 200  # fmt: skip
    with pytest.raises(TopicNotFound):
        wire.send(number, b"x")
    found = wire.find("doors")
    assert (found.policy.partitions, found.number != number) == (4, True)
    wire.send(found.number, b"x")


def test_a_group_of_members(wire, topic):
    assigned = wire.propose(commands.Join(topic, "m", "one", 30_000))
    assert assigned.partitions == ((0, 0),)
    wire.send_batch(topic, [b"a", b"b"])
    query = queries.FetchPage(topic, "m", "one", {0: 0}, 10)
    number = wire.send_frame(Verb.WATCH, named(query, 5_000))
    page, frame = wire.value(number, PageOut)
    assert decode(frame.payload).column("body").to_pylist() == [b"a", b"b"]
    wire.propose(commands.Commit(topic, "m", "one", ((0, 2),)))
    number = wire.send_frame(Verb.WATCH, named(queries.FetchPage(topic, "m", "one", {0: 2}, 9), 50))
    assert wire.value(number, PageOut | None)[0] is None
    assert wire.ask(queries.FindAssigned(topic, "m", "one")).partitions == ((0, 2),)
    wire.propose(commands.Heartbeat(topic, "m", "one"))
    wire.propose(commands.Leave(topic, "m", "one"))
    assert page.ahead == {0: 2}


def test_a_topic_is_read_page_by_page(wire, topic):
    (name,) = wire.ask(queries.ListTopics((topic,)))
    for at in range(30):
        wire.send(topic, b"%d" % at, sync=False)
    found = wire.ask(queries.LocateReplay(name, Position("earliest"), Position("latest")))
    assert (found.topic, found.starts, found.ends) == (topic, {0: 0}, {0: 30})
    positions, bodies = found.starts, []
    while positions[0] < 30:
        query = queries.ReadPage(topic, positions, found.ends, 12)
        page, frame = wire.value(wire.send_frame(Verb.ASK, named(query)), PageOut)
        bodies += page.page(frame.payload).bodies.batch.column("body").to_pylist()
        positions = page.ahead
    assert bodies == [b"%d" % at for at in range(30)]
    bare = queries.ReadPage(topic, found.starts, found.ends, 12, bodies=False)
    page, frame = wire.value(wire.send_frame(Verb.ASK, named(bare)), PageOut)
    assert (sum(part.count for part in page.slices), len(frame.payload)) == (12, 0)


def test_a_page_has_no_more_bytes_than_a_receive(wire, topic):
    (name,) = wire.ask(queries.ListTopics((topic,)))
    for _ in range(3):
        wire.send(topic, b"x" * limits.BODY_BYTES_MAX, sync=False)
    query = queries.ReadPage(topic, {0: 0}, {0: 3}, 10)
    page, frame = wire.value(wire.send_frame(Verb.ASK, named(query)), PageOut)
    assert len(frame.payload) <= limits.RECEIVE_BYTES_MAX + limits.MIB
    assert page.ahead[0] >= 1
    wire.propose(commands.Purge(topic))
    assert name


def test_the_ledger_comes_in_parts(wire, topic):
    (name,) = wire.ask(queries.ListTopics((topic,)))
    wire.send(topic, b"x")
    number = wire.send_frame(Verb.ASK, named(queries.ReadLedger(name)))
    events, more = [], True
    while more:
        frame = wire.answer(number)
        assert frame.verb == Verb.ANSWER
        more = bool(frame.flags & Flag.MORE)
        if len(frame.payload):
            events += table_of(frame)["event"].to_pylist()
    assert "sent" in events


def test_figures_and_files(wire, topic):
    (name,) = wire.ask(queries.ListTopics((topic,)))
    wire.send(topic, b"x")
    found = wire.ask(queries.ReadFigures((name, "no.such.topic")))
    assert [one.depth for one in found.topics] == [1]
    assert wire.ask(queries.ReadStorage()).files.log_files > 0
    assert wire.ask(queries.FindSegments(name)).files == ()
    assert wire.ask(queries.Ping()) > 0
    assert wire.ask(queries.FindPublished(name, "app")) is None
    got, _ = wire.receive(topic)
    holding = wire.ask(queries.FindHolding(topic, got.group, 0, 0))
    assert (holding.pending, holding.epoch) == (True, got.epoch)
    number = wire.send_frame(Verb.WATCH, named(queries.CountInFlight(topic, "g", 1), 50))
    assert wire.value(number, int | None)[0] is None
    wire.settle(got)
    number = wire.send_frame(Verb.WATCH, named(queries.CountInFlight(topic, "g", 1), 5_000))
    assert wire.value(number, int | None)[0] == 0


def test_dead_letters_go_back(wire):
    letters = wire.topic("back.dlq")
    topic = wire.topic("back", TopicPolicy(max_attempts=1, dead_letter="back.dlq"))
    for body in (b"1", b"2", b"3"):
        wire.send(topic, body)
    wire.settle(wire.receive(topic)[0], "dead_letter", reason="bad")
    picks = (Pick(0, ((0, 1),)),)
    assert wire.ask(queries.FindPicks("back.dlq", letters, picks)).origins == ("back",)
    run(wire, errands.DemandOrigins("back.dlq", letters, {0: 0}, {0: 3}))
    assert wire.propose(commands.Redrive(letters, picks)).count == 1
    assert wire.propose(commands.Redrive(letters, (Pick(0, ((1, 2),)),), topic)).count == 1
    assert wire.propose(commands.Discard(letters, (Pick(0, ((2, 3),)),))).count == 1
    assert sorted(wire.receive(topic)[1]) == [b"1", b"2"]


# -- errands ---------------------------------------------------------------------------------------


def test_messages_are_staged_and_published(wire, topic):
    (name,) = wire.ask(queries.ListTopics((topic,)))
    payload = encode_whole(pack([make_row(b"a"), make_row(b"b")], 0))
    staged, _ = run(wire, errands.StageBatch(name), payload)
    assert (type(staged), staged.rows) == (Staged, 2)
    assert wire.receive(topic)[1] == []
    published, _ = run(wire, errands.PublishStaged(name, (staged,), "app", 0, ""))
    assert published == Published(2, 2)
    assert run(wire, errands.PublishStaged(name, (staged,), "app", 0, ""))[0].duplicate
    assert wire.ask(queries.FindPublished(name, "app")).batch == 0
    assert wire.receive(topic)[1] == [b"a", b"b"]
    dropped, _ = run(wire, errands.StageBatch(name), payload)
    assert run(wire, errands.Unstage(name, (dropped,)))[0] == 2


def test_questions_in_sql(wire, topic):
    wire.topic("asked")
    wire.send(wire.find("asked").number, b"hello")
    _, frame = run(wire, errands.AskSql("select text from asked"))
    assert table_of(frame).to_pylist() == [{"text": "hello"}]
    with pytest.raises(InvalidRequest):
        run(wire, errands.AskSql("drop table asked"))
    number = wire.find("asked").number
    chosen, _ = run(wire, errands.Choose("asked", number, {0: 0}, {0: 1}, "text = 'hello'"))
    assert (chosen.runs, chosen.ahead) == (((0, 0, 1),), {0: 1})
    wrongs: list[dict[str, Any]] = [
        {"number": number + 1}, {"ends": {}}, {"positions": {7: 0}, "ends": {7: 1}},
    ]  # fmt: skip
    for wrong in wrongs:
        given = {"topic": "asked", "number": number, "positions": {0: 0}, "ends": {0: 1},
                 "condition": "true", **wrong}  # fmt: skip
        with pytest.raises(InvalidRequest):
            run(wire, errands.Choose(**given))


def test_a_question_ends_with_its_request(wire, topic):
    slow = "select count(*) from range(1000000) a, range(1000000) b where a.range + b.range = 7"
    number = wire.send_frame(Verb.ERRAND, named(errands.AskSql(slow)))
    time.sleep(0.3)
    wire.cancel(number)
    begun = time.monotonic()
    assert table_of(run(wire, errands.AskSql("select 1 as one"))[1]).num_rows == 1
    assert time.monotonic() - begun < 20


def test_the_story_of_a_message(wire, topic):
    sent = wire.send(topic, b"x")
    _, frame = run(wire, errands.Trace(f"{sent.index}-{sent.row}"))
    assert table_of(frame)["event"].to_pylist() == ["sent"]
    with pytest.raises(Exception, match="no message"):
        run(wire, errands.Trace("999999-0"))


def test_files_are_written_and_keys_compacted(wire):
    kept = wire.topic("kept", TopicPolicy(retention=Retention(forever=True)))
    wire.send(kept, b"x")
    run(wire, errands.SealAll())
    assert len(wire.ask(queries.FindSegments("kept")).files) == 1
    compacted = wire.topic("compacted", TopicPolicy(retention=Retention(compact=True)))
    for body in (b"1", b"2"):
        wire.send(compacted, body, key="k")
    assert run(wire, errands.CompactTopic("compacted"))[0] == 1
    with pytest.raises(InvalidRequest):
        run(wire, errands.CompactTopic("kept"))


# -- frames that are wrong -------------------------------------------------------------------------


def test_a_verb_that_is_not_known_is_an_error_and_no_end(wire):
    for verb in (0, 13, 63, 64, 65, 255):
        number = 1_000 + verb
        wire.socket.sendall(_frame(verb, number))
        with pytest.raises(ProtocolError):
            wire.value(number, object)
    wire.ping()


def _frame(verb, number, head=b""):
    return frames.HEADER.pack(len(head), len(head), verb, 0, 0, number) + head


def test_a_request_needs_an_id_that_no_other_has(connect, topic):
    head = encode(values.ReceiveHead(topic, "g", 1, 1_000, 5_000))
    for number, times in ((0, 1), (5, 2)):
        wire = connect()
        for _ in range(times):
            wire.send_frame(Verb.RECEIVE, head, number=number)
        frame = wire.frame()
        assert (frame.verb, frame.id) == (Verb.ERROR, 0)
        assert wire.is_closed()


def test_a_name_that_is_asked_for_like_another_is_refused(wire, topic):
    for verb, given in (
        (Verb.ASK, commands.Purge(topic)), (Verb.PROPOSE, queries.Ping()),
        (Verb.WATCH, queries.Ping()), (Verb.ERRAND, queries.Ping()),
        (Verb.ASK, errands.SealAll()), (Verb.ASK, queries.FetchPage(topic, "g", "m", {}, 1)),
    ):  # fmt: skip
        with pytest.raises(ProtocolError):
            wire.value(wire.send_frame(verb, named(given)), object)
    for name in (
        "Found",
        "Tick",
        "SetTime",
        "Raise",
        "SetPeers",
        "Compact",
        "Publish",
        "Send",
        "nonsense",
        "",
    ):
        head = encode(values.NamedHead(name, msgspec.Raw(b"\x80")))
        with pytest.raises(ProtocolError):
            wire.value(wire.send_frame(Verb.PROPOSE, head), object)


def test_a_payload_goes_only_with_messages(wire, topic):
    for verb, head in ((Verb.RECEIVE, encode(values.ReceiveHead(topic, "g", 1, 1_000))),
                       (Verb.ASK, named(queries.Ping()))):  # fmt: skip
        with pytest.raises(ProtocolError):
            wire.value(wire.send_frame(verb, head, b"x"), object)
    with pytest.raises(InvalidRequest):
        wire.value(wire.send_frame(Verb.ERRAND, named(errands.SealAll()), b"x"), object)


def test_a_message_that_is_compressed_to_too_much_is_refused(wire, topic):
    bomb = zstd(bytes(limits.BODY_BYTES_MAX + 1))
    assert len(bomb) < 10_000
    with pytest.raises(Exception, match="larger"):
        wire.value(wire.send_frame(Verb.SEND, encode(SendHead(topic)), bomb, Flag.ZSTD), object)
    with pytest.raises(Exception, match="zstd"):
        wire.value(wire.send_frame(Verb.SEND, encode(SendHead(topic)), b"no", Flag.ZSTD), object)
    number = wire.send_frame(Verb.SEND, encode(SendHead(topic)), zstd(b"yes"), Flag.ZSTD)
    wire.value(number, PlacedOut)
    assert wire.receive(topic)[1] == [b"yes"]


def test_requests_are_counted_by_what_they_ask_for(node, wire: Wire, topic):
    wire.send(topic, b"x")
    wire.settle(wire.receive(topic)[0])
    wire.ask(queries.ReadStats(wire.ask(queries.ListTopics((topic,)))[0]))
    wire.ping()
    with Raw(node.port) as raw:
        text = raw.ask("GET", "/metrics").body.decode()
    for operation in ("send", "receive", "ack", "read_stats", "create_topic"):
        assert f'quiver_requests_total{{code="ok",door="wire",operation="{operation}"}}' in text
    assert 'quiver_request_bytes_total{door="wire"}' in text
    assert 'quiver_response_bytes_total{door="wire"}' in text
