"""`quiver access`: what it prints, and what it leaves in the file."""

import stat

import pytest

from quiver.server.auth import Guard, access
from tests.unit.server.auth.requests import bearer, signed


@pytest.fixture
def path(cli):
    return cli.data / "access.toml"


def test_what_is_added_can_enter_and_its_token_is_nowhere_else(cli, path):
    token = cli("access", "add", "ann", "--allow", "send,receive:orders.*").decode().strip()
    assert "shown only now" in cli.error
    assert token not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    ann = Guard(path).by_token(bearer(token))
    assert ann.may("send", "orders.eu")
    assert not ann.may("send", "invoices")


def test_who_may_do_nothing_is_said_to(cli):
    cli("access", "add", "ann", "--allow", "send:orders")
    assert "may do nothing" not in cli.error
    cli("access", "add", "bob", "--deny", "send:orders")
    assert "bob may do nothing: no rule allows it anything." in cli.error
    assert "--allow" in cli.error


def test_a_list_shows_everything_but_secrets(cli, path):
    token = cli.json("access", "add", "ann", "--allow", "*:*", "--deny", "manage:x", "--expires",
                     "1d", "--requests", "5", "--bytes", "1MB", "--polls", "3")["token"]  # fmt: skip
    key = cli.json("access", "key", "ann")
    (shown,) = cli.json("access", "list")
    assert shown["principal"] == "ann"
    assert shown["allow"] == ["*:*"]
    assert shown["deny"] == ["manage:x"]
    assert (shown["requests_per_second"], shown["bytes_per_second"], shown["long_polls"]) == (
        5,
        1e6,
        3,
    )
    assert [each["id"] for each in shown["keys"]] == [key["access_key_id"]]
    texts = [cli("access").decode(), cli("access", "list", "--json").decode()]
    kept = access.load(path).principals["ann"].tokens[0]
    for secret in (token, token.split("_", 2)[2], kept.hash, key["secret_access_key"]):
        assert all(secret not in text for text in texts)
    assert all(kept.id in text and "manage:x" in text for text in texts)


def test_a_new_token_ends_the_old_one_at_once_or_later(cli, path):
    first = cli.json("access", "add", "ann")["token"]
    second = cli.json("access", "token", "ann", "--overlap", "1h")["token"]
    guard = Guard(path)
    assert guard.by_token(bearer(first)) == guard.by_token(bearer(second))
    kept = access.load(path).principals["ann"].tokens
    assert [each.expires is None for each in kept] == [False, True]
    third = cli.json("access", "token", "ann")["token"]
    assert [each.id for each in access.load(path).principals["ann"].tokens] == [third.split("_")[1]]


def test_a_key_signs_and_is_replaced(cli, path):
    cli("access", "add", "ann")
    first = cli.json("access", "key", "ann")
    guard = Guard(path)
    assert guard.by_signature(signed(key_of(first)), b"").name == "ann"
    lines = cli("access", "key", "ann", "--overlap", "7d").decode().splitlines()
    second = dict(line.split("=", 1) for line in lines)
    guard.refresh()
    for key in (
        key_of(first),
        access.Key(second["AWS_ACCESS_KEY_ID"], second["AWS_SECRET_ACCESS_KEY"]),
    ):
        assert guard.by_signature(signed(key), b"").name == "ann"


def key_of(shown):
    return access.Key(shown["access_key_id"], shown["secret_access_key"])


def test_what_is_removed_is_gone_and_an_empty_file_is_not_an_open_door(cli, path):
    cli("access", "add", "ann")
    cli("access", "remove", "ann", code=2)
    cli("access", "remove", "ann", "--yes")
    assert access.load(path).principals == {}
    assert not Guard(path).open
    cli("access")
    assert "lets nobody in" in cli.error


def test_mistakes_are_refused_and_change_nothing(cli, path):
    cli("access", "add", "ann")
    before = path.read_bytes()
    for args, says in [
        (("add", "ann"), "is there already"),
        (("add", "a/b"), "principal's name"),
        (("add", "bob", "--allow", "fly:x"), "a rule is verbs"),
        (("add", "bob", "--bytes", "0"), "more than 0"),
        (("add", "bob", "--requests", "nan"), "requests"),
        (("add", "bob", "--expires", "soon"), "expires must be"),
        (("token", "bob"), "there is no 'bob'"),
        (("key", "bob"), "there is no 'bob'"),
        (("remove", "bob", "--yes"), "there is no 'bob'"),
    ]:
        cli("access", *args, code=2)
        assert says in cli.error, cli.error
    assert path.read_bytes() == before


def test_the_file_may_be_elsewhere_and_the_queue_may_come_later(cli):
    cli("access", "add", "ann", "--file", "elsewhere/who.toml")
    assert not cli.data.exists()
    assert [each["principal"] for each in cli.json("access", "--file", "elsewhere/who.toml")] == [
        "ann"
    ]
    cli("access", "add", "ann")
    cli("topics", "create", "orders")
    cli("doctor")
