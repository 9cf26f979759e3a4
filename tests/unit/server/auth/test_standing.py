"""Who asks on a connection: found out once, and again whenever the access file has changed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from quiver.errors import Forbidden, QuotaExceeded, Unauthenticated
from quiver.server.auth import ANYBODY, Guard, access
from quiver.server.auth.access import Access, AccessEntry

NOW = 1_800_000_000.0


def scope(token: str = "") -> dict:
    headers = [(b"authorization", b"Bearer " + token.encode())] if token else []
    return {"headers": headers}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.toml"


def written(path: Path, **entries: AccessEntry) -> None:
    access.save(path, Access(entries))


def test_on_an_open_node_it_is_anybody(path):
    guard = Guard(path)
    assert guard.standing(scope("whatever")).admit() is ANYBODY
    assert guard.authenticated("whatever").admit() is ANYBODY


def test_a_guarded_node_wants_a_token_from_who_was_anybody(path):
    guard = Guard(path)
    standing = guard.standing(scope())
    text, token = access.new_token()
    written(path, ann=AccessEntry(("*:*",), (), (token,)))
    guard.refresh()
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            standing.admit()
    assert guard.authenticated(text).admit().name == "ann"


def test_it_is_another_principal_after_a_change(path):
    text, token = access.new_token()
    written(path, ann=AccessEntry(("send:*",), (), (token,)))
    guard = Guard(path)
    standing = guard.standing(scope(text))
    standing.demand(standing.admit(), "send", "t")
    assert standing.has_shown("send", "t")
    written(path, ann=AccessEntry(("receive:*",), (), (token,)))
    guard.refresh()
    principal = standing.admit()
    assert not standing.has_shown("send", "t")
    with pytest.raises(Forbidden):
        standing.demand(principal, "send", "t")
    standing.demand(principal, "receive", "t")
    written(path, bob=AccessEntry(("send:*",), (), (token,)))
    guard.refresh()
    assert standing.admit().name == "bob"
    written(path, bob=AccessEntry(("send:*",)))
    guard.refresh()
    with pytest.raises(Unauthenticated):
        standing.admit()


def test_a_token_expires_without_a_change(path):
    ends = datetime.fromtimestamp(NOW + 10, UTC)
    text, token = access.new_token(ends)
    written(path, ann=AccessEntry(("*:*",), (), (token,)))
    now = [NOW]
    guard = Guard(path, wall_clock=lambda: now[0])
    standing = guard.standing(scope(text))
    assert standing.admit().name == "ann"
    now[0] += timedelta(seconds=11).total_seconds()
    with pytest.raises(Unauthenticated, match="expired"):
        standing.admit()
    with pytest.raises(Unauthenticated, match="expired"):
        guard.standing(scope(text))


def test_strangers_have_no_standing(path):
    written(path, ann=AccessEntry(("*:*",), (), (access.new_token()[1],)))
    guard = Guard(path)
    for token in ("", "nonsense", access.new_token()[0]):
        with pytest.raises(Unauthenticated):
            guard.standing(scope(token))
        with pytest.raises(Unauthenticated):
            guard.authenticated(token)


def test_each_request_is_counted_and_the_first_look_is_not(path):
    text, token = access.new_token()
    written(path, ann=AccessEntry(("*:*",), (), (token,), requests_per_second=2))
    guard = Guard(path, clock=lambda: 0.0)
    standing = guard.standing(scope(text))
    standing.admit()
    standing.admit()
    with pytest.raises(QuotaExceeded):
        standing.admit()
    assert standing.principal().name == "ann"


def test_what_is_remembered_is_bounded(path, monkeypatch):
    monkeypatch.setattr("quiver.server.auth.guard.RIGHTS_KNOWN_MAX", 10)
    standing = Guard(path).standing(scope())
    principal = standing.admit()
    for at in range(100):
        standing.demand(principal, "send", str(at))
        assert standing.has_shown("send", str(at))
    assert sum(standing.has_shown("send", str(at)) for at in range(100)) <= 10
