"""`python -m bench.brokers.fetch`: what no package manager of the system has, into `.brokers`.

Kafka and ElasticMQ come as jars from Maven Central. NATS is compiled by Go: the package of Debian 12 cannot
sync before it confirms. Nothing is installed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.brokers.process import FETCHED, Missing, program

SECONDS_MAX = 600
KAFKA = "4.3.1"
JARS = {
    "kafka": [f"org.apache.kafka:kafka_2.13:{KAFKA}", f"org.apache.kafka:kafka-tools:{KAFKA}"],
    "elasticmq": ["org.elasticmq:elasticmq-server_2.13:1.7.1"],
}
NATS = "github.com/nats-io/nats-server/v2@v2.12.1"  # as Go names it
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
    go = program("go", advice="apt-get install golang, or a nats-server of 2.10 or later")
    _run(go, "install", NATS, GOBIN=str(folder))


def _run(*command: str | Path, **environment: str) -> None:
    done = subprocess.run(
        [str(word) for word in command], env=os.environ | environment,
        capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
    )  # fmt: skip
    if done.returncode:
        raise Missing((done.stdout + done.stderr).strip()[-500:])


if __name__ == "__main__":
    sys.exit(main())
