"""What lz4 and zstd save, and what they cost."""

from collections.abc import Iterator

import quiver
from bench.content import batch_of, orders
from bench.measure import Row, Run, in_turns, rate
from bench.sends import ROWS, UNIT
from quiver.model.topic import Compression
from quiver.node.engine import encode

KINDS: tuple[Compression | None, ...] = (None, "lz4", "zstd")


def compression(run: Run) -> Iterator[Row]:
    """The same JSON orders sent to topics with and without compression."""
    content = orders(ROWS)
    batch = batch_of(content)
    said = f"{ROWS:,} JSON orders of {sum(map(len, content)) // ROWS} B on average"

    def sends(topic: str) -> float:
        return rate(lambda: queue.send_batch(topic, batch).count, run.seconds)

    with quiver.connect(run.folder("compression")) as queue:
        for kind in KINDS:
            queue.create_topic(str(kind), compression=kind)
        plain, lz4, zstd = in_turns(
            run.rounds, lambda: sends("None"), lambda: sends("lz4"), lambda: sends("zstd")
        )
    raw, *sizes = (len(encode(batch, kind)) / ROWS for kind in KINDS)
    for name, rates, size in zip(("lz4", "zstd"), (lz4, zstd), sizes, strict=True):
        yield Row(
            f"send_batch, {name}", rates, "no compression", plain, UNIT,
            f"send_batch of {said}, compressed in the sender's thread, one sync each.",
        )  # fmt: skip
        yield Row(
            f"stored bytes, {name}", [size], "no compression", [raw], "B/msg",
            f"The bytes that the log keeps of a batch of {said}.",
        )  # fmt: skip
