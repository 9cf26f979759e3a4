"""The AWS SDK for Go."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.clients import environments

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(700)]

SECONDS_MAX = 120


@pytest.mark.parametrize("signed", [False, True], indirect=True)
def test_the_sdk(settings):
    program = environments.go_program(Path(__file__).with_name("program.go"))
    done = subprocess.run(
        [program], env=settings, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "body": "Grüße €",
        "photo": "AAH/",  # Go writes bytes as base64
        "deleted": 10,
        "pages": [2, 2, 1],
        "missing": True,
        "invalid": True,
    }
