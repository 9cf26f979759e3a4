"""How far a stream goes, asked of a real queue without Spark."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import quiver
from quiver.spark import connections
from quiver.spark.options import Options
from quiver.spark.rows import MESSAGES, wanted
from quiver.spark.streaming import MessagesStream

pytestmark = pytest.mark.spark


@pytest.fixture
def make(tmp_path):
    with quiver.connect(tmp_path / "data") as owner:
        owner.create_topic("t", retention="forever", partitions=3)
        owner.send_batch("t", [quiver.Message(b"x", key=f"k{n}") for n in range(90)])

        def made(**said):
            options = Options.of({"url": str(tmp_path / "data"), "topic": "t", **said})
            return MessagesStream(options, wanted(MESSAGES, "messages"))

        yield owner, made
    connections.close()


@pytest.fixture
def closing():
    yield
    connections.close()


def ends(owner):
    found = {str(number): end for number, (_, end) in owner.offsets("t").items()}
    return {**found, "topic": 1}


def rows_of(offset):
    return sum(at for name, at in offset.items() if name != "topic")


def test_a_partition_that_the_checkpoint_does_not_know_is_read_from_its_start(make):
    owner, made = make
    stream, latest = made(), ends(owner)
    known = {"0": latest["0"]}
    assert stream.latestOffset(known, ReadAllAvailable()) == latest
    read = [span for share in stream.partitions(known, latest) for span in share.spans]
    assert sorted(read) == [(1, 0, latest["1"]), (2, 0, latest["2"])]


def test_rows_and_bytes_bound_a_batch_whichever_is_less(make):
    _, made = make
    stream = made(maxRowsPerTrigger="40", maxBytesPerTrigger="1GB")
    start = stream.initialOffset()
    assert rows_of(stream.latestOffset(start, ReadMaxRows(40))) == 40
    few = made(maxRowsPerTrigger="40", maxBytesPerTrigger="100B")
    assert 0 < rows_of(few.latestOffset(start, ReadMaxRows(40))) < 40


def test_what_is_there_now_does_not_grow(make):
    owner, made = make
    stream, latest = made(), ends(owner)
    stream.prepareForTriggerAvailableNow()
    owner.send_batch("t", [b"later"] * 10)
    assert stream.latestOffset(stream.initialOffset(), ReadAllAvailable()) == latest
    assert stream.latestOffset(latest, ReadAllAvailable()) == latest


def test_what_retention_takes_from_a_batch_that_had_begun_is_counted(tmp_path, closing):
    with quiver.connect(tmp_path) as owner:
        owner.create_topic("t", retention="forever")
        for _ in range(10):
            owner.send("t", b"x" * 10_000)
        options = Options.of({"url": str(tmp_path), "topic": "t"})
        before, after = (MessagesStream(options, wanted(MESSAGES, "messages")) for _ in "ab")
        start = before.initialOffset()
        end = before.latestOffset(start, ReadAllAvailable())
        owner.alter_topic("t", retention="50KB", keep_unsettled=False)
        owner.send("t", b"y")
        first = owner.offsets("t")[0][0]
        with pytest.warns(quiver.BehindRetention):
            assert after.partitions(start, end)
        owner.send("t", b"z")
        assert first > 0
        assert after.latestOffset(end, ReadAllAvailable())["lost"] == first


def test_where_a_stream_was_is_where_a_read_can_start():
    said = {"url": "data", "topic": "t", "start": '{"0": 5, "topic": 3, "lost": 2}'}
    assert Options.of(said).start == {0: 5}


def test_a_stream_with_an_end_is_refused(make):
    _, made = make
    with pytest.raises(quiver.InvalidRequest, match="availableNow"):
        made(end="5")
