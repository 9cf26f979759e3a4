"""The native door: JSON for people, Arrow for speed, described by a table of endpoints."""
