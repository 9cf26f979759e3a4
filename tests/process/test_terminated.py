"""A program that ends by SIGTERM: with a handler that exits, its consumer gives back what it has."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import quiver

PROGRAM = """
import signal, sys
import quiver

if sys.argv[2] == "handler":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
queue = quiver.connect(sys.argv[1])
inbox = queue.consumer("t", "g", lease="1h")
print(inbox.get().body.decode(), flush=True)
signal.pause()
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("how", "code", "held"), [("handler", 0, 1), ("none", -signal.SIGTERM, 10)]
)
def test_a_terminated_program_gives_back_what_its_consumer_had_not_begun(
    tmp_path: Path, how: str, code: int, held: int
):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t", order="none")
        queue.send_batch("t", ["a"] * 10)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path, how], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "a\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == code
        finally:
            process.kill()
    with quiver.connect(tmp_path) as queue:
        assert queue.groups("t")["g"].in_flight == held
