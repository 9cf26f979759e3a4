"""`quiver demo`: an order system that is hurt on purpose, and counts at the end what happened.

Customers place orders. Three services, each a group of its own, work on every order:

    billing         charges the customer: an effect outside the queue, made idempotent
    inventory       answers each order with a shipment: ack and send in one transaction
    notifications   mails the customer, which often fails: retries, dead letters, redrive

On the way a worker is killed with SIGKILL and the queue is closed and opened again. Read `story`
first: it has the chapters in order, and is the part that uses the queue's API. Then `couriers`
(receive, work, settle) and `services` (what the worker processes do).
"""

from quiver.cli.demo.command import main

__all__ = ["main"]
