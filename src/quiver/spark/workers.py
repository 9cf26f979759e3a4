"""Which Python Spark's workers run, and whether it has Quiver.

A session takes it from PYSPARK_PYTHON when it begins, and `python3` of the PATH if that is not set. A
program that was started as `venv/bin/python job.py` then has workers that know nothing of the packages
of its environment.
"""

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from quiver import limits
from quiver.errors import ExtraMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIABLE: Final = "PYSPARK_PYTHON"
VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
LOOK: Final = (
    "import importlib.util, sys; print('%d.%d' % sys.version_info[:2], "
    "'quiver' if importlib.util.find_spec('quiver') else '')"
)


def see_to_python(spark: "SparkSession") -> None:
    """Let workers run a Python that has Quiver, or say how to."""
    from pyspark.sql.utils import is_remote  # noqa: PLC0415 - optional, and heavy

    if is_remote():  # Spark Connect: its server chooses
        return
    context = spark.sparkContext
    wrong = fault(context.pythonExec)
    if wrong is None:
        return
    if str(context.master).startswith("local") and VARIABLE not in os.environ:
        context.pythonExec = sys.executable
        return
    raise ExtraMissing(
        f"Spark's workers run {context.pythonExec}, {wrong}: before the session begins, set "
        f"{VARIABLE} to a Python that has Quiver, such as {sys.executable}"
    )


def fault(python: str) -> str | None:
    """Why workers cannot run this Python; None if they can, or if it is on other machines only."""
    found = shutil.which(python)
    if found is None or os.path.abspath(found) == os.path.abspath(sys.executable):  # noqa: PTH100  # links differ
        return None
    try:
        done = subprocess.run(  # noqa: S603 - what Spark would run
            [found, "-c", LOOK],
            capture_output=True, text=True, timeout=limits.PYTHON_ANSWER_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"which does not run ({error})"
    version, *quiver = done.stdout.split() or ["?"]
    if done.returncode or not quiver:
        return "which has no Quiver"
    if version != VERSION:
        return f"which is Python {version}, and this is {VERSION}"
    return None
