"""Receipts where leases are not synced."""

from pathlib import Path

import pytest

import quiver
from quiver.errors import ReceiptInvalid
from quiver.node import receipts


@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_a_receipt_outlives_the_process_and_only_if_synced_the_machine(
    tmp_path: Path, durability, monkeypatch
):
    def receipt() -> str:
        with quiver.connect(tmp_path / "data", durability=durability) as queue:
            if "t" not in queue.topics():
                queue.create_topic("t")
                queue.create_group("t", "g")
            queue.send("t", b"a")
            (got,) = queue.receive("t", "g", lease=600)
            return got.receipt

    def ack(text: str) -> None:
        with quiver.connect(tmp_path / "data", durability=durability) as queue:
            queue.ack(text)

    ack(receipt())
    old = receipt()
    another = tmp_path / "boot_id"
    another.write_text("of another start")
    monkeypatch.setattr(receipts, "BOOT", another)
    if durability == "disk":
        ack(old)
    else:
        with pytest.raises(ReceiptInvalid):
            ack(old)


def test_where_starts_have_no_id_each_opening_is_one(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(receipts, "BOOT", tmp_path / "missing")
    assert receipts.until_reboot(b"s") != receipts.until_reboot(b"s")
