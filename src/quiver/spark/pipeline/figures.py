"""What a batch did: figures for each stage."""

from dataclasses import asdict, dataclass
from typing import Any

from quiver.spark.streaming import lag


@dataclass(frozen=True)
class Stage:
    """What went into a stage, came out good, was bad, or was dropped as a duplicate."""

    rows_in: int
    rows_out: int
    bad: int = 0
    duplicates: int = 0


@dataclass(frozen=True)
class Loaded:
    """Rows of a batch by the stage that found them bad (None: good), and the seconds of each step."""

    rows: dict[str | None, int]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Batch:
    """A batch that is done. `behind` is how many offsets it left for later, if Spark says so.

    Rows that went into `enrich` and did not come out may wait for a row of another stream.
    """

    number: int
    stages: dict[str, Stage]
    seconds: dict[str, float]
    behind: int | None

    @property
    def rows(self) -> int:
        """What was read."""
        return self.stages["extract"].rows_out

    @property
    def bad(self) -> int:
        """What went to the dead letters."""
        return sum(stage.bad for stage in self.stages.values())

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read, and nothing was loaded."""
        return not (self.rows or self.bad or self.stages["load"].rows_out)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def combined(loaded: Loaded, progress: Any) -> Batch:
    """The figures of a batch, from what we counted and from Spark's progress."""
    read = int(progress.numInputRows)
    repeated = sum(
        int(operator.customMetrics.get("numDroppedDuplicateRows", 0))
        for operator in progress.stateOperators
    )
    bad = {stage: loaded.rows.get(stage, 0) for stage in ("transform", "enrich", "load")}
    written = loaded.rows.get(None, 0)
    valid = read - bad["transform"]
    return Batch(
        number=int(progress.batchId),
        stages={
            "extract": Stage(read, read),
            "transform": Stage(read, valid, bad["transform"]),
            "enrich": Stage(valid, written + bad["load"], bad["enrich"], repeated),
            "load": Stage(written + bad["load"], written, bad["load"]),
        },
        seconds={**loaded.seconds, "batch": progress.durationMs["triggerExecution"] / 1000},
        behind=lag(progress),
    )
