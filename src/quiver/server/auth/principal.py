"""A principal and its rules: deny wins, and what nothing allows is refused."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from quiver.errors import Forbidden, InvalidRequest
from quiver.limits import NAME_CHARS_MAX
from quiver.server.auth.quotas import Meter

Verb = Literal["send", "receive", "read", "observe", "manage"]

VERBS: Final[tuple[Verb, ...]] = get_args(Verb)
EVERY_TOPIC: Final = "*"  # as a pattern: any topic; as a topic: all of them, as /metrics shows

_PATTERN: Final = re.compile(rf"(?=.{{1,{NAME_CHARS_MAX + 1}}}\Z)[A-Za-z0-9._-]*\*?")


@dataclass(frozen=True, slots=True)
class Rule:
    """Some verbs on the topics of a pattern: a name, or the start of names and a `*`."""

    verbs: frozenset[Verb]
    pattern: str

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """A rule as people write it: `send,receive:orders.*`, or `*:*` for everything."""
        names, colon, pattern = text.partition(":")
        verbs = VERBS if names == "*" else [verb for verb in VERBS if verb in names.split(",")]
        if not colon or (names != "*" and len(verbs) != len(names.split(","))):
            raise InvalidRequest(
                f"a rule is verbs, a colon and topics, such as send,receive:orders.*, "
                f"with verbs of {', '.join(VERBS)} or *; not {text[:80]!r}"
            )
        if not _PATTERN.fullmatch(pattern):
            raise InvalidRequest(
                f"the topics of a rule are a name, or the start of names and a * at its end; "
                f"not {pattern[:80]!r}"
            )
        return cls(frozenset(verbs), pattern)

    def covers(self, verb: Verb, topic: str) -> bool:
        """Whether it says something about `verb` on `topic`."""
        return verb in self.verbs and self.names(topic)

    def names(self, topic: str) -> bool:
        """Whether `topic` is one of its topics."""
        if self.pattern.endswith("*"):
            return topic.startswith(self.pattern[:-1])
        return topic == self.pattern

    def within(self, other: "Rule") -> bool:
        """Whether all its topics are topics of `other`."""
        if self.pattern.endswith("*") and not other.pattern.endswith("*"):
            return False
        return other.names(self.pattern.removesuffix("*"))


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody whom the node knows, by name, with what it may do and how much of it."""

    name: str
    allow: tuple[Rule, ...]
    deny: tuple[Rule, ...] = ()
    meter: Meter = field(default_factory=Meter, repr=False, compare=False)

    def may(self, verb: Verb, topic: str = EVERY_TOPIC) -> bool:
        """Whether the rules allow `verb` on `topic`; without a topic: on all there are and will be."""
        for rule in self.deny:  # loops, because each request asks
            if rule.covers(verb, topic) or (topic == EVERY_TOPIC and verb in rule.verbs):
                return False
        for rule in self.allow:  # noqa: SIM110
            if rule.covers(verb, topic):
                return True
        return False

    def demand(self, verb: Verb, topic: str = EVERY_TOPIC) -> None:
        """Refuse with `Forbidden` what the rules do not allow."""
        if not self.may(verb, topic):
            where = "every topic" if topic == EVERY_TOPIC else f"topic {topic[:NAME_CHARS_MAX]!r}"
            raise Forbidden(
                f"{self.name} may not {verb} on {where}: no rule allows it, or one denies it. "
                "Rules are in the node's access file"
            )

    def demand_somewhere(self, *verbs: Verb) -> None:
        """Refuse with `Forbidden` who may do none of it on any topic, before any work is done."""
        if not any(self._may_somewhere(verb) for verb in verbs):
            raise Forbidden(
                f"{self.name} may not {' or '.join(verbs)} on any topic: no rule allows it, or one "
                "denies it. Rules are in the node's access file"
            )

    def _may_somewhere(self, verb: Verb) -> bool:
        denied = [rule for rule in self.deny if verb in rule.verbs]
        allowed = [rule for rule in self.allow if verb in rule.verbs]
        return not all(any(rule.within(other) for other in denied) for rule in allowed)

    def demand_seen(self, topic: str) -> None:
        """Refuse with `Forbidden` who may do nothing on the topic."""
        if not self.sees(topic):
            raise Forbidden(
                f"{self.name} may do nothing on topic {topic[:NAME_CHARS_MAX]!r}: no rule allows it, or "
                "one denies it. Rules are in the node's access file"
            )

    def sees(self, topic: str) -> bool:
        """Whether it may know that there is such a topic: if anything is allowed on it."""
        return any(
            self.may(verb, topic) for rule in self.allow if rule.names(topic) for verb in rule.verbs
        )

    def visible(self, topics: Iterable[str]) -> list[str]:
        """Those of `topics` that a listing may show."""
        return [topic for topic in topics if self.sees(topic)]

    def spend(self, nbytes: int) -> None:
        """Count bytes that a request has brought or an answer has taken away."""
        self.meter.spend(nbytes)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a receive that waits; raises `QuotaExceeded` if too many of them wait already."""
        self.meter.start_waiting()
        try:
            yield
        finally:
            self.meter.stop_waiting()


ANYBODY: Final = Principal("anybody", allow=(Rule(frozenset(VERBS), EVERY_TOPIC),))
