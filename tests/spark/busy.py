"""An hour of a shop's queue on a clock of its own: a rush, a bank that fails, a worker too few."""

from random import Random

from quiver import Message

MINUTES = 60


def an_hour(queue, clock, seed: int = 7) -> None:
    """Orders that are paid for by one group and counted by another; some fail, some for ever."""
    chance = Random(seed)
    queue.create_topic("orders", partitions=4, order="key", max_attempts=3, retention="1d")
    queue.create_topic("mails", max_attempts=5)
    for minute in range(MINUTES):
        rush = 3 if 20 <= minute < 35 else 1
        for _ in range(6):
            orders = [Message(b'{"order": 1}' * 5, key=_customer(chance)) for _ in range(12 * rush)]
            queue.send_batch("orders", orders)
            _pay(queue, clock, chance, 20 if minute > 2 else 10, broken=25 <= minute < 30)
            queue.receive_arrow("orders", "counting", max_messages=500).ack()
    clock.advance(120)


def _customer(chance: Random) -> str:
    return "acme" if chance.random() < 0.3 else f"c{chance.randrange(40)}"


def _pay(queue, clock, chance: Random, most: int, *, broken: bool) -> None:
    got = queue.receive("orders", "billing", max_messages=most, lease=60, consumer="w1")
    for one in got:
        clock.advance(chance.expovariate(4))
        if one.offset % 97 == 5:
            one.nack(delay=1, reason=f"Invalid amount in order {one.offset}")
        elif broken and chance.random() < 0.4:
            one.nack(
                delay=5, reason=f"Timeout: bank did not answer within {chance.randrange(9)}.5 s"
            )
        else:
            one.ack()
            queue.send("mails", b"paid")
    for mail in queue.receive("mails", "post", max_messages=most, lease=30):
        mail.ack()
    clock.advance(max(10 - len(got) / 4, 0))
