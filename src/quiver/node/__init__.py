"""RUNS: requests in, log entries written and synced, core applied, replies out."""
