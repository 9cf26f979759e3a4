"""Every mistake that is planted in a peer or its files is seen by the test that is named for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.raft import storage_mutants
from tests.raft.peer_mutants import PEER_MUTANTS
from tests.raft.storage_mutants import SOURCE, StorageMutant

MUTANTS = (*storage_mutants.MUTANTS, *PEER_MUTANTS)
ROOT = Path(__file__).parents[2]
FAILED = 1  # pytest's code for tests that failed; others are for tests that could not be run


def by_name(mutant: StorageMutant) -> str:
    return mutant.name


@pytest.mark.parametrize("mutant", MUTANTS, ids=by_name)
def test_a_mutant_is_an_edit_of_what_is_there(mutant):
    text = (SOURCE / mutant.file).read_text()
    for old, new in mutant.edits:
        assert text.count(old) == 1, old
        assert old != new


def run(root: Path, test: str) -> subprocess.CompletedProcess[str]:
    """The test, with the package in `root`."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-x", "-p", "no:cacheprovider", test]
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=by_name)
def test_a_mutant_dies(mutant, tmp_path):
    shutil.copytree(SOURCE, tmp_path / "quiver", ignore=shutil.ignore_patterns("__pycache__"))
    mutant.apply(tmp_path / "quiver")
    ended = run(tmp_path, mutant.dies_by)
    assert ended.returncode == FAILED, ended.stdout + ended.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("test", sorted({mutant.dies_by for mutant in MUTANTS}))
def test_without_a_mutant_it_passes(test, tmp_path):
    shutil.copytree(SOURCE, tmp_path / "quiver", ignore=shutil.ignore_patterns("__pycache__"))
    ended = run(tmp_path, test)
    assert ended.returncode == 0, ended.stdout + ended.stderr
