"""Threads and tasks that share a queue, and waiting that is given up."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import quiver
from quiver import limits
from tests.contract.doors import PATIENCE_SECONDS
from tests.contract.verbs import drain
from tests.inside import Inside


@pytest.fixture
def impatient_threads():
    """Threads take turns as often as they can, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("impatient_threads")
def test_threads_share_a_queue(world, queue):
    with ThreadPoolExecutor(8) as pool:
        for done in [
            pool.submit(lambda who: [queue.send("t", f"{who}-{at}") for at in range(50)], who)
            for who in range(8)
        ]:
            done.result(PATIENCE_SECONDS)
    found = drain(queue)
    assert len(found) == len(set(found)) == 400
    for who in range(8):
        mine = [body for body in found if body.startswith(f"{who}-".encode())]
        assert mine == [f"{who}-{at}".encode() for at in range(50)]
    shard = world.door.shard
    assert shard.ask(Inside(lambda _: shard._submitted_bytes - shard._taken_bytes)).wait() == 0


@pytest.mark.usefixtures("impatient_threads")
def test_no_message_goes_to_two_of_many_consumers(queue):
    queue.send_batch("t", [str(at) for at in range(500)])

    def consume(_):
        found = []
        while got := queue.receive("t", "g", max_messages=7):
            found += [x.body for x in got]
            queue.ack(got)
        return found

    with ThreadPoolExecutor(6) as pool:
        found = [body for bodies in pool.map(consume, range(6)) for body in bodies]
    assert len(found) == len(set(found)) == 500


@pytest.mark.usefixtures("impatient_threads")
def test_closing_while_others_send_leaves_nobody_hanging(world, queue):
    def send_until_closed(who):
        sent: list[bytes] = []
        with suppress(quiver.QueueClosed, quiver.OutcomeUnknown):
            while True:
                queue.send("t", f"{who}-{len(sent)}")
                sent.append(f"{who}-{len(sent)}".encode())
        return sent

    with ThreadPoolExecutor(6) as pool:
        running = [pool.submit(send_until_closed, who) for who in range(6)]
        while queue.stats("t").sent < 100:
            pass
        queue.close()
        confirmed = [body for done in running for body in done.result(PATIENCE_SECONDS)]
    world.queue = world.door.open(world.path, world.clock)
    assert set(confirmed) <= set(drain(world.queue))


@pytest.mark.usefixtures("impatient_threads")
def test_threads_share_a_producer(tmp_path):
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("t")
        with queue.producer("t", max_messages=10) as out, ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda at: out.send(str(at)), range(600)))
        assert sorted(map(int, drain(queue))) == list(range(600))


@pytest.mark.usefixtures("impatient_threads")
def test_threads_that_share_a_producer_keep_their_order(tmp_path):
    def send(who):
        for at in range(300):
            out.send(b"%d" % at, key=who)

    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("t")
        with (
            queue.producer("t", linger="1ms", max_messages=7) as out,
            ThreadPoolExecutor(4) as pool,
        ):
            list(pool.map(send, "abcd"))
        sent = {who: [int(one.body) for one in queue.read("t") if one.key == who] for who in "abcd"}
    assert sent == {who: list(range(300)) for who in "abcd"}


def run(coroutine):
    async def bounded():
        return await asyncio.wait_for(coroutine, PATIENCE_SECONDS)

    return asyncio.run(bounded())


def test_tasks_share_a_producer(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "PRODUCER_PENDING_BYTES_MAX", 1_000)

    async def main():
        async with quiver.connect_async(tmp_path / "data") as queue:
            await queue.create_topic("t")
            async with queue.producer("t", linger=60, max_messages=3) as out:

                async def send(who):
                    for _ in range(30):
                        await out.send(bytes(200))
                    await out.flush()

                await asyncio.gather(*(send(who) for who in range(10)))
            return (await queue.stats("t")).sent

    assert run(main()) == 300


def test_a_receive_that_was_cancelled_takes_no_message(tmp_path):
    async def main():
        async with quiver.connect_async(tmp_path / "data") as queue:
            await queue.create_topic("t")
            for _ in range(3):
                with suppress(TimeoutError):
                    await asyncio.wait_for(queue.receive("t", "g", wait=60), 0.01)
            await queue.send("t", b"x")
            (got,) = await queue.receive("t", "g", wait=10)
            await got.ack()
            return got.body, got.attempt

    assert run(main()) == (b"x", 1)


def test_a_send_that_was_cancelled_harms_nobody(tmp_path):
    async def main():
        async with quiver.connect_async(tmp_path / "data") as queue:
            await queue.create_topic("t")
            tasks = [asyncio.create_task(queue.send("t", str(at))) for at in range(50)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            confirmed = [at for at, result in enumerate(results) if isinstance(result, quiver.Sent)]
            found = [int(x.body) for x in await queue.receive("t", "g", max_messages=100)]
            return set(range(1, 50, 2)) <= set(confirmed) <= set(found)

    assert run(main())


def test_an_event_loop_is_not_held_up_by_a_queue_that_waits(tmp_path):
    async def main():
        turns = 0
        async with quiver.connect_async(tmp_path / "data") as queue:
            await queue.create_topic("t")
            waiting = asyncio.create_task(queue.receive("t", "g", wait=60))
            while turns < 100:
                turns += 1
                await asyncio.sleep(0)
            await queue.send("t", b"x")
            return [x.body for x in await waiting]

    assert run(main()) == [b"x"]
