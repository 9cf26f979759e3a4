"""A real node, and what every client of Amazon's needs to know of it."""

import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from tests.server.nodes import Node, start_node

REGION = "eu-central-1"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with start_node(tmp_path) as started:
        yield started


@pytest.fixture
def settings(node: Node, tmp_path: Path) -> dict[str, str]:
    """The environment of a client's process: Amazon's variables point to the node, and nowhere else."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_ENDPOINT_URL_SQS": node.url,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture
def sqs(node: Node):
    """boto3, to prepare queues and to look into them."""
    client = boto3.client(
        "sqs",
        endpoint_url=node.url,
        region_name=REGION,
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    yield client
    client.close()
