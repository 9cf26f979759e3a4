"""`python -m bench.brokers.fetch`: what no package manager of the system has, into `.brokers`.

Kafka and ElasticMQ come as jars from Maven Central. NATS comes from Debian 13, whose package also runs
on Debian 12; the one of Debian 12 cannot sync before it confirms. Nothing is installed.
"""

import hashlib
import platform
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.brokers.process import FETCHED, Missing, program

SECONDS_MAX = 600
DOWNLOAD_BYTES_MAX = 64 * 1024 * 1024
KAFKA = "4.3.1"
JARS = {
    "kafka": [f"org.apache.kafka:kafka_2.13:{KAFKA}", f"org.apache.kafka:kafka-tools:{KAFKA}"],
    "elasticmq": ["org.elasticmq:elasticmq-server_2.13:1.7.1"],
}
NATS = (
    "http://deb.debian.org/debian/pool/main/n/nats-server/nats-server_2.10.27-1+b2_amd64.deb",
    "6d913ac987b78734c08537c2adeb1526cf735f216173a9170d94b185fcfe6f8a",  # SHA-256
)
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
PROJECT = (
    '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    "<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>"
    "<dependencies>{}</dependencies></project>"
)


def main() -> int:
    """Fetch each of them that is not there; what cannot be had is said, and is no error."""
    for name, fetch in (*((name, _jars) for name in JARS), ("nats", _nats)):
        if (FETCHED / name).exists():
            print(f"{name}: there")
            continue
        try:
            _into(FETCHED / name, fetch)
            print(f"{name}: fetched")
        except (Missing, OSError, subprocess.SubprocessError) as problem:
            print(f"{name}: not fetched, the bench will leave it out: {problem}")
    return 0


def _into(place: Path, fetch: Callable[[Path], None]) -> None:
    """All of it or nothing."""
    FETCHED.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="tmp-", dir=FETCHED) as folder:
        made = Path(folder) / place.name
        made.mkdir()
        fetch(made)
        shutil.move(made, place)


def _jars(folder: Path) -> None:
    maven = program("mvn", advice="apt-get install maven")
    project = folder.with_suffix(".xml")
    wanted = "".join(DEPENDENCY.format(*name.split(":")) for name in JARS[folder.name])
    project.write_text(PROJECT.format(wanted))
    _run(
        maven, "-q", "-B", "-f", project, "dependency:copy-dependencies",
        "-DincludeScope=runtime", f"-DoutputDirectory={folder}",
    )  # fmt: skip


def _nats(folder: Path) -> None:
    unpack = program("dpkg-deb", advice="it unpacks Debian's packages")
    if platform.machine() != "x86_64":
        raise Missing(f"this is {platform.machine()}: install a nats-server of 2.10 or later")
    url, digest = NATS
    with urllib.request.urlopen(url, timeout=60) as answer:
        content = answer.read(DOWNLOAD_BYTES_MAX)
    if hashlib.sha256(content).hexdigest() != digest:
        raise Missing(f"{url} is not what it was: its SHA-256 differs")
    package = folder.with_suffix(".deb")
    package.write_bytes(content)
    _run(unpack, "-x", package, folder)


def _run(*command: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
    )  # fmt: skip
    if done.returncode:
        raise Missing((done.stdout + done.stderr).strip()[-500:])


if __name__ == "__main__":
    sys.exit(main())
