"""Bodies become columns; those that cannot be read are kept apart, each with what is wrong."""

from quiver.spark import bodies
from tests.spark.frames import load

GOOD = {
    b'{"id": 1, "name": "\xc5\xbe"}': (1, "ž"),
    b'  {"id": 2, "more": [1, 2]}': (2, None),
    b'{"id": null, "name": ""}': (None, ""),
    b"{}": (None, None),
}
BAD = {
    b"": "the body is not JSON",
    b"  \n": "the body is not JSON",
    b"{": "the body is not JSON",
    b'{"id": 1}}': "the body is not JSON",
    b'{"id": 1}]': "the body is not JSON",
    b'{"id": 1} {"id": 2}': "the body is not JSON",
    b'{"id": 1}, {"id": 2}': "the body is not JSON",
    b'{"id": "\xff"}': "the body is not UTF-8",
    b"[1]": "the body is not a JSON object",
    b'[{"id": 1}]': "the body is not a JSON object",
    b"null": "the body is not a JSON object",
    b'"{}"': "the body is not a JSON object",
    b'{"id": "x"}': "the body is not as the schema says",
    b'{"id": 1.5}': "the body is not as the schema says",
}


def test_json_becomes_columns_and_the_malformed_are_kept_apart(spark, queue, url, topic):
    queue.create_topic(topic, retention="forever")
    queue.send_batch(topic, [*GOOD, *BAD])
    found = bodies.from_json(load(spark, url, topic), "id bigint, name string")
    rows = {bytes(row.body): tuple(row.data) for row in found.rows.collect()}
    assert {body: rows.get(body) for body in GOOD} == GOOD
    malformed = {bytes(row.body): row.problem for row in found.malformed.collect()}
    assert malformed == BAD
    assert found.rows.select("data.id").count() + found.malformed.count() == len(GOOD | BAD)
