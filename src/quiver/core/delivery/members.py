"""Members of a group that shares out whole partitions, instead of leasing messages.

Joining, leaving and missing the session deadline make a new *generation*: a new target owner for
each partition, moving as few as possible. A partition changes hands only when its owner has let go
of it (or is gone), so two members never work on it at the same time.
"""

from typing import Any

from quiver.errors import LimitExceeded, MemberFenced


class GroupMember:
    """One member: alive until `deadline_ms` unless it is heard of."""

    __slots__ = ("deadline_ms", "number", "session_ms")

    def __init__(self, number: int, session_ms: int, deadline_ms: int) -> None:
        """`number` is never used again by another member of the group."""
        self.number = number
        self.session_ms = session_ms
        self.deadline_ms = deadline_ms


class Members:
    """Who owns which partition now (`owner`), and who shall (`target`)."""

    __slots__ = ("generation", "members", "numbers", "owner", "partitions", "target")

    def __init__(self, partitions: int) -> None:
        """Nobody is there."""
        self.partitions = partitions
        self.generation = 0
        self.numbers = 0
        self.members: dict[str, GroupMember] = {}
        self.owner: dict[int, str] = {}
        self.target: dict[int, str] = {}

    def join(self, name: str, session_ms: int, now_ms: int, most: int) -> GroupMember:
        """Come in as one of at `most` so many, or refresh the session of one that is in already."""
        member = self.members.get(name)
        if member is None:
            if len(self.members) >= most:
                raise LimitExceeded(f"a group has at most {most} members")
            self.numbers += 1
            member = self.members[name] = GroupMember(self.numbers, session_ms, 0)
            self._rebalance()
        member.session_ms = session_ms
        member.deadline_ms = now_ms + session_ms
        return member

    def beat(self, name: str, released: tuple[int, ...], now_ms: int) -> None:
        """A member is alive and has let go of `released`."""
        member = self.require(name)
        member.deadline_ms = now_ms + member.session_ms
        for partition in released:
            if self.owner.get(partition) == name and self.target.get(partition) != name:
                del self.owner[partition]
        self._hand_over()

    def leave(self, name: str) -> None:
        """A member goes, or its session is over."""
        self.require(name)
        del self.members[name]
        self._rebalance()

    def require(self, name: str) -> GroupMember:
        """The member, who must be in."""
        member = self.members.get(name)
        if member is None:
            raise MemberFenced(
                f"member {name!r} is not in the group (it left, or its session ended); join again"
            )
        return member

    def owned(self, name: str) -> list[int]:
        """The partitions a member may work on."""
        return [partition for partition in sorted(self.owner) if self.owner[partition] == name]

    def revoked(self, name: str) -> list[int]:
        """Those of them it must let go of."""
        return [partition for partition in self.owned(name) if self.target.get(partition) != name]

    def by_number(self, number: int) -> str | None:
        """The name behind a member's number."""
        for name, member in self.members.items():
            if member.number == number:
                return name
        return None

    def _rebalance(self) -> None:
        self.generation += 1
        if not self.members:
            self.owner, self.target = {}, {}
            return
        had: dict[str, list[int]] = {name: [] for name in self.members}
        for partition in range(self.partitions):
            name = self.target.get(partition, "")
            if name in had:
                had[name].append(partition)
        share, more = divmod(self.partitions, len(had))
        fullest_first = sorted(had, key=lambda name: -len(had[name]))
        quota = {name: share + (at < more) for at, name in enumerate(fullest_first)}
        kept = {name: had[name][: quota[name]] for name in fullest_first}
        taken = {partition for partitions in kept.values() for partition in partitions}
        free = [partition for partition in range(self.partitions) if partition not in taken]
        for name in fullest_first:
            missing = quota[name] - len(kept[name])
            kept[name] += free[:missing]
            del free[:missing]
        self.target = {p: name for name in fullest_first for p in kept[name]}
        self._hand_over()

    def _hand_over(self) -> None:
        for partition in sorted(self.target):
            if self.owner.get(partition, "") not in self.members:
                self.owner[partition] = self.target[partition]

    def check(self) -> None:
        """Every partition has a living owner and target, evenly spread."""
        if not self.members:
            return
        assert sorted(self.owner) == sorted(self.target) == list(range(self.partitions))
        assert all(name in self.members for name in [*self.owner.values(), *self.target.values()])
        loads = [list(self.target.values()).count(name) for name in self.members]
        assert max(loads) - min(loads) <= 1

    def dump(self) -> list[Any]:
        """As plain data."""
        members = [
            [name, m.number, m.session_ms, m.deadline_ms] for name, m in self.members.items()
        ]
        return [self.generation, self.numbers, members,
                [[p, n] for p, n in self.owner.items()],
                [[p, n] for p, n in self.target.items()]]  # fmt: skip

    @classmethod
    def load(cls, partitions: int, data: list[Any]) -> "Members":
        """What `dump` gave."""
        made = cls(partitions)
        made.generation, made.numbers, members, owner, target = data
        made.members = {
            name: GroupMember(number, session_ms, deadline_ms)
            for name, number, session_ms, deadline_ms in members
        }
        made.owner, made.target = dict(owner), dict(target)
        return made
