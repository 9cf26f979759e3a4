"""One peer of a consensus group: events in, `Ready` out. The chapter is in `quiver.raft`.

Events change the state and note what is to be said. What a leader sends to the others is worked
out when `ready` is called, so all that has come up meanwhile shares messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from quiver.errors import NotLeader, Overloaded, PeersChanging
from quiver.limits import APPEND_ENTRIES_MAX
from quiver.raft import membership, quorum
from quiver.raft.log import TermLog
from quiver.raft.messages import (
    AnyMessage,
    Append,
    AppendReply,
    Early,
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
from quiver.raft.progress import PeerProgress, PeerStatus, Replication
from quiver.raft.quorum import Verdict
from quiver.raft.reads import ForwardedReads, Reader, ReadRounds
from quiver.raft.ready import Read, Ready, Role, Save, Vote
from quiver.raft.settings import Settings, Start
from quiver.raft.timing import Draws, ElectionTimer


class Raft:
    """A peer. No call blocks, fails for reasons of IO, or may be made by two threads at once."""

    def __init__(self, settings: Settings, start: Start) -> None:
        self._me = settings.peer
        self._settings = settings
        self._snapshot = start.snapshot  # what others get that are behind the log
        self._log = TermLog(start.snapshot.index, start.snapshot.term, start.entries)
        self._stable = self._log.last  # entries up to here are durable, and still the same
        self._commit = start.commit
        self._applied = start.applied
        assert start.snapshot.index <= start.applied <= start.commit <= self._log.last
        self._peers = start.snapshot.peers

        self._vote = start.vote
        if self._log.last_term > self._vote.term:  # it was alone, and led in this term
            self._vote = Vote(self._log.last_term, self._me)
        self._role = Role.FOLLOWER
        self._leader: int | None = None
        self._votes: dict[int, bool] = {}  # while it campaigns
        self._draws = Draws(settings.seed)
        self._timer = ElectionTimer(settings.election_ticks, self._draws)

        # of a leader
        self._others: dict[int, PeerProgress] = {}
        self._begins = 0  # the first entry of its term
        self._change = 0  # the newest entry that may change the peers
        self._beat_ticks = 0
        self._beats = False  # heartbeats are due
        self._transferee: int | None = None
        self._transfer_ticks = 0
        self._rounds = ReadRounds()

        self._forwarded = ForwardedReads()
        self._installing: Snapshot | None = None

        # what `ready` hands out next
        self._before: list[Early] = []
        self._after: list[Late] = []
        self._reads: list[Read] = []
        self._install: Snapshot | None = None
        self._saves = 0  # how many were handed out
        self._saved_vote = start.vote  # what the newest one has
        self._saved_last = self._log.last
        self._cut: int | None = None  # of what it has
        self._counts_from = 0  # saves before this one are of a log that was cut since
        self._told: tuple[int, int, Role, int | None] | None = None

        if start.alone:
            self._lead_alone()

    def _lead_alone(self) -> None:
        assert self._peers.voters == (self._me,), "who is alone has no peers"
        assert self._commit == self._log.last, "all that a lone peer has is committed"
        self._vote = self._saved_vote = Vote(max(self._vote.term, 1), self._me)
        self._role = Role.LEADER
        self._leader = self._me
        self._change = self._commit

    # -- what one may ask ---------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """What it is."""
        return self._role

    @property
    def term(self) -> int:
        """The newest term that it knows of."""
        return self._vote.term

    @property
    def leader(self) -> int | None:
        """Who leads in this term, as far as it knows."""
        return self._leader

    @property
    def peers(self) -> Peers:
        """Who takes part, as of the entries applied."""
        return self._peers

    @property
    def commit(self) -> int:
        """Entries up to this one will never be taken back."""
        return self._commit

    @property
    def decides_alone(self) -> bool:
        """It leads, and nobody else has a vote: what is in its log will never be taken back."""
        peers = self._peers
        return self._role is Role.LEADER and peers.voters == (self._me,) and not peers.outgoing

    @property
    def uncommitted_bytes(self) -> int:
        """Of the entries that may still be taken back."""
        return self._log.bytes_between(self._commit, self._log.last)

    @property
    def last_index(self) -> int:
        """The end of the log."""
        return self._log.last

    @property
    def stable_index(self) -> int:
        """Entries up to this one are durable here."""
        return self._stable

    @property
    def begins(self) -> int | None:
        """The entry with which its newest leadership began; None if it is not in the log.

        It comes out in a `Save` like others, but was not proposed: the driver gives it a payload
        that changes nothing. That leadership may be over when the entry comes out.
        """
        return self._begins or None

    @property
    def transferee(self) -> int | None:
        """To whom it is handing over."""
        return self._transferee

    @property
    def installing(self) -> Snapshot | None:
        """The state that it waits for; meanwhile its log stands still."""
        return self._installing

    @property
    def others(self) -> tuple[PeerStatus, ...]:
        """How far the other peers are; only a leader knows."""
        return tuple(progress.status(peer) for peer, progress in self._others.items())

    # -- what users want ----------------------------------------------------------------------------

    def propose(self, sizes: Sequence[int]) -> int:
        """Appends entries of these sizes; returns the index of the first.

        Raises NotLeader, and Overloaded if too much waits for a quorum.
        """
        self._must_lead()
        if self._others:
            self.demand_room(sum(sizes))
        log, term = self._log, self._vote.term
        first = log.last + 1
        for nbytes in sizes:
            log.append(term, nbytes)
        return first

    def demand_room(self, nbytes: int) -> None:
        """Raises what a proposal of so many bytes would raise."""
        self._must_lead()
        waiting = self.uncommitted_bytes
        most = self._settings.uncommitted_bytes_max
        if self._others and waiting and waiting + nbytes > most:
            raise Overloaded(
                f"{waiting} bytes wait until most of the peers have them: send less, or later"
            )

    def propose_peers(self, peers: Peers, nbytes: int) -> int:
        """Appends an entry that, once it is applied, changes who takes part; returns its index.

        Raises NotLeader, InvalidRequest, and PeersChanging while another such entry may be on its
        way, also one that a leader before has left behind.
        """
        self._must_lead()
        membership.check_change(self._peers, peers, self._me)
        if self._applied < self._change:
            raise PeersChanging(
                f"entry {self._change} must be applied first: the peers may be changed by what is"
                " before it"
            )
        self._change = self.propose((nbytes,))
        return self._change

    def read(self, token: int) -> None:
        """Asks how far one must have applied to have seen all that is committed now."""
        if self._role is Role.LEADER:
            self._add_reader(Reader(self._me, token))
        elif self._leader is not None and self._forwarded.has_room():
            number = self._draws.next()
            self._forwarded.ask(number, token, self._settings.election_ticks)
            self._before.append(
                ReadRequest(sender=self._me, to=self._leader, term=self.term, token=number)
            )
        else:
            self._reads.append(Read(token, None))

    def transfer(self, peer: int) -> None:
        """Hands over to another voter once it has all entries; given up after an election timeout.

        Raises NotLeader and InvalidRequest.
        """
        self._must_lead()
        membership.check_successor(self._peers, peer)
        if peer != self._me:
            self._transferee = peer
            self._transfer_ticks = 0
            self._hand_over()

    def campaign(self) -> None:
        """Asks for votes now, not after a timeout."""
        if self._may_campaign():
            self._ask_for_pre_votes()

    def _must_lead(self) -> None:
        if self._role is not Role.LEADER:
            raise NotLeader("this peer does not lead: ask the one that does", self._leader)
        if self._transferee is not None:
            raise NotLeader("this peer is handing over: ask the next leader", self._transferee)

    # -- time ---------------------------------------------------------------------------------------

    def tick(self) -> None:
        """A tick of time has passed."""
        if self._role is Role.LEADER:
            self._tick_leader()
            return
        self._timer.elapsed += 1
        self._reads.extend(Read(token, None) for token in self._forwarded.tick())
        if self._timer.ran_out:
            if self._may_campaign():
                self._ask_for_pre_votes()
            else:
                self._leader = None

    def _tick_leader(self) -> None:
        self._timer.elapsed += 1
        self._beat_ticks += 1
        for progress in self._others.values():
            progress.tick(self._settings.election_ticks)
        if self._beat_ticks >= self._settings.heartbeat_ticks:
            self._beat_ticks = 0
            self._beats = True
        self._transfer_ticks += 1
        if self._transferee is not None and self._transfer_ticks >= self._settings.election_ticks:
            self._transferee = None
            if not membership.votes_in(self._peers, self._me):
                self._follow(self.term, None)
                return
        if not self._timer.leased:
            self._timer.restart()
            self._check_quorum()

    def _check_quorum(self) -> None:
        """Steps down if no quorum was heard in an election timeout: another may lead by now."""
        heard = {peer: progress.active for peer, progress in self._others.items()}
        heard[self._me] = True
        if quorum.verdict(self._peers, heard) is not Verdict.WON:
            self._follow(self.term, None)
            return
        for progress in self._others.values():
            progress.active = False

    # -- what the driver has done -------------------------------------------------------------------

    def persisted(self, save: Save) -> None:
        """A save is durable, and so are all that were handed out before it."""
        if save.number >= self._counts_from:
            assert (
                self._log.has(save.last_index, save.last_term) or save.last_index < self._log.base
            )
            self._stable = max(self._stable, save.last_index)
        if self._role is Role.CANDIDATE and save.vote == self._vote:
            self._count_vote(self._me, granted=True)
        elif self._role is Role.LEADER:
            self._advance_commit()

    def kept(self, index: int) -> None:
        """What a lone peer has proposed is durable up to here, whether or not it was handed out.

        Nobody can take its entries back, so they need not be told apart by saves.
        """
        assert self._role is Role.LEADER, "who is alone leads"
        assert not self._others, "others may have taken it back"
        assert self._commit <= index <= self._log.last
        self._stable = self._commit = index
        self._saved_last = max(self._saved_last, index)

    def applied(self, index: int) -> None:
        """Entries up to this one are applied."""
        assert index <= self._commit, f"entry {index} is applied but not committed"
        self._applied = max(self._applied, index)

    def reconfigure(self, peers: Peers) -> None:
        """An entry that changes the peers is applied: from now on these count."""
        self._peers = peers
        voter = membership.votes_in(peers, self._me)
        if self._role is Role.LEADER:
            self._track_peers()
            self._advance_commit()
            self._end_round()
            if not voter:
                self._leave()
        elif self._role is not Role.FOLLOWER and not voter:
            self._follow(self.term, None)

    def _leave(self) -> None:
        """Hands over to the voter that has most: who steps down at once leaves others waiting.

        In a group of two it could leave one that needs its vote and cannot get it, because the end
        of its log is missing there.
        """
        voters = membership.other_voters(self._peers, self._me)
        self._transferee = max(voters, key=lambda peer: self._others[peer].match)
        self._transfer_ticks = 0
        self._hand_over()

    def installed(self, snapshot: Snapshot) -> None:
        """A state is in place and durable, and the log is empty and begins behind it.

        What was to be saved before is durable or gone: it will not be written behind this.
        """
        if snapshot != self._installing:
            return
        self._installing = self._install = None
        assert snapshot.index > self._commit
        self._snapshot = snapshot
        self._peers = snapshot.peers
        self._log.reset(snapshot.index, snapshot.term)
        self._commit = self._applied = self._stable = self._saved_last = snapshot.index
        self._cut = None
        self._begins = 0
        self._counts_from = self._saves + 1
        self._answer_install(snapshot.index, installed=True)

    def install_failed(self, snapshot: Snapshot) -> None:
        """A state could not be had; the log goes on where it was."""
        if snapshot == self._installing:
            self._installing = self._install = None
            self._answer_install(snapshot.index, installed=False)

    def compacted(self, snapshot: Snapshot) -> None:
        """There is a newer snapshot, and the log begins behind it."""
        assert snapshot.index <= min(self._applied, self._stable), "a snapshot of what is to come"
        if snapshot.index > self._log.base:
            self._log.drop(snapshot.index)
            assert self._log.base_term == snapshot.term
            self._snapshot = snapshot

    def unreachable(self, peer: int) -> None:
        """What was sent to a peer lately is probably lost."""
        progress = self._others.get(peer)
        if progress is not None and progress.replication is Replication.REPLICATE:
            progress.probe(progress.match + 1)

    # -- messages -----------------------------------------------------------------------------------

    def step(self, message: AnyMessage) -> None:
        """A message has come; old ones, repeated ones and ones out of order do no harm."""
        assert message.to == self._me != message.sender, "a message for somebody else"
        if isinstance(message, PreVoteReply | VoteReply):
            self._learn_commit(message.commit, message.commit_term)
        if message.term < self.term:
            self._answer_old(message)
            return
        if message.term > self.term and not self._enter_term(message):
            return
        progress = self._others.get(message.sender)
        if progress is not None:
            progress.active = True
        match message:
            case PreVoteRequest():
                self._on_pre_vote_request(message)
            case PreVoteReply():
                self._on_pre_vote_reply(message)
            case VoteRequest():
                self._on_vote_request(message)
            case VoteReply():
                if self._role is Role.CANDIDATE:
                    self._count_vote(message.sender, granted=message.granted)
            case TimeoutNow():
                self._on_timeout_now(message)
            case Append():
                self._on_append(message)
            case AppendReply():
                self._on_append_reply(message)
            case Heartbeat():
                self._on_heartbeat(message)
            case HeartbeatReply():
                self._on_heartbeat_reply(message)
            case Install():
                self._on_install(message)
            case InstallReply():
                self._on_install_reply(message)
            case ReadRequest():
                self._on_read_request(message)
            case ReadReply():
                self._on_read_reply(message)
            case never:
                assert_never(never)

    def _enter_term(self, message: AnyMessage) -> bool:
        """Follows into a newer term, where that is right; returns whether to go on."""
        match message:
            case PreVoteRequest() | PreVoteReply(granted=True):
                return True  # of a term that has not begun
            case VoteRequest(transfer=False) if self._hears_leader():
                return False
            case Append() | Heartbeat() | Install():
                self._follow(message.term, message.sender)
            case _:
                self._follow(message.term, None)
        return True

    def _answer_old(self, message: AnyMessage) -> None:
        """Tells who is behind that there is a newer term, if it would wait for an answer.

        Also a leader: a peer that was cut off and whose term has grown cannot follow it, and the
        others do not vote while they hear it. So the leader must come to know this term.
        """
        to, term = message.sender, self.term
        match message:
            case Append() | Heartbeat() | Install():
                self._after.append(HeartbeatReply(sender=self._me, to=to, term=term))
            case PreVoteRequest():
                self._answer_pre_vote(to, granted=False, term=term)
            case VoteRequest():
                self._answer_vote(to, granted=False)
            case ReadRequest(token=token):
                self._before.append(
                    ReadReply(sender=self._me, to=to, term=term, token=token, index=None)
                )
            case _:
                pass

    # -- elections ----------------------------------------------------------------------------------

    def _hears_leader(self) -> bool:
        return self._leader is not None and self._timer.leased

    def _may_campaign(self) -> bool:
        """A voter may, but not while what it knows to be committed could change the voters."""
        return (
            self._role is not Role.LEADER
            and self._installing is None
            and membership.votes_in(self._peers, self._me)
            and self._applied >= self._commit
        )

    def _ask_for_pre_votes(self) -> None:
        self._follow(self.term, None)
        self._role = Role.PRE_CANDIDATE
        for peer in membership.other_voters(self._peers, self._me):
            self._before.append(
                PreVoteRequest(
                    sender=self._me,
                    to=peer,
                    term=self.term + 1,
                    last_index=self._log.last,
                    last_term=self._log.last_term,
                )
            )
        self._count_vote(self._me, granted=True)

    def _ask_for_votes(self, *, transfer: bool = False) -> None:
        self._follow(self.term + 1, None)
        self._vote = Vote(self.term, self._me)  # counts when it is durable
        self._role = Role.CANDIDATE
        for peer in membership.other_voters(self._peers, self._me):
            self._after.append(
                VoteRequest(
                    sender=self._me,
                    to=peer,
                    term=self.term,
                    last_index=self._log.last,
                    last_term=self._log.last_term,
                    transfer=transfer,
                )
            )

    def _count_vote(self, peer: int, *, granted: bool) -> None:
        self._votes[peer] = granted
        match quorum.verdict(self._peers, self._votes):
            case Verdict.LOST:
                self._follow(self.term, None)
            case Verdict.WON if self._role is Role.PRE_CANDIDATE:
                self._ask_for_votes()
            case Verdict.WON:
                self._lead()
            case Verdict.OPEN:
                pass

    def _on_pre_vote_request(self, request: PreVoteRequest) -> None:
        granted = (
            request.term > self.term
            and not self._hears_leader()
            and self._log.reaches(request.last_index, request.last_term)
        )
        term = request.term if granted else self.term
        self._answer_pre_vote(request.sender, granted=granted, term=term)

    def _answer_pre_vote(self, to: int, *, granted: bool, term: int) -> None:
        self._before.append(
            PreVoteReply(
                sender=self._me,
                to=to,
                term=term,
                granted=granted,
                commit=self._commit,
                commit_term=self._log.term_of(self._commit),
            )
        )

    def _on_pre_vote_reply(self, reply: PreVoteReply) -> None:
        asked = self.term + 1 if reply.granted else self.term
        if self._role is Role.PRE_CANDIDATE and reply.term == asked:
            self._count_vote(reply.sender, granted=reply.granted)

    def _on_vote_request(self, request: VoteRequest) -> None:
        """Whoever is asked votes, also if it thinks that it has no vote: it may be behind."""
        free = self._vote.peer is None and self._leader is None
        granted = (free or self._vote.peer == request.sender) and self._log.reaches(
            request.last_index, request.last_term
        )
        if granted:
            self._vote = Vote(self.term, request.sender)
            if self._leader is None:
                self._follow(self.term, None)  # gives it time to win
        self._answer_vote(request.sender, granted=granted)

    def _answer_vote(self, to: int, *, granted: bool) -> None:
        self._after.append(
            VoteReply(
                sender=self._me,
                to=to,
                term=self.term,
                granted=granted,
                commit=self._commit,
                commit_term=self._log.term_of(self._commit),
            )
        )

    def _learn_commit(self, index: int, term: int) -> None:
        """What is committed stays so, whoever says it in whatever term.

        This frees a candidate that asks a peer for its vote only because it does not know that this
        peer was removed, and cannot get it because the end of its log is missing.
        """
        if self._log.has(index, term):
            self._commit_upto(index)

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        if message.sender == self._leader and self._may_campaign():
            self._ask_for_votes(transfer=True)

    def _follow(self, term: int, leader: int | None) -> None:
        """Becomes a follower, of nobody if it does not know better."""
        assert term >= self.term
        if term > self.term:
            self._vote = Vote(term)
        if self._role is Role.LEADER:
            for reader in self._rounds.give_up():
                self._answer_reader(reader, None)
            self._others = {}
            self._transferee = None
            self._beats = False
        self._reads.extend(Read(token, None) for token in self._forwarded.give_up())
        self._role = Role.FOLLOWER
        self._leader = leader
        self._votes = {}
        self._timer.restart()

    # -- leading ------------------------------------------------------------------------------------

    def _lead(self) -> None:
        self._role = Role.LEADER
        self._leader = self._me
        self._rounds = ReadRounds()
        self._others = {}
        self._track_peers()
        self._timer.restart()
        self._beat_ticks = 0
        self._log.append(self.term, 0)
        self._begins = self._change = self._log.last

    def _track_peers(self) -> None:
        """Knows of each other peer how far it is, and of nobody else."""
        following = self._log.last + 1
        known = self._others
        self._others = {
            peer: known.get(peer) or PeerProgress(following)
            for peer in membership.others(self._peers, self._me)
        }
        if self._transferee is not None and self._transferee not in self._others:
            self._transferee = None

    def _advance_commit(self) -> None:
        """Commits what a quorum has, if it is of the own term (paper, section 5.4.2)."""
        index = self._stable  # what a group of one agrees on
        if self._others:
            reached = {peer: progress.match for peer, progress in self._others.items()}
            reached[self._me] = index
            index = quorum.agreed(self._peers, reached)
        if index > self._commit and self._log.term_of(index) == self.term:
            self._commit = index

    def _hand_over(self) -> None:
        peer = self._transferee
        if peer is not None and self._others[peer].match == self._log.last:
            self._before.append(TimeoutNow(sender=self._me, to=peer, term=self.term))

    def _feed_peers(self) -> None:
        """Sends each other peer what it lacks and has room for, and says what is committed."""
        if self._commit >= self._begins and self._rounds.begin(self._commit):
            self._beats = True
            self._end_round()
        for peer, progress in self._others.items():
            if progress.asked:
                self._send_append(peer, progress, progress.next - 1)
            self._feed(peer, progress)
            if self._beats or min(self._commit, progress.match) > progress.told:
                self._send_heartbeat(peer, progress)
        self._beats = False

    def _feed(self, peer: int, progress: PeerProgress) -> None:
        settings, log = self._settings, self._log
        while progress.has_room(settings.window_bytes_max, settings.window_messages_max):
            previous = progress.next - 1
            probing = progress.replication is not Replication.REPLICATE
            if not probing and previous >= log.last:
                return
            upto = previous
            if previous >= log.base:
                upto = log.end_of_chunk(previous, settings.append_bytes_max, APPEND_ENTRIES_MAX)
            self._send_append(peer, progress, upto)

    def _send_append(self, peer: int, progress: PeerProgress, upto: int) -> None:
        """Sends the entries up to `upto`, or the snapshot, if the log begins too late for that."""
        log = self._log
        previous = progress.next - 1
        if previous < log.base or progress.replication is Replication.SNAPSHOT:
            progress.offered()
            self._before.append(
                Install(sender=self._me, to=peer, term=self.term, snapshot=self._snapshot)
            )
            return
        self._before.append(
            Append(
                sender=self._me,
                to=peer,
                term=self.term,
                prev_index=previous,
                prev_term=log.term_of(previous),
                entries=log.entries(previous, upto),
                commit=self._commit,
            )
        )
        if progress.replication is Replication.REPLICATE:
            progress.told = max(progress.told, min(self._commit, upto))
        progress.sent(upto, log.bytes_between(previous, upto))

    def _send_heartbeat(self, peer: int, progress: PeerProgress) -> None:
        commit = min(self._commit, progress.match)
        progress.told = max(progress.told, commit)
        self._before.append(
            Heartbeat(
                sender=self._me,
                to=peer,
                term=self.term,
                commit=commit,
                read=self._rounds.under_way,
            )
        )

    def _on_append_reply(self, reply: AppendReply) -> None:
        progress = self._others.get(reply.sender)
        if progress is None:
            return
        if reply.rejected is not None:
            if not progress.is_stale(reply.rejected):
                hint = self._log.back_to(reply.hint_index, reply.hint_term)
                progress.probe(min(reply.rejected, hint + 1))
            return
        self._confirm(reply.sender, progress, reply.match)

    def _confirm(self, peer: int, progress: PeerProgress, match: int) -> None:
        """A peer has all up to `match`, durably."""
        assert match <= self._log.last, f"peer {peer} has more than its leader"
        news = progress.confirmed(match)
        if progress.replication is Replication.SNAPSHOT and progress.match >= self._log.base:
            progress.probe(progress.match + 1)
        if news:
            self._advance_commit()
            if peer == self._transferee:
                self._hand_over()

    def _on_heartbeat_reply(self, reply: HeartbeatReply) -> None:
        progress = self._others.get(reply.sender)
        if progress is None:
            return
        progress.answered(reply.read)
        self._end_round()
        if reply.sender == self._transferee:
            self._hand_over()

    def _on_install_reply(self, reply: InstallReply) -> None:
        progress = self._others.get(reply.sender)
        if progress is None:
            return
        if reply.installed:
            self._confirm(reply.sender, progress, reply.index)
        if progress.replication is Replication.SNAPSHOT and reply.installed:
            progress.paused = False

    # -- following ----------------------------------------------------------------------------------

    def _hear(self, leader: int) -> None:
        """A message of this term's leader has come."""
        assert self._role is not Role.LEADER, f"two leaders in term {self.term}"
        if self._role is Role.FOLLOWER and self._leader == leader:
            self._timer.elapsed = 0
        else:
            assert self._leader is None, f"two leaders in term {self.term}"
            self._follow(self.term, leader)

    def _on_append(self, append: Append) -> None:
        self._hear(append.sender)
        if self._installing is not None:
            return
        log = self._log
        if append.prev_index >= self._commit and not log.has(append.prev_index, append.prev_term):
            self._refuse(append)
            return
        self._take(append)
        proven = max(append.prev_index + len(append.entries), self._commit)
        self._commit_upto(min(append.commit, proven))
        self._after.append(
            AppendReply(sender=self._me, to=append.sender, term=self.term, match=proven)
        )

    def _take(self, append: Append) -> None:
        """Appends what is new; what is there stays, unless it is of another term.

        What is committed is in every leader's log, so it needs no proof that it is the same.
        """
        log = self._log
        for entry in append.entries:
            if entry.index <= log.last:
                if entry.index <= log.base or log.term_of(entry.index) == entry.term:
                    continue
                self._cut_log(entry.index - 1)
            assert entry.index == log.last + 1, "an append with a gap"
            log.append(entry.term, entry.nbytes)

    def _cut_log(self, after: int) -> None:
        assert after >= self._commit, f"entry {after + 1} is committed and would be cut"
        self._log.cut(after)
        if after < self._saved_last:
            self._cut = self._saved_last = after
            self._counts_from = self._saves + 1
        self._stable = min(self._stable, after)
        if after < self._begins:
            self._begins = 0  # what is there now has come with a message

    def _refuse(self, append: Append) -> None:
        hint = self._log.back_to(append.prev_index, append.prev_term)
        self._after.append(
            AppendReply(
                sender=self._me,
                to=append.sender,
                term=self.term,
                match=0,
                rejected=append.prev_index,
                hint_index=hint,
                hint_term=self._log.term_of(hint),
            )
        )

    def _commit_upto(self, index: int) -> None:
        assert index <= self._log.last, f"entry {index} is committed but not here"
        self._commit = max(self._commit, index)

    def _on_heartbeat(self, heartbeat: Heartbeat) -> None:
        self._hear(heartbeat.sender)
        self._commit_upto(heartbeat.commit)
        self._after.append(
            HeartbeatReply(
                sender=self._me, to=heartbeat.sender, term=self.term, read=heartbeat.read
            )
        )

    def _on_install(self, install: Install) -> None:
        self._hear(install.sender)
        if self._installing is not None:
            return
        snapshot = install.snapshot
        if snapshot.index <= self._commit or self._log.has(snapshot.index, snapshot.term):
            self._commit_upto(max(snapshot.index, self._commit))
            # not the end of the log: what is behind the snapshot may differ from the leader's
            self._answer_install(snapshot.index, installed=True)
        else:
            self._installing = self._install = snapshot

    def _answer_install(self, index: int, *, installed: bool) -> None:
        if self._leader is not None and self._leader != self._me:
            self._after.append(
                InstallReply(
                    sender=self._me,
                    to=self._leader,
                    term=self.term,
                    index=index,
                    installed=installed,
                )
            )

    # -- reading ------------------------------------------------------------------------------------

    def _add_reader(self, reader: Reader) -> None:
        if not self._rounds.add(reader):
            self._answer_reader(reader, None)

    def _end_round(self) -> None:
        """Answers the readers of a round that a quorum has confirmed."""
        number = self._rounds.under_way
        if number:
            reached = {peer: progress.round for peer, progress in self._others.items()}
            reached[self._me] = number
            if quorum.agreed(self._peers, reached) >= number:
                for reader in self._rounds.end():
                    self._answer_reader(reader, self._rounds.index)

    def _answer_reader(self, reader: Reader, index: int | None) -> None:
        if reader.peer == self._me:
            self._reads.append(Read(reader.token, index))
        else:
            self._before.append(
                ReadReply(
                    sender=self._me, to=reader.peer, term=self.term, token=reader.token, index=index
                )
            )

    def _on_read_request(self, request: ReadRequest) -> None:
        reader = Reader(request.sender, request.token)
        if self._role is Role.LEADER:
            self._add_reader(reader)
        else:
            self._answer_reader(reader, None)

    def _on_read_reply(self, reply: ReadReply) -> None:
        token = self._forwarded.answered(reply.token)
        if token is not None:
            self._reads.append(Read(token, reply.index))

    # -- what is to be done -------------------------------------------------------------------------

    def ready(self) -> Ready | None:
        """All that has come up since the last call; None if that is nothing."""
        if self._role is Role.LEADER and (self._others or self._rounds.wanted):
            self._feed_peers()
        save = self._next_save()
        told = (self._commit, self._vote.term, self._role, self._leader)
        if (
            save is None
            and told == self._told
            and not (self._before or self._after or self._reads or self._install)
        ):
            return None
        ready = Ready(
            save=save,
            before=tuple(self._before),
            after=tuple(self._after),
            commit=self._commit,
            reads=tuple(self._reads),
            install=self._install,
            term=told[1],
            role=self._role,
            leader=self._leader,
        )
        assert self._told is None or self._commit >= self._told[0], "the commit index went back"
        self._told = told
        self._before, self._after, self._reads = [], [], []
        self._install = None
        return ready

    def _next_save(self) -> Save | None:
        log = self._log
        if log.last == self._saved_last and self._vote == self._saved_vote and self._cut is None:
            return None
        self._saves += 1
        save = Save(
            number=self._saves,
            vote=self._vote,
            votes=self._vote != self._saved_vote,
            cut=self._cut,
            entries=log.entries(self._saved_last, log.last),
            last_index=log.last,
            last_term=log.last_term,
            commit=self._commit,
        )
        self._saved_vote = self._vote
        self._saved_last = log.last
        self._cut = None
        return save
