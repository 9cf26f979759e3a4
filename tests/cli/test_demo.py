"""Parts of `quiver demo` that need no run of it; the runs are in tests/process."""

import quiver
from quiver.cli.demo.accounting import Account, account_for, find_problems
from quiver.cli.demo.analysis import Analyst
from quiver.cli.demo.couriers import Tally
from quiver.cli.demo.screen import Screen
from quiver.spark import session


def test_without_spark_the_demo_says_what_is_skipped_and_why(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    analysis = Analyst(tmp_path, Screen(quiet=False)).work(["order-1"])
    assert analysis.skipped == "this needs Spark: pip install '.[spark]' in a clone of Quiver"
    assert analysis.problems == []
    said = " ".join(capsys.readouterr().out.split())
    assert "the pipeline and the report are skipped: this needs Spark: pip install" in said


def test_the_count_would_see_lost_duplicated_and_unknown_orders(tmp_path):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("orders")
        queue.create_group("orders", "billing")
        stats = queue.groups("orders")["billing"]
    counted = account_for(stats, Tally(), ["a", "b", "c"], ["a", "b", "b", "x"], redriven=0)
    assert (counted.lost, counted.duplicated, counted.unknown) == (["c"], ["b"], ["x"])
    assert find_problems(Account(services=[counted])) == [
        "billing: lost 1: c",
        "billing: duplicated 1: b",
        "billing: unknown 1: x",
    ]


def test_a_directory_with_something_in_it_is_refused(cli):
    (cli.directory / "mine").write_text("precious")
    ended = cli.run("demo", "--data", ".")
    assert ended.code == 2
    assert "not empty" in " ".join(ended.out.decode().split())
    assert [path.name for path in cli.directory.iterdir()] == ["mine"]
