"""A real `quiver serve` in a process of its own."""

from tests.server.conftest import node

__all__ = ["node"]
