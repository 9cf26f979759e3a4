"""Who asks, and what they may do: principals, their tokens and keys, rules and quotas."""

from quiver.server.auth.guard import Guard
from quiver.server.auth.principal import ANYBODY, EVERY_TOPIC, VERBS, Principal, Verb

__all__ = ["ANYBODY", "EVERY_TOPIC", "VERBS", "Guard", "Principal", "Verb"]
