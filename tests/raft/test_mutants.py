"""Each planted mistake of the standing list is seen; see `tests.raft.mutants`."""

from dataclasses import replace

import pytest

from tests.raft.mutants import MUTANTS, SEEDS, Mutant, mistaken, seen_by_scenario, seen_by_seed


def test_each_mutant_has_its_place_in_the_source() -> None:
    for mutant in MUTANTS:
        assert mutant.old != mutant.new
        mistaken(mutant)


@pytest.mark.parametrize(("old", "times"), [("no such text", 0), ("self._commit", 2)])
def test_a_text_that_is_not_there_once_is_an_error(old: str, times: int) -> None:
    with pytest.raises(ValueError, match="its text occurs") as error:
        mistaken(Mutant("this one", "raft.py", old, ""))
    found = int(str(error.value).split()[5])
    assert (found == 0) if times == 0 else (found >= times)


@pytest.mark.check
def test_what_is_no_mistake_is_not_seen() -> None:
    harmless = replace(MUTANTS[0], new=MUTANTS[0].old, scenario="election")
    assert seen_by_seed(harmless, 0, 3) is None
    assert not seen_by_scenario(harmless)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in MUTANTS])
def test_a_mistake_is_seen(mutant: Mutant) -> None:
    if mutant.scenario is not None:
        assert seen_by_scenario(mutant), f"scenario {mutant.scenario} does not see it"
    else:
        seed = seen_by_seed(mutant, mutant.seed, SEEDS)
        assert seed is not None, f"{SEEDS} seeds from {mutant.seed} on do not see it"
