"""One node for all tests of the SQS door, a client in each protocol, and queues that nobody else has."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.server.nodes import Node, start_node
from tests.sqs.query import Query

_numbers = itertools.count()


def client(node: Node, **options: Any) -> Any:
    """boto3 against a node; any credentials will do on loopback."""
    return boto3.client(
        "sqs",
        endpoint_url=node.url,
        region_name="eu-central-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, parameter_validation=False, **options),
    )


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with start_node(tmp_path_factory.mktemp("sqs")) as started:
        yield started


@pytest.fixture(scope="session")
def sqs(shared: Node) -> Iterator[Any]:
    made = client(shared)
    yield made
    made.close()


@pytest.fixture(scope="session")
def query(shared: Node) -> Iterator[Query]:
    with Query(shared.url) as made:
        yield made


@pytest.fixture
def name() -> Callable[..., str]:
    """Names that no other test uses."""
    return lambda suffix="": f"q-{next(_numbers)}{suffix}"


@pytest.fixture
def make(sqs: Any, name: Callable[..., str]) -> Callable[..., str]:
    """Makes a queue; returns its URL."""

    def make(*, fifo: bool = False, tags: dict[str, str] | None = None, **attributes: str) -> str:
        if fifo:
            attributes = {"FifoQueue": "true", **attributes}
        extra = {"tags": tags} if tags else {}
        queue = name(".fifo" if fifo else "")
        url: str = sqs.create_queue(QueueName=queue, Attributes=attributes, **extra)["QueueUrl"]
        return url

    return make


@pytest.fixture
def url(make: Callable[..., str]) -> str:
    return make()


@pytest.fixture
def fifo_url(make: Callable[..., str]) -> str:
    return make(fifo=True)
