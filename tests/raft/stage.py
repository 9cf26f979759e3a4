"""A cluster that does what a text tells it: real peers, and disks and links that wait to be told.

After each command everything that is ready is taken out. What it says is the command's output. A
disk syncs at once unless it is slow; messages wait until they are delivered, dropped or held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from quiver.errors import QuiverError
from quiver.raft.messages import (
    AnyMessage,
    Append,
    AppendReply,
    Entry,
    Heartbeat,
    HeartbeatReply,
    Install,
    InstallReply,
    Late,
    Peers,
    PreVoteReply,
    PreVoteRequest,
    ReadReply,
    ReadRequest,
    Snapshot,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from quiver.raft.raft import Raft
from quiver.raft.ready import Ready, Role, Save, Vote
from quiver.raft.settings import Settings, Start

Link = tuple[int, int]
ROUNDS_MAX = 100  # of `settle`: more means that a cluster talks to itself for ever


@dataclass
class Disk:
    """What a peer would find after a power cut."""

    snapshot: Snapshot
    vote: Vote = field(default_factory=Vote)
    entries: list[Entry] = field(default_factory=list)
    commit: int = 0

    def write(self, save: Save) -> None:
        if save.votes:
            self.vote = save.vote
        if save.cut is not None:
            self.entries = [entry for entry in self.entries if entry.index <= save.cut]
        self.entries.extend(save.entries)
        self.commit = max(save.commit, self.snapshot.index)

    def begin_behind(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.commit = max(self.commit, snapshot.index)
        self.entries = [entry for entry in self.entries if entry.index > snapshot.index]


@dataclass
class Peer:
    """A peer with its disk. What it may only say after a save waits behind it."""

    raft: Raft
    disk: Disk
    waiting: list[tuple[Save | None, tuple[Late, ...]]] = field(default_factory=list)
    slow: bool = False
    lazy: bool = False
    applied: int = 0
    states: dict[int, Peers] = field(default_factory=dict)  # who takes part, as of an entry applied
    now: str = ""  # what it has told of itself
    committed: int = 0


class Stage:
    """The cluster of a scenario."""

    def __init__(self) -> None:
        self.peers: dict[int, Peer] = {}
        self.down: dict[int, Disk] = {}
        self.links: dict[Link, list[AnyMessage]] = {}
        self.held: dict[Link, list[AnyMessage]] = {}
        self.holding: set[Link] = set()
        self.away: set[int] = set()
        self.payloads: dict[tuple[int, int], str | Peers] = {}
        self.history: dict[int, int] = {}  # the term of each entry that anybody has applied
        self.settings: dict[str, int] = {}
        self.starts = 0
        self.questions: dict[int, int] = {}
        self.lines: list[str] = []

    # -- commands -----------------------------------------------------------------------------------

    def run(self, command: str) -> list[str]:
        """Does one line, and returns what it led to."""
        self.lines = []
        verb, *words = command.split()
        action: Callable[..., None] = getattr(self, f"do_{verb.replace('-', '_')}")
        try:
            action(*words)
        except QuiverError as error:
            self.lines.append(f"{type(error).__name__}: {error}")
        self._take_out()
        if verb in ("settle", "pass"):
            self.lines = [line for line in self.lines if " -> " not in line and "saves" not in line]
        return self.lines or ["ok"]

    def do_settings(self, *words: str) -> None:
        """Of the peers that start from now on: name=number."""
        for word in words:
            name, value = word.split("=")
            self.settings[name] = int(value)

    def do_cluster(self, *words: str) -> None:
        """Peers that know of each other, with empty logs: voters 1 2 3 learners 4."""
        peers = _peers(words)
        for peer in (*peers.voters, *peers.learners):
            self._start(peer, Disk(Snapshot(0, 0, peers)))

    def do_alone(self, peer: str) -> None:
        """A peer that never had another one."""
        self._started(int(peer), Disk(Snapshot(0, 0, Peers((int(peer),)))), Start.lone(int(peer)))

    def do_join(self, peer: str) -> None:
        """A peer with an empty log, which takes part in nothing yet."""
        self._start(int(peer), Disk(Snapshot(0, 0, Peers(()))))

    def do_given(self, peer: str, *words: str) -> None:
        """Lets a peer of the cluster have a history: term 3 log 1 1 2 commit 1."""
        number = int(peer)
        _, term, _, *terms, _, commit = words
        disk = self.peers[number].disk
        disk.vote = Vote(int(term))
        disk.entries = [Entry(i, int(of), 2) for i, of in enumerate(terms, 1)]
        disk.commit = int(commit)
        for entry in disk.entries:
            self.payloads.setdefault((entry.index, entry.term), f"{entry.index}@{entry.term}")
        self._start(number, disk)

    def do_crash(self, *peers: str) -> None:
        """Power is cut: what was not synced is lost, and what was not said is never said."""
        for peer in map(int, peers):
            self.down[peer] = self.peers.pop(peer).disk

    def do_restart(self, *peers: str) -> None:
        for peer in map(int, peers):
            self._start(peer, self.down.pop(peer))

    def do_campaign(self, peer: str) -> None:
        self.peers[int(peer)].raft.campaign()

    def do_lead(self, peer: str) -> None:
        """Lets a peer campaign, and win."""
        self.do_campaign(peer)
        self._take_out()
        self.do_settle()
        raft = self.peers[int(peer)].raft
        assert raft.role is Role.LEADER
        self.lines = [f"{peer} leads in term {raft.term}"]

    def do_pass(self, count: str) -> None:
        """Time passes, and messages arrive as it does. Only what comes of it is told."""
        for _ in range(int(count)):
            self.do_tick("all")
            self.do_settle()

    def do_tick(self, who: str, count: str = "1") -> None:
        """Time passes at a peer, or at all of them. Heartbeats of more than a tick are not told."""
        for _ in range(int(count)):
            for number, peer in self.peers.items():
                if who in ("all", str(number)):
                    peer.raft.tick()
            self._take_out()
        if int(count) > 1:
            self.lines = [line for line in self.lines if "heartbeat" not in line]

    def do_propose(self, peer: str, *payloads: str) -> None:
        raft = self.peers[int(peer)].raft
        sizes = [int(word.rpartition(":")[2]) if ":" in word else 1 for word in payloads]
        first = raft.propose(sizes)
        for index, payload in enumerate(payloads, first):
            self.payloads[index, raft.term] = payload

    def do_change(self, peer: str, *words: str) -> None:
        """Proposes other peers: voters 1 2 3 learners 4."""
        raft = self.peers[int(peer)].raft
        peers = _peers(words)
        self.payloads[raft.propose_peers(peers, 1), raft.term] = peers

    def do_transfer(self, peer: str, _to: str, successor: str) -> None:
        self.peers[int(peer)].raft.transfer(int(successor))

    def do_read(self, peer: str, token: str) -> None:
        self.peers[int(peer)].raft.read(int(token))

    def do_unreachable(self, peer: str, _to: str, other: str) -> None:
        """Tells `other` that its connection to a peer is broken."""
        self.peers[int(other)].raft.unreachable(int(peer))

    def do_compact(self, peer: str, at: str) -> None:
        """Takes a snapshot of what is applied, and drops the log up to there."""
        here, index = self.peers[int(peer)], int(at)
        terms = {entry.index: entry.term for entry in here.disk.entries}
        snapshot = Snapshot(index, terms[index], _as_of(here, index))
        here.disk.begin_behind(snapshot)
        here.raft.compacted(snapshot)

    def do_installed(self, peer: str) -> None:
        """The state that the peer was fetching is in place."""
        here = self.peers[int(peer)]
        snapshot = here.raft.installing
        assert snapshot is not None
        here.disk.entries = []
        here.disk.begin_behind(snapshot)
        here.applied = snapshot.index
        here.states = {snapshot.index: snapshot.peers}
        here.raft.installed(snapshot)
        self.lines.append(f"{peer} counts {_told(here.raft.peers)}")

    def do_failed(self, peer: str) -> None:
        """The state that the peer was fetching could not be had."""
        raft = self.peers[int(peer)].raft
        assert raft.installing is not None
        raft.install_failed(raft.installing)

    def do_slow(self, *peers: str) -> None:
        """Disks that sync when they are told to."""
        for peer in peers:
            self.peers[int(peer)].slow = True

    def do_persist(self, peer: str, count: str = "all") -> None:
        """The first saves that wait are durable now."""
        here = self.peers[int(peer)]
        for _ in range(len(here.waiting) if count == "all" else int(count)):
            self._sync_one(int(peer), here)

    def do_fast(self, *peers: str) -> None:
        for peer in peers:
            self.peers[int(peer)].slow = False
            self.do_persist(peer)

    def do_lazy(self, *peers: str) -> None:
        """Peers that apply when they are told to."""
        for peer in peers:
            self.peers[int(peer)].lazy = True

    def do_apply(self, *peers: str) -> None:
        for peer in peers:
            self.peers[int(peer)].lazy = False

    # -- links

    def do_deliver(self, *words: str) -> None:
        """What is on its way arrives, everywhere or on the links named; not what it leads to."""
        arriving = [m for link in self._named(words) for m in self.links.pop(link, [])]
        for message in arriving:
            if message.to in self.peers:
                self.peers[message.to].raft.step(message)
                self._take_out()

    def do_settle(self) -> None:
        """Delivers until nothing is on its way. Only what comes of it is told."""
        for _ in range(ROUNDS_MAX):
            if not any(self.links.values()):
                return
            self.do_deliver()
        raise AssertionError("the peers do not stop talking")

    def do_drop(self, *words: str) -> None:
        """What is on its way is lost."""
        for link in self._named(words):
            self.links.pop(link, None)

    def do_double(self, *words: str) -> None:
        """What is on its way will arrive twice."""
        for link in self._named(words):
            self.links[link] = [m for message in self.links[link] for m in (message, message)]

    def do_hold(self, *words: str) -> None:
        """What is on its way, and what is sent there from now on, is late."""
        for link in self._named(words):
            self.held.setdefault(link, []).extend(self.links.pop(link, []))
            self.holding.add(link)

    def do_late(self, *words: str) -> None:
        """What is on its way is late; what is sent from now on is not."""
        for link in self._named(words):
            self.held.setdefault(link, []).extend(self.links.pop(link, []))

    def do_release(self, *words: str) -> None:
        """What was late is on its way again."""
        for link in self._named(words):
            self.holding.discard(link)
            self.links.setdefault(link, []).extend(self.held.pop(link, []))

    def do_part(self, *peers: str) -> None:
        """Cuts peers off: nothing comes or goes."""
        self.away |= {int(peer) for peer in peers}
        self.links = {
            link: sent for link, sent in self.links.items() if not self.away.intersection(link)
        }

    def do_heal(self) -> None:
        self.away.clear()

    def do_say(self, link: str, verb: str, *words: str) -> None:
        """A message by hand: say 1->2 append term 1 prev 3@1 entries 4@1 commit 9."""
        said = _numbers(words)
        sender, to = _link(link)
        self._send(_MADE[verb](sender, to, said))

    def do_status(self) -> None:
        """Who is what, and which terms its log has."""
        for number, peer in self.peers.items():
            raft = peer.raft
            log = _runs(peer.disk.snapshot, peer.disk.entries)
            leads = "-" if raft.leader is None else str(raft.leader)
            self.lines.append(
                f"{number}: {raft.role.value}, term {raft.term}, leader {leads},"
                f" commit {raft.commit}, log {log}"
            )

    def do_stable(self, peer: str) -> None:
        """How far its log is durable."""
        self.lines.append(f"durable up to {self.peers[int(peer)].raft.stable_index}")

    def do_progress(self, peer: str) -> None:
        """What a leader knows of the others."""
        for other in self.peers[int(peer)].raft.others:
            active = "" if other.active else ", silent"
            self.lines.append(
                f"{other.peer}: {other.replication.value}, has {other.match},"
                f" {other.bytes_in_flight} bytes on their way{active}"
            )

    # -- what comes of it ---------------------------------------------------------------------------

    def _start(self, number: int, disk: Disk) -> None:
        snapshot = disk.snapshot
        entries = tuple((entry.term, entry.nbytes) for entry in disk.entries)
        commit = max(disk.commit, snapshot.index)
        self._started(number, disk, Start(disk.vote, snapshot, entries, commit, snapshot.index))

    def _started(self, number: int, disk: Disk, start: Start) -> None:
        self.starts += 1
        settings = Settings(peer=number, seed=1_000 * self.starts + number, **self.settings)
        raft = Raft(settings, start)
        states = {start.snapshot.index: start.snapshot.peers}
        peer = Peer(raft, disk, applied=start.snapshot.index, states=states)
        self.peers[number] = peer
        peer.now = _now(number, raft.role, raft.term, raft.leader)
        peer.committed = raft.commit
        self._apply(number, peer)

    def _take_out(self) -> None:
        for number, peer in self.peers.items():
            busy = True
            while busy:
                ready = peer.raft.ready()
                if ready is not None:
                    self._do(number, peer, ready)
                busy = self._apply(number, peer) or ready is not None

    def _do(self, number: int, peer: Peer, ready: Ready) -> None:
        self._tell(number, peer, ready)
        for early in ready.before:
            self._send(early)
        peer.waiting.append((ready.save, ready.after))
        while peer.waiting and not (peer.slow and any(save for save, _ in peer.waiting)):
            self._sync_one(number, peer)

    def _tell(self, number: int, peer: Peer, ready: Ready) -> None:
        now = _now(number, ready.role, ready.term, ready.leader)
        if now != peer.now:
            self.lines.append(f"{number} is {now}")
            peer.now = now
        if ready.save is not None:
            self.lines.append(f"{number} saves {_saved(ready.save)}")
        if ready.commit != peer.committed:
            self.lines.append(f"{number} commits {ready.commit}")
            peer.committed = ready.commit
        for read in ready.reads:
            may = "ask again" if read.index is None else f"when {read.index} is applied"
            self.lines.append(f"{number} answers reader {read.token}: {may}")
        if ready.install is not None:
            at = ready.install
            self.lines.append(f"{number} fetches the state at {at.index}@{at.term}")

    def _sync_one(self, number: int, peer: Peer) -> None:
        save, after = peer.waiting.pop(0)
        if save is not None:
            peer.disk.write(save)
            peer.raft.persisted(save)
            if peer.slow:
                self.lines.append(f"{number} has saved {_saved(save)}")
        for late in after:
            self._send(late)

    def _apply(self, number: int, peer: Peer) -> bool:
        """Applies what is committed and durable, and says which entries are not empty ones."""
        upto = min(peer.committed, peer.raft.stable_index)
        if peer.lazy or upto <= peer.applied:
            return False
        terms = {entry.index: entry.term for entry in peer.disk.entries}
        for index in range(peer.applied + 1, upto + 1):
            known = self.history.setdefault(index, terms[index])
            assert known == terms[index], f"entry {index} was applied as {known} and {terms[index]}"
            payload = self.payloads.get((index, terms[index]))
            if isinstance(payload, Peers):
                self.lines.append(f"{number} counts {_told(payload)}")
                peer.raft.reconfigure(payload)
                peer.states[index] = payload
        if peer.slow:
            self.lines.append(f"{number} applies up to {upto}")
        peer.applied = upto
        peer.raft.applied(upto)
        return True

    def _send(self, message: AnyMessage) -> None:
        link = (message.sender, message.to)
        said = self._said(message)
        if self.away.intersection(link):
            self.lines.append(f"{link[0]} -> {link[1]} (lost) {said}")
        elif link in self.holding:
            self.lines.append(f"{link[0]} -> {link[1]} (late) {said}")
            self.held.setdefault(link, []).append(message)
        else:
            self.lines.append(f"{link[0]} -> {link[1]} {said}")
            self.links.setdefault(link, []).append(message)

    def _named(self, words: tuple[str, ...]) -> list[Link]:
        return [_link(word) for word in words] or sorted(self.links)

    def _said(self, message: AnyMessage) -> str:
        return f"{self._words(message)}, term {message.term}"

    def _words(self, message: AnyMessage) -> str:
        match message:
            case PreVoteRequest() as asked:
                return f"pre-vote? log ends {asked.last_index}@{asked.last_term}"
            case PreVoteReply(granted=granted):
                return f"pre-vote {'yes' if granted else 'no'}"
            case VoteRequest() as asked:
                sent = ", sent by the leader" if asked.transfer else ""
                return f"vote? log ends {asked.last_index}@{asked.last_term}{sent}"
            case VoteReply(granted=granted):
                return f"vote {'yes' if granted else 'no'}"
            case TimeoutNow():
                return "campaign now"
            case Append() as sent:
                return (
                    f"append {_listed(sent.entries)} behind {sent.prev_index}@{sent.prev_term},"
                    f" commit {sent.commit}"
                )
            case AppendReply(rejected=None) as reply:
                return f"have {reply.match}"
            case AppendReply() as reply:
                return f"no {reply.rejected}, but {reply.hint_index}@{reply.hint_term}"
            case Heartbeat() as beat:
                return f"heartbeat, commit {beat.commit}{_round(beat.read)}"
            case HeartbeatReply(read=read):
                return f"heard{_round(read)}"
            case Install(snapshot=state):
                return f"state at {state.index}@{state.term}"
            case InstallReply() as reply:
                return f"state at {reply.index} {'in place' if reply.installed else 'failed'}"
            case ReadRequest(token=token):
                return f"read? question {self._question(token)}"
            case ReadReply() as reply:
                return f"question {self._question(reply.token)}: {reply.index}"

    def _question(self, token: int) -> int:
        return self.questions.setdefault(token, len(self.questions) + 1)


# -- words ---------------------------------------------------------------------------------------------


def _peers(words: tuple[str, ...]) -> Peers:
    listed: dict[str, list[int]] = {"voters": [], "learners": []}
    current = listed["voters"]
    for word in words:
        if word in listed:
            current = listed[word]
        else:
            current.append(int(word))
    return Peers(tuple(listed["voters"]), (), tuple(listed["learners"]))


def _told(peers: Peers) -> str:
    learners = f", learners {' '.join(map(str, peers.learners))}" if peers.learners else ""
    return f"voters {' '.join(map(str, peers.voters))}{learners}"


def _now(number: int, role: Role, term: int, leader: int | None) -> str:
    of = "" if leader in (None, number) else f" of {leader}"
    return f"{role.value} in term {term}{of}"


def _as_of(peer: Peer, index: int) -> Peers:
    return peer.states[max(at for at in peer.states if at <= index)]


def _link(word: str) -> Link:
    sender, _, to = word.partition("->")
    return int(sender), int(to)


def _saved(save: Save) -> str:
    parts = []
    if save.votes:
        whom = "" if save.vote.peer is None else f" and its vote for {save.vote.peer}"
        parts.append(f"term {save.vote.term}{whom}")
    if save.cut is not None:
        parts.append(f"a cut behind {save.cut}")
    if save.entries:
        parts.append(_listed(save.entries))
    return ", ".join(parts)


def _listed(entries: tuple[Entry, ...]) -> str:
    return " ".join(f"{entry.index}@{entry.term}" for entry in entries) or "nothing"


def _round(number: int) -> str:
    return f", round {number}" if number else ""


def _runs(snapshot: Snapshot, entries: list[Entry]) -> str:
    begin = [f"({snapshot.index}@{snapshot.term})"] if snapshot.index else []
    return " ".join([*begin, *(f"{entry.index}@{entry.term}" for entry in entries)]) or "empty"


def _numbers(words: tuple[str, ...]) -> dict[str, list[int]]:
    """`term 1 prev 3@1` as {"term": [1], "prev": [3, 1]}."""
    said: dict[str, list[int]] = {}
    numbers: list[int] = []
    for word in words:
        if word.isalpha():
            numbers = said[word] = []
        else:
            numbers.extend(map(int, word.split("@")))
    return said


def _made_append(sender: int, to: int, said: dict[str, list[int]]) -> Append:
    numbers = said.get("entries", [])
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return Append(
        sender=sender,
        to=to,
        term=said["term"][0],
        prev_index=said["prev"][0],
        prev_term=said["prev"][1],
        entries=tuple(Entry(index, term, 1) for index, term in pairs),
        commit=said["commit"][0],
    )


def _made_vote(sender: int, to: int, said: dict[str, list[int]]) -> VoteRequest:
    index, term = said["last"]
    return VoteRequest(sender=sender, to=to, term=said["term"][0], last_index=index, last_term=term)


def _made_install(sender: int, to: int, said: dict[str, list[int]]) -> Install:
    index, term = said["at"]
    state = Snapshot(index, term, Peers(tuple(said["voters"])))
    return Install(sender=sender, to=to, term=said["term"][0], snapshot=state)


_MADE: dict[str, Callable[[int, int, dict[str, list[int]]], AnyMessage]] = {
    "append": _made_append,
    "vote": _made_vote,
    "state": _made_install,
    "have": lambda sender, to, said: AppendReply(
        sender=sender, to=to, term=said["term"][0], match=said["match"][0]
    ),
    "no": lambda sender, to, said: AppendReply(
        sender=sender, to=to, term=said["term"][0], match=0, rejected=said["rejected"][0]
    ),
    "now": lambda sender, to, said: TimeoutNow(sender=sender, to=to, term=said["term"][0]),
}


def scenes(text: str) -> Iterator[tuple[list[str], str | None, list[str]]]:
    """A scenario as (prose before, command, output expected); last the prose at the end."""
    prose: list[str] = []
    command: str | None = None
    expected: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            if command is not None:
                yield prose, command, expected
                prose = []
            command, expected = line[2:], []
        elif command is not None and line and not line.startswith("#"):
            expected.append(line)
        else:
            if command is not None:
                yield prose, command, expected
                prose, command, expected = [], None, []
            prose.append(line)
    yield prose, command, expected
