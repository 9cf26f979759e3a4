"""What `pipeline.toml` may not say."""

import os

import pytest

from quiver.errors import QuiverError
from quiver.spark.pipeline.config import make

pytestmark = pytest.mark.spark

PIPELINE = {
    "name": "shop",
    "checkpoint": "checkpoint",
    "extract": {"url": "data", "topics": ["orders"]},
    "transform": {"versions": {"1": {"schema": "id STRING"}}},
}
LOAD = {"topic": {"topic": "rows"}}
GOOD = {"name": "a", "path": "b", "on": ["id"]}


@pytest.mark.parametrize("url", [None, "data", "data/", os.path.abspath("data")])  # noqa: PTH100
@pytest.mark.parametrize("topic", ["orders", "shop.dead"])
def test_a_topic_of_the_same_queue_is_named_once(url, topic):
    load = {"topic": topic} | ({} if url is None else {"url": url})
    with pytest.raises(QuiverError, match="a topic is named twice"):
        make({**PIPELINE, "load": {"topic": load}})
    make({**PIPELINE, "load": {"topic": {"topic": topic, "url": "elsewhere"}}})


def test_a_wrong_choice_in_a_list_of_tables_names_the_choices():
    reference = {"name": "a", "path": "b", "on": ["id"], "format": "xml"}
    with pytest.raises(QuiverError) as caught:
        make({**PIPELINE, "load": LOAD, "enrich": {"reference": [reference]}})
    expected = "enrich.reference.format: expected 'csv' or 'json' or 'parquet', got 'xml'"
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("enrich", "expected"),
    [
        ({"reference": {"name": "a"}}, "enrich.reference: expected a list, got a table"),
        ({"reference": [GOOD, 3]}, "enrich.reference: expected a table, got a whole number"),
        ({"reference": [{**GOOD, "pth": "b"}]}, "no key 'pth' in [enrich.reference]; did you mean"),
        ({"reference": [{**GOOD, "on": ["id", 3]}]}, "enrich.reference.on: expected a text, got"),
        ({"reference": [{**GOOD, "on": []}]}, "expected a list that is not empty, got []"),
    ],
)
def test_what_is_wrong_in_a_list_is_said_of_its_item(enrich, expected):
    with pytest.raises(QuiverError) as caught:
        make({**PIPELINE, "load": LOAD, "enrich": enrich})
    assert expected in str(caught.value)
