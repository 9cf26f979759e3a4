"""A real node, and what every client of Amazon's needs to know of it.

A node is open unless a test says `@pytest.mark.parametrize("signed", [True], indirect=True)`.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest

from tests.clients import environments
from tests.server.nodes import Node, start_node

REGION = "eu-central-1"
SECONDS_MAX = 120  # for one command
AWS_REFUSED = 255  # the exit code of `aws` when the service says no


class Keys(NamedTuple):
    id: str
    secret: str


@pytest.fixture
def signed(request: pytest.FixtureRequest) -> bool:
    """Whether the node checks signatures."""
    return getattr(request, "param", False)


@pytest.fixture
def keys(signed: bool, tmp_path: Path) -> Keys:
    """What clients sign with: anything, or a key that `quiver access` made."""
    if not signed:
        return Keys("any", "any")
    run_quiver("access", "add", "tester", "--allow", "*:*", "--data", str(tmp_path / "data"))
    made = run_quiver("access", "key", "tester", "--json", "--data", str(tmp_path / "data"))
    found = json.loads(made)
    return Keys(found["access_key_id"], found["secret_access_key"])


def run_quiver(*args: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-m", "quiver.cli", *args],
        stdout=subprocess.PIPE, timeout=SECONDS_MAX, check=True,
    ).stdout  # fmt: skip


@pytest.fixture
def node(tmp_path: Path, keys: Keys) -> Iterator[Node]:
    with start_node(tmp_path) as started:
        yield started


@pytest.fixture
def settings(node: Node, keys: Keys, tmp_path: Path) -> dict[str, str]:
    """The environment of a client's process: Amazon's variables point to the node, and nowhere else."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_ENDPOINT_URL_SQS": node.url,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": keys.id,
        "AWS_SECRET_ACCESS_KEY": keys.secret,
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture
def sqs(node: Node, keys: Keys):
    """boto3, to prepare queues and to look into them."""
    client = boto3.client(
        "sqs",
        endpoint_url=node.url,
        region_name=REGION,
        aws_access_key_id=keys.id,
        aws_secret_access_key=keys.secret,
    )
    yield client
    client.close()


@pytest.fixture
def aws(settings: dict[str, str], node: Node) -> Callable[..., Any]:
    """`aws sqs …`: what it printed, or with `error=True` its complaint."""
    command = environments.python_with("awscli>=1.40,<2") / "aws"

    def run(*args: str, error: bool = False, **options: Any) -> Any:
        named = []
        for name, value in options.items():
            named.append(f"--{name.replace('_', '-')}")
            values = value if isinstance(value, list) else [value]
            named += [v if isinstance(v, str) else json.dumps(v) for v in values]
        done = subprocess.run(
            [command, "--endpoint-url", node.url, "sqs", *args, *named],
            env=settings,  # its version 1 does not look for an endpoint there
            capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        assert done.returncode == (AWS_REFUSED if error else 0), (args, done.stderr)
        if error:
            return done.stderr.strip()
        return json.loads(done.stdout) if done.stdout.strip() else None

    return run


@pytest.fixture
def javascript(settings: dict[str, str], node: Node) -> Callable[[Path], str]:
    """Runs a program where the packages of the example are installed; what it printed."""
    command = environments.program("node")
    folder = environments.node_with(environments.ROOT / "examples" / "node" / "package.json")

    def run(program: Path) -> str:
        shutil.copy(program, folder)  # packages are looked for next to the program
        done = subprocess.run(
            [command, program.name], cwd=folder, env={**settings, "QUIVER_URL": node.url},
            capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def curl() -> Callable[..., tuple[int, str]]:
    """`curl …`: the status and the body of the answer."""
    command = environments.program("curl")

    def run(*args: str, given: str = "") -> tuple[int, str]:
        done = subprocess.run(
            [command, "--silent", "--show-error", "--write-out", "\n%{http_code}", *args],
            input=given, capture_output=True, text=True, timeout=SECONDS_MAX, check=True,
        )  # fmt: skip
        body, _, status = done.stdout.rpartition("\n")
        return int(status), body

    return run
