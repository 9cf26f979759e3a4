"""Who leads, and what is committed: consensus on a log, as a pure state machine."""
