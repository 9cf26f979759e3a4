"""The last chapter: the orders flow through Spark, and a report tells how the queue did.

Both are commands of `quiver`, run as a user would run them; what Spark has to say goes to a file. What the
pipeline made is counted here, without Spark: the rows in Parquet and the messages, against the orders.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds

import quiver
from quiver.cli.demo.accounting import Analysis
from quiver.cli.demo.screen import Screen

COMMAND_SECONDS_MAX: Final = 600.0  # a quarter of a minute on an idle machine
INVOICES: Final = "invoices"
PIPELINE: Final = """\
# The orders of the demo become invoices. To run it again: quiver pipeline run {folder}/pipeline.toml
name = "invoices"
checkpoint = "{folder}/checkpoint"

[extract]
url = "{folder}/queue"
topics = ["orders"]

[transform.versions.1]
schema = "id string, customer string, cents bigint, email string"

[transform.checks]
"there is an @ in the address" = "email like '%@%'"

[enrich.dedup]  # the topic has orders that were redriven twice
by = ["id"]
within = "1d"

[enrich.columns]
euros = "cents / 100"

[load.parquet]
path = "{folder}/invoices"

[load.topic]
topic = "invoices"
key = "customer"

[spark]
"spark.sql.shuffle.partitions" = 2
"""


class CommandFailed(Exception):
    """One of the commands did not do its part."""


class Analyst:
    """Works in the folder of the demo, whose queue nobody has open."""

    def __init__(self, folder: Path, screen: Screen) -> None:
        self._folder = folder.resolve()
        self._queue = self._folder / "queue"
        self._screen = screen
        self.analysis = Analysis()

    def work(self, orders: Collection[str]) -> Analysis:
        """The chapter. Without Spark or a Java it says what is missing."""
        self._screen.chapter("Spark")
        try:
            _demand_spark()
        except quiver.ExtraMissing as missing:
            self.analysis.skipped = str(missing)
            self._screen.say(f"the pipeline and the report are skipped: {missing}")
            return self.analysis
        began = time.monotonic()
        self._run_the_pipeline(orders)
        self._write_the_report()
        self.analysis.seconds = round(time.monotonic() - began, 1)
        return self.analysis

    def _run_the_pipeline(self, orders: Collection[str]) -> None:
        file = self._folder / "pipeline.toml"
        file.write_text(PIPELINE.format(folder=self._folder))
        self._screen.say(f"quiver pipeline run {file}")
        batches = map(
            json.loads, self._quiver("pipeline", "run", str(file), "--once", "--json").splitlines()
        )
        found = self.analysis
        found.messages = sum(batch["stages"]["extract"]["rows_out"] for batch in batches)
        self._count(orders)
        self._screen.say(
            f"{found.messages:,} messages read: {found.parquet:,} orders are in Parquet files, "
            f"{found.topic:,} in the topic {INVOICES}, {found.refused:,} were refused for their address"
        )

    def _count(self, orders: Collection[str]) -> None:
        files = ds.dataset(self._folder / INVOICES, format="parquet")
        stored = files.to_table(columns=["id"])["id"].to_pylist()
        with quiver.connect(self._queue, read_only=True) as queue:
            sent = [record.json()["id"] for record in queue.read(INVOICES)]
            refused = {record.json()["id"] for record in queue.read(f"{INVOICES}.dead")}
        found, due = self.analysis, Counter(set(orders) - refused)
        found.parquet, found.topic, found.refused = len(stored), len(sent), len(refused)
        for where, there in (("Parquet", stored), (f"the topic {INVOICES}", sent)):
            if Counter(there) != due:
                found.problems.append(f"{where} has not each of {len(due)} orders once")

    def _write_the_report(self) -> None:
        report = self._folder / "report"
        self._screen.say("quiver report")
        self._screen.show_report(
            self._quiver("report", "--data", str(self._queue), "--out", str(report))
        )
        self.analysis.report = str(report / "index.html")

    def _quiver(self, *words: str) -> str:
        log = self._folder / "spark.log"
        try:
            with log.open("ab") as said:
                done = subprocess.run(
                    [sys.executable, "-m", "quiver.cli", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    text=True,
                    timeout=COMMAND_SECONDS_MAX,
                    check=True,
                )
        except subprocess.SubprocessError as error:
            raise CommandFailed(f"quiver {words[0]} failed; what it said is in {log}") from error
        return done.stdout


def _demand_spark() -> None:
    from quiver.spark.java import provide_java
    from quiver.spark.session import demand_pyspark

    demand_pyspark()
    provide_java()
