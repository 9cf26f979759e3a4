"""A consumer that receives one message at a time and keeps its lease."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver import limits
from quiver.client.flows import Flows
from quiver.client.local import LocalBroker
from quiver.node.tickets import Ticket

LEASE_SECONDS = 0.3  # a third later it is made longer


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[quiver.Queue]:
    with quiver.connect(tmp_path / "q") as made:
        made.create_topic("t")
        made.create_group("t", "g")
        yield made


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[Ticket[Any]]:
    """Whenever there is a ticket in this list, it is what the next settle waits for."""
    settle = LocalBroker.settle
    tickets: list[Ticket[Any]] = []

    def instead(self: LocalBroker, *args: Any, **options: Any) -> Any:
        return tickets.pop() if tickets else settle(self, *args, **options)

    monkeypatch.setattr(LocalBroker, "settle", instead)
    return tickets


def test_what_is_received_while_the_ack_before_it_fails_is_handed_out(queue, failing, monkeypatch):
    """The ack is sent again with the next request, and no message is leased to nobody."""
    monkeypatch.setattr(limits, "CONSUMER_ACK_LINGER_SECONDS", 3_600)
    queue.send_batch("t", ["a", "b", "c"])
    receive = Flows.receive_messages

    def answered_after_the_ack(*args: Any, **options: Any) -> Any:
        got = yield from receive(*args, **options)
        if not ticket.done:
            ticket.fail(quiver.Overloaded("the node is busy"))
        return got

    with queue.consumer("t", "g", prefetch=0, lease=600, acks="background") as inbox:
        inbox.get().ack()
        ticket: Ticket[Any] = Ticket()
        failing.append(ticket)
        monkeypatch.setattr(Flows, "receive_messages", answered_after_the_ack)
        second = inbox.get(wait=0)
        assert second is not None
        assert second.text == "b"
        second.ack()
    assert (queue.groups("t")["g"].lag, queue.groups("t")["g"].in_flight) == (1, 0)


@pytest.mark.parametrize("consumer", [True, False])
def test_an_ack_that_fails_leaves_the_lease_kept(queue, failing, consumer):
    queue.send("t", "a")
    inbox = queue.consumer("t", "g", lease=LEASE_SECONDS, keep=True) if consumer else None
    one = inbox.get() if inbox else queue.receive("t", "g", lease=LEASE_SECONDS, keep=True)[0]
    ticket: Ticket[Any] = Ticket()
    ticket.fail(quiver.Overloaded("the node is busy"))
    failing.append(ticket)
    with pytest.raises(quiver.Overloaded):
        one.ack()
    until = one.lease.deadline_ms + 2 * LEASE_SECONDS * 1000
    while time.time() * 1000 < until:
        time.sleep(0.01)
    assert queue.groups("t")["g"].timed_out == 0
    one.ack()
    if inbox:
        inbox.close()
    assert queue.groups("t")["g"].lag == 0


def test_who_takes_the_next_is_told_that_leases_are_not_kept_any_more(tmp_path, monkeypatch):
    with quiver.connect(tmp_path / "q") as queue:
        queue.create_topic("t")
        queue.send_batch("t", ["0", "1"])
        with queue.consumer("t", prefetch=0, keep=True, lease=LEASE_SECONDS) as consumer:
            flows = consumer._consuming._flows
            settle = flows.settle

            def on_a_full_disk(action, items, **options):
                if action == "extend":
                    raise quiver.DiskFull("the disk is full")
                return settle(action, items, **options)

            monkeypatch.setattr(flows, "settle", on_a_full_disk)
            consumer.get()
            while consumer._thread.is_alive():
                time.sleep(0.01)
            with pytest.raises(quiver.DiskFull):
                consumer.get(wait=0)
