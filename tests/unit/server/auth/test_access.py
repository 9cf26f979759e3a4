"""The access file: written and read, refused when wrong, replaced at once."""

import os
import stat
import threading
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiver import limits
from quiver.errors import InvalidRequest, StorageError
from quiver.server.auth import access
from quiver.server.auth.access import Access, AccessEntry

LATER = datetime(2999, 1, 1, tzinfo=UTC)


def write(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def test_what_is_saved_is_loaded(tmp_path):
    _, token = access.new_token(LATER)
    whole = Access(
        {
            "billing": AccessEntry(
                allow=("send,receive:orders.*",), deny=("send:orders.x",), tokens=(token,),
                keys=(access.new_key(), access.new_key(LATER)), requests_per_second=2.5,
                bytes_per_second=1e6, long_polls=3,
            ),
            "a.b-c_D": AccessEntry(),
        }
    )  # fmt: skip
    access.save(tmp_path / "access.toml", whole)
    assert access.load(tmp_path / "access.toml") == whole
    assert stat.S_IMODE((tmp_path / "access.toml").stat().st_mode) == 0o600


names = st.from_regex(access.NAME, fullmatch=True)
entries = st.builds(
    AccessEntry,
    allow=st.lists(st.sampled_from(["send:a", "*:*", "read,observe:x.*"]), max_size=3).map(tuple),
    keys=st.lists(st.builds(access.new_key), max_size=2).map(tuple),
    requests_per_second=st.none() | st.floats(0.001, 1e9),
    long_polls=st.none() | st.integers(0, 10**6),
)


@given(st.dictionaries(names, entries, max_size=4))
def test_any_access_survives_its_text(principals):
    whole = Access(principals)
    assert msgspec.toml.decode(access.to_toml(whole), type=Access) == whole


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[principals", "toml|Expected|TOML"),
        ("[principal.ann]", "unknown field `principal`"),
        ("[principals.ann]\nalows = []", "unknown field `alows`"),
        ("[principals.ann]\nallow = ['fly:x']", "a rule is verbs"),
        ("[principals.'a b']", "principal's name"),
        ("[principals.ann]\nrequests_per_second = 0", "> 0"),
        ("[principals.ann]\nlong_polls = -1", ">= 0"),
        ("[principals.ann]\ntokens = [{id = 'x', hash = 'y'}]", "matching"),
        ("[principals.ann]\nkeys = [{id = 'AKID', secret = 'short'}]", "length"),
        ("[principals.ann]\nkeys = [{id = 'AKID', secret = '0123456789abcdef', expires = 2027-01-01}]",
         "Expected"),
        ("[principals.ann]\nkeys = [{id = 'AKID', secret = '0123456789abcdef', "
         "expires = 2027-01-01T00:00:00}]", "timezone"),
        ("[principals.a]\nkeys = [{id = 'AKID', secret = '0123456789abcdef'}]\n"
         "[principals.b]\nkeys = [{id = 'AKID', secret = 'fedcba9876543210'}]", "twice"),
        ("[principals.ann]\nallow = [" + "'send:x'," * 101 + "]", "too many"),
        ("#" * (limits.ACCESS_FILE_BYTES_MAX + 1), "larger than"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_and_says_where(tmp_path, text, says):
    path = write(tmp_path / "access.toml", text)
    with pytest.raises(InvalidRequest, match=says) as refused:
        access.load(path)
    assert str(path) in str(refused.value)
    assert "0123456789abcdef" not in str(refused.value), "an error shows no secret"


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_a_file_or_refused(tmp_path_factory, data):
    path = write(tmp_path_factory.mktemp("any") / "access.toml", "")
    path.write_bytes(data)
    with suppress(InvalidRequest):
        assert access.load(path).principals == {}


def test_a_file_that_is_nested_too_deep_is_refused(tmp_path):
    path = write(tmp_path / "access.toml", "principals = " + "[" * 100_000)
    with pytest.raises(InvalidRequest, match=r"access\.toml"):
        access.load(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_belongs_to_whose_it_was(tmp_path):
    os.chown(tmp_path, 12_345, 54_321)
    path = tmp_path / "access.toml"
    for _ in range(2):
        access.save(path, Access())
        assert (path.stat().st_uid, path.stat().st_gid) == (12_345, 54_321)
    os.chown(path, 1_111, 2_222)
    access.save(path, Access())
    assert (path.stat().st_uid, path.stat().st_gid) == (1_111, 2_222)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_file_that_others_can_read_is_refused(tmp_path, mode):
    path = write(tmp_path / "access.toml", "", mode)
    with pytest.raises(InvalidRequest, match="chmod 600"):
        access.load(path)


def test_a_file_that_is_not_utf8_or_not_there_is_refused(tmp_path):
    path = write(tmp_path / "access.toml", "")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequest):
        access.load(path)
    with pytest.raises(StorageError, match="No such file"):
        access.load(tmp_path / "other.toml")


def test_credentials_are_random_long_and_not_shown():
    tokens = [access.new_token() for _ in range(100)]
    assert len({text for text, _ in tokens}) == len({kept.id for _, kept in tokens}) == 100
    for text, kept in tokens:
        assert access.TOKEN.fullmatch(text)
        assert text.split("_", 2)[2] not in access.to_toml(
            Access({"a": AccessEntry(tokens=(kept,))})
        )
        assert kept.hash not in repr(AccessEntry(tokens=(kept,)))
    key = access.new_key()
    assert key.secret not in repr(Access({"a": AccessEntry(keys=(key,))}))
    assert len(key.id) == 20


def test_changes_by_several_at_a_time_all_arrive(tmp_path):
    path = tmp_path / "new" / "access.toml"

    def add(number):
        with access.changing(path) as principals:
            principals[f"p{number}"] = AccessEntry()

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(access.load(path).principals) == 20
    assert sorted(each.name for each in path.parent.iterdir()) == ["access.toml"]


def test_a_change_that_fails_changes_nothing(tmp_path):
    path = tmp_path / "access.toml"
    with access.changing(path) as principals:
        principals["ann"] = AccessEntry()
    before = path.read_bytes()
    with pytest.raises(InvalidRequest), access.changing(path) as principals:
        principals["ann"] = AccessEntry(allow=("nonsense",))
    assert path.read_bytes() == before
