"""Heads: what goes in comes out, and what is no head is refused with an error of ours."""

import typing
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiver import limits
from quiver.batches import schema
from quiver.batches.codec import decode
from quiver.batches.output import Piece
from quiver.errors import BehindRetention, ProtocolError, QuotaExceeded, ReceiptExpired
from quiver.model import commands, levels
from quiver.model.commands import Held, Settle
from quiver.model.queries import FindTopic, PageFound, ReadPage
from quiver.model.replies import Origin, Received, Slice
from quiver.model.settlement import Settlement
from quiver.server.wire import checks
from quiver.wire import frames, values
from quiver.wire.problems import Trouble, Warned, errors
from quiver.wire.values import HEADS, NamedHead, SettleHead

NUMBERS = st.integers(0, 2**31 - 1)
PLACES = st.sampled_from([0, 2**31, 2**62])
TEXTS = st.text(max_size=300)
ORIGIN = Origin("orders", 0, 7, "billing", 3, "Timeout", 1_700_000_000_000, 1_600_000_000_000)
SLICES = st.builds(
    Slice, NUMBERS, NUMBERS, st.integers(1, 100), NUMBERS, NUMBERS, NUMBERS, NUMBERS,
    st.sampled_from([None, ORIGIN]), st.booleans(),
)  # fmt: skip


def head(verb: frames.Verb, value: Any) -> Any:
    return HEADS[verb](values.encode(value))


@given(st.lists(SLICES, max_size=5), st.binary(max_size=20), st.booleans())
def test_a_lease_comes_out_as_it_went_in(slices, tag, settled):
    got = Received(1, 2, 3, 4, tuple(slices), settled, lost=5)
    made = values.ReceivedOut.of(got, slices, tag)
    read = msgspec.msgpack.decode(values.encode(made), type=values.ReceivedOut)
    assert read.received() == got
    assert read.tag == tag


@given(
    st.builds(
        Slice, *[PLACES] * 7,
        st.none() | st.builds(
            Origin, TEXTS, PLACES, PLACES, TEXTS, PLACES, TEXTS, PLACES, PLACES
        ), st.booleans(),
    )
)  # fmt: skip
def test_a_slice_is_told_in_as_many_bytes_as_the_core_counts(part):
    assert len(values.encode(values.SliceOut.of(part))) <= part.told_bytes(levels.Bounds())


def test_a_head_has_room_for_what_a_receive_may_be_told():
    most = 2**62
    part = Slice(most, most, most, most, most, most, most, ORIGIN, reserved=True)
    others = Received(most, most, most, most, (part,), settled=True, lost=most)
    rest = len(values.encode(values.ReceivedOut.of(others, [part], bytes(64))))
    longest = part.told_bytes(levels.Bounds()) + 4 * (
        2 * limits.NAME_CHARS_MAX + limits.REASON_CHARS_MAX
    )
    told = limits.WIRE_TOLD_BYTES_MAX + rest + 2 * longest  # one is perhaps cut, as only some begin
    assert told <= limits.FRAME_HEAD_BYTES_MAX // 2
    lone = limits.RECEIVE_MESSAGES_MAX * Slice(0, 0, 1, 0, 0, 0).told_bytes(levels.Bounds())
    assert lone <= limits.WIRE_TOLD_BYTES_MAX


def test_a_settle_keeps_its_proofs():
    held = (Held(0, 9, ((1, 4), (6, 7))), Held(1, 10, ((2, 3),)))
    given = Settlement(Settle(1, 2, "begin", held, 5, 6, "why", seed=7), (b"one", b"two"))
    read = checks.settlement(head(frames.Verb.SETTLE, SettleHead.of(given)))
    command = replace(read.command, seed=7)  # which is the node's
    assert (command, read.tags) == (given.command, given.tags)


@pytest.mark.parametrize("kind", values._VALUES, ids=lambda kind: kind.__name__)
def test_every_value_has_a_name_and_a_type_of_answer(kind):
    answer = values.answer_type(kind)
    if answer is not Any and typing.get_origin(answer) is not typing.get_origin(
        typing.Iterator[Any]
    ):
        msgspec.msgpack.Decoder(answer)  # it can be decoded
    assert kind.__name__ in values._NAMED


def test_a_value_is_sent_by_its_name():
    query = ReadPage(3, {0: 5}, {0: 9}, 100, pending=True)
    read = HEADS[frames.Verb.ASK](values.named(query))
    assert values.value_of(read) == query
    watched = HEADS[frames.Verb.WATCH](values.named(FindTopic("orders"), wait_ms=1_500))
    assert watched.wait_ms == 1_500


def test_a_value_that_is_not_for_clients_is_refused():
    for name in (
        "Found",
        "SetTime",
        "Raise",
        "SetPeers",
        "Tick",
        "Publish",
        "Compact",
        "Send",
        "Nonsense",
    ):
        with pytest.raises(ProtocolError, match="nothing that this node does"):
            values.value_of(NamedHead(name, msgspec.Raw(values.encode({}))))


@given(st.sampled_from(sorted(HEADS)), st.binary(max_size=60))
def test_what_is_no_head_is_refused(verb, data):
    try:
        read = HEADS[verb](data)
    except ProtocolError:
        return
    assert isinstance(read, values.Head)


@given(st.sampled_from(sorted(values._NAMED)), st.binary(max_size=60))
def test_what_is_no_value_is_refused(name, data):
    try:
        values.value_of(NamedHead(name, msgspec.Raw(data)))
    except ProtocolError:
        return


def test_an_unknown_verb_is_refused():
    frame = frames.Frame(200, 0, 1, memoryview(b""), memoryview(b""))
    with pytest.raises(ProtocolError, match="200"):
        values.head_of(frame)


def batch_of(*bodies: bytes) -> pa.RecordBatch:
    return schema.assemble({"body": pa.array(bodies, schema.BODY)})


def test_messages_of_an_answer_are_those_of_its_slices():
    one, two = batch_of(b"a", b"b", b"c"), batch_of(b"d")
    parts = [Slice(0, 5, 2, 1, 1, 0), Slice(1, 9, 1, 2, 0, 0)]
    payload = values.encode_pieces([Piece(one, 1, parts[0]), Piece(two, 0, parts[1])])
    found = list(values.Messages.of(parts, payload).pieces())
    assert [piece.part for piece in found] == parts
    assert [piece.at for piece in found] == [0, 2]
    assert found[0].batch.column("body").to_pylist() == [b"b", b"c", b"d"]


def test_a_lone_body_is_encoded_as_the_log_has_it():
    payload = values.encode_pieces([Piece(batch_of(b"a", b"b"), 1, Slice(0, 0, 1, 0, 0, 0))])
    assert decode(payload).column("body").to_pylist() == [b"b"]


def test_an_answer_with_other_messages_than_it_says_is_refused():
    payload = values.encode_pieces([Piece(batch_of(b"a"), 0, Slice(0, 0, 1, 0, 0, 0))])
    with pytest.raises(ProtocolError, match="other messages"):
        values.Messages.of([Slice(0, 0, 2, 0, 0, 0)], payload)


def test_a_page_without_bodies_has_none():
    page = PageFound([Slice(0, 0, 1, 0, 0, 0)], {0: 1}, None, "orders")
    made = values.PageOut.of(page, page.slices, page.ahead)
    assert made.page(b"") == page


def test_errors_come_out_as_they_went_in():
    for error in (ReceiptExpired("late", ("one", "two")), QuotaExceeded("slow", 2.5)):
        again = Trouble.of(error).error()
        assert (type(again), str(again)) == (type(error), str(error))
        assert again.args == error.args


@pytest.mark.parametrize("code", sorted(errors()))
def test_every_error_can_be_told(code):
    assert errors()[code].code == code
    again = Trouble(code, "why").error()
    assert again.code == code


def test_warnings_come_out_as_they_went_in():
    told = BehindRetention("gone", "orders", "billing", 3)
    (made,) = Warned.all_of([told])
    assert made.notice().args == told.args


def test_commands_that_clients_may_ask_for_have_replies():
    assert commands.CreateTopic in values.PROPOSED
    assert all(values.answer_type(kind) for kind in values.PROPOSED)
