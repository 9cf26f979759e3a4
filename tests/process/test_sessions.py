"""Members and real time: waiting for messages keeps a membership alive."""

import threading
import time

import pytest

import quiver

pytestmark = [pytest.mark.process, pytest.mark.check]


def test_a_member_that_waits_longer_than_its_session_stays_a_member(tmp_path):
    with quiver.connect(tmp_path / "queue") as queue:
        queue.create_topic("t")
        got = []
        with queue.join("t", "g", "m1", session=8) as one:
            waiting = threading.Thread(target=lambda: got.extend(one.fetch(wait=60)))
            waiting.start()
            time.sleep(9.5)
            with queue.join("t", "g", "m2", session="1h") as other:
                assert other.partitions == []
                queue.send("t", b"x")
                waiting.join(30)
                assert [record.body for record in got] == [b"x"]
