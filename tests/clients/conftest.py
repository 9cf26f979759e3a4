"""A real node, and what every client of Amazon's needs to know of it.

A node is open unless a test says `@pytest.mark.parametrize("signed", [True], indirect=True)`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import boto3
import pytest

from tests.server.nodes import Node, start_node

REGION = "eu-central-1"
SECONDS_MAX = 60  # for one command of ours


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
