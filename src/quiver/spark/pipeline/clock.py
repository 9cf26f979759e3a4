"""The time by which rows are remembered, which must never be one that is over.

Spark drops rows whose time is before its watermark, and says nothing. The time of ours is when their batch
was planned, so that happens only if the clock goes back further than rows are remembered. Then a run stops
before it loads anything, and the next one adds to the clock what it is behind. Spark writes both times of
a batch into the second line of a file in the checkpoint.
"""

import json
from typing import Any

from pyspark.sql import SparkSession

from quiver.errors import PipelineFailed


class Checkpoint:
    """The times of a query's batches, in milliseconds."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._path = path
        self._at = jvm.org.apache.hadoop.fs.Path
        self._files = self._at(path).getFileSystem(spark._jsc.hadoopConfiguration())
        self._now_ms = jvm.java.lang.System.currentTimeMillis  # the clock that Spark plans by
        self._read = jvm.org.apache.commons.io.IOUtils.toString

    def behind_ms(self) -> int:
        """How much must be added to the clock, so that no row is late."""
        now_ms = int(self._now_ms())
        planned, done = self._newest("offsets"), self._newest("commits")
        over = max(planned.get("batchWatermarkMs", 0), done.get("nextBatchWatermarkMs", 0))
        return max(0, over + 1 - min(now_ms, planned.get("batchTimestampMs", now_ms)))

    def demand_time(self, batch: int, added_ms: int) -> None:
        """Refuse a batch whose rows Spark could drop, or forget too early."""
        planned = self._times("offsets", batch)
        late_ms = planned["batchWatermarkMs"] - planned["batchTimestampMs"] - added_ms
        if late_ms >= 0:
            raise PipelineFailed(
                f"the clock went back, {late_ms / 1000:,.3f}s too far for what is remembered of rows; "
                "nothing of this batch is loaded: start again, and the pipeline allows for it"
            )

    def _newest(self, kind: str) -> dict[str, int]:
        """What was written last; nothing, if there is nothing."""
        folder = self._at(f"{self._path}/{kind}")
        if not self._files.exists(folder):
            return {}
        names = [found.getPath().getName() for found in self._files.listStatus(folder)]
        batches = [int(name) for name in names if name.isdecimal()]
        return self._times(kind, max(batches)) if batches else {}

    def _times(self, kind: str, batch: int) -> dict[str, int]:
        file = self._files.open(self._at(f"{self._path}/{kind}/{batch}"))
        try:
            text = self._read(file, "UTF-8")
        finally:
            file.close()
        found: dict[str, int] = json.loads(text.splitlines()[1])
        return found
