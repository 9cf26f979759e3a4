"""What values may be that come over the wire: the core trusts what it is given, and these are strangers'.

Each function returns what is to be used, or raises what the native door would for the same value.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from secrets import randbits
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quiver import limits
from quiver.batches import codec, schema
from quiver.batches.arrow_input import accept
from quiver.batches.rows import Row, make_row
from quiver.client import arguments
from quiver.client.flows import check_publish
from quiver.errors import InvalidBatch, InvalidRequest, LimitExceeded, ReceiptInvalid
from quiver.model import commands, errands, queries
from quiver.model.commands import Held, Pick, Position, ProducerStamp, Receive, Settle
from quiver.model.ranges import Range, merge
from quiver.model.settlement import Settlement
from quiver.model.topic import TopicPolicy, argument_of
from quiver.node.placing import TopicHandle
from quiver.server.api import arrow
from quiver.server.api.groups import offsets_in
from quiver.server.api.messages import ranges_in
from quiver.wire.values import BatchHead, ReceiveHead, SendHead, SettleHead

NUMBER_MAX: Final = 2**62
_SPAN_MS_MAX: Final = limits.DURATION_SECONDS_MAX * 1000
_LEASE_MS_MAX: Final = limits.LEASE_SECONDS_MAX * 1000
_WAIT_MS_MAX: Final = limits.WAIT_SECONDS_MAX * 1000
INLINE_ROWS: Final = 2 * limits.INLINE_ROWS_MAX  # of a producer's batch
_NUMBERS: Final = range(2**32)  # of partitions, as receipts have them
_OFFSETS: Final = range(NUMBER_MAX)

number = partial(arguments.whole, low=0, high=NUMBER_MAX)
name = partial(arguments.name, what="topic")
partition = partial(arguments.whole, what="partition", low=0, high=limits.PARTITIONS_MAX)
wait_ms = partial(arguments.whole, what="wait in ms", low=0, high=_WAIT_MS_MAX)


# -- sending ---------------------------------------------------------------------------------------


def row(head: SendHead, body: bytes) -> Row:
    """One message."""
    made = make_row(
        body, key=head.key, headers=head.headers, priority=head.priority, dedup_id=head.dedup_id
    )
    if head.delay_ms:
        made.delay_ms = arguments.whole(head.delay_ms, "delay in ms", 0, _SPAN_MS_MAX)
    if head.ttl_ms:
        made.ttl_ms = arguments.whole(head.ttl_ms, "ttl in ms", 0, _SPAN_MS_MAX)
    return made


def producer(head: BatchHead) -> ProducerStamp | None:
    """Who sends a batch, if it has a name."""
    if head.producer is None:
        return None
    name, epoch, sequence = head.producer
    fields = number(epoch, "epoch"), number(sequence, "sequence")
    return ProducerStamp(arguments.name(name, "producer"), *fields)


def batch(data: codec.BytesLike, now_ms: int | None) -> pa.RecordBatch:
    """A batch in the log's form, whose times count from `now_ms`, or are moments if that is None.

    What it claims is held against the limits before Arrow looks at it; no part of it may be compressed,
    for the size that a part claims would be taken from memory.
    """
    try:
        rows, mask = codec.outside(data)
        content = pa.py_buffer(data)[codec.HEADER.size :]
        message = pa.ipc.read_message(content)
        head = message.metadata
        if head.size > limits.ARROW_HEAD_BYTES_MAX or arrow.compressed(head.to_pybytes()):
            raise InvalidBatch(
                "a batch has a head that is too large, or compressed buffers; compress the payload "
                "as a whole instead"
            )
        bare = mask == schema.MASK_BODY
        columns = schema.BARE if bare else schema.schema_of(mask)
        found = accept(pa.ipc.read_record_batch(message, columns))
    except (pa.ArrowException, OSError, EOFError, OverflowError, MemoryError) as error:
        raise InvalidBatch(f"the payload is not a batch of messages: {error}") from None
    if found.num_rows != rows:
        raise InvalidBatch(f"the batch has {found.num_rows:,} messages and claims {rows:,}")
    return found if now_ms is None else _shifted(found, now_ms)


def _shifted(batch: pa.RecordBatch, by_ms: int) -> pa.RecordBatch:
    made = schema.shifted(batch, by_ms)
    for name in ("deliver_at", "expires_at"):
        place = made.schema.get_field_index(name)
        latest = None if place < 0 else pc.max(made.column(place).view(pa.int64())).as_py()
        if latest is not None and latest > limits.TIME_MS_MAX:
            raise InvalidBatch(
                f"{name} is {latest - by_ms:,} milliseconds from now, which is later than any time"
            )
    return made


def is_small(data: codec.BytesLike) -> bool:
    """Whether a batch may be understood in the event loop; what is none is refused as soon as it is."""
    if len(data) > limits.WIRE_INLINE_BYTES_MAX:
        return False
    return len(data) < codec.HEADER.size or codec.HEADER.unpack_from(data)[3] <= INLINE_ROWS


def cut(data: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    """The batches of a transaction, one after the other in a payload."""
    if any(size < 0 for size in sizes) or sum(sizes) != len(data):
        raise InvalidRequest("the sizes of a transaction's batches are not those of its payload")
    ends = list(accumulate(sizes))
    return [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]


# -- receiving and settling ------------------------------------------------------------------------


def receive(head: ReceiveHead) -> Receive:
    """What a receive asks for."""
    wait_ms(head.wait_ms)
    return Receive(
        head.topic,
        arguments.name(head.group, "group"),
        arguments.whole(head.max_messages, "max_messages", 1, limits.RECEIVE_MESSAGES_MAX),
        lease_ms(head.lease_ms),
        arguments.text(head.consumer, "consumer"),
        arguments.whole(head.per_key, "per_key", 1, limits.RECEIVE_MESSAGES_MAX),
        arguments.begins(head.begin, head.wait_ms),
        limits.WIRE_TOLD_BYTES_MAX,
    )


def lease_ms(value: int) -> int:
    """A lease's length."""
    return arguments.whole(value, "lease in ms", 1, _LEASE_MS_MAX)


def settlement(head: SettleHead) -> Settlement:
    """A settle, with one range of each offset; whether its tags are ours is for the broker to say."""
    found: dict[tuple[int, int, bytes], list[Range]] = {}
    for one in head.held:
        if one.partition not in _NUMBERS or any(end not in _OFFSETS for _, end in one.ranges):
            raise ReceiptInvalid("no lease has such a place; settle what was delivered, as it was")
        lease = one.partition, one.epoch, one.tag
        found.setdefault(lease, []).extend(ranges_in(list(one.ranges)))
    if not found:
        raise InvalidRequest("a settle without messages settles nothing; leave it out")
    held = tuple(Held(at, epoch, tuple(merge(ranges))) for (at, epoch, _), ranges in found.items())
    delay, span_ms = head.delay_ms, 0
    if delay is not None:
        arguments.whole(delay, "delay in ms", 0, _SPAN_MS_MAX)
    if head.action == "extend" or (head.action == "begin" and head.lease_ms):
        span_ms = lease_ms(head.lease_ms)
    reason = arguments.text(head.reason, "reason")
    command = Settle(
        head.topic, head.group, head.action, held, delay, span_ms, reason, randbits(63)
    )
    return Settlement(command, tuple(tag for _, _, tag in found))


def parts(count: int) -> None:
    """How many parts a transaction may have."""
    if not count:
        raise InvalidRequest("a transaction without parts does nothing; leave it out")
    if count > limits.TRANSACTION_COMMANDS_MAX:
        raise LimitExceeded(
            f"a transaction has at most {limits.TRANSACTION_COMMANDS_MAX} parts; send batches"
        )


# -- commands --------------------------------------------------------------------------------------


def command(given: Any) -> Any:
    """A command that is proposed."""
    match given:
        case commands.CreateTopic():
            name = arguments.name(given.name, "topic")
            return commands.CreateTopic(name, policy(name, given.policy))
        case commands.OpenProducer():
            arguments.name(given.name, "name")
        case commands.CreateGroup() | commands.Seek():
            arguments.name(given.group, "group")
            return replace(given, position=position(given.position))
        case commands.DeleteGroup() | commands.PauseGroup():
            arguments.name(given.group, "group")
        case commands.Discard() | commands.Redrive():
            return replace(given, picks=picks(given.picks))
        case commands.Join():
            _member(given)
            lease_ms(given.session_ms)
        case commands.Heartbeat():
            _member(given)
            _few(given.released, "partitions", limits.PARTITIONS_MAX)
            for one in given.released:
                partition(one)
        case commands.Commit():
            _member(given)
            offsets = sorted(offsets_in(dict(given.offsets)).items())
            return replace(given, offsets=tuple(offsets))
        case commands.Leave():
            _member(given)
    return given


def policy(topic: str, given: TopicPolicy) -> TopicPolicy:
    """A policy that `create_topic` could have made."""
    made = arguments.from_arguments(topic, arguments.of_policy(given))
    if made != given:
        raise InvalidRequest("the policy is not one that create_topic makes; is the client newer?")
    return made


def alteration(
    topic: str, known: TopicPolicy, given: commands.AlterTopic
) -> tuple[TopicPolicy, list[str]]:
    """The policy with the fields of a command changed, and the fields that this is about."""
    wanted = arguments.of_policy(given.policy)
    fields = {name: argument_of(name) for name in given.fields}
    changes = {argument: wanted.get(argument) for argument in fields.values()}
    return arguments.altered(topic, known, changes)


def position(given: Position) -> Position:
    """A place in a topic."""
    if given.partition is not None:
        partition(given.partition)
    if given.start == "time":
        arguments.whole(given.value, "time in ms", 0, limits.TIME_MS_MAX)
    else:
        number(given.value, "offset")
    return given


def picks(given: Iterable[Pick]) -> tuple[Pick, ...]:
    """Chosen messages."""
    found = [(partition(pick.partition), list(pick.ranges)) for pick in given]
    if found:
        ranges_in([one for _, ranges in found for one in ranges])
    return tuple(Pick(at, tuple(ranges)) for at, ranges in found)


def _member(given: commands.Join | commands.Heartbeat | commands.Commit | commands.Leave) -> None:
    arguments.name(given.group, "group")
    arguments.name(given.member, "member")


# -- queries and errands ---------------------------------------------------------------------------


def query(given: Any, topic: TopicHandle | None) -> None:
    """A query, about this topic."""
    match given:
        case queries.ListTopics():
            _few(given.numbers or (), "topics", limits.TOPICS_MAX)
        case queries.ReadFigures():
            _few(given.topics, "topics", limits.TOPICS_MAX)
        case queries.LocateReplay():
            position(given.start)
            position(given.end)
            if given.partition is not None:
                partition(given.partition)
        case queries.ReadPage():
            assert topic is not None
            arguments.whole(given.limit, "limit", 1, limits.PAGE_MESSAGES_MAX)
            replay(topic, given.positions, given.ends)
        case queries.FindPicks():
            picks(given.picks)
        case queries.FindPublished():
            arguments.name(given.application, "application")
        case queries.FindAssigned():
            arguments.name(given.group, "group")
            arguments.name(given.member, "member")
        case queries.ReadLedger():
            for moment in (given.start_ms, given.end_ms):
                if moment is not None:
                    arguments.whole(moment, "time in ms", 0, limits.TIME_MS_MAX)
            number(given.first, "entry")
        case queries.FindHolding():
            assert topic is not None
            _in(topic, [given.partition])
            number(given.offset, "offset")
        case queries.FetchPage():
            assert topic is not None
            arguments.name(given.group, "group")
            arguments.name(given.member, "member")
            arguments.whole(given.limit, "limit", 1, limits.READ_MESSAGES_MAX)
            _in(topic, offsets_in(given.positions))
        case queries.CountInFlight():
            arguments.name(given.group, "group")


def replay(topic: TopicHandle, positions: dict[int, int], ends: dict[int, int]) -> None:
    """Where a page begins and ends."""
    if not positions.keys() <= ends.keys():
        raise InvalidRequest("each partition of a replay has a position and an end")
    _in(topic, {**offsets_in(ends), **offsets_in(positions)})


def errand(given: Any) -> None:
    """An errand; what its flow checks is not checked here."""
    match given:
        case errands.PublishStaged():
            _staged(given.parts)
            check_publish(given.parts, given.application, given.batch, given.run)
        case errands.Unstage():
            _staged(given.parts)
        case errands.Trace():
            arguments.message_id(given.message)


def _staged(given: Iterable[Any]) -> None:
    number(sum(abs(one.nbytes) for one in given), "the size of what is staged")


def _few(given: Sequence[Any], what: str, most: int) -> None:
    if len(given) > most:
        raise LimitExceeded(f"{most:,} {what} may be named at once, not {len(given):,}")


def _in(topic: TopicHandle, partitions: Iterable[int]) -> None:
    for one in partitions:
        if not 0 <= one < topic.policy.partitions:
            raise InvalidRequest(f"topic {topic.name!r} has no partition {one}")
