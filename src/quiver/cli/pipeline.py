"""`quiver pipeline`: topics through Spark into files and topics, as a file in TOML says."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from quiver.cli import output
from quiver.cli.options import Json, epilog
from quiver.cli.signals import stoppable

if TYPE_CHECKING:
    from quiver.spark.pipeline import Batch

app = typer.Typer(
    help="Run a data pipeline on Spark: extract, transform, enrich, load.", no_args_is_help=True
)

EPILOG = epilog(
    ["quiver pipeline run pipeline.toml", "quiver pipeline run pipeline.toml --once --json"],
    "It can be stopped and killed at any time: the next run goes on where this one was, and every "
    "message has its effect once. SIGTERM and Ctrl-C end it after the batch that is being loaded; a "
    "second one ends it at once.",
)


Totals: TypeAlias = dict[str, list[int]]  # of a stage: rows in, out, bad, repeated
QUIET: Final = {"spark.python.sql.dataFrameDebugging.enabled": "false"}  # we say what is wrong


@app.command("run", epilog=EPILOG)
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline, in TOML.")],
    once: Annotated[
        bool, typer.Option("--once", help="End when all that is there now is done.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a pipeline until it is told to stop."""
    from quiver.spark.session import demand_pyspark, start_session

    demand_pyspark()
    from py4j.protocol import Py4JError

    from quiver.spark.pipeline import Pipeline, load

    config = load(file)
    settings = {name: _setting(value) for name, value in config.spark.items()}
    spark = start_session(config.name, QUIET | settings, quiet=True)
    try:
        pipeline = Pipeline(spark, config)
        totals: Totals = {}
        with stoppable(pipeline.stop):
            for batch in pipeline.run(once=once):
                _add(totals, batch)
                if as_json:
                    output.document(batch.to_dict())
                else:
                    output.say(_line(batch))
        if not as_json:
            _summary(totals)
    finally:
        with suppress(OSError, Py4JError):  # its Java has ended before
            spark.stop()


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _line(batch: "Batch") -> str:
    """What a batch did, in a line."""
    loaded = batch.stages["load"].rows_out
    bad = f", {batch.bad:,} bad" if batch.bad else ""
    repeated = batch.stages["enrich"].duplicates
    again = f", {repeated:,} repeated" if repeated else ""
    behind = f"; {output.count(batch.behind, 'message')} behind" if batch.behind else ""
    return (
        f"batch {batch.number}: {output.count(batch.rows, 'message')}, {loaded:,} loaded{bad}{again} "
        f"in {output.duration(batch.seconds['batch'])}{behind}"
    )


def _add(totals: Totals, batch: "Batch") -> None:
    for name, stage in batch.stages.items():
        figures = stage.rows_in, stage.rows_out, stage.bad, stage.duplicates
        before = totals.get(name, [0] * len(figures))
        totals[name] = [one + more for one, more in zip(before, figures, strict=True)]


def _summary(totals: Totals) -> None:
    """All batches of this run, stage by stage."""
    if not totals:
        output.say("There was nothing to do.")
        return
    numbers = ("in", "out", "bad", "repeated")
    table = output.table("stage", *numbers, numbers=numbers)
    for name, sums in totals.items():
        table.add_row(name, *(f"{figure:,}" for figure in sums))
    output.show(table)
