"""Who may ask for what: every verb, command, query and errand, with and without its right."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from quiver.batches.codec import encode_whole
from quiver.batches.rows import make_row, pack
from quiver.errors import Forbidden, QuiverError, TopicNotFound, Unauthenticated
from quiver.model import commands, errands, queries
from quiver.model.commands import Pick, Position
from quiver.model.replies import Staged
from quiver.model.topic import Retention, TopicPolicy
from quiver.server.auth import VERBS
from quiver.server.wire import rights
from quiver.server.wire.rights import Where
from quiver.wire import values
from quiver.wire.frames import Verb
from quiver.wire.values import (
    BatchHead,
    ReceiveHead,
    SendHead,
    TransactHead,
    encode,
    named,
)
from tests.server.auth.callers import TOPIC, Guarded
from tests.server.wire.frames_client import Wire, settle_of

pytestmark = pytest.mark.process

OTHER = "other"
BATCH = bytes(encode_whole(pack([make_row(b"x")], 0)))
STAGED = Staged(TOPIC, ((0, 0, 1),), 1, 1, 1, "0" * 32)
REFUSED = (Forbidden, TopicNotFound)  # by number: who sees nothing of a topic is not told its name


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    started = Guarded(tmp_path_factory.mktemp("rights"))
    for topic in (TOPIC, OTHER):
        body = {"retention": "forever"}
        assert started("PUT", f"/v1/topics/{topic}", body, who="admin").status == 200
    yield started
    assert not [line for line in started.node.lines if line["level"] == "error"]
    started.close()


@pytest.fixture(scope="module")
def number(guarded: Guarded) -> int:
    with connected(guarded, "admin") as wire:
        return wire.find(TOPIC).number


def connected(guarded: Guarded, who: str) -> Wire:
    return Wire(guarded.node.port, guarded.callers[who].token)


def test_nothing_is_missing_from_the_table():
    known = {*values.PROPOSED, *queries.QUERIES, *queries.WATCHED, *errands.ERRANDS}
    assert rights.NAMED.keys() == known
    for kind, rule in rights.NAMED.items():
        verb = (
            Verb.PROPOSE if kind in values.PROPOSED
            else Verb.WATCH if kind in queries.WATCHED
            else Verb.ERRAND if kind in errands.ERRANDS
            else Verb.ASK
        )  # fmt: skip
        assert rule.verb is verb, kind
    asked = {Verb.PROPOSE, Verb.ASK, Verb.WATCH, Verb.ERRAND}
    free = {Verb.CANCEL, Verb.AUTHENTICATE, Verb.PING}
    assert {*rights.SENT, *asked, *free} == {verb for verb in Verb if verb < Verb.WELCOME}


# -- one of each, about the topic ------------------------------------------------------------------


def sample(kind: type[Any], number: int, topic: str = TOPIC) -> Any:
    """A command, query or errand about a topic."""
    given: dict[str, Any] = {
        "topic": number if "int" in str(kind.__annotations__.get("topic")) else topic,
        "name": topic, "group": "g", "member": "m", "policy": TopicPolicy(), "position": Position(),
        "fields": (), "paused": False, "picks": (Pick(0, ((0, 1),)),), "session_ms": 1_000,
        "offsets": ((0, 0),), "topics": (topic,), "start": Position(), "end": Position("latest"),
        "positions": {0: 0}, "ends": {0: 0}, "limit": 1, "number": number, "application": "app",
        "partition": 0, "offset": 0, "below": 5, "parts": (STAGED,), "batch": 0, "run": "",
        "condition": "true", "query": "select 1 as one", "message": "1-0",
    }  # fmt: skip
    if kind is commands.CreateTopic:
        given["policy"] = TopicPolicy(retention=Retention(forever=True))
    if kind is commands.OpenProducer:
        given["name"] = "p"
    if kind is queries.FindHolding:
        given["group"] = 1
    fields = {
        name: given[name]
        for name in kind.__annotations__
        if name in given and not (kind is queries.LocateReplay and name == "partition")
    }
    return kind(**fields)


def ask(wire: Wire, kind: type[Any], number: int, topic: str = TOPIC) -> Any:
    payload = BATCH if kind is errands.StageBatch else b""
    head = named(sample(kind, number, topic), 0)
    sent = wire.send_frame(rights.NAMED[kind].verb, head, payload)
    return wire.value(sent, msgspec.Raw)[0]


DESTRUCTIVE = (commands.DeleteTopic,)
CHECKED: list[type[Any]] = [
    kind for kind, rule in rights.NAMED.items() if rule.where in (Where.NUMBER, Where.NAME, Where.EVERY)
]  # fmt: skip


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.__name__)
def test_only_who_may_is_answered(guarded: Guarded, number: int, kind: type[Any]):
    rule = rights.NAMED[kind]
    (right,) = rule.rights
    everywhere = rule.where is Where.EVERY
    others = [f"only-{other}" for other in VERBS if other != right]
    if everywhere:
        others.append(f"only-{right}")
    for who in ("nobody", "elsewhere", f"all-but-{right}", *others):
        with connected(guarded, who) as wire, pytest.raises(REFUSED):
            ask(wire, kind, number)
    if kind in DESTRUCTIVE:
        return
    also = {errands.Choose: "admin"}  # which reads, too
    with connected(guarded, also.get(kind, f"only-{right}{'-everywhere' * everywhere}")) as wire:
        try:
            ask(wire, kind, number)
        except REFUSED as error:
            raise AssertionError(error) from error
        except QuiverError:
            pass  # it was let in, and could not be done


def heads(number: int) -> list[tuple[Verb, bytes, bytes, str]]:
    return [
        (Verb.SEND, encode(SendHead(number)), b"x", "send"),
        (Verb.BATCH, encode(BatchHead(number)), BATCH, "send"),
        (Verb.RECEIVE, encode(ReceiveHead(number, "g", 1, 1_000)), b"", "receive"),
        (Verb.TRANSACT, encode(TransactHead((), ((number, len(BATCH)),))), BATCH, "send"),
    ]


@pytest.mark.parametrize("at", range(4))
def test_messages_are_for_who_may(guarded: Guarded, number: int, at: int):
    verb, head, payload, right = heads(number)[at]
    others = [f"only-{other}" for other in VERBS if other != right]
    for who in ("nobody", "elsewhere", f"all-but-{right}", *others):
        with connected(guarded, who) as wire, pytest.raises(REFUSED):
            wire.value(wire.send_frame(verb, head, payload), msgspec.Raw)
    with connected(guarded, f"only-{right}") as wire:
        wire.value(wire.send_frame(verb, head, payload), msgspec.Raw)


def test_a_lease_is_worth_nothing_to_who_may_not_receive(guarded: Guarded, number: int):
    with connected(guarded, "admin") as wire:
        wire.send(number, b"x")
        got, _ = wire.receive(number, "mine")
        for who in ("nobody", "elsewhere", "all-but-receive", "only-send", "only-manage"):
            with connected(guarded, who) as other:
                with pytest.raises(Forbidden):
                    other.settle(got)
                head = TransactHead((settle_of(got),), ())
                with pytest.raises(Forbidden):
                    other.value(other.send_frame(Verb.TRANSACT, encode(head)), msgspec.Raw)
        assert wire.settle(got).count == sum(part.count for part in got.slices)


def test_a_number_does_not_tell_a_name(guarded: Guarded, number: int):
    """Nor whether there is a topic of that number at all."""
    with connected(guarded, "elsewhere") as wire:
        told = []
        for asked in (number, 4_000_000):
            with pytest.raises(TopicNotFound) as refused:
                wire.send(asked, b"x")
            told.append(str(refused.value).replace(str(asked), "N"))
        assert told[0] == told[1]
    with connected(guarded, "only-send") as wire, pytest.raises(Forbidden, match=f"'{TOPIC}'"):
        wire.receive(number)


# -- what shows only what may be seen --------------------------------------------------------------


def test_topics_are_listed_for_who_sees_them(guarded: Guarded, number: int):
    def seen(who: str, query: Any) -> Any:
        with connected(guarded, who) as wire:
            return wire.ask(query)

    for query in (queries.ListTopics(), queries.ListTopics((number, number + 1))):
        assert seen("nobody", query) == []
        assert set(seen("elsewhere", query)) <= {OTHER}
        assert seen("only-send", query) == [TOPIC]
    assert set(seen("admin", queries.ListTopics())) >= {TOPIC, OTHER}


def test_figures_are_of_what_may_be_observed(guarded: Guarded):
    def shown(who: str) -> Any:
        with connected(guarded, who) as wire:
            found = wire.ask(queries.ReadFigures((TOPIC, OTHER)))
            return {one.topic for one in found.topics}, wire.ask(queries.ReadStorage()).files

    assert shown("only-observe") == ({TOPIC}, None)
    assert shown("elsewhere") == ({OTHER}, None)
    assert shown("all-but-observe") == ({OTHER}, None)
    topics, files = shown("only-observe-everywhere")
    assert topics == {TOPIC, OTHER}
    assert files.log_files > 0
    for who in ("nobody", "only-send"):
        with connected(guarded, who) as wire:
            for query in (queries.ReadFigures((TOPIC,)), queries.ReadStorage()):
                with pytest.raises(Forbidden):
                    wire.ask(query)


def test_of_a_policy_senders_are_told_what_they_need(guarded: Guarded):
    with connected(guarded, "admin") as wire:
        policy = TopicPolicy(partitions=3, labels={"team": "secret"}, compression="lz4")
        wire.topic("other.labelled", policy)
        assert wire.ask(queries.FindTopic("other.labelled", whole=True)).policy == policy
    for who in ("only-send", "only-receive", "only-read"):
        with connected(guarded, who) as wire:
            assert wire.find(TOPIC).name == TOPIC
            with pytest.raises(Forbidden):
                wire.ask(queries.FindTopic(TOPIC, whole=True))
    for who in ("only-observe", "only-manage"):
        with connected(guarded, who) as wire:
            assert wire.ask(queries.FindTopic(TOPIC, whole=True)).policy.retention.forever
    for who in ("nobody", "elsewhere"):
        with connected(guarded, who) as wire:
            for name in (TOPIC, "no.such.topic"):
                with pytest.raises(Forbidden):
                    wire.find(name)
    with connected(guarded, "only-send-everywhere") as wire:
        found = wire.find("other.labelled").policy
        assert (found.partitions, found.compression, found.labels) == (3, "lz4", {})


def test_a_dead_letter_topic_and_a_target_need_a_right_of_their_own(guarded: Guarded, number: int):
    with connected(guarded, "only-manage") as wire:
        made = TopicPolicy(max_attempts=2, dead_letter=OTHER)
        with pytest.raises(Forbidden):
            wire.propose(commands.CreateTopic(TOPIC, made))
        for fields in (("dead_letter",), ("max_attempts",), ("max_attempts", "dead_letter")):
            with pytest.raises(Forbidden):
                wire.propose(commands.AlterTopic(number, made, fields))
        picks = (Pick(0, ((0, 1),)),)
        with pytest.raises(Forbidden):
            wire.propose(commands.Redrive(number, picks, number))


def test_a_condition_needs_the_right_to_read(guarded: Guarded, number: int):
    choose = errands.Choose(TOPIC, number, {0: 0}, {0: 1}, "error(text)")
    for who in ("only-manage", "only-manage-everywhere", "only-read", "all-but-read"):
        with connected(guarded, who) as wire, pytest.raises(Forbidden):
            wire.value(wire.send_frame(Verb.ERRAND, named(choose)), msgspec.Raw)


def test_the_whole_ledger_is_for_who_reads_everything(guarded: Guarded):
    for who, allowed in (("only-read", False), ("only-read-everywhere", True)):
        with connected(guarded, who) as wire:
            number = wire.send_frame(Verb.ASK, named(queries.ReadLedger()))
            if allowed:
                wire.value(number, msgspec.Raw)
            else:
                with pytest.raises(Forbidden):
                    wire.value(number, msgspec.Raw)


def test_who_may_not_read_a_message_does_not_learn_that_it_exists(guarded: Guarded, number: int):
    with connected(guarded, "admin") as wire:
        sent = wire.send(number, b"x")

    def told(who: str, message: str) -> str:
        head = named(errands.Trace(message))
        with connected(guarded, who) as wire, pytest.raises(QuiverError) as refused:
            wire.value(wire.send_frame(Verb.ERRAND, head), msgspec.Raw)
        return refused.value.code + str(refused.value).replace(message, "M")

    message = f"{sent.index}-{sent.row}"
    assert told("elsewhere", message) == told("elsewhere", "999999-0")
    assert told("elsewhere", message).startswith("message_not_found")
    assert told("only-send", message).startswith("forbidden")


# -- staged messages -------------------------------------------------------------------------------


def test_what_is_staged_is_nobodys_by_number(guarded: Guarded, number: int):
    with connected(guarded, "admin") as wire:
        sent = wire.send_frame(Verb.ERRAND, named(errands.StageBatch(TOPIC)), BATCH)
        staged, _ = wire.value(sent, Staged)
        hidden = staged.number
        told = []
        for asked in (hidden, 4_000_000):
            for kind in CHECKED:
                if rights.NAMED[kind].where is not Where.NUMBER:
                    continue
                with pytest.raises(TopicNotFound) as refused:
                    ask(wire, kind, asked)
                told.append(str(refused.value).replace(str(asked), "N"))
            for verb, head, payload, _ in heads(asked):
                with pytest.raises(TopicNotFound) as refused:
                    wire.value(wire.send_frame(verb, head, payload), msgspec.Raw)
                told.append(str(refused.value).replace(str(asked), "N"))
        assert len(set(told)) == 1
        with pytest.raises(TopicNotFound):
            wire.propose(commands.Redrive(number, (Pick(0, ((0, 1),)),), hidden))
        assert wire.ask(queries.ListTopics((hidden,))) == []
        name = f"{TOPIC}~staged"
        assert name not in wire.ask(queries.ListTopics())
        assert wire.ask(queries.ReadFigures((name,))).topics == ()
        for kind in CHECKED:
            if rights.NAMED[kind].where is Where.NAME and kind is not queries.ReadLedger:
                with pytest.raises(QuiverError):
                    ask(wire, kind, hidden, name)
        for verb, head, payload, _ in heads(hidden):  # by number it is nobody's after that as well
            with pytest.raises(TopicNotFound):
                wire.value(wire.send_frame(verb, head, payload), msgspec.Raw)
        with pytest.raises(QuiverError):
            wire.find(name)
        publish = errands.PublishStaged(TOPIC, (staged,), "wire", 0, "")
        wire.value(wire.send_frame(Verb.ERRAND, named(publish)), msgspec.Raw)


def test_what_is_staged_is_published_by_who_staged_it(guarded: Guarded):
    with connected(guarded, "only-send") as wire, connected(guarded, "admin") as admin:
        sent = wire.send_frame(Verb.ERRAND, named(errands.StageBatch(TOPIC)), BATCH)
        staged, _ = wire.value(sent, Staged)
        for errand in (
            errands.PublishStaged(TOPIC, (staged,), "theirs", 0, ""),
            errands.Unstage(TOPIC, (staged,)),
        ):
            with pytest.raises(QuiverError, match="not staged here for you"):
                admin.value(admin.send_frame(Verb.ERRAND, named(errand)), msgspec.Raw)
        assert wire.value(
            wire.send_frame(Verb.ERRAND, named(errands.Unstage(TOPIC, (staged,)))), int
        )[0] == 1  # fmt: skip


# -- other ways to be nobody -----------------------------------------------------------------------


def test_another_token_goes_on_where_one_was(guarded: Guarded, number: int):
    with connected(guarded, "only-send") as wire:
        with pytest.raises(Forbidden):
            wire.receive(number)
        head = encode(values.AuthenticateHead(guarded.callers["only-receive"].token))
        wire.value(wire.send_frame(Verb.AUTHENTICATE, head), msgspec.Raw)
        wire.receive(number)
        with pytest.raises(Forbidden):
            wire.send(number, b"x")
        for who in ("unknown", "expired"):
            head = encode(values.AuthenticateHead(guarded.callers[who].token))
            with pytest.raises(Unauthenticated):
                wire.value(wire.send_frame(Verb.AUTHENTICATE, head), msgspec.Raw)
        head = encode(values.AuthenticateHead("no token"))
        with pytest.raises(Unauthenticated):
            wire.value(wire.send_frame(Verb.AUTHENTICATE, head), msgspec.Raw)
        wire.receive(number)
