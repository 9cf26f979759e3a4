"""DECIDES: pure and deterministic. No clock, chance, file, socket or thread."""
