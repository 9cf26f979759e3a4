"""Processes of their own for `history`, so that their memory is theirs alone and they can be killed.

    python -m bench.lives fill DIRECTORY COUNT    send up to number COUNT, from where the last one got
    python -m bench.lives open DIRECTORY          connect
    python -m bench.lives drain DIRECTORY COUNT   receive and ack everything, and count it

A life says what it has done, a line of JSON each, and then waits to be killed.
"""

import json
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import quiver
from bench.content import BODY_BYTES

BATCH = 10_000  # messages of a send, and of a receive
NUMBER_BYTES = 8
TOPIC, GROUP = "t", "g"


def say(**facts: Any) -> None:
    print(json.dumps({**facts, "peak_mb": peak_mb()}), flush=True)


def peak_mb() -> float:
    """The most memory that this process has ever had resident."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def fill(path: str, count: int) -> None:
    with quiver.connect(path) as queue:
        queue.create_topic(TOPIC)
        queue.create_group(TOPIC, GROUP)
        rest = Random(1).randbytes(BATCH * (BODY_BYTES - NUMBER_BYTES))
        for start in range(queue.stats(TOPIC).sent, count, BATCH):
            queue.send_batch(TOPIC, numbered(range(start, min(start + BATCH, count)), rest))
            say(confirmed=min(start + BATCH, count))
        signal.pause()


def numbered(numbers: range, rest: bytes) -> pa.RecordBatch:
    """Bodies that begin with their number; nothing can compress what follows it."""
    size = BODY_BYTES - NUMBER_BYTES
    data = b"".join(
        [
            number.to_bytes(NUMBER_BYTES, sys.byteorder) + rest[at * size : (at + 1) * size]
            for at, number in enumerate(numbers)
        ]
    )
    ends = pa.array(range(0, len(data) + 1, BODY_BYTES), pa.int32()).buffers()[1]
    bodies = pa.Array.from_buffers(pa.binary(), len(numbers), [None, ends, pa.py_buffer(data)])
    return pa.record_batch({"body": bodies})


def open_(path: str) -> None:
    start = time.perf_counter()
    with quiver.connect(path):
        say(ms=(time.perf_counter() - start) * 1000)
        signal.pause()


def drain(path: str, count: int) -> None:
    seen = bytearray(count)  # how often each number came
    with quiver.connect(path) as queue:
        start = time.perf_counter()
        while got := queue.receive_arrow(TOPIC, GROUP, max_messages=BATCH, lease="1h"):
            for chunk in got.table["body"].chunks:
                for number in numbers_of(chunk):
                    seen[number] += 1
            got.ack()
        seconds = time.perf_counter() - start
        once = seen.count(1)
        say(seconds=seconds, once=once, lost=seen.count(0), doubled=count - once - seen.count(0))
        signal.pause()


def numbers_of(bodies: pa.Array) -> memoryview:
    heads = pa.concat_arrays([pc.binary_slice(bodies, 0, NUMBER_BYTES)])
    assert heads.offset == 0
    return memoryview(heads.buffers()[2])[: len(heads) * NUMBER_BYTES].cast("q")


if __name__ == "__main__":
    kind, path, *words = sys.argv[1:]
    match kind:
        case "fill":
            fill(path, int(words[0]))
        case "open":
            open_(path)
        case "drain":
            drain(path, int(words[0]))
