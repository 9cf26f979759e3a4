"""Whole clusters in one process, in virtual time: the core of consensus is real, the rest is simulated.

    python -m tests.raft.simulation --runs 1000 --first 0      or: make sim RUNS=1000 SEED=0

A run is one to five voters, and peers that come later. Each is a real `quiver.raft.Raft` with a
driver, a log with payloads and a state machine that is a digest. Everything follows from the seed:

    rates     what goes wrong, and how often: drawn for each seed anew
    cluster   the events in their order; network, clients, the operator, and the faults
    peer      the driver: saves, sends before and after, applies, reconfigures, installs
    disk      saves become durable late and in order; a crash leaves any prefix of them
    checks    what must hold at every step, and needs to see all peers at once
    runs      many seeds, and the story of one that failed

First things go wrong. Then all is healed, and within a bounded time somebody must lead, clients
must be served, all members must be equal, and nobody may disturb them any more.

What it does not have: bytes, files, real time, and the rest of a node. Payloads are numbers.
"""
