"""The level of a log: what takes it up, what it decides, and where it is kept."""

from typing import Any

import pytest

from quiver.core.delivery import DeliveryCore
from quiver.errors import InvalidRequest, LimitExceeded, UnsupportedFormat
from quiver.model import levels
from quiver.model.commands import (
    Command,
    CreateGroup,
    CreateTopic,
    Entry,
    Found,
    OpenProducer,
    Raise,
    Run,
    Send,
    SetPeers,
    Tick,
)
from quiver.model.replies import Done, PeersSet, SentMany, TopicCreated
from quiver.model.topic import TopicPolicy
from quiver.storage import codec
from tests.bounds import add_level, set_bounds

NOW_MS = 1_700_000_000_000
PARTS = 7  # of a state that no cluster has


class Applying:
    """A core, and the index of its next entry."""

    def __init__(self, shard: int = 0) -> None:
        self.core = DeliveryCore()
        assert self.do(Found(b"secret", NOW_MS, shard)) == Done()

    def do(self, command: Command) -> Any:
        return self.core.apply(Entry(self.core.index + 1, NOW_MS, command)).reply

    def stored(self) -> list[Any]:
        """The state as a snapshot has it."""
        return list(codec.decode_state(codec.encode_state(self.core.dump())))

    def restart(self) -> None:
        self.core = DeliveryCore.load(self.stored())


@pytest.fixture
def log():
    return Applying()


# -- raising ---------------------------------------------------------------------------------------


def test_a_log_begins_at_the_first_level(log):
    assert log.core.level == levels.FIRST
    assert log.core.bounds == levels.LEVELS[levels.FIRST] == levels.Bounds()


def test_the_bounds_are_those_of_the_level_that_the_log_has_reached(monkeypatch):
    set_bounds(monkeypatch, topics_max=1)
    second = add_level(monkeypatch, topics_max=2)
    log = Applying()
    assert isinstance(log.do(CreateTopic("a", TopicPolicy())), TopicCreated)
    assert isinstance(log.do(CreateTopic("b", TopicPolicy())), LimitExceeded)
    assert log.do(Raise(second)) == Done()
    log.restart()
    assert log.core.level == second
    assert isinstance(log.do(CreateTopic("b", TopicPolicy())), TopicCreated)
    assert isinstance(log.do(CreateTopic("c", TopicPolicy())), LimitExceeded)


def test_a_level_may_be_left_out_and_is_never_taken_back(log, monkeypatch):
    second, third = [add_level(monkeypatch) for _ in range(2)]
    assert log.do(Raise(third)) == Done()
    for level in (levels.FIRST, second, third):
        before = log.stored()[1:]
        assert isinstance(log.do(Raise(level)), InvalidRequest)
        assert log.stored()[1:] == before
    assert log.core.level == third


def test_one_log_does_not_raise_another(log, monkeypatch):
    second = add_level(monkeypatch, groups_max=1)
    other = Applying()
    log.do(Raise(second))
    for applying, refused in ((log, True), (other, False)):
        topic = applying.do(CreateTopic("t", TopicPolicy())).topic
        applying.do(CreateGroup(topic, "g"))
        assert isinstance(applying.do(CreateGroup(topic, "h")), LimitExceeded) == refused


def test_what_was_remembered_under_other_bounds_may_be_more_than_they_allow(log, monkeypatch):
    second = add_level(monkeypatch, producers_max=2)
    topic = log.do(CreateTopic("t", TopicPolicy())).topic
    for name in "abc":
        log.do(OpenProducer(topic, name))
    log.do(Raise(second))
    log.do(OpenProducer(topic, "d"))
    log.core.check()
    assert [*log.core.topics[topic].producers] == ["b", "c", "d"]  # one came, and one went


@pytest.mark.parametrize("level", [2, 0, -1, 2**40])
def test_there_is_no_command_for_a_level_that_is_not_known(level):
    with pytest.raises(UnsupportedFormat, match=rf"Level {level} .* knows levels up to 1\. Use"):
        Raise(level)


def test_an_entry_that_raises_to_an_unknown_level_is_not_read(monkeypatch):
    with monkeypatch.context() as newer:
        kind, data = codec.encode(Raise(add_level(newer)))
    with pytest.raises(UnsupportedFormat, match="Level 2"):
        codec.decode(kind, data)


# -- peers -----------------------------------------------------------------------------------------


def test_peers_are_kept_and_those_before_are_told(log):
    assert log.do(SetPeers(b"one")) == PeersSet(b"")
    log.restart()
    assert log.do(SetPeers(b"\x00two")) == PeersSet(b"one")
    assert log.core.peers == b"\x00two"
    assert log.do(SetPeers(b"")) == PeersSet(b"\x00two")


def test_peers_take_no_more_room_than_they_may(monkeypatch):
    set_bounds(monkeypatch, peers_bytes_max=3)
    log = Applying()
    assert isinstance(log.do(SetPeers(b"four")), LimitExceeded)
    assert log.do(SetPeers(b"abc")) == PeersSet(b"")
    assert log.core.peers == b"abc"


def test_the_log_knows_which_shard_it_is():
    log = Applying(shard=3)
    assert log.core.shard == 3
    log.restart()
    assert log.core.shard == 3
    assert log.core.secret == b"secret"


# -- the state -------------------------------------------------------------------------------------


def test_a_state_without_a_cluster_is_what_older_quivers_wrote_and_read(log, monkeypatch):
    log.do(Tick())
    assert len(log.stored()) == PARTS
    log.do(SetPeers(b"somebody"))
    assert log.stored()[PARTS] == [levels.FIRST, 0, b"somebody"]
    log.do(SetPeers(b""))
    assert len(log.stored()) == PARTS
    log.do(Raise(add_level(monkeypatch)))
    assert log.stored()[PARTS] == [2, 0, b""]
    assert len(Applying(shard=1).stored()) == PARTS + 1


def test_a_state_of_an_older_quiver_is_at_the_first_level_and_has_no_peers(log):
    core = DeliveryCore.load(log.stored()[:PARTS])
    assert (core.level, core.shard, core.peers) == (levels.FIRST, 0, b"")


def test_a_state_of_an_unknown_level_is_refused(log, monkeypatch):
    with monkeypatch.context() as newer:
        log.do(Raise(add_level(newer)))
    with pytest.raises(UnsupportedFormat, match="Level 2"):
        log.restart()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda state: state.append("new"), id="the state"),
        pytest.param(lambda state: state[7].append(1), id="of the cluster"),
        pytest.param(lambda state: state[5][0].append([]), id="a topic"),
        pytest.param(lambda state: state[5][0][2].append("new"), id="a policy"),
        pytest.param(lambda state: state[5][0][2][5].append(True), id="a retention"),
        pytest.param(lambda state: state[5][0][3][0].append(0), id="a partition"),
        pytest.param(lambda state: state[5][0][3][0][5][0].append(b""), id="extents"),
        pytest.param(lambda state: state[5][0][4][0].append(0), id="a group"),
        pytest.param(lambda state: state[5][0][4][0][5].append(0), id="counts of a group"),
        pytest.param(lambda state: state[5][0][4][0][6][0].append(0), id="a view"),
        pytest.param(lambda state: state[5][0][6][0].append(0), id="a producer"),
        pytest.param(lambda state: state[5][0][7].append(0), id="counts of a topic"),
    ],
)
def test_a_state_with_a_part_that_is_not_known_is_refused(log, change):
    log.do(SetPeers(b"somebody"))
    topic = log.do(CreateTopic("t", TopicPolicy())).topic
    log.do(CreateGroup(topic, "g"))
    log.do(OpenProducer(topic, "p"))
    assert isinstance(log.do(Send(topic, (Run(0, 3, 30),), (1,))), SentMany)
    state = log.stored()
    DeliveryCore.load(log.stored())
    change(state)
    with pytest.raises(UnsupportedFormat, match="more of a state than this Quiver knows"):
        DeliveryCore.load(state)
