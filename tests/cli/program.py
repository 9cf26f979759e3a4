"""Runs `quiver`: in the process of the test, or as a process of its own.

Starting Python and what Quiver imports takes longer than almost any command, so a test calls the
command in its own process, with pipes for stdin, stdout and stderr, and sees what a shell would
see: bytes and an exit code. What only a process of its own shows is run by `start` and `process`:
signals, a reader who closes its end of a pipe, a start that ends with what the script returned, and
two processes on one directory.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any
from unittest import mock

import quiver
from quiver.cli import main, output

QUIVER = Path(sys.executable).parent / "quiver"
SECONDS_MAX = 60  # that a process of its own may take


@dataclass(frozen=True)
class Ended:
    """What a shell sees of a command."""

    code: int
    out: bytes
    error: str


class Cli:
    """Runs `quiver` in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.environment: dict[str, str] = {}  # beside what the test itself has
        self.error = ""
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, *args: Any, code: int = 0, given: bytes = b"") -> bytes:
        """Run it here, to the end; what came out on stdout. stderr must be as the exit code says."""
        return self._checked(self.run(*args, given=given), code)

    def json(self, *args: Any, **options: Any) -> Any:
        """The one document on stdout."""
        return json.loads(self(*args, "--json", **options))

    def lines(self, *args: Any, **options: Any) -> list[Any]:
        """The documents on stdout, one a line."""
        return [json.loads(line) for line in self(*args, "--json", **options).splitlines()]

    def run(self, *args: Any, given: bytes = b"") -> Ended:
        """Run it here, to the end, whatever it is."""
        with _in(self.directory, self._environment):
            return called([*map(str, args)], given)

    def process(self, *args: Any, code: int = 0, given: bytes = b"") -> bytes:
        """Run it as a process of its own, to the end; what came out on stdout."""
        done = subprocess.run(
            [QUIVER, *map(str, args)], input=given, capture_output=True, timeout=SECONDS_MAX,
            check=False, cwd=self.directory, env=self._environment,
        )  # fmt: skip
        return self._checked(Ended(done.returncode, done.stdout, done.stderr.decode()), code)

    def start(self, *args: Any, **options: Any) -> "subprocess.Popen[bytes]":
        """Start a process of its own; it is killed at the end of the test."""
        process = subprocess.Popen(
            [QUIVER, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=self.directory, env=self._environment, **options,
        )  # fmt: skip
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            process.kill()
            with process:  # closes its pipes
                pass

    def queue(self) -> quiver.Queue:
        return quiver.connect(self.data)

    @property
    def _environment(self) -> dict[str, str]:
        without = {name: value for name, value in os.environ.items() if name != "QUIVER_DATA"}
        return without | self.environment

    def _checked(self, ended: Ended, code: int) -> bytes:
        self.error = ended.error
        assert "Traceback" not in ended.error, ended.error
        assert ended.code == code, ended
        if code in (2, 3, 4):
            assert ended.error.splitlines()[-1].startswith("quiver: "), ended.error
        return ended.out


def called(arguments: list[str], given: bytes = b"") -> Ended:
    """Call the entry point of `quiver` as the interpreter would, with pipes as standard streams."""
    out, error = Drain(), Drain()
    with ExitStack() as stack:
        program = {
            "argv": ["quiver", *arguments],
            "stdin": stack.enter_context(_source(given)),
            "stdout": stack.enter_context(out.open("strict")),
            "stderr": stack.enter_context(error.open("backslashreplace")),
        }
        for name, value in program.items():
            stack.enter_context(mock.patch.object(sys, name, value))
        output.console.cache_clear()  # it has looked at the streams it was made for
        stack.callback(output.console.cache_clear)
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return Ended(code, out.content, error.content.decode())


class Drain:
    """The far end of a pipe: reads all that is written, as it is written."""

    def __init__(self) -> None:
        self.content = b""

    @contextmanager
    def open(self, errors: str) -> Iterator[io.TextIOWrapper]:
        """The near end, as the interpreter opens stdout and stderr; all is there after the block."""
        far, near = os.pipe()
        thread = Thread(target=self._read, args=[far])
        thread.start()
        try:
            with open(near, "w", encoding="utf-8", errors=errors) as file:  # noqa: PTH123
                yield file
        finally:
            thread.join()

    def _read(self, far: int) -> None:
        with open(far, "rb") as file:  # a descriptor
            self.content = file.read()


@contextmanager
def _source(given: bytes) -> Iterator[io.TextIOWrapper]:
    """Stdin, as a pipe that is written to while it is read; a command may leave the rest of it."""
    near, far = os.pipe()
    thread = Thread(target=_write, args=[far, given])
    thread.start()
    try:
        with open(near, encoding="utf-8") as file:  # noqa: PTH123
            yield file
    finally:
        thread.join()


def _write(far: int, given: bytes) -> None:
    with open(far, "wb", buffering=0) as file:
        left = memoryview(given)
        try:
            while left:
                left = left[file.write(left) :]
        except BrokenPipeError:
            pass


@contextmanager
def _in(directory: Path, environment: dict[str, str]) -> Iterator[None]:
    before = Path.cwd()
    with mock.patch.dict(os.environ, environment, clear=True):
        os.chdir(directory)
        try:
            yield
        finally:
            os.chdir(before)
