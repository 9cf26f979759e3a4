"""Where other people's clients live: an environment for each, made once, under build/clients.

An environment's folder carries a digest of what is in it, so another list makes another folder, and
`make clean` removes them all.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "clients"
SECONDS_MAX = 600  # to install one of them over a slow network
ERROR_MAX = 2_000  # characters of an installer's complaint that are shown


def missing(what: str, *, demanded: bool = True) -> NoReturn:
    """Skip the test, and say why; in CI, where what is demanded must be tried, that is a failure."""
    reason = f"this client was not tried: {what}"
    if demanded and os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def program(name: str, *, demanded: bool = True) -> str:
    """The path of a program of this machine."""
    found = shutil.which(name)
    return found or missing(f"there is no {name!r} on this machine", demanded=demanded)


def python_with(*requirements: str) -> Path:
    """The `bin` of a virtual environment with these packages."""

    def install(folder: Path) -> None:
        run(sys.executable, "-m", "venv", folder)
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(folder / "bin" / "python", *pip, *requirements)

    name = requirements[0].split("[")[0].split(">")[0]
    return made(name, f"{sys.version_info[:2]} {requirements}", install) / "bin"


def node_with(package: Path) -> Path:
    """A folder whose `node_modules` has what this package.json asks for."""

    def install(folder: Path) -> None:
        shutil.copy(package, folder)
        run(program("npm"), "install", "--no-audit", "--no-fund", "--no-package-lock", cwd=folder)

    return made("node", package.read_text(), install)


def go_program(source: Path) -> Path:
    """What this file in Go compiles to, with the newest version of what it imports."""
    go = program("go", demanded=False)

    def install(folder: Path) -> None:
        shutil.copy(source, folder / "main.go")
        for args in (("mod", "init", "program"), ("mod", "tidy"), ("build", "-o", "program")):
            run(go, *args, cwd=folder, demanded=False)

    return made("go", source.read_text(), install) / "program"


def java_with(project: Path) -> Path:
    """A folder with the jars of this pom.xml."""
    maven = program("mvn", demanded=False)

    def install(folder: Path) -> None:
        shutil.copy(project, folder)
        goal = ("--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=jars")
        run(maven, *goal, cwd=folder, demanded=False)

    return made("java", project.read_text(), install) / "jars"


def made(name: str, content: str, install: Callable[[Path], None]) -> Path:
    folder = HOME / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    stamp = folder / ".installed"
    HOME.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run in several processes
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of an attempt that was broken off
            folder.mkdir()
            install(folder)
            stamp.touch()
    return folder


def run(*command: str | Path, cwd: Path = ROOT, demanded: bool = True) -> None:
    try:
        subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS_MAX, check=True
        )
    except subprocess.CalledProcessError as error:
        missing(f"{' '.join(map(str, command))}: {error.stderr[-ERROR_MAX:]}", demanded=demanded)
    except (OSError, subprocess.TimeoutExpired) as error:
        missing(f"{' '.join(map(str, command))}: {error}", demanded=demanded)
