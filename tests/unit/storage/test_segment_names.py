"""The name of a segment says what is in it, and in a cluster whose it is."""

import pytest

from quiver.storage import segment
from quiver.testing import MemoryFiles


@pytest.mark.parametrize("maker", [0, 1, 65_535])
@pytest.mark.parametrize("topic", ["orders", "a-1.n2", "x" * 255, "o@7.0-1"])
def test_a_segment_is_found_by_its_name(topic, maker):
    name = segment.name_of(topic, 7, 0, 1234, 2, maker=maker)
    files = MemoryFiles()
    files.create(name)
    assert segment.names(files) == [name]
    assert segment.index_of(name) == 1234
    assert name.endswith(f"@7.0-{1234:020}-2{f'.n{maker}' if maker else ''}.parquet")


def test_two_nodes_give_other_names_to_what_they_make_at_the_same_entry():
    names = {segment.name_of("orders", 7, 0, 1234, 0, maker=maker) for maker in (0, 1, 2)}
    assert len(names) == 3


def test_other_files_are_no_segments():
    files = MemoryFiles()
    for name in ("orders.parquet", "orders@1.0-12-0.parquet", "orders@1.0.parquet",
                 f"orders@1.0-{1:020}-0.n.parquet", f"orders@1.0-{1:020}-0.n1.parquet.tmp"):  # fmt: skip
        files.create(name)
    assert segment.names(files) == []
