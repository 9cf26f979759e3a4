"""Brokers made of jars from Maven Central, fetched by `make brokers`."""

import re
from collections.abc import Sequence
from pathlib import Path

from bench.brokers.process import FETCHED, Missing, program

HEAP = ("-Xms512m", "-Xmx1g")  # Kafka's own default at most


def java(folder: str, main: str, *words: str | Path) -> list[str | Path]:
    """The command that runs a class of the jars in a folder."""
    binary = program("java", advice="apt-get install openjdk-17-jre-headless")
    return [binary, *HEAP, "-cp", f"{jars(folder)}/*", main, *words]


def jars(folder: str) -> Path:
    found = FETCHED / folder
    if not any(found.glob("*.jar")):
        raise Missing("its jars were not fetched: make brokers (needs mvn and Maven Central)")
    return found


def version_of(folder: str, jar: str) -> str:
    """The version in the name of a jar."""
    names: Sequence[str] = [path.stem for path in jars(folder).glob(f"{jar}-*.jar")]
    return next(found[1] for name in names if (found := re.fullmatch(rf"{jar}-([0-9.]+)", name)))
