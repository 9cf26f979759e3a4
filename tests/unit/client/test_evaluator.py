"""An evaluator that is closed while it makes something lets go of that, too."""

from threading import Event, Thread

import pytest

import quiver
from quiver.client import sql
from quiver.client.sql import Evaluator, Predicate

pytest.importorskip("duckdb")


def test_what_is_made_when_an_evaluator_is_closed_is_closed(monkeypatch: pytest.MonkeyPatch):
    begun, go_on = Event(), Event()
    made: list[Predicate] = []
    told: list[quiver.QuiverError] = []

    class Slow(Predicate):
        def __init__(self, where: str) -> None:
            begun.set()
            go_on.wait(30)
            super().__init__(where)
            made.append(self)

    monkeypatch.setattr(sql, "Predicate", Slow)
    evaluator = Evaluator()

    def check() -> None:
        try:
            evaluator.check("true")
        except quiver.InvalidRequest as error:
            told.append(error)

    thread = Thread(target=check)
    thread.start()
    begun.wait(30)
    evaluator.close()
    go_on.set()
    thread.join(30)
    assert "was ended" in str(told[0])
    with pytest.raises(quiver.InvalidRequest, match="was ended"):
        made[0].places(sql.empty())
