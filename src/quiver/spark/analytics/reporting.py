"""The report: figures as Parquet tables, and a page that needs nothing but a browser."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from quiver.spark.analytics.auditing import audit
from quiver.spark.analytics.evidence import Evidence
from quiver.spark.analytics.measuring import figures
from quiver.spark.analytics.page import page
from quiver.spark.analytics.plots import plots

if TYPE_CHECKING:
    from os import PathLike

PAGE: Final = "index.html"
TABLES: Final = "tables"


@dataclass(frozen=True)
class Report:
    """The figures, small enough to be held in memory: by name, `findings` of the audit among them."""

    tables: dict[str, pa.Table]
    first: datetime | None  # what happened from then …
    last: datetime | None  # … to then is in it

    @property
    def sound(self) -> bool:
        """Whether the audit found nothing."""
        return not self.tables["findings"].num_rows

    def save(self, into: "str | PathLike[str]") -> Path:
        """Write `index.html` and `tables/*.parquet` to a directory; return the page's path."""
        place = Path(into)
        (place / TABLES).mkdir(parents=True, exist_ok=True)
        for name, table in self.tables.items():
            pq.write_table(table, place / TABLES / f"{name}.parquet")
        path = place / PAGE
        path.write_text(page(self.tables, plots(self.tables), self.first, self.last), "utf-8")
        return path


def report(evidence: Evidence, start: Any = None, end: Any = None) -> Report:
    """All figures of what happened from `start` up to `end`, and what the audit finds in it."""
    found = figures(evidence, start, end)
    tables = {name: frame.toArrow() for name, frame in found.items()}
    tables["findings"] = audit(evidence, start, end).toArrow()
    times = tables["throughput"]["time"].to_pylist()
    return Report(tables, min(times, default=None), max(times, default=None))
