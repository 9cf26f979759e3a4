"""Benchmarks: every figure next to its peer or baseline, measured in the same run."""
