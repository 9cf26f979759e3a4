"""The flow of `send_batches`: many batches under one name, each message once."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from quiver.client.flows import Flows, sent_batch
from quiver.client.results import SentBatches
from quiver.client.steps import Flow, Work, done
from quiver.model.commands import ProducerStamp
from quiver.model.replies import Durability


def send_batches(
    flows: Flows, topic: str, batches: Iterable[Any], name: str, durability: Durability | None
) -> Flow[SentBatches]:
    """Send what no earlier call under this name has stored."""
    given = flows.given(durability)
    handle = yield from flows.find(topic)
    opened = yield from flows.open_producer(handle, name)
    stored, passed, count, duplicates = opened.sequence, 0, 0, 0
    waiting: Iterator[Any] = iter(batches)
    while (messages := (yield from done(Work(lambda: next(waiting, None))))) is not None:
        batch = yield from done(Work(partial(flows.batch_of, messages)))
        known = min(max(stored - passed, 0), batch.num_rows)
        first, passed = passed + known, passed + batch.num_rows
        if known == batch.num_rows:
            continue
        producer = ProducerStamp(name, opened.epoch, first)
        sending = flows.broker.send_batch(
            handle, batch.slice(known), producer=producer, sync=given == "disk"
        )
        reply = yield from done(sending)
        sent = sent_batch(reply.answers[0], given)
        count, duplicates = count + sent.count, duplicates + sent.duplicates
    return SentBatches(count, duplicates, min(stored, passed), given)
