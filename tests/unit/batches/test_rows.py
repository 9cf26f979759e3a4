"""Single messages: what is refused, and what a batch of them looks like."""

from datetime import UTC, datetime, timedelta
from enum import IntEnum

import pytest

from quiver import limits
from quiver.batches.rows import make_row, pack
from quiver.batches.schema import FIELDS, schema_of
from quiver.errors import InvalidBatch, InvalidRequest, MessageTooLarge

NOW = 1_700_000_000_000
LONE = "\ud800"


class Level(IntEnum):
    HIGH = 7


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (b"raw", b"raw"),
        (bytearray(b"raw"), b"raw"),
        (memoryview(b"raw"), b"raw"),
        (memoryview(b"r.a.w.")[::2], b"raw"),
        ("täxt", "täxt".encode()),
        (b"", b""),
    ],
)
def test_bytes_and_text_are_sent_as_they_are(body, content):
    row = make_row(body)
    assert type(row.body) is bytes
    assert (row.body, row.headers, row.nbytes) == (content, None, len(content))


@pytest.mark.parametrize(
    ("body", "content"),
    [({"a": [1, None]}, b'{"a":[1,null]}'), (5, b"5"), (None, b"null"), ([], b"[]")],
)
def test_anything_else_is_sent_as_json_and_says_so(body, content):
    row = make_row(body)
    assert (row.body, row.headers) == (content, {"content-type": "application/json"})


def test_a_content_type_of_the_sender_stays():
    assert make_row({}, headers={"Content-Type": "x"}).headers == {"Content-Type": "x"}
    assert make_row({}, headers={"v": "1"}).headers == {
        "v": "1",
        "content-type": "application/json",
    }


def test_a_row_keeps_its_own_headers():
    given = {"v": "1"}
    row = make_row(b"", headers=given)
    given["v"] = "2"
    assert row.headers == {"v": "1"}
    assert make_row(b"", headers={}).headers is None


def test_all_fields_are_kept_and_counted():
    row = make_row(
        b"body", key="kéy", headers={"a": "b"}, priority=9, delay="1s", ttl=2, dedup_id="d"
    )
    assert (row.key, row.headers, row.priority, row.dedup_id) == ("kéy", {"a": "b"}, 9, "d")
    assert (row.delay_ms, row.ttl_ms, row.nbytes) == (1_000, 2_000, 4 + 4 + 2 + 1)
    assert make_row(b"", delay=timedelta(seconds=3)).delay_ms == 3_000


def cycle():
    items: list = []
    items.append(items)
    return items


@pytest.mark.parametrize("body", [object(), {(1, 2): 3}, {"a": LONE}, cycle(), {1: object()}])
def test_a_body_that_is_not_json_is_refused(body):
    with pytest.raises(InvalidRequest, match=r"cannot be sent as JSON .*: send bytes, str, or"):
        make_row(body)


@pytest.mark.parametrize(
    "make",
    [bytes, bytearray, lambda size: memoryview(bytes(size)), lambda size: "x" * size],
)
def test_a_body_has_a_limit(make):
    assert make_row(make(limits.BODY_BYTES_MAX)).nbytes == limits.BODY_BYTES_MAX
    with pytest.raises(MessageTooLarge, match="at most 16,777,216 bytes, not 16,777,217: keep"):
        make_row(make(limits.BODY_BYTES_MAX + 1))


def test_a_text_body_is_measured_in_bytes():
    with pytest.raises(MessageTooLarge):
        make_row("é" * (limits.BODY_BYTES_MAX // 2 + 1))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"key": ""}, "key must have 1 to 1,024 bytes of UTF-8, not 0"),
        ({"key": "é" * 513}, "key must have 1 to 1,024 bytes of UTF-8, not 1,026"),
        ({"key": b"k"}, "key must be a str, not bytes"),
        ({"key": LONE}, "key has a lone surrogate at character 0"),
        ({"dedup_id": ""}, "dedup_id must have 1 to 256 bytes"),
        ({"dedup_id": "d" * 257}, "dedup_id must have 1 to 256 bytes of UTF-8, not 257"),
        ({"dedup_id": 5}, "dedup_id must be a str, not int"),
        ({"headers": [("a", "b")]}, "headers must be a mapping, not list"),
        ({"headers": "a"}, "headers must be a mapping, not str"),
        ({"headers": {"a": 1}}, r"must be str, not int: convert them with str\(\)"),
        ({"headers": {1: "a"}}, "must be str, not int"),
        ({"headers": {"a": None}}, "must be str, not NoneType"),
        ({"headers": {"a": LONE}}, "a header has a lone surrogate"),
        ({"headers": {str(i): "" for i in range(65)}}, "at most 64 headers, not 65"),
        (
            {"headers": {"a": "x" * 2_097_152}},
            "at most 2,097,152 bytes, not 2,097,153: put content",
        ),
        ({"priority": True}, "priority must be an int, not bool"),
        ({"priority": False}, "priority must be an int, not bool"),
        ({"priority": 1.0}, "priority must be an int, not float"),
        ({"priority": 0.0}, "priority must be an int, not float"),
        ({"priority": None}, "priority must be an int, not NoneType"),
        ({"priority": 10}, "priority must be between 0 and 9"),
        ({"priority": -1}, "priority must be between 0 and 9"),
        ({"delay": -1}, "delay must be between 0 and"),
        ({"delay": "soon"}, "delay must be seconds or a string"),
        ({"ttl": True}, "ttl must be seconds or a string"),
        ({"ttl": 0}, "ttl must be more than 0"),
    ],
)
def test_a_field_out_of_range_is_refused(fields, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        make_row(b"", **fields)


@pytest.mark.parametrize("headers", [[("a", "b")], {1: "a"}, 5])
def test_headers_of_a_json_body_are_refused_alike(headers):
    with pytest.raises(InvalidRequest, match="headers must be"):
        make_row({}, headers=headers)


def test_text_that_is_not_text_is_refused():
    with pytest.raises(InvalidRequest, match="the body has a lone surrogate at character 1"):
        make_row("x" + LONE)


def test_plain_rows_make_one_column():
    batch = pack([make_row(b"a"), make_row(b"b")], NOW)
    assert batch.schema == schema_of(1)
    assert batch.to_pylist() == [{"body": b"a"}, {"body": b"b"}]


def test_a_column_is_there_if_one_row_needs_it():
    full = make_row(
        b"b", key="k", headers={"a": "b"}, priority=Level.HIGH, delay=1, ttl=2, dedup_id="d"
    )
    batch = pack([make_row(b"a"), full], NOW)
    batch.validate(full=True)
    assert batch.schema.names == [field.name for field in FIELDS][:-1]
    first, second = batch.to_pylist()
    assert first == dict.fromkeys(batch.schema.names) | {"body": b"a"}
    assert second == {
        "body": b"b",
        "key": "k",
        "headers": [("a", "b")],
        "priority": 7,
        "deliver_at": datetime.fromtimestamp(NOW / 1000 + 1, UTC),
        "expires_at": datetime.fromtimestamp(NOW / 1000 + 2, UTC),
        "dedup_id": "d",
    }


def test_a_batch_has_limits(monkeypatch):
    with pytest.raises(InvalidBatch, match="needs at least one message"):
        pack([], NOW)
    rows = [make_row(b"four")] * 3
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 11)
    with pytest.raises(MessageTooLarge, match="at most 11 bytes, not 12: send several"):
        pack(rows, NOW)
    monkeypatch.setattr(limits, "BATCH_ROWS_MAX", 2)
    with pytest.raises(MessageTooLarge, match="at most 2 messages, not 3: send several"):
        pack(rows, NOW)
