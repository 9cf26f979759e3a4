"""Who may ask for what over the wire: one row for each verb, command, query and errand.

The rights are those that the endpoints of the native door demand. Where a row says `also`, the function
that does it looks at more than one topic. What is missing here is refused, and fails a test.
"""

from enum import Enum
from typing import Any, Final, NamedTuple

from quiver.model import commands, errands, queries
from quiver.server.auth import Verb as Right
from quiver.wire.frames import Verb


class Where(Enum):
    """On which topic."""

    NUMBER = "the one of this number"
    NAME = "the one of this name"
    EVERY = "every one"
    SOMEWHERE = "any, and the answer has only those"
    SEEN = "any right on the one of this name"
    NONE = "whoever has a token"


class RightRule(NamedTuple):
    """What is needed: one of `rights`, on which topic."""

    verb: Verb  # how it is asked for
    rights: tuple[Right, ...]
    where: Where
    also: str = ""


def _on(verb: Verb, right: Right, where: Where = Where.NUMBER, also: str = "") -> RightRule:
    return RightRule(verb, (right,), where, also)


SENT: Final[dict[Verb, RightRule]] = {
    Verb.SEND: _on(Verb.SEND, "send"),
    Verb.BATCH: _on(Verb.BATCH, "send"),
    Verb.RECEIVE: _on(Verb.RECEIVE, "receive"),
    Verb.SETTLE: _on(Verb.SETTLE, "receive"),
    Verb.TRANSACT: RightRule(
        Verb.TRANSACT, ("send", "receive"), Where.SOMEWHERE,
        "receive on each topic that is settled, send on each that is sent to",
    ),
}  # fmt: skip
NAMED: Final[dict[type[Any], RightRule]] = {
    commands.CreateTopic: _on(
        Verb.PROPOSE, "manage", Where.NAME, "manage on the topic of dead letters"
    ),
    commands.AlterTopic: _on(
        Verb.PROPOSE, "manage", also="manage on a topic of dead letters that is new"
    ),
    commands.DeleteTopic: _on(Verb.PROPOSE, "manage"),
    commands.OpenProducer: _on(Verb.PROPOSE, "send"),
    commands.CreateGroup: _on(Verb.PROPOSE, "manage"),
    commands.DeleteGroup: _on(Verb.PROPOSE, "manage"),
    commands.Seek: _on(Verb.PROPOSE, "manage"),
    commands.PauseGroup: _on(Verb.PROPOSE, "manage"),
    commands.Purge: _on(Verb.PROPOSE, "manage"),
    commands.Discard: _on(Verb.PROPOSE, "manage"),
    commands.Redrive: _on(
        Verb.PROPOSE, "manage", also="send on the target, or on each topic they go back to"
    ),
    commands.Join: _on(Verb.PROPOSE, "receive"),
    commands.Heartbeat: _on(Verb.PROPOSE, "receive"),
    commands.Commit: _on(Verb.PROPOSE, "receive"),
    commands.Leave: _on(Verb.PROPOSE, "receive"),
    # -- queries
    queries.Ping: RightRule(Verb.ASK, (), Where.NONE),
    queries.FindTopic: RightRule(
        Verb.ASK, (), Where.SEEN, "observe or manage, for what senders need not know of its policy"
    ),
    queries.ListTopics: RightRule(
        Verb.ASK, (), Where.NONE, "only those that the principal may see"
    ),
    queries.ReadStats: _on(Verb.ASK, "observe", Where.NAME),
    queries.ReadFigures: _on(Verb.ASK, "observe", Where.SOMEWHERE),
    queries.ReadStorage: _on(
        Verb.ASK, "observe", Where.SOMEWHERE, "nothing, unless on every topic"
    ),
    queries.FindSegments: _on(Verb.ASK, "read", Where.NAME),
    queries.LocateReplay: _on(Verb.ASK, "read", Where.NAME),
    queries.ReadPage: _on(Verb.ASK, "read"),
    queries.FindPicks: _on(
        Verb.ASK, "manage", Where.NAME, "of topics they came from, only those that are seen"
    ),
    queries.FindPublished: _on(Verb.ASK, "send", Where.NAME),
    queries.FindAssigned: _on(Verb.ASK, "receive"),
    queries.ReadLedger: _on(Verb.ASK, "read", Where.NAME, "on every topic, if none is named"),
    queries.FindHolding: _on(Verb.ASK, "receive"),
    queries.FetchPage: _on(Verb.WATCH, "receive"),
    queries.CountInFlight: _on(Verb.WATCH, "observe"),
    # -- errands
    errands.StageBatch: _on(Verb.ERRAND, "send", Where.NAME),
    errands.PublishStaged: _on(
        Verb.ERRAND, "send", Where.NAME, "what is published is the principal's own"
    ),
    errands.Unstage: _on(Verb.ERRAND, "send", Where.NAME, "what is dropped is the principal's own"),
    errands.Choose: _on(Verb.ERRAND, "manage", Where.NAME, "read on it"),
    errands.DemandOrigins: _on(
        Verb.ERRAND, "manage", Where.NAME, "send on each topic they go back to"
    ),
    errands.AskSql: _on(Verb.ERRAND, "read", Where.EVERY),
    errands.Trace: _on(Verb.ERRAND, "read", Where.SOMEWHERE),
    errands.SealAll: _on(Verb.ERRAND, "manage", Where.EVERY),
    errands.CompactTopic: _on(Verb.ERRAND, "manage", Where.NAME),
}
