"""DECIDES who leads and what is committed: consensus on a log, as a pure state machine.

Several peers keep the same log, so that it survives the loss of any minority of them. This package
makes them agree on it, by the Raft algorithm (Ongaro and Ousterhout 2014, "the paper"; Ongaro's
dissertation has what the paper leaves out). This page explains it to a stranger.

The idea
--------
Time is divided into *terms*, numbered. In a term at most one peer *leads*: it has been elected by a
majority of the *voters*, and a voter has one *vote* in a term. Only the leader adds entries to the
log, and sends them to the others. An entry that a majority has made durable is *committed*: it will
never be taken back, because any later leader needs votes of a majority, one of them from a peer
that has the entry, and that one votes only for a log that is at least as up to date as its own.

What is not committed may be overwritten. So nobody applies an entry, or tells a user about it,
before it is committed.

How to use it
-------------
`Raft` is a peer. Events go in, each by a call: a message (`step`), time (`tick`), what users want
(`propose`, `propose_peers`, `read`, `transfer`), and what the driver has done (`persisted`,
`applied`, `reconfigure`, `installed`, `compacted`, `unreachable`). `ready` says what is to be done,
as one value. The driver does that in the order of its fields and calls `ready` again, until it says
None. Nothing here knows a clock, a socket, a file, or the payload of an entry: an entry is an
index, a term and a size. What is drawn by lot follows from a seed.

A leader begins with an empty entry of its own, which nobody proposed: `Raft.begins` is its index,
and the driver gives it a payload that changes nothing.

What must be durable before what is said
----------------------------------------
A peer that loses power must still know what it has promised. So there are two kinds of messages,
and a `Ready` has a field for each:

    after, when this save and all before it are durable
        VoteRequest     the own vote is given in it
        VoteReply       a vote, which must not be given twice
        AppendReply     entries, which count for a majority
        InstallReply    a state, which counts like its entries
        HeartbeatReply  the term, below which the sender follows nobody any more
    before, while the save is under way
        all others: they promise nothing

The same holds for a peer's own promises to itself: its vote for itself and its own entries count
when `persisted` says that they are durable. Disks may be slow and answer late. A save counts only if
the log was not cut since it was handed out: even if the same entries are in the log again, the disk
may just have removed them and not yet have written them again.

The driver also stores `Save.commit` with the entries, and applies an entry when it is committed
*and* durable at home.

What happens when
-----------------
    event            follower            pre-candidate       candidate           leader
    no leader for    pre-candidate:      asks again          pre-candidate       -
    a while          asks for pre-votes
    PreVoteReply     -                   a majority:         -                   -
                                         candidate, in the
                                         next term
    VoteReply        -                   -                   a majority:         -
                                                             leader
    Append,          follows the         follower            follower            a bug: two leaders
    Heartbeat,       sender
    Install
    VoteRequest      votes once a term,  as a follower       has voted: for      has voted: for
                     for a log as good                       itself              itself
                     as its own
    TimeoutNow       candidate at once   -                   -                   -
    AppendReply,     -                   -                   -                   knows more of a
    InstallReply                                                                 peer; may commit
    HeartbeatReply   -                   -                   -                   hears the peer; may
                                                                                 answer readers
    no quorum heard  -                   -                   -                   follower
    a newer term     follower in it      follower in it      follower in it      follower in it
    an older term    says the newer one, if the sender would wait for an answer

`-` means: ignored. A newer term is ignored where it asks for votes while a leader is heard (except
if that leader has asked for the election). The term of a pre-vote has not begun, so nobody enters
it; the answer is yes for a log as good as its own, if no leader is heard.

The rules, and where they live
------------------------------
Elections (`raft.py`, `timing.py`, `quorum.py`)
  * Who hears no leader for one to two election timeouts first asks whether it *would* be elected.
    So a peer that was cut off comes back with the term that it had, and disturbs nobody.
  * Who hears a leader does not vote, and a leader that hears no quorum for an election timeout
    steps down. If a peer has a newer term all the same, it tells the leader in answer to its
    heartbeat, and the leader steps down: else the two would never get together.
  * Who knows that more is committed than it has applied does not campaign (see Membership).

Replication (`raft.py`, `log.py`, `progress.py`)
  * `Append` names the entry before its entries. If the receiver has that one, all before is the
    same, too. Else it refuses, with a hint where the logs may part.
  * The log is cut only at an entry whose term differs, never because a message is short, and never
    at or below the commit index.
  * A leader commits by counting only entries of its own term (paper, figure 8). Those before come
    with them.
  * A follower commits no further than the message at hand proves its log equal to the leader's.
  * Sending is bounded by bytes and messages for each peer, and whatever is lost, the answer to the
    next heartbeat gets it going again.

Snapshots (`raft.py`)
  * Who needs entries that are gone is offered the state instead (`Install`); copying it is the
    driver's business. While a state is fetched the log of this peer stands still.
  * Who has the entry that the state ends with keeps its log, and confirms *that* entry, not the
    end of its log: the rest may differ from the leader's.

Reading (`reads.py`)
  * A leader may have been deposed without knowing it. To read, it asks a quorum for a sign of life
    that is younger than the question, and not before an entry of its own term is committed.

Membership (`membership.py`)
  * Voters come and go one at a time, so any two majorities have a voter in common. A change takes
    effect at each peer when it is applied there. The next one may be proposed when the leader has
    applied the one before, and the first entry of its own term.
  * So a peer that has a change in its log knows, from the same message, that the change before is
    committed. It must not campaign with older voters: that is why it applies first, and why its
    driver must not forget `Save.commit`, or find out from the log what such an entry says.
  * *Learners* get everything and count for nothing. But whoever is asked for a vote gives it: a
    peer may be a voter without having learned it yet.
  * Who refuses a vote says what is committed. It may be a peer that was removed: then the candidate
    learns that it does not need this vote.
  * A leader that is removed hands over. Numbers of peers are never used again.

A group of one goes through the same code: its quorum is itself. One that never had another peer is
started as `alone`, and leads without an election, since nobody else can know of its term.

What is asserted while it runs: the commit index does not go back and nothing at or below it is cut,
no peer has more than its leader, there is one leader in a term, logs have no gaps, and terms do not
fall along them. A failed assertion is a bug here or in the driver, and must stop the peer.
"""

from quiver.raft.raft import Raft
from quiver.raft.settings import Settings, Start

__all__ = ["Raft", "Settings", "Start"]
