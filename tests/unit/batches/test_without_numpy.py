"""pyarrow works without numpy, and so do we: it is no dependency of ours."""

import subprocess
import sys
from pathlib import Path

import pytest

from quiver import limits

PROGRAM = """
import sys
sys.modules["numpy"] = sys.modules["pandas"] = None  # as if they were not installed
import pyarrow as pa
from quiver.batches.arrow_input import accept
from quiver.batches.attributes import attributes_of
from quiver.batches.codec import decode, encode
from quiver.batches.keys import Partitioner
from quiver.batches.output import Piece, columns, table
from quiver.batches.rows import make_row, pack
from quiver.model.replies import Origin, Slice
from quiver.model.topic import TopicPolicy

row = dict(headers={"a": "b"}, priority=1, delay=1, ttl=2, dedup_id="d")
batch = pack([make_row(b"x", key=str(n), **row) for n in range(9)], 1)
batch, runs = Partitioner(TopicPolicy(partitions=3)).split(batch, 0)
assert attributes_of(batch, keyed=True) is not None
again = decode(b"".join(map(bytes, encode(batch, "zstd"))))
assert accept(pa.Table.from_batches([again, again])).num_rows == 18
origin = Origin("t", 0, 0, "g", 1, "r", 1)
made = table([Piece(again, 0, Slice(0, 0, 9, 1, 0, 1, 1, origin))], with_ids=True)
assert made.num_rows == len(columns(again)["headers"] or ()) == 9
"""


@pytest.mark.process
def test_everything_works_without_numpy():
    source = str(Path(limits.__file__).parents[1])
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, env={"PYTHONPATH": source})
