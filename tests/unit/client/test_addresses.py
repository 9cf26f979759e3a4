"""The ways to write a node's address, and what may be shown of it."""

import pytest

from quiver.client.remote.address import is_address, parse
from quiver.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "secure", "hosts"),
    [
        ("quiver://a", False, ("a:7070",)),
        ("quivers://a", True, ("a:7070",)),
        ("http://a:7070", False, ("a:7070",)),
        ("http://a:7070/", False, ("a:7070",)),
        ("https://a:7070,b:7071", True, ("a:7070", "b:7071")),
        ("http://a", False, ("a:80",)),
        ("https://a", True, ("a:443",)),
        ("HTTP://a:7070", False, ("a:7070",)),
    ],
)
def test_an_address_may_be_that_of_http(text, secure, hosts):
    assert is_address(text)
    found = parse(text, {})
    assert (found.secure, found.hosts) == (secure, hosts)


def test_a_token_and_options_go_into_each_kind():
    found = parse("https://token@a:7070?ca=/etc/ca.pem&patience=1s", {})
    assert (found.token, found.ca, found.patience_seconds) == ("token", "/etc/ca.pem", 1.0)


def test_what_is_shown_has_no_token():
    assert str(parse("https://secret@a:7070,b:7071?ca=x", {})) == "quivers://a:7070,b:7071"
    assert str(parse("quiver://me:secret@a", {})) == "quiver://a:7070"


@pytest.mark.parametrize("text", ["kafka://a", "data/", "http:/a", "ftp://a"])
def test_what_is_not_an_address_is_none(text):
    assert not is_address(text)


@pytest.mark.parametrize(
    "host",
    [
        "bad..host",
        ".",
        ".a",
        "b\N{LATIN SMALL LETTER U WITH DIAERESIS}..c",
        "a" * 64,
        "a" * 64 + ".b:80",
    ],
)
def test_a_host_that_no_name_can_be_is_refused(host):
    with pytest.raises(InvalidRequest, match="is not host:port"):
        parse(f"quiver://a,{host}", {})


@pytest.mark.parametrize(
    "host",
    ["a.b.", "a_b-c", "[::1]", "127.0.0.1", "b\N{LATIN SMALL LETTER U WITH DIAERESIS}.c", "a" * 63],
)
def test_a_host_may_be_any_name(host):
    assert parse(f"quiver://{host}", {}).hosts == (f"{host}:7070",)


def test_a_path_after_the_host_is_refused():
    with pytest.raises(InvalidRequest, match="an address is quiver://"):
        parse("http://a:7070/v1/topics", {})
