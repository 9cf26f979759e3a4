"""Who gets which message when: the state machine behind every topic."""

from quiver.core.delivery.delivery import DeliveryCore

__all__ = ["DeliveryCore"]
