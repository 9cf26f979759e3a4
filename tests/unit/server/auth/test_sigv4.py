"""Signatures of AWS: botocore signs, we check; and no signed part can be changed."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiver.errors import Unauthenticated
from quiver.server.auth import Guard, access
from quiver.server.auth.access import Access, AccessEntry, Key
from tests.unit.server.auth.requests import JSON, QUERY, URL, changed, scope, send_message, signed

KEY = access.new_key()
BODY = send_message("hello, wörld")
FORM = b"Action=SendMessage&MessageBody=hello+w%C3%B6rld&Version=2012-11-05"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("access") / "access.toml"
    access.save(path, Access({"ann": AccessEntry(keys=(KEY,))}))
    return path


@pytest.fixture(scope="module")
def guard(path):
    return Guard(path)


def refusal(guard, request, body=BODY):
    with pytest.raises(Unauthenticated) as refused:
        guard.by_signature(request, body)
    assert KEY.secret not in str(refused.value)
    return refused.value.reason


@pytest.mark.parametrize(
    ("headers", "body", "method", "url"),
    [
        (JSON, BODY, "POST", URL),
        (JSON, b"{}", "POST", "http://queue.example/"),
        (QUERY, FORM, "POST", URL),
        (QUERY, FORM, "POST", URL + "000000000000/orders.fifo"),
        (QUERY, b"", "POST", URL + "000000000000/"),
        ({}, b"", "GET", URL + "?Action=ListQueues&QueueNamePrefix=a%20b%2Fc&Version=2012-11-05"),
        ({}, b"", "GET", URL + "?b=2&a=1&b=1&empty=&a.1=x"),
        ({}, b"", "GET", URL + "a%20b/~c-d_e.f/%C3%B6"),
        ({}, b"", "GET", URL + "a//b/./c/../d"),
        ({"X-Amz-Meta": "  much   space  inside "}, BODY, "POST", URL),
        ({"X-Amz-Meta": "wörld"}, BODY, "POST", URL),
    ],
)  # fmt: skip
def test_what_botocore_signs_is_known(guard, headers, body, method, url):
    request = signed(KEY, body, method=method, url=url, headers=headers)
    assert guard.by_signature(request, body).name == "ann"


def test_a_session_token_and_any_region_are_tolerated(guard):
    request = signed(KEY, BODY, headers=JSON, session="whatever" * 100, region="mars-north-7")
    assert guard.by_signature(request, BODY).name == "ann"


@given(
    st.binary(max_size=200), st.text(st.characters(codec="ascii", min_codepoint=32), max_size=20)
)
def test_any_body_and_header_can_be_signed(guard, body, text):
    request = signed(KEY, body, headers={**JSON, "X-Amz-Meta": text})
    assert guard.by_signature(request, body).name == "ann"
    assert refusal(guard, request, body + b"x") == "SignatureDoesNotMatch"


def test_each_signed_part_is_covered(guard):
    url = URL + "000000000000/orders?a=1"
    good = signed(KEY, BODY, url=url, headers=JSON, session="token")
    assert guard.by_signature(good, BODY).name == "ann"
    wrong = "SignatureDoesNotMatch"
    assert refusal(guard, good, BODY + b" ") == wrong
    assert refusal(guard, good, b"") == wrong
    assert refusal(guard, {**good, "method": "PUT"}) == wrong
    assert refusal(guard, {**good, "raw_path": b"/000000000000/other"}) == wrong
    assert refusal(guard, {**good, "query_string": b"a=2"}) == wrong
    assert refusal(guard, {**good, "query_string": b""}) == wrong
    assert refusal(guard, {**good, "query_string": b"a=1&a=1"}) == wrong
    names = {name.decode() for name, _ in good["headers"]} - {"authorization", "x-amz-date"}
    assert names == {"host", "content-type", "x-amz-target", "x-amz-security-token"}
    for name in names:
        assert refusal(guard, changed(good, name, lambda value: value + b"x")) == wrong
        assert refusal(guard, changed(good, name, lambda value: None)) == wrong
        twice = {**good, "headers": [*good["headers"], (name.encode(), b"x")]}
        assert refusal(guard, twice) == wrong


def moved(moment: bytes, **by) -> bytes:
    then = datetime.fromisoformat(moment.decode()) + timedelta(**by)
    return then.strftime("%Y%m%dT%H%M%SZ").encode()


def test_the_time_is_signed_too(guard):
    good = signed(KEY, BODY, headers=JSON)
    at_noon = Guard(guard.files[0], wall_clock=noon)
    for change in (lambda value: moved(value, seconds=1), lambda value: None):
        bad = changed(good, "x-amz-date", change)
        assert refusal(guard, bad) == "SignatureDoesNotMatch"
    for nonsense in (b"", b"now", b"20261301T000000Z", b"20261115T120000", b"9" * 100):
        assert refusal(guard, changed(good, "x-amz-date", lambda _, to=nonsense: to)) == (
            "IncompleteSignature"
        )
    assert refusal(at_noon, good) == "RequestExpired"


def noon():
    return datetime(2020, 1, 1, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("seconds", "fine"), [(-902, False), (-890, True), (890, True), (902, False)]
)
def test_a_signature_is_good_for_a_quarter_of_an_hour(path, seconds, fine):
    guard = Guard(path, wall_clock=lambda: time.time() + seconds)
    request = signed(KEY, BODY, headers=JSON)
    if fine:
        assert guard.by_signature(request, BODY).name == "ann"
    else:
        assert refusal(guard, request) == "RequestExpired"


def test_host_and_what_begins_with_x_amz_must_be_signed(guard):
    good = signed(KEY, BODY, headers=JSON)
    for name in (b"host;", b";x-amz-target", b"x-amz-date;"):
        unsigned = changed(good, "authorization", lambda value, name=name: value.replace(name, b""))
        assert unsigned != good
        assert refusal(guard, unsigned) == "SignatureDoesNotMatch"
    extra = {**good, "headers": [*good["headers"], (b"x-amz-expires", b"1")]}
    assert refusal(guard, extra) == "SignatureDoesNotMatch"


def test_a_header_that_nobody_signs_may_come_on_the_way(guard):
    good = signed(KEY, BODY, headers=JSON)
    more = [*good["headers"], (b"user-agent", b"x"), (b"x-forwarded-for", b"10.0.0.1")]
    assert guard.by_signature({**good, "headers": more}, BODY).name == "ann"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        pytest.param(
            KEY.id.encode(), access.new_key().id.encode(), "InvalidClientTokenId", id="key"
        ),
        (b"/us-east-1/", b"/us-east-2/", "SignatureDoesNotMatch"),
        (b"/sqs/", b"/s3/", "SignatureDoesNotMatch"),
        (b"/aws4_request", b"/aws5_request", "IncompleteSignature"),
        (b"AWS4-HMAC-SHA256", b"AWS4-ECDSA-P256-SHA256", "IncompleteSignature"),
        (b"AWS4-HMAC-SHA256 ", b"Bearer ", "IncompleteSignature"),
        (b"host;", b"host;host;", "IncompleteSignature"),
        (b"content-type;host;", b"host;content-type;", "IncompleteSignature"),
        (b"SignedHeaders=", b"SignedHeaders=accept;", "SignatureDoesNotMatch"),
        (b"Signature=", b"Signature=zz", "IncompleteSignature"),
        (b"Signature=", b"Signature=00", "IncompleteSignature"),
        (b"Credential=", b"Credentials=", "IncompleteSignature"),
    ],
)  # fmt: skip
def test_no_part_of_the_authorization_can_be_changed(guard, old, new, reason):
    good = signed(KEY, BODY, headers=JSON)
    bad = changed(good, "authorization", lambda value: value.replace(old, new))
    assert bad != good
    assert refusal(guard, bad) == reason


def test_no_digit_of_the_signature_can_be_changed(guard):
    good = signed(KEY, BODY, headers=JSON)
    for at in range(1, 65):
        bad = changed(good, "authorization", lambda value, at=at: flipped(value, -at))
        assert refusal(guard, bad) == "SignatureDoesNotMatch"


def flipped(value: bytes, at: int) -> bytes:
    digits = bytearray(value)
    digits[at] = ord("1") if digits[at] == ord("0") else ord("0")
    return bytes(digits)


def test_another_secret_is_refused(guard):
    forged = Key(KEY.id, access.new_key().secret)
    assert refusal(guard, signed(forged, BODY, headers=JSON)) == "SignatureDoesNotMatch"


def test_strangers_are_refused_before_the_body_is_there(guard):
    for request in (scope(), signed(access.new_key(), BODY, headers=JSON)):
        with pytest.raises(Unauthenticated):
            guard.claim(request)
    assert guard.claim(signed(KEY, BODY, headers=JSON)).by(BODY).name == "ann"


def test_a_body_must_be_signed(guard):
    for stated in ("UNSIGNED-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "0" * 64):
        request = signed(KEY, BODY, headers={**JSON, "X-Amz-Content-SHA256": stated})
        assert refusal(guard, request) == "SignatureDoesNotMatch"


def test_unsigned_and_presigned_requests_are_refused_clearly(guard):
    assert refusal(guard, scope()) == "MissingAuthenticationToken"
    presigned = scope("GET", URL + "?Action=ListQueues&X-Amz-Algorithm=A&X-Amz-Signature=00")
    with pytest.raises(Unauthenticated, match="presigned URLs are not taken here"):
        guard.claim(presigned)
    twice = signed(KEY, BODY, headers=JSON)
    twice["headers"] += [each for each in twice["headers"] if each[0] == b"authorization"]
    assert refusal(guard, twice) == "IncompleteSignature"


@given(st.binary(max_size=300), st.binary(max_size=100), st.binary(max_size=50))
def test_any_bytes_are_refused_in_order(guard, authorization, query, moment):
    headers = [(b"authorization", authorization), (b"x-amz-date", moment), (b"host", b"x")]
    request = {**scope(), "query_string": query, "headers": headers}
    for ask in (guard.claim, guard.by_token):
        with pytest.raises(Unauthenticated):
            ask(request)
