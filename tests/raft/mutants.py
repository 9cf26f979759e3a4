"""The standing list of planted mistakes: each is one that somebody has made, or could make.

A mutant replaces one piece of text, which must occur once. It is planted in a copy of the package,
never in the source tree, and must be seen: by the simulator, in the seeds from the given one on, or
by the named scenario, where chance would take too long. If one is not, the tests have a blind spot,
and that is what has to be mended.

    python -m tests.raft.mutants [part of a name] ...

finds the first seed that sees each of them; any change of the core or the simulator moves it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "quiver"
BESIDE = ("limits.py", "errors.py")  # all that `quiver.raft` needs
SEEDS = 100  # from the one that is named on; it moves when the core changes
DIFFERS = 3  # exit code
PLAY = f"""
import sys
from tests.raft.test_scenarios import HERE, play
told = (HERE / f"{{sys.argv[1]}}.txt").read_text()
sys.exit(0 if play(told).splitlines() == told.splitlines() else {DIFFERS})
"""
FAILED = re.compile(r"^seed (\d+): (?:Broken|AssertionError)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mutant:
    """`seed` is the first one that sees it; `nodes` are the voters, if not drawn from the seed."""

    name: str
    file: str
    old: str
    new: str
    seed: int = 0
    nodes: int | None = None
    scenario: str | None = None


def mistaken(mutant: Mutant) -> str:
    """Its file with the mistake in it; raises ValueError if its text is not there exactly once."""
    text, old = (SOURCE / "raft" / mutant.file).read_text(), mutant.old.removeprefix("\n")
    found = sum(text.startswith(old, at) for at in range(len(text)))
    if found != 1:
        raise ValueError(f"{mutant.name}: its text occurs {found} times in {mutant.file}, not once")
    return text.replace(old, mutant.new.removeprefix("\n"))


def plant(mutant: Mutant, directory: Path) -> None:
    """A copy of the package with the mistake in it."""
    package = directory / "quiver"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copytree(SOURCE / "raft", package / "raft", ignore=shutil.ignore_patterns("__pycache__"))
    for name in BESIDE:
        shutil.copy(SOURCE / name, package / name)
    (package / "raft" / mutant.file).write_text(mistaken(mutant))


def seen_by_seed(mutant: Mutant, first: int, count: int) -> int | None:
    """The first of these seeds that sees the mutant; None if none does.

    An error that is no broken invariant is a mistake in the mutant, not its death.
    """
    with tempfile.TemporaryDirectory() as directory:
        plant(mutant, Path(directory))
        command = ["-m", "tests.raft.simulation", "--first", str(first), "--runs", str(count)]
        if mutant.nodes:
            command += ["--nodes", str(mutant.nodes)]
        done = run(command, directory)
    failed = FAILED.search(done.stdout)
    if failed is None:
        if done.returncode:
            raise ValueError(f"{mutant.name}: {done.stdout}{done.stderr}")
        return None
    return int(failed[1])


def seen_by_scenario(mutant: Mutant) -> bool:
    """Whether the scenario that is named goes another way, or ends at an assertion of the core."""
    assert mutant.scenario is not None
    with tempfile.TemporaryDirectory() as directory:
        plant(mutant, Path(directory))
        done = run(["-c", PLAY, mutant.scenario], directory)
    differs = done.returncode == DIFFERS or "AssertionError" in done.stderr
    if done.returncode and not differs:
        raise ValueError(f"{mutant.name}: {done.stderr}")
    return differs


def run(command: list[str], directory: str) -> subprocess.CompletedProcess[str]:
    """Python in the root of the repository, with the planted package in front of the real one."""
    environment = {**os.environ, "PYTHONPATH": directory, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


MUTANTS = (
    Mutant(
        name="votes for a log that is behind",
        file="raft.py",
        old="""
        granted = (free or self._vote.peer == request.sender) and self._log.reaches(
            request.last_index, request.last_term
        )
""",
        new="""
        granted = free or self._vote.peer == request.sender
""",
        seed=22,
    ),
    Mutant(
        name="votes twice in a term",
        file="raft.py",
        old="""
        free = self._vote.peer is None and self._leader is None
""",
        new="""
        free = True
""",
        seed=1,
    ),
    Mutant(
        name="forgets at a restart whom it voted for",
        file="raft.py",
        old="""
        self._vote = start.vote
""",
        new="""
        self._vote = Vote(start.vote.term)
""",
        seed=117,
    ),
    Mutant(
        name="keeps its vote in a new term",
        file="raft.py",
        old="""
            self._vote = Vote(term)
""",
        new="""
            self._vote = Vote(term, self._vote.peer)
""",
    ),
    Mutant(
        name="tells its vote before it is durable",
        file="raft.py",
        old="""
        self._after.append(
            VoteReply(
                sender=self._me,
                to=to,
                term=self.term,
                granted=granted,
""",
        new="""
        self._before.append(
            VoteReply(
                sender=self._me,
                to=to,
                term=self.term,
                granted=granted,
""",
    ),
    Mutant(
        name="a sole voter leads before its own vote is durable",
        file="raft.py",
        old="""
        self._role = Role.CANDIDATE
""",
        new="""
        self._role = Role.CANDIDATE
        if self._peers.voters == (self._me,):
            self._lead()
""",
        seed=26,
    ),
    Mutant(
        name="takes granted pre-votes for votes",
        file="raft.py",
        old="""
        self._votes = {}
        self._timer.restart()
""",
        new="""
        self._timer.restart()
""",
    ),
    Mutant(
        name="a pre-vote begins a new term",
        file="raft.py",
        old="""
    def _on_pre_vote_request(self, request: PreVoteRequest) -> None:
""",
        new="""
    def _on_pre_vote_request(self, request: PreVoteRequest) -> None:
        if request.term > self.term:
            self._follow(request.term, None)
""",
    ),
    Mutant(
        name="a pre-vote is granted while the leader is heard",
        file="raft.py",
        old="""
            and not self._hears_leader()
""",
        new="""
""",
        scenario="stuck_with_newer_term",
    ),
    Mutant(
        name="does not learn from who refuses a vote what is committed",
        file="raft.py",
        old="""
            self._learn_commit(message.commit, message.commit_term)
""",
        new="""
            pass
""",
        scenario="removed_unaware",
    ),
    Mutant(
        name="counts replies of an older term",
        file="raft.py",
        old="""
        if message.term < self.term:
            self._answer_old(message)
            return
""",
        new="""
        if message.term < self.term and not isinstance(message, AppendReply | VoteReply):
            self._answer_old(message)
            return
""",
        seed=192,
        nodes=5,
    ),
    Mutant(
        name="says nothing to a leader of an older term",
        file="raft.py",
        old="""
                self._after.append(HeartbeatReply(sender=self._me, to=to, term=term))
""",
        new="""
                pass
""",
        scenario="stuck_with_newer_term",
    ),
    Mutant(
        name="leads on without a quorum",
        file="raft.py",
        old="""
        if quorum.verdict(self._peers, heard) is not Verdict.WON:
""",
        new="""
        if False:
""",
    ),
    Mutant(
        name="commits entries of an older term by counting",
        file="raft.py",
        old="""
        if index > self._commit and self._log.term_of(index) == self.term:
""",
        new="""
        if index > self._commit:
""",
        seed=411,
        nodes=3,
    ),
    Mutant(
        name="a majority is half",
        file="quorum.py",
        old="""
    return len(voters) // 2 + 1
""",
        new="""
    return max(len(voters) // 2, 1)
""",
    ),
    Mutant(
        name="a majority of four is two",
        file="quorum.py",
        old="""
    return len(voters) // 2 + 1
""",
        new="""
    return (len(voters) + 1) // 2
""",
    ),
    Mutant(
        name="learners count for a commit",
        file="quorum.py",
        old="""
    incoming = _agreed(peers.voters, reached)
""",
        new="""
    incoming = _agreed((*peers.voters, *peers.learners), reached)
""",
        seed=12,
    ),
    Mutant(
        name="outgoing voters do not count for a commit",
        file="quorum.py",
        old="""
    return min(incoming, _agreed(peers.outgoing, reached)) if peers.outgoing else incoming
""",
        new="""
    return incoming
""",
    ),
    Mutant(
        name="outgoing voters do not count in an election",
        file="quorum.py",
        old="""
    if not peers.outgoing:
        return incoming
""",
        new="""
    if True:
        return incoming
""",
        seed=4,
    ),
    Mutant(
        name="a leader counts its entries before they are durable",
        file="raft.py",
        old="""
        index = self._stable  # what a group of one agrees on
""",
        new="""
        index = self._log.last
""",
    ),
    Mutant(
        name="confirms entries before they are durable",
        file="raft.py",
        old="""
        self._after.append(
            AppendReply(sender=self._me, to=append.sender, term=self.term, match=proven)
""",
        new="""
        self._before.append(
            AppendReply(sender=self._me, to=append.sender, term=self.term, match=proven)
""",
    ),
    Mutant(
        name="confirms the end of its log, not what was proven",
        file="raft.py",
        old="""
        proven = max(append.prev_index + len(append.entries), self._commit)
""",
        new="""
        proven = self._log.last
""",
        scenario="commit_beyond_proof",
    ),
    Mutant(
        name="commits what was not proven equal",
        file="raft.py",
        old="""
        self._commit_upto(min(append.commit, proven))
""",
        new="""
        self._commit_upto(min(append.commit, self._log.last))
""",
        scenario="commit_beyond_proof",
    ),
    Mutant(
        name="a heartbeat commits more than the peer has",
        file="raft.py",
        old="""
        commit = min(self._commit, progress.match)
""",
        new="""
        commit = self._commit
""",
    ),
    Mutant(
        name="the commit goes back",
        file="raft.py",
        old="""
        self._commit = max(self._commit, index)
""",
        new="""
        self._commit = index
""",
    ),
    Mutant(
        name="cuts the log at every append",
        file="raft.py",
        old="""
                if entry.index <= log.base or log.term_of(entry.index) == entry.term:
""",
        new="""
                if entry.index <= self._commit:
""",
    ),
    Mutant(
        name="a save counts though its entries were overwritten",
        file="raft.py",
        old="""
        if save.number >= self._counts_from:
            assert (
                self._log.has(save.last_index, save.last_term) or save.last_index < self._log.base
            )
            self._stable = max(self._stable, save.last_index)
""",
        new="""
        self._stable = max(self._stable, min(save.last_index, self._log.last))
""",
        scenario="disk_aba",
    ),
    Mutant(
        name="what was cut stays durable",
        file="raft.py",
        old="""
        self._stable = min(self._stable, after)
""",
        new="""
""",
        seed=117,
    ),
    Mutant(
        name="does not say that the log was cut",
        file="raft.py",
        old="""
            cut=self._cut,
""",
        new="""
            cut=None,
""",
    ),
    Mutant(
        name="a reader needs no quorum",
        file="raft.py",
        old="""
            if quorum.agreed(self._peers, reached) >= number:
""",
        new="""
            if True:
""",
    ),
    Mutant(
        name="readers are answered before an entry of the own term is committed",
        file="raft.py",
        old="""
        if self._commit >= self._begins and self._rounds.begin(self._commit):
""",
        new="""
        if self._rounds.begin(self._commit):
""",
        seed=8,
    ),
    Mutant(
        name="a reader joins the round that is under way",
        file="reads.py",
        old="""
        self._waiting.append(reader)
""",
        new="""
        (self._asking or self._waiting).append(reader)
""",
    ),
    Mutant(
        name="any answered heartbeat confirms a round",
        file="raft.py",
        old="""
        progress.answered(reply.read)
""",
        new="""
        progress.answered(self._rounds.number)
""",
    ),
    Mutant(
        name="the window is never freed",
        file="progress.py",
        old="""
        while self._window and self._window[0][0] <= self.match:
""",
        new="""
        while False:
""",
    ),
    Mutant(
        name="the window has no end",
        file="progress.py",
        old="""
                return self.bytes_in_flight < bytes_max and len(self._window) < messages_max
""",
        new="""
                return True
""",
    ),
    Mutant(
        name="any number of entries waits for a quorum",
        file="raft.py",
        old="""
        if self._others and waiting and waiting + nbytes > most:
""",
        new="""
        if False:
""",
    ),
    Mutant(
        name="a lost probe is never repeated",
        file="progress.py",
        old="""
            self.paused = False
        self.asked = bool(self._window)
""",
        new="""
            pass
        self.asked = bool(self._window)
""",
    ),
    Mutant(
        name="a lost end of a window is never asked for",
        file="progress.py",
        old="""
        self.asked = bool(self._window)
""",
        new="""
""",
        seed=8,
    ),
    Mutant(
        name="an offer of a snapshot is never repeated",
        file="progress.py",
        old="""
        if self.replication is Replication.SNAPSHOT and self.waited >= election_ticks:
""",
        new="""
        if False:
""",
        seed=60,
    ),
    Mutant(
        name="hands over to a peer that lacks entries",
        file="raft.py",
        old="""
        if peer is not None and self._others[peer].match == self._log.last:
""",
        new="""
        if peer is not None:
""",
        seed=8,
    ),
    Mutant(
        name="an install that is not needed is answered with the end of the log",
        file="raft.py",
        old="""
            # not the end of the log: what is behind the snapshot may differ from the leader's
            self._answer_install(snapshot.index, installed=True)
""",
        new="""
            self._answer_install(self._log.last, installed=True)
""",
        seed=99,
    ),
    Mutant(
        name="the peers of an installed snapshot are ignored",
        file="raft.py",
        old="""
        self._peers = snapshot.peers
""",
        new="""
""",
    ),
    Mutant(
        name="installs a state that is older than its own",
        file="raft.py",
        old="""
        if snapshot.index <= self._commit or self._log.has(snapshot.index, snapshot.term):
""",
        new="""
        if self._log.has(snapshot.index, snapshot.term):
""",
        seed=99,
    ),
    Mutant(
        name="changes the peers while another change is on its way",
        file="raft.py",
        old="""
        if self._applied < self._change:
""",
        new="""
        if False:
""",
        seed=342,
    ),
    Mutant(
        name="changes the peers before an entry of the own term is committed",
        file="raft.py",
        old="""
        self._begins = self._change = self._log.last
""",
        new="""
        self._begins = self._log.last
""",
        scenario="change_after_own_commit",
    ),
    Mutant(
        name="campaigns though a change of the peers is committed and not applied",
        file="raft.py",
        old="""
            and self._applied >= self._commit
""",
        new="""
""",
        scenario="unapplied_change",
    ),
    Mutant(
        name="forgets at a restart what was committed",
        file="raft.py",
        old="""
        self._commit = start.commit
""",
        new="""
        self._commit = start.snapshot.index
""",
        seed=10,
    ),
    Mutant(
        name="every log is good enough for a vote",
        file="log.py",
        old="""
        return (last_term, last_index) >= (self.last_term, self.last)
""",
        new="""
        return True
""",
    ),
    Mutant(
        name="the longer log is the better one, whatever its term",
        file="log.py",
        old="""
        return (last_term, last_index) >= (self.last_term, self.last)
""",
        new="""
        return last_index >= self.last
""",
        seed=102,
    ),
)


def main(parts: list[str]) -> None:
    for mutant in MUTANTS:
        if not parts or any(part in mutant.name for part in parts):
            print(f"{mutant.name}: {seen_by_seed(mutant, 0, 500)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
