"""A receive that is cancelled when it has messages already, and they are being decoded."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

import quiver

LEASE = 3_600


class BusyPool(ThreadPoolExecutor):
    """One thread, which is busy until it is `free`; says when it was asked to decode."""

    def __init__(self):
        super().__init__(1)
        self.free = Event()
        super().submit(self.free.wait)
        self.asked = asyncio.Event()

    def submit(self, *work):  # type: ignore[override]  # called in one way only
        self.asked.set()
        return super().submit(*work)


@pytest.mark.parametrize("verb", ["receive", "receive_arrow"])
def test_what_was_leased_is_given_back(tmp_path, verb):
    async def cancelled_while_it_decodes():
        async with quiver.connect_async(tmp_path / "q") as queue:
            await queue.create_topic("t")
            await queue.send("t", "0")
            pool = BusyPool()
            asyncio.get_running_loop().set_default_executor(pool)
            receiving = asyncio.create_task(getattr(queue, verb)("t", "g", lease=LEASE))
            await pool.asked.wait()
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            pool.free.set()
            return await queue.receive("t", "g", wait=60)

    (again,) = asyncio.run(cancelled_while_it_decodes())
    assert again.attempt == 1


def test_who_is_closed_meanwhile_keeps_nothing(tmp_path):
    async def closed_while_it_decodes():
        queue = quiver.connect_async(tmp_path / "q")
        await queue.__aenter__()
        await queue.create_topic("t")
        await queue.send("t", "0")
        pool = BusyPool()
        asyncio.get_running_loop().set_default_executor(pool)
        receiving = asyncio.create_task(queue.receive("t", "g", lease=LEASE, keep=True))
        await pool.asked.wait()
        closing = asyncio.create_task(queue.aclose())
        await asyncio.sleep(0)
        pool.free.set()
        await asyncio.gather(receiving, closing)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(closed_while_it_decodes()) == set()
