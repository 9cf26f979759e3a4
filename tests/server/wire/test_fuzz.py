"""No bytes make a node fail: it answers, refuses or closes, and goes on, and takes no memory for them."""

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quiver import limits
from quiver.batches.codec import encode_whole
from quiver.batches.rows import make_row, pack
from quiver.errors import ProtocolError
from quiver.model import commands, errands, queries
from quiver.model.commands import Pick, Position
from quiver.model.topic import TopicPolicy
from quiver.server.wire.rights import NAMED
from quiver.wire import values
from quiver.wire.frames import HEADER, Flag, Verb
from quiver.wire.frames import pack as packed
from tests.lengths import examples
from tests.server.nodes import Node, start_node
from tests.server.test_fuzz import mangled
from tests.server.wire.frames_client import Wire

pytestmark = [pytest.mark.process]

BATCH = bytes(encode_whole(pack([make_row(b"body", key="k", headers={"a": "b"})], 0)))
SAMPLES = [
    b"".join(bytes(piece) for piece in packed(verb, 5, head, payload, flags) if piece is not None)
    for verb, head, payload, flags in (
        (Verb.SEND, values.encode(values.SendHead(1, "k", {"a": "b"}, 3, 5, 6, "d")), b"body", 1),
        (Verb.BATCH, values.encode(values.BatchHead(1, ("p", 1, 0))), BATCH, 9),
        (Verb.RECEIVE, values.encode(values.ReceiveHead(1, "g", 1, 1_000, 5)), b"", 1),
        (Verb.SETTLE, values.encode(values.SettleHead(1, 2, "ack", (
            values.HeldHead(0, 5, b"x" * 16, ((0, 1),)),))), b"", 1),
        (Verb.TRANSACT, values.encode(values.TransactHead((), ((1, len(BATCH)),))), BATCH, 1),
        (Verb.PROPOSE, values.named(commands.CreateTopic("u", TopicPolicy(labels={"a": "b"}))), b"", 1),
        (Verb.PROPOSE, values.named(commands.Discard(1, (Pick(0, ((0, 1),)),))), b"", 1),
        (Verb.PROPOSE, values.named(commands.Seek(1, "g", Position("offset", 3))), b"", 1),
        (Verb.ASK, values.named(queries.ReadPage(1, {0: 0}, {0: 5}, 10)), b"", 0),
        (Verb.ASK, values.named(queries.ReadLedger("t")), b"", 0),
        (Verb.WATCH, values.named(queries.FetchPage(1, "g", "m", {0: 0}, 10), 5), b"", 0),
        (Verb.ERRAND, values.named(errands.StageBatch("t")), BATCH, 8),
        (Verb.CANCEL, b"", b"", 0), (Verb.PING, b"", b"", 0),
    )
]  # fmt: skip
CALM = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with start_node(tmp_path_factory.mktemp("fuzz")) as started:
        with Wire(started.port) as wire:
            wire.send(wire.topic("t"), b"x")
        yield started
        bad = [line for line in started.lines if line["level"] in ("error", "warning")]
        assert not bad, bad


def survives(node: Node, data: bytes) -> list[values.ErrorHead]:
    """What a node answers to bytes on a connection, which it ends or answers a ping on."""
    found = []
    with Wire(node.port) as wire, suppress(OSError, ProtocolError):
        wire.socket.settimeout(5)
        wire.socket.sendall(data)
        wire.send_frame(Verb.PING, number=2**32 - 7)
        wire.socket.shutdown(1)
        while (frame := wire.frame()).id != 2**32 - 7:
            if frame.verb == Verb.ERROR:
                found.append(values.head_of(frame))
    assert not [one for one in found if one.trouble.code == "internal_error"], found
    return found


@settings(max_examples=examples(300), suppress_health_check=CALM)
@given(data=st.one_of(mangled(SAMPLES), st.binary(max_size=200)))
def test_any_bytes(node: Node, data: bytes):
    survives(node, data)


HEADS = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.integers(0, 5),
        st.floats(allow_nan=False), st.text(max_size=20), st.binary(max_size=20),
        st.sampled_from(["t", "g", "m", "ack", "earliest", "u"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=8), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=examples(400), suppress_health_check=CALM)
@given(
    verb=st.integers(0, 255),
    flags=st.integers(0, 15),
    head=HEADS,
    payload=st.one_of(st.just(b""), st.binary(max_size=100), mangled([BATCH])),
)
def test_any_header_with_any_head(node: Node, verb: int, flags: int, head: Any, payload: bytes):
    data = msgspec.msgpack.encode(head)
    padding = bytes(-len(data) % 8) if payload else b""
    nbytes = len(data) + len(padding) + len(payload)
    header = HEADER.pack(nbytes, len(data), verb, flags, 0, 5)
    survives(node, header + data + padding + payload)


KINDS = [*values.PROPOSED, *queries.QUERIES, *queries.WATCHED, *errands.ERRANDS]


def anything(kind: Any) -> st.SearchStrategy[Any]:
    """A value of this class, of the right types and with any values."""
    numbers = st.one_of(st.integers(0, 3), st.integers(-(2**63), 2**64 - 1))
    texts = st.one_of(st.sampled_from(["t", "g", "m", "app", "true", "1-0"]), st.text(max_size=10))
    places = st.dictionaries(st.integers(0, 2), numbers, max_size=3)
    known: dict[str, st.SearchStrategy[Any]] = {
        "int": numbers, "str": texts, "bool": st.booleans(), "dict[int, int]": places,
        "Position": st.builds(
            Position, st.sampled_from(["earliest", "latest", "offset", "time"]), numbers,
            st.one_of(st.none(), numbers),
        ),
        "tuple[Pick, ...]": st.lists(
            st.builds(Pick, numbers, st.lists(st.tuples(numbers, numbers), max_size=3).map(tuple)),
            max_size=3,
        ).map(tuple),
        "TopicPolicy": st.builds(
            TopicPolicy, partitions=numbers, max_attempts=st.one_of(st.none(), numbers),
            dead_letter=st.one_of(st.none(), texts), dedup_window_ms=numbers,
            split_keys=st.lists(texts, max_size=2).map(tuple),
        ),
        "Guarantee": st.sampled_from(["at-least-once", "at-most-once"]),
        "tuple[int, ...]": st.lists(numbers, max_size=3).map(tuple),
        "tuple[str, ...]": st.lists(texts, max_size=3).map(tuple),
        "tuple[tuple[int, int], ...]": st.lists(st.tuples(numbers, numbers), max_size=3).map(tuple),
        "tuple[Staged, ...]": st.just(()),
    }  # fmt: skip

    def of(annotation: Any) -> st.SearchStrategy[Any]:
        name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        name = str(annotation) if name in ("tuple", "dict", "") else name
        name = name.replace("quiver.model.commands.", "").replace("quiver.model.replies.", "")
        if name.endswith(" | None"):
            return st.one_of(st.none(), of(name.removesuffix(" | None")))
        return known.get(name, st.just("at-least-once"))

    fields = {name: of(annotation) for name, annotation in kind.__annotations__.items()}
    return st.builds(kind, **fields)


@settings(max_examples=examples(400), suppress_health_check=CALM)
@given(given_=st.sampled_from(KINDS).flatmap(anything))
def test_any_value_of_the_right_type(node: Node, given_: Any):
    verb = NAMED[type(given_)].verb
    payload = BATCH if isinstance(given_, errands.StageBatch) else b""
    start, rest = packed(verb, 5, values.named(given_, 1), payload, Flag.SYNC)
    assert rest is None
    if isinstance(given_, commands.DeleteTopic | commands.Purge):
        return  # the others need it
    survives(node, start)


def test_memory_is_not_taken_for_what_is_only_claimed(node: Node):
    def resident() -> int:
        (line,) = [
            line for line in Path(f"/proc/{node.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS")
        ]  # fmt: skip
        return int(line.split()[1]) * 1024

    before = resident()
    opened = []
    try:
        for verb in (Verb.BATCH, Verb.TRANSACT, Verb.ERRAND, Verb.SEND) * 10:
            wire = Wire(node.port)
            opened.append(wire)
            most = 16 * limits.MIB if verb == Verb.SEND else 100 * limits.MIB
            wire.socket.sendall(HEADER.pack(most, 10, verb, 0, 0, 1) + bytes(2_000))
            # Batches that claim much more than they are
            head = values.encode(values.BatchHead(1))
            for claim in (
                struct.pack("<BBHIQ", 1, 2, 1, 1_000_000, 100 * limits.MIB),
                struct.pack("<BBHIQ", 1, 0, 1, 1_000_000, 100 * limits.MIB),
                struct.pack("<BBHIQ", 1, 0, 255, 2**32 - 1, 2**63),
            ):
                with Wire(node.port) as other:
                    number = other.send_frame(Verb.BATCH, head, claim + bytes(200))
                    assert other.answer(number).verb == Verb.ERROR
        assert resident() - before < 100 * limits.MIB
    finally:
        for wire in opened:
            wire.close()
    with Wire(node.port) as wire:
        wire.ping()
