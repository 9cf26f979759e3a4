"""A principal and its rules: deny wins, and what nothing allows is refused."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal, get_args

from quiver.errors import Forbidden

Verb = Literal["send", "receive", "read", "observe", "manage"]

VERBS: Final[tuple[Verb, ...]] = get_args(Verb)
EVERY_TOPIC: Final = "*"  # as a pattern: any topic; as a topic: all of them, as /metrics shows


@dataclass(frozen=True, slots=True)
class Rule:
    """Some verbs on the topics of a pattern: a name, or the start of names and a `*`."""

    verbs: frozenset[Verb]
    pattern: str

    def covers(self, verb: Verb, topic: str) -> bool:
        if verb not in self.verbs:
            return False
        if self.pattern.endswith("*"):
            return topic.startswith(self.pattern[:-1])
        return topic == self.pattern


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody whom the node knows, by name, with what it may do."""

    name: str
    allow: tuple[Rule, ...]
    deny: tuple[Rule, ...] = ()

    def may(self, verb: Verb, topic: str = EVERY_TOPIC) -> bool:
        """Whether the rules allow `verb` on `topic`; without a topic: on all there are and will be."""
        if topic == EVERY_TOPIC and any(verb in rule.verbs for rule in self.deny):
            return False
        if any(rule.covers(verb, topic) for rule in self.deny):
            return False
        return any(rule.covers(verb, topic) for rule in self.allow)

    def demand(self, verb: Verb, topic: str = EVERY_TOPIC) -> None:
        """Refuse with `Forbidden` what the rules do not allow."""
        if not self.may(verb, topic):
            where = "every topic" if topic == EVERY_TOPIC else f"topic {topic!r}"
            raise Forbidden(
                f"{self.name} may not {verb} on {where}: "
                f"whoever keeps the access file can allow it with {verb}:{topic}"
            )

    def visible(self, topics: Iterable[str]) -> list[str]:
        """Those of `topics` that a listing may show: the ones on which anything is allowed."""
        return [topic for topic in topics if any(self.may(verb, topic) for verb in VERBS)]

    def spend(self, nbytes: int) -> None:
        """Count bytes that a request has brought or an answer has taken away."""

    def waiting(self) -> AbstractContextManager[None]:
        """Around a receive that waits; raises `QuotaExceeded` if too many of them wait already."""
        return nullcontext()


ANYBODY: Final = Principal("anybody", allow=(Rule(frozenset(VERBS), EVERY_TOPIC),))
