"""What the OpenAPI description says, tried out: schemathesis makes requests of it, good and bad."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
)

import quiver
from quiver.server.api.openapi import describe
from quiver.server.api.table import ENDPOINTS
from quiver.wire import shapes
from tests.lengths import examples
from tests.server.nodes import Node, start_node

EXAMPLES = examples(12)  # of each endpoint; enough for every kind of value that a schema allows
KNOWN = {
    "topic": "t",
    "group": "g",
    "member": "m",
    "producer": "p",
    "message": "3-0",
    "application": "etl",
}
PROMISES: list[Any] = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
]


@schemathesis.serializer(shapes.ARROW)
def as_it_is(context: Any, value: Any) -> bytes:
    """A stream of bytes that is none; what almost is one is in test_fuzz."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


schema = schemathesis.openapi.from_dict(describe(ENDPOINTS))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    with start_node(tmp_path_factory.mktemp("described")) as node:
        yield node


@pytest.fixture(autouse=True)
def something_is_there(shared: Node) -> None:
    with quiver.connect(f"quiver://127.0.0.1:{shared.port}") as queue:
        if "t" in queue.topics():
            queue.delete_topic("t")
        queue.create_topic("t", retention="forever", dead_letter="t.dlq")
        queue.send_batch("t", [quiver.Message(b"x", key="k", priority=3), b"y"])
        queue.join("t", "g", "m")


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_request_that_the_description_allows_or_forbids_is_the_nodes_fault(
    case: schemathesis.Case, shared: Node
) -> None:
    for name, value in case.path_parameters.items():
        if len(str(value)) % 3:  # most of them about something that is there
            case.path_parameters[name] = KNOWN[name]
    if isinstance(case.body, dict) and "wait" in case.body:
        case.body["wait"] = 0  # an hour is allowed, too
    answer = case.call(base_url=shared.url, timeout=30)
    case.validate_response(answer, checks=PROMISES)
