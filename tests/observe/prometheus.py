"""Prometheus itself: from this machine, or from Debian's package, which is unpacked and not installed."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

DOWNLOAD_SECONDS = 300


@cache
def program(name: str) -> Path:
    """`promtool` or `prometheus`."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    place = Path(sys.prefix) / "prometheus"  # as everything that is installed for us
    place.mkdir(exist_ok=True)
    if not (place / "usr/bin" / name).exists():
        for command in ("apt-get download prometheus", "dpkg -x prometheus_*.deb ."):
            done = subprocess.run(
                command, shell=True, cwd=place, capture_output=True, text=True,
                timeout=DOWNLOAD_SECONDS, check=False,
            )  # fmt: skip
            if done.returncode:
                says = f"{name} is needed (apt-get install prometheus): {done.stderr.strip()}"
                pytest.fail(says) if os.environ.get("CI") else pytest.skip(says)
    return place / "usr/bin" / name


def promtool(*arguments: str | Path) -> str:
    """What it says; it must be content."""
    done = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
