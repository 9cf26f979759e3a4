"""What a scan of a partition picks, beside the plainest way to say it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiver import limits
from quiver.core.delivery import DeliveryCore
from quiver.model.commands import CreateTopic, Entry, Found
from quiver.model.topic import Retention, TopicPolicy
from quiver.node.compaction import Compactor, KeyScan, TooManyKeys
from quiver.node.tickets import Ticket

NOW_MS = 10**12
KEEP_MS = limits.TOMBSTONE_KEEP_SECONDS * 1000

messages = st.lists(
    st.tuples(
        st.sampled_from([None, "a", "b", "c", "d", "e"]),
        st.booleans(),
        st.sampled_from([NOW_MS, NOW_MS - KEEP_MS + 1, NOW_MS - KEEP_MS]),
    ),
    max_size=30,
)


def scanned(rows, part=0, parts=1):
    scan = KeyScan(NOW_MS, part, parts)
    for offset, row in enumerate(rows):
        scan.look(offset, *row)
    scan.finish()
    return scan


def offsets(scan):
    return [offset for start, end in scan.take() for offset in range(start, end)]


@given(messages)
def test_picked_is_what_has_a_newer_one_and_old_tombstones_that_are_the_last(rows):
    of_key = {key: [o for o, row in enumerate(rows) if row[0] == key] for key, _, _ in rows if key}
    expected = [offset for found in of_key.values() for offset in found[:-1]]
    for found in of_key.values():
        _, empty, time_ms = rows[found[-1]]
        if len(found) == 1 and empty and time_ms + KEEP_MS <= NOW_MS:
            expected += found
    assert offsets(scanned(rows)) == sorted(expected)


@given(messages, st.sampled_from([2, 4, 8]))
def test_in_parts_the_same_is_picked(rows, parts):
    found = [offset for part in range(parts) for offset in offsets(scanned(rows, part, parts))]
    assert sorted(found) == offsets(scanned(rows))


@given(messages)
def test_another_scan_is_due_as_long_as_a_tombstone_is_there(rows):
    scan = scanned(rows)
    gone = set(offsets(scan))
    of_key = {key: (offset, empty) for offset, (key, empty, _) in enumerate(rows) if key}
    left = any(empty and offset not in gone for offset, empty in of_key.values())
    assert (scan.again_ms is not None) == left
    assert scan.again_ms is None or scan.again_ms > NOW_MS


def test_a_scan_remembers_no_more_keys_than_it_may(monkeypatch):
    monkeypatch.setattr(limits, "COMPACT_KEYS_MAX", 2)
    scan = KeyScan(NOW_MS)
    scan.look(0, "a", False, 0)
    scan.look(1, "b", False, 0)
    scan.look(2, "a", False, 0)
    with pytest.raises(TooManyKeys):
        scan.look(3, "c", False, 0)


def test_few_picks_are_not_worth_an_entry():
    scan = KeyScan(NOW_MS)
    for offset in range(3):
        scan.look(offset, "k", False, 0)
    assert scan.take(at_least=3) == ()
    assert scan.take(at_least=2) == ((0, 2),)
    assert scan.take() == ()


class Slow:
    """A shard that answers when it is told to."""

    def __init__(self):
        self.core = DeliveryCore()
        self.core.apply(Entry(1, NOW_MS, Found(b"secret", NOW_MS)))
        policy = TopicPolicy(retention=Retention(compact=True))
        self.core.apply(Entry(2, NOW_MS, CreateTopic("p", policy)))
        self.asked: list[Ticket[Any]] = []
        self.first: Ticket[None] = Ticket()

    def ask(self, question):
        ticket: Ticket[Any] = Ticket()
        self.asked.append(ticket)
        if len(self.asked) == 1:
            self.first.resolve(None)
        return ticket

    def propose(self, command):
        raise AssertionError("there is nothing to drop")


def test_a_topic_is_not_due_while_it_is_read_nor_soon_after():
    shard = Slow()
    compactor = Compactor(shard, lambda: NOW_MS)
    compactor.start_due(shard.core, NOW_MS)
    shard.first.wait()
    compactor.start_due(shard.core, NOW_MS)
    thread = compactor._thread
    assert thread is not None
    shard.asked[0].resolve([0])  # an empty partition: the pass is over
    thread.join()
    compactor.start_due(shard.core, NOW_MS)
    compactor.close()
    assert len(shard.asked) == 1
