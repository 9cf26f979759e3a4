"""aiobotocore: senders and long polls of one process at the same time."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.clients import environments

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(700)]

SECONDS_MAX = 120


@pytest.mark.parametrize("signed", [False, True], indirect=True)
def test_many_senders_and_consumers_in_one_process(settings):
    python = environments.python_with("aiobotocore>=2.20,<4") / "python"
    done = subprocess.run(
        [python, Path(__file__).with_name("aio_program.py")], env=settings,
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["done"] == sorted(f"{sender}/{n}" for sender in range(10) for n in range(30))
    assert found["left"] == "0"
    assert found["pages"] == [3, 3, 1]
    assert found["refused"] == "AWS.SimpleQueueService.NonExistentQueue"
