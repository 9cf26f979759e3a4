"""A damaged segment stays as it is, whatever is rewritten around it, until somebody mends it."""

from pathlib import Path

import pytest

import quiver
from quiver import limits
from tests.contract.verbs import bodies


@pytest.fixture(autouse=True)
def no_rewriting(monkeypatch):
    """Until a test wants it."""
    monkeypatch.setattr(limits, "SEGMENTS_SMALL_MAX", 100)


def rewrite(monkeypatch) -> None:
    monkeypatch.setattr(limits, "SEGMENTS_SMALL_MAX", 2)


def fill(path: Path, batches: range) -> list[bytes]:
    """A segment for each batch of ten messages."""
    sent = []
    with quiver.connect(path) as queue:
        queue.create_topic("t", retention="forever", max_attempts=1)
        for batch in batches:
            sent += [b"%d-%d" % (batch, at) for at in range(10)]
            queue.send_batch("t", sent[-10:])
            queue.seal()
    return sent


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [flip, Path.unlink], ids=["changed", "missing"])
def test_messages_of_a_damaged_segment_are_there_again_when_it_is_mended(
    tmp_path, monkeypatch, damage
):
    sent = fill(tmp_path, range(5))
    second = sorted(tmp_path.glob("t@*.parquet"))[1]
    content = second.read_bytes()
    damage(second)
    rewrite(monkeypatch)
    sent += fill(tmp_path, range(5, 12))
    assert len(list(tmp_path.glob("t@*.parquet"))) < 12, "others are rewritten together"
    with (
        quiver.connect(tmp_path) as queue,
        pytest.warns(quiver.UnreadableMessages, match="cannot be read"),
    ):
        assert bodies(queue.read("t")) == sent[:10] + sent[20:]
    second.write_bytes(content)
    with quiver.connect(tmp_path) as queue:
        assert bodies(queue.read("t")) == sent
        queue.seal()
        assert not second.exists(), "now it can be rewritten"
        assert bodies(queue.read("t")) == sent


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "step", ["storage.segment.write", "node.engine.Engine.finish_snapshot"], ids=["first", "last"]
)
def test_who_waits_for_a_sealing_that_fails_is_told(tmp_path, monkeypatch, step):
    def failing(*_):
        raise quiver.StorageFailed("no")

    queue = quiver.connect(tmp_path)
    queue.create_topic("t")
    queue.send("t", "x")
    monkeypatch.setattr(f"quiver.{step}", failing)
    with pytest.raises(quiver.StorageFailed, match="the queue has stopped"):
        queue.seal()
    queue.close()


def test_a_letter_whose_bytes_are_in_a_damaged_segment_is_not_lost(tmp_path, monkeypatch):
    sent = fill(tmp_path, range(3))
    first = min(tmp_path.glob("t@*.parquet"))
    content = first.read_bytes()
    with quiver.connect(tmp_path) as queue:
        queue.receive("t", "g")[0].dead_letter(reason="enough")
    flip(first)
    rewrite(monkeypatch)
    with quiver.connect(tmp_path) as queue:
        queue.seal()
        queue.send("t", "and on it goes")
        queue.seal()
    first.write_bytes(content)
    for _ in range(2):  # from the segment of the other topic, then from its own
        with quiver.connect(tmp_path) as queue:
            assert bodies(queue.read("t.dlq")) == sent[:1]
            assert bodies(queue.read("t")) == [*sent, b"and on it goes"]
            queue.seal()
    assert list(tmp_path.glob("t.dlq@*.parquet"))
