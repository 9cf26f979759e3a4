"""A log with payloads, and the disk of a peer: what a crash leaves, and what is on its way there."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from quiver.raft.messages import Entry, Peers, Snapshot
from quiver.raft.ready import Save, Vote

if TYPE_CHECKING:
    import random

Payload: TypeAlias = int | Peers  # what an entry is for; 0: a leader's first one, which has none
NOTHING = 0
DIGEST_MAX = (1 << 61) - 1
NO_VOTE = Vote()


@dataclass(frozen=True, slots=True)
class State:
    """The state machine after `snapshot.index` entries."""

    snapshot: Snapshot
    digest: int


@dataclass(frozen=True, slots=True)
class Written:
    """A save on its way, with the payloads of its entries."""

    save: Save
    payloads: tuple[Payload, ...]


@dataclass(frozen=True, slots=True)
class Installed:
    """A state that another peer has sent: it takes the place of the log that it covers."""

    state: State


@dataclass(frozen=True, slots=True)
class Compacted:
    """A state of the peer's own, which lets go of the log up to it."""

    state: State


Step: TypeAlias = Written | Installed | Compacted


def digest_after(digest: int, payload: Payload) -> int:
    number = payload if isinstance(payload, int) else hash((payload.voters, payload.learners))
    return (digest * 31 + number + 7) % DIGEST_MAX


class Log:
    """Entries behind the one at `base`, each with its payload."""

    __slots__ = ("base", "base_term", "entries", "payloads")

    def __init__(self, base: int = 0, base_term: int = 0) -> None:
        self.base = base
        self.base_term = base_term
        self.entries: list[Entry] = []
        self.payloads: list[Payload] = []

    @property
    def last_index(self) -> int:
        return self.base + len(self.entries)

    def term(self, index: int) -> int | None:
        """None if there is no such entry here, or no more."""
        if index == self.base:
            return self.base_term
        at = index - self.base - 1
        return self.entries[at].term if 0 <= at < len(self.entries) else None

    def payload(self, index: int) -> Payload:
        return self.payloads[index - self.base - 1]

    def cut(self, after: int) -> None:
        del self.entries[after - self.base :]
        del self.payloads[after - self.base :]

    def append(self, entry: Entry, payload: Payload) -> None:
        assert entry.index == self.base + len(self.entries) + 1, "entries follow one another"
        self.entries.append(entry)
        self.payloads.append(payload)

    def forget(self, upto: int) -> None:
        """Let go of the entries up to there."""
        if upto > self.base:
            term = self.term(upto)
            assert term is not None, "only what is there can be let go of"
            del self.entries[: upto - self.base]
            del self.payloads[: upto - self.base]
            self.base, self.base_term = upto, term

    def install(self, snapshot: Snapshot) -> None:
        """Begins anew behind a state."""
        self.base, self.base_term = snapshot.index, snapshot.term
        self.entries.clear()
        self.payloads.clear()

    def copy(self) -> Log:
        log = Log(self.base, self.base_term)
        log.entries, log.payloads = list(self.entries), list(self.payloads)
        return log


@dataclass(slots=True)
class Disk:
    """What is durable, and the steps that are not yet, which become durable in their order."""

    state: State
    vote: Vote = NO_VOTE
    commit: int = 0
    log: Log = field(default_factory=Log)
    coming: deque[Step] = field(default_factory=deque)

    def __str__(self) -> str:
        at = self.state.snapshot.index
        log = f"log {self.log.base}-{self.log.last_index}"
        return f"on its disk: {self.vote}, state at {at}, {log}, commit {self.commit}"

    def finish(self) -> Step:
        """The oldest step is durable now."""
        step = self.coming.popleft()
        match step:
            case Written(save, payloads):
                self.vote, self.commit = save.vote, save.commit
                if save.cut is not None:
                    self.log.cut(save.cut)
                for entry, payload in zip(save.entries, payloads, strict=True):
                    self.log.append(entry, payload)
            case Installed(state):
                self.state = state
                self.log.install(state.snapshot)
            case Compacted(state):
                if state.snapshot.index > self.state.snapshot.index:
                    self.state = state
                    self.log.forget(state.snapshot.index)
        return step

    def crash(self, rng: random.Random) -> None:
        """The power fails: any number of the steps on their way have come through, one perhaps in part."""
        survive = rng.randint(0, len(self.coming)) if rng.random() < 0.7 else 0
        for _ in range(survive):
            self.finish()
        if self.coming and isinstance(step := self.coming[0], Written):
            self._in_part(step, rng)
        self.coming.clear()

    def _in_part(self, step: Written, rng: random.Random) -> None:
        save = step.save
        parts = rng.randint(0, 2 + len(save.entries)) if rng.random() < 0.5 else 0
        if parts > 0:
            self.vote = save.vote
        if parts > 1 and save.cut is not None:
            self.log.cut(save.cut)
        if parts > 2:
            self.commit = save.commit
            for entry, payload in list(zip(save.entries, step.payloads, strict=True))[: parts - 2]:
                self.log.append(entry, payload)
