"""SHOWS: the `quiver` command. What it can do is what `quiver.Queue` can do, on a directory."""

from typing import NoReturn


def main() -> NoReturn:
    """The entry point."""
    from quiver.cli.run import main as run_main

    run_main()
