"""`python -m bench`: measure, print the table, write the JSON."""

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from bench import machine, report
from bench.backlog import backlog
from bench.brokers.compare import brokers, kafka, sqs, sqs_unsynced
from bench.compression import compression
from bench.everyday import everyday
from bench.history import history, sealing
from bench.measure import Experiment, Row, Run
from bench.producing import producing
from bench.receives import receives, taking
from bench.sends import bare, peers, singles
from bench.spark import spark
from bench.versions import versions

RESULTS = Path(__file__).parent / "results"
EXPERIMENTS: dict[str, Experiment] = {
    "peers": peers,
    "bare": bare,
    "receives": receives,
    "taking": taking,
    "singles": singles,
    "backlog": backlog,
    "compression": compression,
    "sealing": sealing,
    "history": history,
    "producing": producing,
    "everyday": everyday,
    "brokers": brokers,
    "kafka": kafka,
    "sqs": sqs,
    "sqs-unsynced": sqs_unsynced,
    "spark": spark,
    "versions": versions,
}


def main() -> int:
    options = _options()
    RESULTS.mkdir(exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 150)
    try:
        machine.demand_disk(options.dir)
    except machine.NotADisk as problem:
        console.print(str(problem))
        return 2
    facts = machine.facts(options.dir)
    report.show_facts(console, facts)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that directories are removed
    rows: dict[str, list[Row]] = {}
    waited: dict[str, float] = {}
    skipped: dict[str, str] = {}
    start = time.perf_counter()
    for name in options.only or EXPERIMENTS:
        with TemporaryDirectory(prefix="tmp-", dir=options.dir) as directory:
            run = Run(Path(directory), quick=options.quick, against=options.against)
            wait = machine.ProcessorWait()
            with console.status(f"measuring: {name}"):
                rows[name] = list(EXPERIMENTS[name](run))
            waited[name] = wait.share()
        report.show_rows(console, name, rows[name], waited[name])
        report.show_skipped(console, run.skipped)
        skipped |= run.skipped
    seconds = round(time.perf_counter() - start, 1)
    found = [row for experiment in rows.values() for row in experiment]
    report.show_verdict(console, found, waited)
    content = report.as_json(
        facts,
        rows,
        seconds=seconds,
        quick=options.quick,
        waited_for_processor=waited,
        skipped=skipped,
    )
    for path in filter(None, (RESULTS / "latest.json", options.json)):
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        console.print(f"[dim]{seconds} s; written to {path}[/]", highlight=False)
    return int(options.check and any(row.met is False for row in found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("--only", action="append", choices=EXPERIMENTS, help="this experiment (repeatable)")
    add("--quick", action="store_true", help="less of everything: under a minute, more noise")
    add("--against", metavar="REV", help="an earlier commit, for the experiment versions")
    add("--check", action="store_true", help="fail if a target is missed")
    add("--json", type=Path, metavar="FILE", help="write the figures here too")
    add("--dir", type=Path, default=RESULTS, help="measure the file system of this directory")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
