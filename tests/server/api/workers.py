"""A client in a process of its own, whom a node dies under: sends or receives until told to stop.

    python workers.py ROLE URL NUMBER LOG      ROLE: dedup | producer | consumer

A sender's log has the names of messages that were confirmed; a consumer's those that were received.
A line is written after the confirmation, and before the ack. It ends when stdin does.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import quiver

TOPIC = "orders"
GROUP = "billing"


def stopped() -> Event:
    """Set when the parent closes our stdin."""
    found = Event()

    def listen() -> None:
        sys.stdin.read()
        found.set()

    Thread(target=listen, daemon=True).start()
    return found


def dedup(queue: quiver.Queue, number: str, log: Callable[[str], None], stop: Event) -> None:
    """Single sends with dedup ids: after an unknown outcome the same is sent again."""
    at = 0
    while not stop.is_set():
        name = f"{number}-{at}"
        while True:
            try:
                queue.send(TOPIC, name, dedup_id=name)
                break
            except (quiver.OutcomeUnknown, quiver.Unreachable):
                continue
        log(name)
        at += 1


def producer(queue: quiver.Queue, number: str, log: Callable[[str], None], stop: Event) -> None:
    """Batches behind one's back, confirmed by flush."""
    at = 0
    with queue.producer(TOPIC) as out:
        while not stop.is_set():
            names = [f"{number}-{at + step}" for step in range(50)]
            for name in names:
                out.send(name)
            out.flush()
            for name in names:
                log(name)
            at += 50


def consumer(queue: quiver.Queue, number: str, log: Callable[[str], None], stop: Event) -> None:
    """Receive, write down, ack; what cannot be acked any more comes again, to somebody."""
    while True:
        got = queue.receive(TOPIC, GROUP, max_messages=100, lease=5, wait=1, consumer=number)
        if not got:
            if stop.is_set():
                return
            continue
        for delivery in got:
            log(delivery.text)
        try:
            queue.ack(got)
        except quiver.ReceiptExpired:
            log("# expired")


def main() -> None:
    role, url, number, path = sys.argv[1:]
    stop = stopped()
    with Path(path).open("a", buffering=1) as file, quiver.connect(url) as queue:

        def log(line: str) -> None:
            file.write(line + "\n")

        {"dedup": dedup, "producer": producer, "consumer": consumer}[role](queue, number, log, stop)


if __name__ == "__main__":
    main()
