"""Bodies become rows of the newest version, or bad rows with a reason; breaking changes are refused."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from quiver.errors import InvalidRequest
from quiver.spark import rows as columns
from quiver.spark.pipeline import transform
from quiver.spark.pipeline.config import Transform, Version
from quiver.spark.pipeline.versions import shapes

TIME = datetime(2026, 11, 15, 12, tzinfo=UTC)
CONFIG = Transform(
    versions={
        "1": Version(schema="id STRING NOT NULL, euros DOUBLE, at TIMESTAMP"),
        "2": Version(
            schema="id STRING NOT NULL, cents BIGINT NOT NULL, at TIMESTAMP, to STRUCT<zip: INT>",
            migrate={"cents": "CAST(round(euros * 100) AS BIGINT)"},
        ),
        "3": Version(
            schema="id STRING NOT NULL, cents BIGINT NOT NULL, at TIMESTAMP, zip INT, who STRING",
            migrate={"zip": "to.zip"},
        ),
    },
    checks={"cents is 0 or more": "cents >= 0", "who is short": "length(who) < 5"},
)


def messages(session, found: Sequence[tuple[bytes, str | None]]):
    rows = [
        ("orders", 0, offset, "ann", body, {} if version is None else {"version": version}, 0, TIME,
         None, None, None, 1, f"orders-0-{offset}", None)
        for offset, (body, version) in enumerate(found)
    ]  # fmt: skip
    return session.createDataFrame(rows, columns.MESSAGES)


@pytest.fixture(scope="module")
def session(spark):
    """As the pipeline's own: what cannot be computed is null."""
    own = spark.newSession()
    own.conf.set("spark.sql.ansi.enabled", "false")
    own.conf.set("spark.sql.caseSensitive", "true")
    return own


GOOD = {
    b'{"id": "a", "euros": 1.25, "at": "2026-01-01T00:00:00+02:00"}': (
        None,
        ("a", 125, None, None),
    ),
    b'{"id": "b", "euros": 0}': ("1", ("b", 0, None, None)),
    b'{"id": "c", "cents": 7, "to": {"zip": 99999}, "more": [1]}': ("2", ("c", 7, 99999, None)),
    b'{"id": "d", "cents": 9007199254740993}': ("2", ("d", 9007199254740993, None, None)),
    '{"id": "ü\\u0000", "cents": 8, "zip": 1, "who": "ann"}'.encode(): ("3", ("ü\0", 8, 1, "ann")),
    b' {"id": "", "cents": 1}\n': ("3", ("", 1, None, None)),
}
BAD = {
    b"": ("3", "the body is empty"),
    b"  ": ("3", "the body is empty"),
    b"\xff{}": ("3", "the body is not UTF-8"),
    b"nope": ("3", "the body is not JSON"),
    b'{"id": "a", "cents": 1': ("3", "the body is not JSON"),
    b'{"id": "a", "cents": 1} {}': ("3", "the body is not JSON"),
    b'{"id": "a", "cents": 1}, "x": {}': ("3", "the body is not JSON"),
    b'{"id": "a", "cents": 1}}': ("3", "the body is not JSON"),
    b'{"id": "a", "cents": 1}]': ("3", "the body is not JSON"),
    b'{"id": "a", "cents": NaN}': ("3", "the body is not JSON"),
    b"null": ("3", "the body is not as version 3 says"),
    b'[{"id": "a", "cents": 1}]': ("3", "the body is not as version 3 says"),
    b'{"id": "a", "cents": 1, "to": {"zip": "x"}}': ("2", "the body is not as version 2 says"),
    b"{}": ("4", "version 4 is not known, only 1, 2, 3"),
    b'{"cents": 1}': ("3", "id is missing"),
    b'{"id": null, "cents": 1}': ("3", "id is missing"),
    b'{"id": "a", "cents": "1"}': ("3", "cents is not bigint"),
    b'{"id": "a", "cents": 1.5}': ("3", "cents is not bigint"),
    b'{"id": "a", "cents": 9223372036854775808}': ("3", "cents is not bigint"),
    b'{"id": "a", "at": "yesterday"}': ("1", "at is not timestamp"),
    b'{"id": "a"}': ("1", "cents of version 2 cannot be made of version 1"),
    b'{"id": "a", "cents": -1}': ("3", "not so: cents is 0 or more"),
    b'{"id": "b", "euros": -1}': (None, "not so: cents is 0 or more"),
    b'{"id": "a", "cents": 1, "who": "long name"}': ("3", "not so: who is short"),
}


def test_every_body_is_a_good_row_or_a_bad_one_with_a_reason(session):
    told = [(body, version) for found in (GOOD, BAD) for body, (version, _) in found.items()]
    rows = transform(messages(session, told), CONFIG).collect()
    assert [bytes(row._message.body) for row in rows] == [body for body, _ in told]
    good, bad = rows[: len(GOOD)], rows[len(GOOD) :]
    assert [(row.id, row.cents, row.zip, row.who) for row in good] == [
        row for _, row in GOOD.values()
    ]
    assert {(row._stage, row._reason) for row in good} == {(None, None)}
    assert [row._reason for row in bad] == [reason for _, reason in BAD.values()]
    assert {row._stage for row in bad} == {"transform"}
    assert good[0].asDict().keys() == {
        "_message", "_stage", "_reason", "id", "cents", "at", "zip", "who",
    }  # fmt: skip
    assert good[0].at.astimezone(UTC) == datetime(2025, 12, 31, 22, tzinfo=UTC)


def test_the_version_may_be_in_the_body(session):
    config = Transform(
        versions={"a": Version(schema="n INT"), "b": Version(schema="n BIGINT, m STRING")},
        version="get_json_object(body, '$.v')",
    )
    told = [(b'{"n": 1}', None), (b'{"n": 2, "v": "b", "m": "x"}', None), (b'{"v": "c"}', None)]
    rows = transform(messages(session, told), config).collect()
    assert [(row.n, row.m, row._reason) for row in rows] == [
        (1, None, None), (2, "x", None), (None, None, "version c is not known, only a, b"),
    ]  # fmt: skip


CHANGES = {
    "a BIGINT": None,  # wider
    "a INT, b STRING": None,  # new, and may be null
    "b STRING": None,  # gone
    "a STRING": "'a' goes from int to string; say what it is in old messages: migrate.a",
    "a SMALLINT": "'a' goes from int to smallint",
    "a INT, b STRING NOT NULL": "'b' is new and NOT NULL; say what it is",
    "a INT NOT NULL": "'a' may be null no longer",
    "a FLOAT": "'a' goes from int to float",
    "a INT, A INT": None,
    "a INT, a INT": "names a column twice",
    "_a INT": "may not be called '_a'",
    "a NONSENSE": "schema of version 2 is not understood",
    "": "schema of version 2",
}


@pytest.mark.parametrize(("schema", "refusal"), CHANGES.items())
def test_a_breaking_change_is_refused_before_anything_runs(
    session, schema: str, refusal: str | None
):
    versions = {"1": Version(schema="a INT"), "2": Version(schema=schema)}
    if refusal is None:
        assert len(shapes(versions)) == 2
    else:
        with pytest.raises(InvalidRequest, match=refusal):
            shapes(versions)


@pytest.mark.parametrize(
    "schema", [schema for schema in CHANGES if "a STRING" in schema or "NOT" in schema]
)
def test_a_breaking_change_that_is_explained_is_none(session, schema: str):
    column = "b" if "b" in schema else "a"
    versions = {"1": Version(schema="a INT"), "2": Version(schema=schema, migrate={column: "7"})}
    rows = transform(
        messages(session, [(b'{"a": 1}', "1")]), Transform(versions=versions)
    ).collect()
    assert (str(rows[0][column]), rows[0]._reason) == ("7", None)


def test_sql_that_is_wrong_is_refused_with_its_place(session):
    empty = messages(session, [])
    schema = {"1": Version(schema="a INT")}
    refused = {
        "transform.version": Transform(versions=schema, version="nothing"),
        "transform.checks.'odd'": Transform(versions=schema, checks={"odd": "a %% ("}),
        "transform.versions.2.migrate.a": Transform(
            versions={**schema, "2": Version(schema="a STRING", migrate={"a": "b || 'x'"})}
        ),
        "migrate has 'c'": Transform(
            versions={**schema, "2": Version(schema="a INT", migrate={"c": "1"})}
        ),
        "there is nothing to migrate": Transform(
            versions={"1": Version(schema="a INT", migrate={"a": "1"})}
        ),
    }
    for where, config in refused.items():
        with pytest.raises(InvalidRequest, match=where):
            transform(empty, config)
