"""What the crash tests run in a process of its own, and kill.

    python -m tests.process.workers crowd DIRECTORY SEED RESEND…    threads that do everything at once
    python -m tests.process.workers script DIRECTORY                one thread, the same every time
    python -m tests.process.workers every DIRECTORY FIRST STEP      the script again and again, each
                                            time killed at a later one of its calls to the system

A worker says what it is about to do and what was confirmed, a line each, written by one system call
so that a kill cannot tear it. Log files, snapshots and segments are made small, so that in a second
of work files are begun, snapshots taken, messages sealed, segments rewritten and old files removed.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from threading import Lock, Thread
from typing import Any

import quiver
from quiver import limits
from quiver.model import levels
from quiver.storage.wal import Wal

BATCH = 10
DEDUP_WINDOW = "30d"


def say(*words: Any) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def make_small(entries: int, file_bytes: int) -> None:
    """Begin files and take snapshots often, and rewrite segments as soon as there are three."""
    limits.SEGMENTS_SMALL_MAX = 2  # type: ignore[misc]  # this process only
    limits.SEGMENT_GROUP_BYTES = 2_000  # type: ignore[misc]
    limits.SEAL_STEP_BYTES = 8_192  # type: ignore[misc]
    levels.LEVELS = {levels.FIRST: levels.Bounds(sweep_hole_min=2)}  # type: ignore[misc]
    limits.SNAPSHOT_LOG_ENTRIES = entries  # type: ignore[misc]
    limits.SNAPSHOT_LOG_BYTES = 1 << 40  # type: ignore[misc]
    defaults: Any = Wal.open.__func__.__kwdefaults__  # type: ignore[attr-defined]
    defaults |= {"file_bytes": file_bytes, "allocate_bytes": 65_536, "reserve_bytes": 16_384}


# -- a crowd ---------------------------------------------------------------------------------------


def prepare(queue: quiver.Queue) -> None:
    """What the crowd works on; safe to repeat."""
    for topic in ("singles", "batches", "stream", "tasks", "left", "right"):
        queue.create_topic(topic, dedup_window=DEDUP_WINDOW)
        queue.create_group(topic, "audit")
    queue.create_group("singles", "workers")
    queue.create_group("tasks", "workers")


def crowd(path: str, seed: str, resend: list[str]) -> None:
    make_small(entries=150, file_bytes=262_144)
    queue = quiver.connect(path)
    prepare(queue)
    say("ready")
    for dedup_id in resend:  # whose fate is unknown since the last crash
        queue.send("singles", dedup_id, dedup_id=dedup_id)
        say("sent", dedup_id)
    jobs: list[Callable[[], None]] = [
        *(partial(send_singles, queue, f"{seed}.{who}") for who in range(4)),
        lambda: send_batches(queue, seed),
        lambda: send_stream(queue),
        lambda: send_tasks(queue, seed),
        lambda: consume(queue, Random(seed)),
        lambda: process_tasks(queue),
        lambda: seal_often(queue, Random(seed)),
    ]
    threads = [Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def send_singles(queue: quiver.Queue, who: str) -> None:
    for at in count():
        dedup_id = f"{who}.{at}"
        say("sending", dedup_id)
        queue.send("singles", dedup_id, dedup_id=dedup_id)
        say("sent", dedup_id)


def send_batches(queue: quiver.Queue, seed: str) -> None:
    for at in count():
        queue.send_batch("batches", [f"{seed}.{at}/{row}" for row in range(BATCH)])
        say("batch", f"{seed}.{at}")


def send_stream(queue: quiver.Queue) -> None:
    with queue.producer("stream", name="importer", max_messages=7, linger=0) as out:
        say("resume", out.sequence)
        for at in count(out.sequence):
            out.send(str(at))
            if at % 20 == 0:
                out.flush()
                say("stream", out.sequence)


def send_tasks(queue: quiver.Queue, seed: str) -> None:
    for at in count():
        queue.send("tasks", f"{seed}.{at}")
        say("task", f"{seed}.{at}")


def consume(queue: quiver.Queue, random: Random) -> None:
    """Receive and ack; some are kept unsettled, so that their leases outlive the crash."""
    while True:
        for got in queue.receive("singles", "workers", max_messages=5, lease="1h", wait=1):
            say("got", got.text, got.receipt)
            if random.random() < 0.8:
                say("acking", got.text)
                got.ack()
                say("acked", got.text)


def process_tasks(queue: quiver.Queue) -> None:
    """Consume, transform, produce to two topics: all or nothing."""
    while True:
        for got in queue.receive("tasks", "workers", max_messages=3, lease="1h", wait=1):
            with queue.transaction() as transaction:
                transaction.ack(got)
                transaction.send("left", got.text)
                transaction.send("right", got.text)
            say("done", got.text)


def seal_often(queue: quiver.Queue, random: Random) -> None:
    """Move everything into segments, so that most of what is received comes from there."""
    while True:
        time.sleep(random.uniform(0, 0.1))
        queue.seal()
        say("sealed")


# -- a script --------------------------------------------------------------------------------------


def script(path: str) -> None:
    """Everything once, in one thread; after a failure it tries to go on."""
    make_small(entries=12, file_bytes=16_384)
    try:
        queue = quiver.connect(path)
    except quiver.StorageError as error:
        say("failed", type(error).__name__)
        return
    say("ready")
    steps: list[Callable[[], None]] = [partial(prepare_and_say, queue)]
    for at in range(10):
        steps.append(partial(scripted, queue, at))
        if at % 2:
            steps.append(partial(seal_and_say, queue, Path(path)))
    queue_failed = False
    for step in steps:
        try:
            step()
        except (quiver.StorageError, quiver.ProducerFailed) as error:
            cause = error.__cause__ if isinstance(error, quiver.ProducerFailed) else error
            say("failed", type(cause).__name__)
            queue_failed = True
        else:
            if queue_failed:
                say("went-on")
    try:
        queue.close()
    except quiver.StorageError as error:
        say("failed", type(error).__name__)
    say("end")


def prepare_script(queue: quiver.Queue) -> None:
    queue.create_topic("t", max_attempts=2)
    queue.create_group("t", "g")
    queue.create_topic("out")
    queue.create_group("out", "audit")


def prepare_and_say(queue: quiver.Queue) -> None:
    prepare_script(queue)
    say("made")


def scripted(queue: quiver.Queue, at: int) -> None:
    queue.send("t", f"s{at}", dedup_id=f"s{at}")
    say("sent", f"s{at}")
    queue.send_batch("t", [f"b{at}.{row}" + " " * 1_000 for row in range(3)])
    for row in range(3):
        say("sent", f"b{at}.{row}")
    with queue.producer("out", name="p", linger=60) as out:
        out.send(f"p{out.sequence}")
    say("out", f"p{out.sequence - 1}")
    first, second, third, *rest = queue.receive("t", "g", max_messages=4, lease="1h")
    say("acking", first.text.strip())
    first.ack()
    say("acked", first.text.strip())
    second.nack(reason="again")
    say("acking", third.text.strip())
    with queue.transaction() as transaction:
        transaction.ack(third)
        transaction.send("out", "t " + third.text.strip())
    say("acked", third.text.strip())
    say("out", "t " + third.text.strip())
    for delivery in rest:
        delivery.dead_letter(reason="enough")


def seal_and_say(queue: quiver.Queue, path: Path) -> None:
    before = set(path.glob("*@*.parquet"))
    queue.seal()
    after = set(path.glob("*@*.parquet"))
    say("sealed", len(after - before))
    say("gone", len(before - after))


# -- the script, killed at every call ---------------------------------------------------------------

CALLS = ("pwrite", "pwritev", "fdatasync", "fsync", "replace", "unlink", "ftruncate",
         "posix_fallocate", "mkdir", "open")  # fmt: skip


def every(path: str, first: int, step: int) -> None:
    """Fork a process for each call: what it says goes to `<number>.said`; say how it ended."""
    for number in count(first, step):
        child = os.fork()
        if child == 0:
            try:
                os.dup2(os.open(f"{path}/{number}.said", os.O_CREAT | os.O_WRONLY), 1)
                die_at(number)
                script(f"{path}/{number}")
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        say("killed" if killed else "ended", number)
        if not killed:
            return


def die_at(number: int) -> None:
    """From now on, kill this process just before its call of this number, whichever thread makes it."""
    numbers, lock = count(1), Lock()

    def deadly(call: Any) -> Any:
        def called(*args: Any, **options: Any) -> Any:
            with lock:
                if next(numbers) == number:
                    os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return called

    for name in CALLS:
        setattr(os, name, deadly(getattr(os, name)))


if __name__ == "__main__":
    kind, path, *words = sys.argv[1:]
    if kind == "crowd":
        crowd(path, words[0], words[1:])
    elif kind == "every":
        every(path, int(words[0]), int(words[1]))
    else:
        script(path)
