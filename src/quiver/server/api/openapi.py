"""The description of the native door, OpenAPI 3.1, made from the table of endpoints."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

import quiver
from quiver.server.api.endpoint import Endpoint
from quiver.wire import shapes

REFERENCE: Final = "#/components/schemas/{name}"
PROBLEM: Final = "application/problem+json"


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole description."""
    kinds: list[Any] = [shapes.Problem]
    for endpoint in endpoints:
        kinds += [kind for kind in (endpoint.body, endpoint.answer, endpoint.query) if kind]
    made = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    schemas, components = _simple(made)
    found = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, found, components)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quiver",
            "version": quiver.__version__,
            "summary": "A durable message queue whose batches are Apache Arrow.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(
    endpoint: Endpoint, schemas: dict[int, Any], components: dict[str, Any]
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.path.split("/")[2] if endpoint.path.count("/") > 1 else "node"],
        "x-verb": endpoint.verb or "any",
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in endpoint.parameters
        ],
        "responses": {
            "200" if endpoint.answer else "204": _answer(endpoint, schemas),
            "default": {
                "description": "An error",
                "content": {PROBLEM: {"schema": schemas[id(shapes.Problem)]}},
            },
        },
    }
    if endpoint.query is not None:
        shape = components[endpoint.query.__name__]
        made["parameters"] += [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in shape["properties"].items()
        ]
    if endpoint.name == "send":
        made["parameters"].append(
            {
                "name": shapes.IDEMPOTENCY_HEADER,
                "in": "header",
                "required": False,
                "schema": {"type": "string"},
                "description": "The message's dedup id: sent twice, stored once.",
            }
        )
    if endpoint.body is not None:
        content = {shapes.JSON: {"schema": schemas[id(endpoint.body)]}}
        if endpoint.arrow_in:
            content[shapes.ARROW] = {"schema": {"type": "string", "format": "binary"}}
        made["requestBody"] = {"required": False, "content": content}
    return made


def _answer(endpoint: Endpoint, schemas: dict[int, Any]) -> dict[str, Any]:
    if endpoint.answer is None:
        return {"description": "Done"}
    content = {shapes.JSON: {"schema": schemas[id(endpoint.answer)]}}
    if endpoint.arrow_out:
        content[shapes.ARROW] = {"schema": {"type": "string", "format": "binary"}}
    return {"description": "Done", "content": content}


def _simple(schema: Any) -> Any:
    """Pairs as lists of two, which more tools understand than lists of types."""
    if isinstance(schema, list | tuple):
        return [_simple(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = schema.get("prefixItems")
    if parts is not None:
        assert all(part == parts[0] for part in parts), "tuples of one type are all that we have"
        schema = {name: part for name, part in schema.items() if name != "prefixItems"}
        schema["items"] = parts[0]
    return {name: _simple(part) for name, part in schema.items()}
