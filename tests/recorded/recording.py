"""For each level of logs: a small log, what it replays to, and all that such a log may contain.

    level-N.log   entries: time, kind and bytes of the command of each
    level-N.txt   what they lead to, the bounds of the level, its commands with their fields

They are made once, when a level is added, and never again: `python -m tests.recorded.recording`
writes those of the highest level if it has none.
"""

import sys
from array import array
from collections.abc import Iterator
from dataclasses import MISSING, asdict, fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from quiver.core.delivery import DeliveryCore
from quiver.errors import QuiverError
from quiver.model import commands, levels
from quiver.model.commands import Attributes, Command, Entry, Held, Pick, Position, Run
from quiver.model.topic import Retention, TopicPolicy, staging_name
from quiver.storage import codec
from quiver.storage.wal import Wal
from quiver.testing import MemoryFiles
from tests.properties.workload import Workload, single_run

PLACE: Final = Path(__file__).parent
TURNS: Final = 4
STEPS: Final = 45  # of a turn


def log_of(level: int) -> Path:
    return PLACE / f"level-{level}.log"


def text_of(level: int) -> Path:
    return PLACE / f"level-{level}.txt"


def recorded(level: int) -> dict[str, str]:
    """The lines of a level's text, by what they are about."""
    lines = text_of(level).read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines)


# -- what a log leads to ---------------------------------------------------------------------------


def entries_of(level: int) -> list[Entry]:
    stored = codec.decode_state(log_of(level).read_bytes())
    return [
        Entry(index, now_ms, codec.decode(kind, data))
        for index, (now_ms, kind, data) in enumerate(stored, 1)
    ]


def replayed(entries: list[Entry]) -> dict[str, str]:
    """Digests of the states after each entry, and of all answers."""
    core, states, answers = DeliveryCore(), blake2b(digest_size=16), blake2b(digest_size=16)
    for entry in entries:
        outcome = core.apply(entry)
        answers.update(codec.encode_state([_told(outcome.reply), outcome.woken]))
        state = codec.encode_state(core.dump())
        states.update(state)
        core = DeliveryCore.load(codec.decode_state(state))
    core.check()
    return {"states": states.hexdigest(), "answers": answers.hexdigest()}


def _told(reply: Any) -> Any:
    """An answer, and of a refusal which it is: its words may change."""
    if isinstance(reply, QuiverError):
        return reply.code
    if hasattr(reply, "answers"):
        return [_told(answer) for answer in reply.answers]
    return reply


# -- what it may contain ---------------------------------------------------------------------------


def bounds_of(level: int) -> str:
    return " ".join(f"{name}={value}" for name, value in asdict(levels.LEVELS[level]).items())


def vocabulary() -> dict[str, str]:
    """Every command with its fields, and every value in one, as this Quiver has them."""
    found = {f"{kind} {command.__name__}": command for kind, command in codec.KINDS.items()}
    inner = {value.__name__: value for command in found.values() for value in _values_in(command)}
    return {name: " · ".join(_fields(value)) for name, value in (found | inner).items()}


def _values_in(kind: Any) -> Iterator[type[Any]]:
    """The classes of values with fields in the fields of another, at any depth."""
    for hint in get_type_hints(kind).values():
        for part in _parts(hint):
            if part not in codec.KINDS.values():
                yield part
            yield from _values_in(part)


def _parts(hint: Any) -> Iterator[Any]:
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        yield hint
    for argument in get_args(hint):
        yield from _parts(argument)


def _fields(kind: Any) -> Iterator[str]:
    hints = get_type_hints(kind)
    if is_dataclass(kind):
        defaults = {
            one.name: one.default if one.default_factory is MISSING else one.default_factory()
            for one in fields(kind)
        }
    else:
        defaults = {name: kind._field_defaults.get(name, MISSING) for name in kind._fields}
    for name, default in defaults.items():
        yield f"{name} {_shown(hints[name])}" + (
            f" = {default!r}" if default is not MISSING else ""
        )


def _shown(hint: Any) -> str:
    """A type as a person writes it, whatever Python this is."""
    arguments = [_shown(one) for one in get_args(hint)]
    if get_origin(hint) is Literal:
        return " | ".join(map(repr, get_args(hint)))
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(arguments)
    if hint in (None, type(None), ...):
        return "…" if hint is ... else "None"
    name = getattr(hint, "__name__", repr(hint))
    return f"{name}[{', '.join(arguments)}]" if arguments else name


def text(level: int) -> str:
    """What is kept of a level, besides the log."""
    lines = replayed(entries_of(level)) | {"bounds": bounds_of(level)} | vocabulary()
    return "".join(f"{name}: {line}\n" for name, line in lines.items())


# -- recording -------------------------------------------------------------------------------------


class RecordedWorkload(Workload):
    """A workload that also does, now and then, all that the other leaves out."""

    def rarer(self, turn: int) -> Iterator[Command | int]:
        """Commands, and milliseconds that pass between them."""
        yield from self._of_the_log(turn)
        yield from self._of_groups(turn)
        yield from self._of_time(turn)
        yield from self._of_a_topic_that_comes_and_goes(turn)
        yield commands.SetTime(self.engine.core.now_ms - 1_000)

    def _of_the_log(self, turn: int) -> Iterator[Command | int]:
        yield commands.SetPeers(b"peers of turn %d" % turn)
        yield commands.Raise(max(levels.LEVELS))
        yield commands.Tick(sweep=True)

    def _of_groups(self, turn: int) -> Iterator[Command | int]:
        names = self.engine.core.names
        keys, dead = names["keys"], names["dead"]
        yield commands.CreateGroup(keys, f"once-{turn}", Position(), "at-most-once")
        yield commands.Receive(keys, f"once-{turn}", 3, 500)
        yield commands.Join(keys, "team", f"m{turn}", 2_000)
        yield commands.Join(keys, "team", "other", 5_000)
        yield commands.Heartbeat(keys, "team", f"m{turn}", (0,))
        yield commands.Commit(keys, "team", "m0", ((0, 1),))
        yield commands.Leave(keys, "team", "other")
        yield commands.PauseGroup(keys, "h", turn % 2 == 0)
        yield commands.Redrive(dead, (Pick(0, ((0, 2),)),))
        yield commands.Discard(dead, (Pick(0, ((turn, turn + 1),)),))
        yield commands.Receive(dead, "told", 50, 500, told_bytes=400)

    def _of_time(self, turn: int) -> Iterator[Command | int]:
        """Lives that end, waits that are drawn, reservations that are taken over."""
        names = self.engine.core.names
        plain, keys = names["plain"], names["keys"]
        lives = array("q", [self.engine.core.now_ms + 700 + at for at in range(3)])
        yield commands.Send(keys, single_run(3), (1,), Attributes(expires_at=lives.tobytes()))
        yield commands.Receive(keys, f"late-{turn}", 2, 600)
        epoch, group = self.engine.core.index, self.engine.core.topics[keys].groups[f"late-{turn}"]
        for lease in [view.leases.get(epoch) for view in group.views]:
            held = Held(0, epoch, ((lease.held[0].start, lease.held[0].end),)) if lease else None
            if held:
                yield commands.Settle(keys, group.number, "nack", (held,), seed=turn * 77 + 5)
        yield 900
        yield commands.OpenProducer(plain, "p")
        stamp = commands.ProducerStamp("p", self.engine.core.index, 5 * turn)
        yield commands.Send(plain, single_run(5), (1,), producer=stamp)
        yield commands.Receive(plain, f"two-{turn}", 99, 20_000, "one", begin=0)
        yield 250
        yield commands.Receive(plain, f"two-{turn}", 99, 20_000, "other", begin=1)
        yield commands.AlterTopic(plain, TopicPolicy(max_attempts=1 + turn), ("max_attempts",))

    def _of_a_topic_that_comes_and_goes(self, turn: int) -> Iterator[Command | int]:
        compact = TopicPolicy(retention=Retention(compact=True))
        yield commands.CreateTopic("late", compact)
        yield commands.CreateTopic(staging_name("late"), compact.staging())
        core = self.engine.core
        late, staging = core.names["late"], core.names[staging_name("late")]
        yield commands.Send(staging, (Run(0, 3, 300),), (1,), staged=True)
        yield commands.Publish(late, staging, (Pick(0, ((0, 3),)),), "job", turn, "run", 30)
        yield commands.Receive(late, "g", 2, 500)
        held = Held(0, core.index, ((0, 2),))
        yield commands.Settle(late, core.topics[late].group("g").number, "ack", (held,))
        yield commands.Compact(late, (Pick(0, ((0, 1),)),))
        smaller = TopicPolicy(retention=Retention(size_bytes=650), keep_unsettled=False)
        yield commands.AlterTopic(late, smaller, ("retention", "keep_unsettled"))
        yield commands.Send(late, (Run(0, 4, 400),), (1,))
        yield commands.DeleteGroup(late, "g")
        yield commands.Purge(late) if turn == 1 else commands.DeleteTopic(late)

    def live(self, files: MemoryFiles) -> list[Any]:
        """Every entry of its life."""
        for turn in range(TURNS):
            for _ in range(STEPS):
                self.step()
            for act in self.rarer(turn):
                self.now_ms += act if isinstance(act, int) else 10
                if not isinstance(act, int):
                    self.do(act)
        self.engine.wal.sync()
        replayed = Wal.open(files.crash("none"), after=0, places=[]).replay()
        return [[record.now_ms, record.kind, record.command] for record in replayed]


def record(level: int) -> None:
    """Keep a log of this level, and what it leads to."""
    files = MemoryFiles()
    work = RecordedWorkload(files, seed=level)
    log_of(level).write_bytes(codec.encode_state(work.live(files)))
    text_of(level).write_text(text(level))


if __name__ == "__main__":
    HIGHEST = max(levels.LEVELS)
    if log_of(HIGHEST).exists():
        sys.exit(f"level {HIGHEST} has its log already; add a level first")
    record(HIGHEST)
