"""What lz4 and zstd save, and what they cost."""

from collections.abc import Iterator

import quiver
from bench.content import batch_of, orders
from bench.measure import Row, Run, rates, repeated
from bench.sends import ROWS, UNIT
from quiver.batches.codec import encode
from quiver.model.topic import Compression

KINDS: tuple[Compression | None, ...] = (None, "lz4", "zstd")


def compression(run: Run) -> Iterator[Row]:
    """The same JSON orders sent to topics with and without compression."""
    content = orders(ROWS)
    batch = batch_of(content)
    said = f"{ROWS:,} JSON orders of {sum(map(len, content)) // ROWS} B on average"
    with quiver.connect(run.folder("compression")) as queue:
        for kind in KINDS:
            queue.create_topic(str(kind), compression=kind)
        plain, lz4, zstd = rates(
            run,
            repeated(lambda: queue.send_batch("None", batch).count),
            repeated(lambda: queue.send_batch("lz4", batch).count),
            repeated(lambda: queue.send_batch("zstd", batch).count),
        )
    raw, *sizes = (sum(map(len, encode(batch, kind))) / ROWS for kind in KINDS)
    for name, found, size in zip(("lz4", "zstd"), (lz4, zstd), sizes, strict=True):
        yield Row(
            f"send_batch, {name}", found, "no compression", plain, UNIT,
            f"send_batch of {said}, compressed in the sender's thread, one sync each.",
        )  # fmt: skip
        yield Row(
            f"stored bytes, {name}", [size], "no compression", [raw], "B/msg",
            f"The bytes that the log keeps of a batch of {said}.",
        )  # fmt: skip
