"""A producer that is interrupted while it sends, and while it closes."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import quiver
from quiver.client import send_buffer, sync
from quiver.errors import ProducerFailed
from quiver.node import shard

PATIENCE_SECONDS = 60


def test_what_was_under_way_is_not_known_and_nothing_passes_for_it(tmp_path: Path, monkeypatch):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t")
        producer = queue.producer("t", name="p", linger=60, max_messages=1)
        real = queue._flows.broker.send_batch

        def interrupted(*args: Any, **options: Any) -> None:
            real(*args, **options).wait()
            raise KeyboardInterrupt

        monkeypatch.setattr(queue._flows.broker, "send_batch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.send("one")
        monkeypatch.undo()
        with pytest.raises(ProducerFailed, match="may be stored or not") as failed:
            producer.flush()
        assert [message.body for message in failed.value.unsent] == [b"one"]
        with pytest.raises(ProducerFailed, match="does not know what is stored"):
            producer.send("two")
        producer.close()
        with queue.producer("t", name="p") as again:
            again.send("two")
        assert [record.body for record in queue.read("t")] == [b"one", b"two"]


def test_a_close_that_was_interrupted_can_be_done_again(tmp_path: Path, monkeypatch):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t")
        producer = queue.producer("t", linger=60)
        producer.send("one")
        queue.delete_topic("t")

        def interrupted(**_: bool) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(producer, "_wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.close()
        monkeypatch.undo()
        with pytest.raises(ProducerFailed) as failed:
            producer.close()
        assert [message.body for message in failed.value.unsent] == [b"one"]
        producer.close()  # and there is nothing more to say


def test_so_can_one_that_was_cancelled(tmp_path: Path, monkeypatch):
    async def scenario() -> None:
        async with quiver.connect_async(tmp_path) as queue:
            await queue.create_topic("t")
            async with queue.producer("t", linger=60) as producer:
                await producer.send("one")
                await queue.delete_topic("t")

                async def cancelled(**_: bool) -> None:
                    raise asyncio.CancelledError

                monkeypatch.setattr(producer, "_wait", cancelled)
                with pytest.raises(asyncio.CancelledError):
                    await producer.aclose()
                monkeypatch.undo()
                with pytest.raises(ProducerFailed) as failed:
                    await producer.aclose()
                assert [message.body for message in failed.value.unsent] == [b"one"]

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["import", None])
def test_what_waits_behind_a_refused_batch_does_not_take_its_place(tmp_path: Path, name):
    """A named producer goes on at its `sequence`: under that number there must be no other message."""
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t", max_backlog=3)
        bodies = [b"%d" % at for at in range(6)]
        producer = queue.producer("t", name=name, linger=60)
        for body in bodies[:5]:
            producer.send(body)
        with producer._lock:
            producer._outbox.submit()  # as when the time of `linger` has passed
        for ticket in producer._outbox.awaited(all_of_them=True):
            ticket.wait_done()
        with pytest.raises(ProducerFailed) as failed:
            producer.send(bodies[5])
        producer.close()
        unsent = [message.body for message in failed.value.unsent]
        stored = [record.body for record in queue.read("t")]
        assert unsent + stored == bodies
        if name is not None:
            assert stored == []
            with queue.producer("t", name=name) as again:
                for body in bodies[again.sequence :][:3]:
                    again.send(body)
            assert [record.body for record in queue.read("t")] == bodies[:3]


# -- interrupts ------------------------------------------------------------------------------------


class Interrupter:
    """Ctrl-C at one of the moments when Python looks for signals: when one of our functions begins, and
    when a call of theirs into C is over."""

    def __init__(self, at: int) -> None:
        self.left = at  # moments before it comes

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        ours = frame.f_code.co_filename in (send_buffer.__file__, sync.__file__, shard.__file__)
        if ours and event in ("call", "c_return"):
            self.left -= 1
            if self.left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def interrupts(self, call: Callable[[], object]) -> bool:
        sys.setprofile(self)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False


def told_by(call: Callable[[], object]) -> list[ProducerFailed]:
    try:
        call()
    except ProducerFailed as failed:
        return [failed]
    return []


@dataclass
class Attempt:
    """Five messages and a flush, interrupted at one moment, and a close by another thread."""

    producer: sync.Producer
    moment: int
    came: bool = False
    returned: list[bytes] = field(default_factory=list)
    failures: list[ProducerFailed] = field(default_factory=list)

    def run(self) -> None:
        interrupter = Interrupter(self.moment)
        sends: list[Callable[[], None]] = [partial(self.send, b"%d" % at) for at in range(5)]
        for step in (*sends, self.flush):
            if self.came:
                step()
            else:
                self.came = interrupter.interrupts(step)
        with ThreadPoolExecutor(1) as other:
            other.submit(self.close).result(PATIENCE_SECONDS)

    def send(self, body: bytes) -> None:
        self.failures += told_by(partial(self.producer.send, body, key="k"))
        self.returned.append(body)

    def flush(self) -> None:
        self.failures += told_by(self.producer.flush)

    def close(self) -> None:
        self.failures += told_by(self.producer.close)


@pytest.mark.parametrize("backlog", [None, 3], ids=["stored", "refused"])
@pytest.mark.parametrize("name", [None, "p"])
def test_an_interrupt_loses_and_doubles_nothing(tmp_path: Path, backlog, name):
    """Wherever it comes: what was sent is stored once or handed back, and the lock is free."""
    with quiver.connect(tmp_path) as queue:
        moment, came = 0, True
        while came:
            queue.create_topic("t", max_backlog=backlog)
            producer = queue.producer("t", name=name, linger=60, max_messages=2)
            attempt = Attempt(producer, moment)
            attempt.run()
            stored = [record.body for record in queue.read("t")]
            queue.delete_topic("t")
            back = [message.body for failed in attempt.failures for message in failed.unsent]
            assert stored == sorted(set(stored)), f"doubled or mixed up at moment {moment}"
            assert len(set(back)) == len(back), f"handed back twice at moment {moment}"
            assert set(attempt.returned) <= {*stored, *back}, f"lost at moment {moment}"
            if not any("may be stored" in str(failed) for failed in attempt.failures):
                assert not set(stored) & set(back), f"stored and handed back at moment {moment}"
            came = attempt.came
            moment += 1
    assert moment > 50
