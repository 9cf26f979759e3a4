"""Runs a command line and turns whatever comes of it into an exit code and at most one sentence."""

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import typer

from quiver.cli import output
from quiver.cli.stdout import BROKEN_PIPE, forget_stdout
from quiver.errors import (
    BehindRetention,
    CorruptSegment,
    ProducerFailed,
    QuiverError,
    RequestError,
    StorageError,
    UnavailableError,
    UnreadableMessages,
)

USAGE: Final = 2
FAILED: Final = 1
INTERRUPTED: Final = 130

# The common base of all that a bad command line raises has no public name in some versions.
CommandLineError: Final[type[Exception]] = typer.BadParameter.mro()[2]


def main() -> NoReturn:
    """The entry point."""
    arguments = sys.argv[1:]
    if "--" in arguments:
        arguments = arguments[: arguments.index("--")]
    sys.exit(run(as_json="--json" in arguments))


def run(*, as_json: bool) -> int:
    """Run `sys.argv`; the exit code."""
    from quiver.cli.app import app

    try:
        with _warnings_as_notes():
            code = app(standalone_mode=False, prog_name="quiver")
        sys.stdout.flush()
    except QuiverError as error:
        return _fail(error.code, output.sentence(error), exit_code(error), as_json=as_json)
    except CommandLineError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help was the answer
            return USAGE
        return _fail("usage", usage(error), USAGE, as_json=as_json)
    except typer.Abort:
        return _fail("aborted", "Nothing was done.", FAILED, as_json=as_json)
    except BrokenPipeError:
        forget_stdout()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Warnings of ours are said as everything else is, not as a line of some source file.

    A command that had to leave messages out has not done what it was asked for.
    """
    unread = []
    usual = warnings.showwarning

    def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, UnreadableMessages):
            unread.append(message)
        if issubclass(category, BehindRetention | UnreadableMessages):
            text = output.sentence(message)
            output.note(text[0].upper() + text[1:])  # "group …", "reading topic …", a number
        else:
            usual(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", BehindRetention)
        warnings.simplefilter("always", UnreadableMessages)
        warnings.showwarning = show
        yield
    if unread:
        raise CorruptSegment("some messages were left out, see above. `quiver doctor` says which")


def exit_code(error: QuiverError) -> int:
    """2: change the request; 3: try again later; 4: somebody must look at the directory."""
    if isinstance(error, ProducerFailed) and isinstance(error.__cause__, QuiverError):
        return exit_code(error.__cause__)
    match error:
        case RequestError():
            return USAGE
        case UnavailableError():
            return 3
        case StorageError():
            return 4
    return FAILED


def usage(error: Exception) -> str:
    """What is wrong with the command line, and where to read how it goes."""
    text = str(error.format_message()).strip()  # type: ignore[attr-defined]  # see CommandLineError
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "quiver"
    return f"{text.rstrip('.')}{'' if text.endswith('?') else '.'} See: {path} --help"


def _fail(code: str, message: str, status: int, *, as_json: bool) -> int:
    try:
        if as_json:
            print(json.dumps({"error": {"code": code, "message": message}}, ensure_ascii=False))
            sys.stdout.flush()
    except BrokenPipeError:
        forget_stdout()
    output.problem(message)
    return status
