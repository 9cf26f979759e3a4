"""A consumer that receives one message at a time and keeps its lease."""

import time

import pytest

import quiver

LEASE_SECONDS = 0.3  # a third later it is made longer


def test_who_takes_the_next_is_told_that_leases_are_not_kept_any_more(tmp_path, monkeypatch):
    with quiver.connect(tmp_path / "q") as queue:
        queue.create_topic("t")
        queue.send_batch("t", ["0", "1"])
        with queue.consumer("t", prefetch=0, keep=True, lease=LEASE_SECONDS) as consumer:
            flows = consumer._consuming._flows
            settle = flows.settle

            def on_a_full_disk(action, items, **options):
                if action == "extend":
                    raise quiver.DiskFull("the disk is full")
                return settle(action, items, **options)

            monkeypatch.setattr(flows, "settle", on_a_full_disk)
            consumer.get()
            while consumer._thread.is_alive():
                time.sleep(0.01)
            with pytest.raises(quiver.DiskFull):
                consumer.get(wait=0)
