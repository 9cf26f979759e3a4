"""The command: where the data goes, what is printed, and the exit code."""

import tempfile
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Final

import quiver
from quiver.cli.demo.accounting import Account
from quiver.cli.demo.analysis import Analyst, CommandFailed
from quiver.cli.demo.screen import Screen
from quiver.cli.demo.story import DemoStory, Stuck
from quiver.cli.demo.workers import WorkerFailed

RIGHT: Final = 0
WRONG: Final = 1
UNUSABLE: Final = 2
INTERRUPTED: Final = 130  # what a shell says of a program that ended by Ctrl-C


class Unusable(Exception):
    """The demo cannot run in the directory it was given."""


def main(data: str | None = None, *, json: bool = False) -> int:
    """Run the demo in an empty directory, or in a temporary one.

    Returns 0 only if nothing was lost and nothing was done twice. With `json` the result is all
    that is printed.
    """
    screen = Screen(quiet=json)
    try:
        account = _tell(_folder(data), screen)
    except Unusable as problem:
        return _fail(str(problem), UNUSABLE, screen, json=json)
    except (quiver.QuiverError, WorkerFailed, Stuck, CommandFailed) as problem:
        return _fail(f"the demo could not go on: {problem}", WRONG, screen, json=json)
    except KeyboardInterrupt:
        return _fail("interrupted; all workers were ended", INTERRUPTED, screen, json=json)
    if json:
        print(dumps(_as_data(account)))
    return WRONG if account.problems else RIGHT


def _tell(folder: Path, screen: Screen) -> Account:
    with screen, DemoStory(folder, screen) as story:
        account = story.tell()
    screen.show_account(account)
    account.analysis = Analyst(folder, screen).work(story.orders)
    account.problems += account.analysis.problems
    account.seconds += account.analysis.seconds
    screen.show_end(account)
    return account


def _folder(data: str | None) -> Path:
    """An empty directory. The final count would be wrong with orders of somebody else in it."""
    if data is None:
        return Path(tempfile.mkdtemp(prefix="quiver-demo-"))
    folder = Path(data)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise Unusable(f"cannot use {folder}: {error.strerror}; name an empty directory") from error
    if occupied:
        raise Unusable(f"{folder} is not empty; name an empty directory, or none at all")
    return folder


def _fail(message: str, exit_code: int, screen: Screen, *, json: bool) -> int:
    if json:
        print(dumps({"error": message}))
    else:
        screen.show_failure(message)
    return exit_code


def _as_data(account: Account) -> dict[str, object]:
    return {**asdict(account), "lost": account.lost, "duplicated": account.duplicated}
