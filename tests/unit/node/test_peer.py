"""What a peer answers, and when."""

from quiver.errors import DiskFull
from quiver.model.commands import Held, Join, Settle, Tick
from quiver.model.queries import FetchPage
from quiver.node.engine import Proposal
from quiver.node.front import CommandRequest, Front, WatchRequest
from quiver.node.peer import Peer
from quiver.node.tickets import Ticket
from quiver.testing import MemoryFiles
from tests.stepped import Stepped


def test_nobody_learns_of_a_message_that_is_not_durable():
    """Who waits for messages is tried when others are answered, by a state that knows of all entries."""
    stepped = Stepped()
    topic = stepped.topic()
    stepped.run(stepped.send(topic, b"first"))
    received = stepped.receive(topic)
    stepped.run(received)
    stepped.do(Join(topic.number, "m", "one", 60_000))
    query = FetchPage(topic.number, "m", "one", {0: 1}, 10)
    waits = WatchRequest(query, Ticket(), stepped.now_ms + 60_000)
    stepped.run(waits)
    assert not waits.ticket.done

    lease = received.ticket.get().received
    release = Settle(
        topic.number, lease.group, "release", (Held(0, lease.epoch, ((0, 1),)),), delay_ms=0
    )
    given_back = CommandRequest(Proposal(release), Ticket(), sync=False)
    sent = stepped.send(topic, b"second")
    pending = stepped.take(given_back, sent)
    effects = stepped.peer.propose(pending, stepped.now_ms)
    stepped.front.answered(effects.answers, stepped.now_ms)
    assert effects.sync
    assert not sent.done
    assert not waits.ticket.done

    stepped.engine.wal.sync()
    stepped.front.answered(stepped.peer.synced().answers, stepped.now_ms)
    assert (given_back.ticket.done, sent.done, waits.ticket.done) == (True, True, True)


def test_who_does_not_wait_for_the_disk_is_answered_before_it_has_anything():
    stepped = Stepped()
    topic = stepped.topic()
    sent = stepped.send(topic)
    sent.sync = False
    effects = stepped.peer.propose(stepped.take(sent), stepped.now_ms)
    stepped.front.answered(effects.answers, stepped.now_ms)
    assert sent.done
    assert not effects.sync
    assert stepped.engine.wal.synced_index < stepped.engine.wal.last_index


def test_a_snapshot_may_be_saved_when_the_disk_had_no_room_for_its_sweep():
    stepped, files = Stepped(), MemoryFiles()
    stepped.peer = peer = Peer.open(
        files, now_ms=stepped.now_ms, secret=bytes(32), allocate_bytes=4_096, reserve_bytes=0
    )
    stepped.engine, stepped.front = peer.engine, Front(peer.engine)
    topic = stepped.topic()
    sent = stepped.send(topic)
    sent.sync = False
    peer.propose(stepped.take(sent), stepped.now_ms)
    files.capacity_bytes = files.used_bytes
    tick = Proposal(Tick())
    while not isinstance(peer.commit([tick], now_ms=0, sync=False)[0].reply, DiskFull):
        assert peer.engine.wal.synced_index < peer.engine.wal.last_index

    made = peer.begin_snapshot(stepped.now_ms)
    files.capacity_bytes = None
    made.save(lambda: None)
    peer.engine.snapshots.finish(made)
    peer.compacted(made)
    assert made.index == peer.engine.core.index == peer.raft.commit
