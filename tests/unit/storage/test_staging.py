"""Files that others leave for the owner of a directory."""

import os
import stat

import pyarrow as pa
import pytest

from quiver.errors import InvalidRequest
from quiver.storage import staging


def left(path, *texts: str) -> str:
    name = staging.write(path, batches(*texts))
    assert name is not None
    return name


def batches(*texts: str) -> list[pa.RecordBatch]:
    return [pa.record_batch({"body": [text]}) for text in texts]


def test_what_was_left_is_found(tmp_path):
    name = left(tmp_path, "1", "2")
    assert [one["body"].to_pylist() for one in staging.read(tmp_path, name)] == [["1"], ["2"]]
    mode = (tmp_path / "staging" / name).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600  # messages


def test_nothing_leaves_no_file(tmp_path):
    assert staging.write(tmp_path, []) is None
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_fails_leaves_no_file(tmp_path):
    def failing():
        yield from batches("1")
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        staging.write(tmp_path, failing())
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_file_that_is_gone_is_named(tmp_path):
    with pytest.raises(InvalidRequest, match=r"staging/none.arrow is gone"):
        list(staging.read(tmp_path, "none.arrow"))


def test_what_is_removed_or_old_is_gone(tmp_path):
    names = [left(tmp_path, "1") for _ in range(3)]
    staging.remove(tmp_path, [names[0], "never.arrow"])
    os.utime(tmp_path / "staging" / names[1], (1_000, 1_000))
    staging.sweep(tmp_path, before=2_000)
    assert [path.name for path in (tmp_path / "staging").iterdir()] == [names[2]]
    staging.sweep(tmp_path / "elsewhere", before=2_000)  # where nobody ever left anything
