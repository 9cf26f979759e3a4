"""A delivery in a process that was forked from the consumer's."""

import os
import signal
from threading import Event, Thread

import quiver

PATIENCE_SECONDS = 60


def test_to_settle_it_does_not_wait_for_a_thread_that_is_not_there(tmp_path):
    """The consumer's thread may have had its lock when the process was forked."""
    has_it, forked = Event(), Event()

    def hold():
        with consumer._lock:
            has_it.set()
            forked.wait()

    with quiver.connect(tmp_path / "q") as queue:
        queue.create_topic("t")
        queue.send("t", "0")
        with queue.consumer("t") as consumer:
            delivery = consumer.get()
            assert delivery is not None
            thread = Thread(target=hold)
            thread.start()
            has_it.wait()
            child = os.fork()
            if not child:
                signal.alarm(PATIENCE_SECONDS)
                try:
                    delivery.ack()
                except quiver.QueueClosed:
                    os._exit(0)
                os._exit(1)
            forked.set()
            thread.join()
            _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
