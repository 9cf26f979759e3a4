"""The AWS SDK for Java, its synchronous and its asynchronous client."""

import subprocess
from pathlib import Path

import pytest

from tests.clients import environments

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(700)]

SECONDS_MAX = 120


@pytest.mark.parametrize("signed", [False, True], indirect=True)
def test_the_sdk(settings, node):
    java = environments.program("java", demanded=False)
    source = Path(__file__).with_name("java")
    libraries = environments.java_with(source / "pom.xml")
    done = subprocess.run(
        [java, "-cp", f"{libraries}/*", "-Dfile.encoding=UTF-8", source / "Program.java", node.url],
        env=settings, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert 1 <= int(found.pop("awaited")) <= 10  # as many as were there when it looked
    assert found == {
        "body": "true",
        "photo": "true",
        "pages": "[2, 2, 1]",
        "refused": "AWS.SimpleQueueService.NonExistentQueue",
    }
