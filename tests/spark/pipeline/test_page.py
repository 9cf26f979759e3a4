"""The page on pipelines, typed in: it prints what it shows. Its blocks are marked `no-run`."""

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.docs.test_snippets import ROOT, blocks_of

PAGE = ROOT / "docs" / "pipeline.md"


@pytest.mark.slow
def test_the_page_tells_the_truth(spark, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(workplace)
    blocks = blocks_of(PAGE.read_text(encoding="utf-8"))
    (table,) = [block.text for block in blocks if block.language == "csv"]
    (workplace / "customers.csv").write_text(f"{table}\n")
    (file,) = [block.text for block in blocks if block.language == "toml"]
    (workplace / "pipeline.toml").write_text(file)
    namespace: dict = {}
    for block in blocks:
        if block.language == "python":
            exec(block.text, namespace)
    shown = [block.text for block in blocks if block.language == "text"][-1]
    said, told = capsys.readouterr().out.splitlines(), shown.splitlines()
    assert said[0] == told[0]
    assert sorted(said[1:]) == sorted(told[1:])
    rows = ds.dataset(workplace / "out", partitioning="hive").to_table().to_pylist()
    assert sorted((row["id"], row["cents"], row["name"]) for row in rows) == [
        ("o1", 1250, "Ann"), ("o2", 200, "Bo"), ("o3", 300, "Bo"),
    ]  # fmt: skip
