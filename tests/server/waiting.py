"""Waiting for what must happen, without knowing when."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 60  # a test that waits this long has failed


def until(true: Callable[[], Any]) -> None:
    """Look again and again until it is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
