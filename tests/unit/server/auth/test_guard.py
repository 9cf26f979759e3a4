"""From credentials to a principal: tokens, changes of the file, and what is logged."""

import logging
import time
from datetime import UTC, datetime, timedelta

import pytest

from quiver.errors import InvalidRequest, QuotaExceeded, StorageError, Unauthenticated
from quiver.limits import REFUSALS_LOG_SECONDS
from quiver.server.auth import ANYBODY, Guard, Watch, access
from quiver.server.auth.access import Access, AccessEntry
from tests.unit.server.auth.requests import bearer, scope, signed

TOKEN, KEPT = access.new_token()
OLD_TOKEN, OLD = access.new_token(datetime.now(UTC) - timedelta(seconds=1))
SOON_TOKEN, SOON = access.new_token(datetime.now(UTC) + timedelta(hours=1))
OTHER_TOKEN, OTHER = access.new_token()
KEY = access.new_key()
OLD_KEY = access.new_key(datetime.now(UTC) - timedelta(seconds=1))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "access.toml"
    ann = AccessEntry(allow=("send:*",), tokens=(KEPT, OLD, SOON), keys=(KEY, OLD_KEY))
    access.save(path, Access({"ann": ann, "bob": AccessEntry(tokens=(OTHER,))}))
    return path


@pytest.fixture
def guard(path):
    return Guard(path)


def test_without_a_file_everybody_may_everything(tmp_path):
    for guard in (Guard(), Guard(tmp_path / "access.toml")):
        assert guard.open
        assert guard.by_token(scope()) is guard.by_signature(scope(), b"") is ANYBODY


def test_a_file_that_was_asked_for_must_be_there(tmp_path):
    with pytest.raises(InvalidRequest, match="quiver access add"):
        Guard(tmp_path / "access.toml", required=True)


def test_an_empty_file_lets_nobody_in(tmp_path):
    access.save(tmp_path / "access.toml", Access())
    guard = Guard(tmp_path / "access.toml")
    assert not guard.open
    with pytest.raises(Unauthenticated):
        guard.by_token(bearer(TOKEN))


def test_a_token_is_known_as_its_principal(guard):
    assert guard.by_token(bearer(TOKEN)).name == "ann"
    assert guard.by_token(bearer(SOON_TOKEN)).name == "ann"
    assert guard.by_token(bearer(OTHER_TOKEN)).name == "bob"
    assert guard.by_token(scope(headers=[("AUTHORIZATION", f"bearer  {TOKEN} ")])).name == "ann"


def other(text):
    return text[:-1] + ("A" if text[-1] != "A" else "B")


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (scope(), "MissingAuthenticationToken"),
        (scope(headers=[("Authorization", "")]), "IncompleteSignature"),
        (scope(headers=[("Authorization", f"Basic {TOKEN}")]), "IncompleteSignature"),
        (scope(headers=[("Authorization", TOKEN)]), "IncompleteSignature"),
        (scope(headers=[("Authorization", f"Bearer {TOKEN}")] * 2), "IncompleteSignature"),
        (bearer(""), "IncompleteSignature"),
        (bearer("x" * 100_000), "IncompleteSignature"),
        (bearer("ö" * 40), "IncompleteSignature"),
        (bearer(TOKEN[:-1]), "IncompleteSignature"),
        (bearer(f"{TOKEN} {TOKEN}"), "IncompleteSignature"),
        (bearer(other(TOKEN)), "InvalidClientTokenId"),
        (bearer(TOKEN[:20] + OTHER_TOKEN[20:]), "InvalidClientTokenId"),
        (bearer(access.new_token()[0]), "InvalidClientTokenId"),
        (bearer(f"qvt_{KEPT.id}_{KEPT.hash[:43]}"), "InvalidClientTokenId"),
        (bearer(OLD_TOKEN), "InvalidClientTokenId"),
    ],
)
def test_any_other_token_is_refused(guard, request_, reason):
    with pytest.raises(Unauthenticated) as refused:
        guard.by_token(request_)
    assert refused.value.reason == reason
    for secret in (TOKEN, OLD_TOKEN, KEPT.hash):
        assert secret not in str(refused.value)


def test_a_token_ends_when_it_expires(path):
    now = [time.time()]
    guard = Guard(path, wall_clock=lambda: now[0])
    guard.by_token(bearer(SOON_TOKEN))
    now[0] += 3_600
    with pytest.raises(Unauthenticated, match="expired"):
        guard.by_token(bearer(SOON_TOKEN))
    guard.by_token(bearer(TOKEN))


def test_a_key_ends_when_it_expires(guard):
    assert guard.by_signature(signed(KEY), b"").name == "ann"
    with pytest.raises(Unauthenticated, match="expired"):
        guard.by_signature(signed(OLD_KEY), b"")


def test_a_request_is_counted_once_it_is_known(tmp_path):
    path = tmp_path / "access.toml"
    access.save(
        path, Access({"ann": AccessEntry(tokens=(KEPT,), keys=(KEY,), requests_per_second=2)})
    )
    guard = Guard(path, clock=lambda: 0.0)
    for _ in range(10):
        with pytest.raises(Unauthenticated):
            guard.by_token(bearer(other(TOKEN)))
    guard.by_token(bearer(TOKEN))
    guard.by_signature(signed(KEY), b"")
    for ask in (
        lambda: guard.by_token(bearer(TOKEN)),
        lambda: guard.by_signature(signed(KEY), b""),
    ):
        with pytest.raises(QuotaExceeded, match="ann has used up its requests"):
            ask()
    guard.refresh()
    with pytest.raises(QuotaExceeded):
        guard.by_token(bearer(TOKEN))


# -- changes of the file ---------------------------------------------------------------------------


def test_a_changed_file_counts_from_the_next_look(path, guard):
    watch = Watch(guard)
    access.save(path, Access({"carl": AccessEntry(tokens=(KEPT,))}))
    assert guard.by_token(bearer(TOKEN)).name == "ann"
    watch.check()
    assert guard.by_token(bearer(TOKEN)).name == "carl"
    with pytest.raises(Unauthenticated):
        guard.by_token(bearer(OTHER_TOKEN))


def test_a_file_that_comes_later_closes_the_door(tmp_path):
    guard = Guard(tmp_path / "access.toml")
    watch = Watch(guard)
    watch.check(anyway=True)
    assert guard.open
    access.save(tmp_path / "access.toml", Access({"carl": AccessEntry(tokens=(KEPT,))}))
    watch.check()
    assert not guard.open
    assert guard.by_token(bearer(TOKEN)).name == "carl"


@pytest.mark.parametrize("wrong", ["[principals", "secret = 'hunter2hunter2'", None])
def test_a_broken_file_is_logged_and_the_old_one_stays(path, guard, caplog, wrong):
    watch = Watch(guard)
    if wrong is None:
        path.unlink()
    else:
        path.write_text(wrong)
    watch.check()
    watch.check()
    assert guard.by_token(bearer(TOKEN)).name == "ann"
    assert caplog.text.count("kept what was read before") == 1
    ((_, facts),) = told(caplog)
    assert str(path) in facts["why"]
    assert "hunter2" not in facts["why"]


def test_a_file_that_others_can_read_is_not_taken_on(path, guard, caplog):
    watch = Watch(guard)
    access.save(path, Access())
    path.chmod(0o644)
    watch.check()
    assert guard.by_token(bearer(TOKEN)).name == "ann"
    assert "chmod 600" in str(told(caplog))
    path.chmod(0o600)
    watch.check()
    with pytest.raises(Unauthenticated):
        guard.by_token(bearer(TOKEN))


def test_refresh_raises_what_is_wrong(path, guard):
    path.unlink()
    with pytest.raises(StorageError):
        guard.refresh()


# -- what is logged --------------------------------------------------------------------------------


def test_refusals_are_counted_and_logged_now_and_then(path, caplog):
    now = [0.0]
    guard = Guard(path, clock=lambda: now[0])
    for _ in range(1_000):
        with pytest.raises(Unauthenticated):
            guard.by_token(bearer(other(TOKEN)))
    assert told(caplog) == [("credentials refused", {"InvalidClientTokenId": 1})]
    now[0] += REFUSALS_LOG_SECONDS
    with pytest.raises(Unauthenticated):
        guard.by_token(scope())
    counted = {"InvalidClientTokenId": 999, "MissingAuthenticationToken": 1}
    assert told(caplog)[1:] == [("credentials refused", counted)]


def told(caplog):
    records = [record for record in caplog.records if record.name == "quiver.server"]
    return [(record.msg, vars(record)["facts"]) for record in records]


def test_no_secret_is_in_a_log_or_a_repr(path, guard, caplog):
    caplog.set_level(logging.DEBUG)
    guard.refresh()
    shown = [repr(vars(guard)), repr(guard.by_token(bearer(TOKEN)))]
    shown += [repr(guard.claim(signed(KEY)))]
    for request in (
        bearer(other(TOKEN)),
        bearer("my-password"),
        scope(url="/?password=my-password"),
    ):
        with pytest.raises(Unauthenticated) as refused:
            guard.by_token(request)
        shown += [str(refused.value), repr(refused.value)]
    for secret in (TOKEN, other(TOKEN), KEPT.hash, KEY.secret, "my-password"):
        assert secret not in str(told(caplog))
        assert all(secret not in text for text in shown)
