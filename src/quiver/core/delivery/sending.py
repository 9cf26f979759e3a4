"""Storing what is sent: whether it may be, and where it goes."""

from quiver.core.delivery.extents import Columns
from quiver.core.delivery.partition import Partition
from quiver.core.delivery.topic import Topic
from quiver.errors import InvalidRequest, LimitExceeded, ProducerFenced, QueueFull
from quiver.model.commands import UNNAMED, ProducerStamp, Publish, Run, Send
from quiver.model.ledger import Event
from quiver.model.levels import Bounds
from quiver.model.replies import Application, Placed, Published, SentReply


def check(
    topic: Topic, command: Send, rows: int, row: int, now_ms: int, bounds: Bounds, before: int = 0
) -> int:
    """Refuse what cannot be stored, after `before` more; nothing has changed yet.

    Returns how many of the messages are new. Those that are stored already are no reason to refuse:
    who tries again is told where they are.
    """
    if command.producer is not None and _is_stored(topic, command.producer, rows, bounds):
        return 0
    new = rows
    dedup_ids = _dedup_ids(command)
    if dedup_ids:
        _forget(topic, now_ms)
        new -= sum([one in topic.dedup for one in dedup_ids[row : row + rows]])
        if new and len(topic.dedup) + new > bounds.dedup_ids_max:
            raise QueueFull(
                f"topic {topic.name!r} remembers {len(topic.dedup)} dedup ids and may not "
                "remember more; retry later, or make dedup_window shorter"
            )
    limit = topic.policy.max_backlog
    if limit is not None and new and topic.unsettled() + before + new > limit:
        raise QueueFull(
            f"topic {topic.name!r} may hold {limit} unsettled messages and has "
            f"{topic.unsettled()}; retry when consumers have caught up"
        )
    return new


def _is_stored(topic: Topic, producer: ProducerStamp, rows: int, bounds: Bounds) -> bool:
    """Whether a producer has sent these before; if it may not send them, an error."""
    known = topic.producers.get(producer.name)
    if known is None:
        raise ProducerFenced(
            f"topic {topic.name!r} does not know producer {producer.name!r} any more: it has been "
            f"idle while {bounds.producers_max:,} others came; open it again"
        )
    if known.epoch != producer.epoch:
        raise ProducerFenced(
            f"another producer has been opened as {producer.name!r} on topic {topic.name!r}; "
            "this one may no longer send"
        )
    first, stored = producer.sequence, known.sequence
    if first > stored or first < stored < first + rows:
        raise InvalidRequest(
            f"producer {producer.name!r} has {stored} messages stored, and these would be {first} "
            f"to {first + rows}; open it again to go on from {stored}"
        )
    return first < stored


def place(
    topic: Topic, command: Send, runs: tuple[Run, ...], rows: int, row: int,
    columns: Columns | None, index: int, now_ms: int,
) -> SentReply:  # fmt: skip
    """Append a request's rows; `row` counts from the first row of the command."""
    producer = topic.producers[command.producer.name] if command.producer else None
    if command.producer and producer and command.producer.sequence < producer.sequence:
        topic.duplicates += rows
        return SentReply((Placed(-1, -1, rows, 0, 0, duplicate=True),))
    placed: list[Placed] = []
    for run in runs:
        partition = topic.partitions[run.partition]
        for piece in _pieces(topic, partition, command, run, row, index, now_ms):
            placed.append(piece)
            if piece.duplicate:
                topic.duplicates += piece.count
                continue
            nbytes = run.nbytes * piece.count // run.rows
            base = piece.row - command.first_row
            partition.append(piece.count, index, piece.row, now_ms, nbytes, columns, base)
            topic.sent += piece.count
        row += run.rows
    if command.producer is not None and producer is not None:
        producer.sequence += rows
        topic.producers[command.producer.name] = topic.producers.pop(command.producer.name)
    return SentReply(tuple(placed))


def note(topic: Topic, command: Send, sent: SentReply, columns: Columns | None) -> None:
    """Write down what was sent; delayed messages with the time when they are due."""
    ledger, name = topic.ledger, topic.name
    delays = columns.deliver_at if columns is not None else ()
    for piece in sent.placed:
        start, end = piece.offset, piece.offset + piece.count
        if piece.duplicate:
            ledger.add(Event.DUPLICATE, name, piece.partition, start, end)
        elif not delays:
            ledger.add(Event.SENT, name, piece.partition, start, end, also=piece.row)
        else:
            for at in range(piece.count):
                due_ms = delays[piece.row - command.first_row + at]
                ledger.add(Event.SENT, name, piece.partition, start + at, start + at + 1,
                           until_ms=due_ms, also=piece.row + at)  # fmt: skip


def _pieces(
    topic: Topic, partition: Partition, command: Send, run: Run, row: int, index: int, now_ms: int
) -> list[Placed]:
    """Where the rows of a run go; those whose dedup id is known stay where they are."""
    first = command.first_row + row
    dedup_ids = _dedup_ids(command)
    if not dedup_ids:
        return [Placed(run.partition, partition.end, run.rows, index, first)]
    window_ms = topic.policy.dedup_window_ms
    pieces: list[Placed] = []
    offset = partition.end
    for at in range(run.rows):
        dedup_id = dedup_ids[row + at]
        known = topic.dedup.get(dedup_id) if dedup_id is not None else None
        if known is not None:
            where = known[1]
            pieces.append(
                Placed(where.partition, where.offset, 1, where.index, where.row, duplicate=True)
            )
            continue
        piece = Placed(run.partition, offset, 1, index, first + at)
        if dedup_id is not None and window_ms:  # none: not even for the rest of the batch
            topic.dedup[dedup_id] = (now_ms + window_ms, piece)
        pieces.append(piece)
        offset += 1
    return pieces


def _dedup_ids(command: Send) -> tuple[str | None, ...]:
    """The ids that count, in the order of the rows."""
    if command.attributes is None or command.staged:
        return ()
    return command.attributes.dedup_ids


def shorten_memory(topic: Topic, now_ms: int) -> None:
    """Remember no dedup id for longer than the window, which may have become shorter."""
    latest_ms = now_ms + topic.policy.dedup_window_ms
    for dedup_id, (until_ms, where) in topic.dedup.items():
        if until_ms > latest_ms:
            topic.dedup[dedup_id] = (latest_ms, where)


def _forget(topic: Topic, now_ms: int) -> None:
    """Let go of dedup ids whose window is over; the oldest come first."""
    while topic.dedup:
        oldest = next(iter(topic.dedup))
        if topic.dedup[oldest][0] > now_ms:
            return
        del topic.dedup[oldest]


def published(topic: Topic, command: Publish) -> Published | None:
    """What is told of a batch that was published before; None if it was not."""
    name = command.application
    known = topic.applications.get(name)
    if known is None:
        return None
    return known.repeated(topic.name, name, command.batch, command.run)


def check_published(topic: Topic, staged: Topic, command: Publish, rows: int) -> None:
    """Refuse what cannot be published as a whole; nothing has changed yet."""
    wanted = sum(end - start for pick in command.picks for start, end in pick.ranges)
    if rows != wanted:
        raise InvalidRequest(
            f"{wanted - rows:,} of {wanted:,} staged messages are no longer there: they were published, "
            "dropped for their age or named twice; stage them again"
        )
    if not staged.policy.places_like(topic.policy):
        raise InvalidRequest(
            f"topic {topic.name!r} has other partitions than these were staged for; stage them again"
        )
    limit = topic.policy.max_backlog
    if limit is not None and rows > limit:
        raise LimitExceeded(
            f"topic {topic.name!r} may hold {limit} unsettled messages, and this batch has {rows}: make "
            "batches smaller, or max_backlog larger"
        )
    if limit is not None and topic.unsettled() + rows > limit:
        raise QueueFull(
            f"topic {topic.name!r} may hold {limit} unsettled messages and has "
            f"{topic.unsettled()}; retry when consumers have caught up"
        )


def note_published(topic: Topic, command: Publish, rows: int, most: int) -> None:
    """Remember an application's last batch; of more than `most` the one idle for longest is forgotten."""
    known, name = topic.applications, command.application
    known.pop(name, None)
    if len(known) >= most:
        unnamed = (other for other in known if other.startswith(UNNAMED))
        del known[next(unnamed, next(iter(known)))]
    known[name] = Application(command.run, command.batch, rows, command.nbytes)
