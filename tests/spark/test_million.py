"""A million rows in Spark are the million that were sent, cell by cell."""

import random

import pyarrow as pa
import pytest

import quiver
import quiver.spark
from tests.spark.frames import load

BATCH = 50_000
SLICE = 100_000
LARGE = b"\x00\xffm" * 350_000  # more than a megabyte
TEXTS = (None, "a", "žluťoučký kůň", "🐎" * 20, "\x00", "x" * 500, " \t\n'\"\\")
TIMES = (None, 1, 999, 1_700_000_000_123, 4_102_444_800_000, 253_402_300_799_999)
HEADERS = (None, (), (("a", "1"),), (("é", ""), ("", "🐎"), ("n", "x" * 100)))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]


def sent(first: int) -> pa.Table:
    """A batch; each column misses its values in a pattern of its own."""
    chance = random.Random(first)
    numbers = range(first, first + BATCH)

    def some(values, kind):
        return pa.array([values[chance.randrange(len(values))] for _ in numbers], kind)

    time = pa.timestamp("ms", "UTC")
    bodies = [
        LARGE
        if number % 50_000 == 7
        else b""
        if number % 11 == 0
        else chance.randbytes(number % 90)
        for number in numbers
    ]
    return pa.table(
        {
            "body": pa.array(bodies, pa.binary()),
            "key": some(TEXTS, pa.string()),
            "headers": some(HEADERS, pa.map_(pa.string(), pa.string())),
            "priority": pa.array([number % 10 for number in numbers], pa.int8()),
            "deliver_at": some((*TIMES[:4], None, None), time),
            "expires_at": some((*TIMES[4:], None), time),
            "created_at": some(TIMES[1:], time),
        }
    )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(200_000, id="200,000"),
        pytest.param(1_000_000, id="a million", marks=pytest.mark.soak),
    ],
)
def rows(request) -> int:
    count: int = request.param
    return count


@pytest.fixture(scope="module")
def million(tmp_path_factory, rows):
    """A directory with the messages, the first half of them sealed."""
    directory = tmp_path_factory.mktemp("million") / "data"
    with quiver.connect(directory) as owner:
        owner.create_topic("m", retention="forever")
        for first in range(0, rows, BATCH):
            owner.send_batch("m", sent(first))
            if first == rows // 2:
                owner.seal()
    return str(directory)


@pytest.mark.parametrize(("way", "zone"), [("source", "UTC"), ("history", "Asia/Kolkata")])
def test_every_cell_of_a_million_rows(spark, million, rows, way, zone):
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for first in range(0, rows, SLICE):
            places = {"start": first, "end": first + SLICE}
            if way == "source":
                frame = load(spark, million, "m", **places)
            else:
                frame = quiver.spark.read(spark, million, "m", **places)
            check(frame.toArrow().sort_by("offset"), first)
        assert load(spark, million, "m").count() == rows
        assert quiver.spark.read(spark, million, "m").count() == rows
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def check(found: pa.Table, first: int) -> None:
    wanted = pa.concat_tables(sent(at) for at in range(first, first + SLICE, BATCH))
    assert found.num_rows == SLICE
    assert found["offset"].to_pylist() == list(range(first, first + SLICE))
    assert found["topic"].unique().to_pylist() == ["m"]
    assert found["partition"].unique().to_pylist() == [0]
    for name in wanted.column_names:
        ours = wanted[name]
        if pa.types.is_timestamp(ours.type):
            ours = ours.cast(pa.timestamp("us", "UTC"))
            assert found[name].cast(ours.type).equals(ours), name
        elif pa.types.is_map(ours.type):
            assert found[name].to_pylist() == ours.to_pylist(), name
        else:
            assert found[name].cast(ours.type).equals(ours), name
