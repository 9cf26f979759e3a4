"""Runs seeds: python -m tests.raft.simulation --runs 1000 --first 0 [--nodes 3] [--jobs 2]"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress

from tests.raft.simulation.runs import SUMMARY, SeedFailed, run_seed

CHUNK = 20


def run_chunk(first: int, count: int, nodes: int | None) -> tuple[Counter[str], dict[int, str]]:
    """What happened in these seeds, up to the first that failed, and what is to be said of it."""
    total: Counter[str] = Counter()
    failed = {}
    for seed in range(first, first + count):
        try:
            total += run_seed(seed, nodes)
        except SeedFailed as error:
            failed[seed] = str(error)
            break
    return total, failed


def chunks(
    first: int, end: int, nodes: int | None, jobs: int
) -> Iterator[tuple[int, Counter[str], dict[int, str]]]:
    """What came of the seeds, some at a time, in any order."""
    parts = [(at, min(CHUNK, end - at)) for at in range(first, end, CHUNK)]
    if jobs == 1:
        for at, count in parts:
            yield count, *run_chunk(at, count, nodes)
        return
    with ProcessPoolExecutor(jobs) as pool:
        running = {pool.submit(run_chunk, at, count, nodes): count for at, count in parts}
        try:
            for part in as_completed(running):
                yield running[part], *part.result()
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.raft.simulation", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them")
    parser.add_argument(
        "--nodes", type=int, help="voters at the beginning; otherwise 1 to 5 by seed"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0: one for each core")
    parser.add_argument("--failures", type=int, default=1, help="how many of them to wait for")
    options = parser.parse_args()
    end = options.first + options.runs
    total: Counter[str] = Counter()
    failed: dict[int, str] = {}
    done, began = 0, time.monotonic()
    with suppress(KeyboardInterrupt):  # who has seen enough gets the summary
        for count, counts, worse in chunks(
            options.first, end, options.nodes, options.jobs or os.cpu_count() or 1
        ):
            total += counts
            failed |= worse
            done += count
            rate = done / (time.monotonic() - began) * 3600
            print(
                f"\r{done} of {options.runs} seeds, {rate:,.0f} an hour ", end="", file=sys.stderr
            )
            if len(failed) >= options.failures:
                break
    print(file=sys.stderr)
    for seed in sorted(failed)[: options.failures]:
        print(failed[seed], end="\n\n")
    kinds = ", ".join(f"{kind} {total[kind]:,}" for kind in ("commits", *SUMMARY))
    print(
        f"seeds {done:,} of {options.runs:,}, first {options.first}, last {end - 1}, {kinds},"
        f" violations {len(failed)}{f': {sorted(failed)}' if failed else ''}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
