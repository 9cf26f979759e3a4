"""A queue to which everything has happened that may, and nothing that may not."""

from quiver import Message


def live_through_everything(queue, clock) -> None:
    """All that can happen to messages of a healthy queue, in topics of every kind."""
    fail_and_recover(queue, clock)
    seek_and_keep(queue)
    expire_and_drop(queue, clock)
    keep_order(queue, clock)
    compact_purge_and_delete(queue)
    work_as_a_team(queue)
    publish(queue)
    clock.advance(200)
    queue.send("team", b"the end")  # by now every lease has ended


def fail_and_recover(queue, clock) -> None:
    queue.create_topic("plain", partitions=2, max_attempts=2)
    queue.create_group("plain", "late", start="latest")
    queue.send_batch("plain", [Message(b"x", key=str(at % 7)) for at in range(600)])
    got = queue.receive("plain", "g", max_messages=500, lease=30, consumer="w1")
    queue.ack(got[:300])
    queue.nack(got[300:350], reason="bank 17 did not answer")
    got[350].dead_letter(reason="bad")
    got[351].extend(120)
    clock.advance(40)  # the others time out
    for _ in range(4):
        queue.ack(queue.receive("plain", "g", max_messages=200)[::2])
        clock.advance(31)
    queue.redrive("plain.dlq", limit=3)
    queue.discard("plain.dlq", where=lambda record: record.offset % 2 == 0)
    queue.ack(queue.receive("plain", "late", max_messages=100))
    queue.ack(queue.receive("plain", "g", max_messages=100))


def seek_and_keep(queue) -> None:
    queue.create_topic("lasting", retention="forever")
    queue.send_batch("lasting", [b"x"] * 50)
    queue.ack(queue.receive("lasting", "g", max_messages=20))
    queue.receive("lasting", "g", max_messages=10)
    queue.seek("lasting", "g", "earliest")
    queue.ack(queue.receive("lasting", "g", max_messages=30))
    queue.delete_group("lasting", "g")
    queue.ack(queue.receive("lasting", "g", max_messages=40))
    queue.receive("lasting", "g", max_messages=3)
    queue.seek("lasting", "g", "latest")


def expire_and_drop(queue, clock) -> None:
    queue.create_topic("brief", retention=60, keep_unsettled=False)
    queue.send_batch("brief", [b"x"] * 20)
    queue.send_batch("brief", [Message(b"x", ttl=5)] * 5)
    queue.ack(queue.receive("brief", "g", max_messages=5))
    queue.receive("brief", "g", max_messages=18, lease=300)
    clock.advance(90)
    queue.send("brief", b"later")


def keep_order(queue, clock) -> None:
    queue.create_topic("keyed", order="key", max_attempts=3, retention="forever")
    queue.create_topic("strict", order="partition")
    for topic in ("keyed", "strict"):
        for at in range(30):
            queue.send(topic, b"x", key=f"k{at % 4}", delay=2 if at == 9 else None)
        for turn in range(25):
            for place, one in enumerate(queue.receive(topic, "g", max_messages=3, lease=10)):
                if (turn + place) % 5 == 0:
                    one.nack(delay=3 if turn % 2 else 0, reason="no")
                elif (turn + place) % 5 == 1:
                    clock.advance(11)  # too late for it and for those behind it
                    break
                else:
                    one.ack()
            clock.advance(1)


def compact_purge_and_delete(queue) -> None:
    queue.create_topic("fast", retention="compact")
    queue.create_group("fast", "once", guarantee="at-most-once")
    queue.send_batch("fast", [Message(b"x", key=str(at % 3), dedup_id=str(at)) for at in range(9)])
    queue.send("fast", b"x", dedup_id="3")
    queue.receive("fast", "once", max_messages=9)
    queue.compact("fast")
    queue.create_topic("purged")
    queue.send_batch("purged", [b"x"] * 9)
    queue.receive("purged", "g", max_messages=4)
    queue.purge("purged")
    queue.send("purged", b"x")
    queue.delete_topic("purged")
    queue.create_topic("purged")
    queue.send_batch("purged", [b"x"] * 3)
    queue.ack(queue.receive("purged", "g", max_messages=2))


def work_as_a_team(queue) -> None:
    queue.create_topic("team")
    queue.send_batch("team", [b"x"] * 10)
    with queue.join("team", "members", "ann") as member:
        member.fetch()
        member.commit()
    queue.send("team", b"x")
    with queue.transaction() as tx:
        for one in queue.receive("team", "members"):
            tx.ack(one)
        tx.send("lasting", b"result")
        tx.send("team", b"next")


def publish(queue) -> None:
    queue.create_topic("whole", partitions=2)
    staged = [queue.stage("whole", [b"x"] * 100) for _ in range(3)]
    queue.publish("whole", staged[:2], application="etl", batch=0, run="r")
    queue.publish("whole", staged[:2], application="etl", batch=0, run="r")  # again: nothing
    queue.unstage("whole", staged[2:])
    queue.ack(queue.receive("whole", "g", max_messages=150))
