"""`quiver bench`: what this machine and this disk can do, in a few seconds."""

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from quiver.cli import output
from quiver.cli.options import Json, epilog
from quiver.cli.progress import bar
from quiver.errors import InvalidRequest

if TYPE_CHECKING:
    from quiver.client.sync import Queue

THREADS: Final = 64
LEASE_ROWS: Final = 10_000
MEMORY_FILE_SYSTEMS: Final = ("tmpfs", "ramfs")

EPILOG = epilog(
    ["quiver bench", "quiver bench --data /mnt/disk --seconds 20 --size 1000"],
    "Everything is synced to disk before it counts. The comparison with other queues is `make bench` "
    "in the source.",
)


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One line of the table."""

    name: str
    messages: int
    seconds: float
    bytes: int

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds if self.seconds else 0.0


def bench(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            "-d",
            metavar="DIR",
            help="Measure the disk of DIR, in a new directory there. [default: temporary]",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.2, max=3600, help="How long, all in all.")] = 5.0,
    size: Annotated[int, typer.Option(min=0, max=1_000_000, help="Bytes in a body.")] = 100,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Messages in a batch.")] = 1_000,
    as_json: Json = False,
) -> None:
    """Measure sending and receiving on this machine."""
    if batch * (size + 16) > 32_000_000:
        raise InvalidRequest("a batch of this bench may have up to 32 MB: lower --batch or --size")
    if data is not None and not data.is_dir():
        raise InvalidRequest(f"{data} is not a directory; make it first, or leave --data out")
    place = Path(tempfile.mkdtemp(prefix="quiver-bench-", dir=data))
    try:
        results = _measure(place, seconds, size, batch, quiet=as_json)
        machine = _machine(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if as_json:
        output.document({
            "machine": machine, "body_bytes": size, "batch_messages": batch,
            "results": [{**asdict(result), "rate": round(result.rate, 1)} for result in results],
        })  # fmt: skip
    else:
        _show(results, machine, size)


def _measure(
    place: Path, seconds: float, size: int, batch: int, *, quiet: bool
) -> list[BenchResult]:
    from quiver.client.connect import connect

    share = seconds / 5
    body = os.urandom(size)
    started = time.monotonic()
    results: list[BenchResult] = []
    with (
        connect(place / "queue") as queue,
        bar("Measuring", seconds, "seconds", wanted=not quiet) as shown,
    ):
        queue.create_topic("bench")
        queue.create_topic("single")
        table = _table(body, batch)
        steps: list[Callable[[], BenchResult]] = [
            lambda: _bare(place, table.nbytes, batch, share),
            lambda: _send_batches(queue, table, share),
            lambda: _receive(queue, size, share),
            lambda: _send_singles(queue, body, 1, share),
            lambda: _send_singles(queue, body, THREADS, share),
        ]
        for step in steps:
            results.append(step())
            done = sum(result.messages for result in results)
            shown.update(time.monotonic() - started, done)
    return results


def _table(body: bytes, rows: int) -> Any:
    import pyarrow as pa

    return pa.record_batch({"body": pa.array([body] * rows, pa.binary())})


def _repeat(seconds: float, step: Callable[[], int]) -> tuple[int, float]:
    """Do `step` until the time is up; how many messages it did, and in which time."""
    messages, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        done = step()
        if not done:
            break
        messages += done
    return messages, elapsed


def _bare(place: Path, nbytes: int, rows: int, seconds: float) -> BenchResult:
    """The same bytes, written and synced without a queue: what the disk allows."""
    from quiver.storage import system

    content = os.urandom(nbytes)
    with (place / "bare").open("wb", buffering=0) as file:

        def step() -> int:
            file.write(content)
            system.sync(file.fileno())
            return rows

        messages, elapsed = _repeat(seconds, step)
    (place / "bare").unlink()
    return BenchResult(
        f"bare write and sync of {rows:,}", messages, elapsed, messages // rows * nbytes
    )


def _send_batches(queue: "Queue", table: Any, seconds: float) -> BenchResult:
    def step() -> int:
        return queue.send_batch("bench", table).count

    messages, elapsed = _repeat(seconds, step)
    nbytes = messages // table.num_rows * table.nbytes
    return BenchResult(f"send batches of {table.num_rows:,}", messages, elapsed, nbytes)


def _receive(queue: "Queue", size: int, seconds: float) -> BenchResult:
    def step() -> int:
        got = queue.receive_arrow("bench", "bench", max_messages=LEASE_ROWS)
        if len(got):
            got.ack()
        return len(got)

    messages, elapsed = _repeat(seconds, step)
    return BenchResult(f"receive and ack up to {LEASE_ROWS:,}", messages, elapsed, messages * size)


def _send_singles(queue: "Queue", body: bytes, threads: int, seconds: float) -> BenchResult:
    def one() -> int:
        queue.send("single", body)
        return 1

    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        done = [pool.submit(_repeat, seconds, one) for _ in range(threads)]
        messages = sum(future.result()[0] for future in done)
    elapsed = time.perf_counter() - started
    who = "one thread" if threads == 1 else f"{threads} threads"
    return BenchResult(f"send single, {who}", messages, elapsed, messages * len(body))


def _machine(place: Path) -> dict[str, Any]:
    import pyarrow as pa

    from quiver import __version__

    return {
        "quiver": __version__, "python": platform.python_version(), "pyarrow": pa.__version__,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(), "cores": os.cpu_count(),
        "file_system": _file_system(place), "directory": str(place.parent),
    }  # fmt: skip


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or "unknown"
    names = [
        line.partition(":")[2].strip()
        for line in text.splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.processor() or "unknown"


def _file_system(place: Path) -> str:
    """The kind of the file system a path is on."""
    try:
        mounts = [
            line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
        ]
    except OSError:
        return "unknown"
    path = place.resolve()
    under = [(len(mount[1]), mount[2]) for mount in mounts if path.is_relative_to(mount[1])]
    return max(under)[1] if under else "unknown"


def _show(results: list[BenchResult], machine: dict[str, Any], size: int) -> None:
    table = output.table(
        "what", "messages", "seconds", "messages/s", "bytes/s",
        numbers=("messages", "seconds", "messages/s", "bytes/s"),
    )  # fmt: skip
    for result in results:
        table.add_row(
            result.name, f"{result.messages:,}", f"{result.seconds:.2f}", f"{result.rate:,.0f}",
            output.size(result.bytes / result.seconds if result.seconds else 0),
        )  # fmt: skip
    output.show(table)
    output.say()
    output.say(f"Bodies of {size} bytes; everything synced to disk before it counted.")
    output.facts(
        [
            ("machine", f"{machine['processor']}, {output.count(machine['cores'], 'core')}"),
            ("system", machine["system"]),
            ("disk", f"{machine['file_system']} in {machine['directory']}"),
            (
                "versions",
                f"quiver {machine['quiver']}, Python {machine['python']}, pyarrow {machine['pyarrow']}",
            ),
        ]
    )
    if machine["file_system"] in MEMORY_FILE_SYSTEMS:
        output.note(
            "This directory is in memory: nothing was really synced. Give --data a real disk."
        )
