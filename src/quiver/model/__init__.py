"""NAMES: the vocabulary as frozen values. Knows no clock, file, socket or Arrow."""
