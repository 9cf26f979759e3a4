"""Prometheus itself: from this machine, or from Debian's package, which is unpacked and not installed."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

DOWNLOAD_SECONDS = 300


@cache
def program(name: str) -> Path:
    """`promtool` or `prometheus`."""
    found = shutil.which(name)
    if found is None:
        place = Path(mkdtemp(prefix="quiver-prometheus-"))
        commands = ["apt-get download prometheus", "dpkg -x prometheus_*.deb ."]
        for command in commands:
            done = subprocess.run(
                command, shell=True, cwd=place, capture_output=True, text=True,
                timeout=DOWNLOAD_SECONDS, check=False,
            )  # fmt: skip
            if done.returncode:
                says = f"{name} is needed (apt-get install prometheus): {done.stderr.strip()}"
                (pytest.fail if os.environ.get("CI") else pytest.skip)(says)
        found = str(place / "usr/bin" / name)
    return Path(found)


def promtool(*arguments: str | Path) -> str:
    """What it says; it must be content."""
    done = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
