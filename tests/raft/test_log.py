"""The log of terms and sizes against a plain list of entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiver.raft.log import TermLog
from quiver.raft.messages import Entry

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(0, 9)),
        st.tuples(st.just("cut"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 9), st.just(0)),
    ),
    max_size=40,
)


@given(st.integers(0, 5), st.integers(0, 3), steps)
def test_it_says_the_same_as_a_list(base, base_term, steps):
    log = TermLog(base, base_term)
    entries = [Entry(base, base_term, 0)]  # the first is the base
    for what, number, nbytes in steps:
        at = min(number, len(entries) - 1)
        match what:
            case "append":
                entries.append(Entry(entries[-1].index + 1, entries[-1].term + number, nbytes))
                log.append(entries[-1].term, nbytes)
            case "cut":
                log.cut(entries[at].index)
                del entries[at + 1 :]
            case "drop":
                log.drop(entries[at].index)
                del entries[:at]
        compare(log, entries)


def compare(log, entries):
    first, last = entries[0], entries[-1]
    assert (log.base, log.base_term) == (first.index, first.term)
    assert (log.last, log.last_term) == (last.index, last.term)
    assert [log.term_of(entry.index) for entry in entries] == [entry.term for entry in entries]
    assert log.entries(first.index, last.index) == tuple(entries[1:])
    for at, entry in enumerate(entries):
        behind = entries[at + 1 :]
        assert log.bytes_between(entry.index, last.index) == sum(e.nbytes for e in behind)
        assert log.end_of_chunk(entry.index, 10, 3) == end_of_chunk(entry, behind)
        for term in {entry.term, entry.term - 1, entry.term + 1}:
            older = [e.index for e in entries[: at + 1] if e.term <= term]
            assert log.back_to(entry.index, term) == (older[-1] if older else first.index)
    assert log.has(last.index, last.term)
    assert not log.has(last.index, last.term + 1)
    assert not log.has(last.index + 1, last.term)
    assert not log.has(first.index - 1, first.term)


def end_of_chunk(entry, behind):
    end, nbytes = entry.index, 0
    for following in behind[:3]:
        nbytes += following.nbytes
        if nbytes > 10 and end > entry.index:
            break
        end = following.index
        if nbytes > 10:
            break
    return end


def test_it_starts_with_what_the_disk_has():
    log = TermLog(5, 2, [(2, 10), (3, 20), (3, 30)])
    assert log.entries(5, 8) == (Entry(6, 2, 10), Entry(7, 3, 20), Entry(8, 3, 30))


def test_terms_do_not_fall_and_the_base_stays():
    log = TermLog(5, 2, [(3, 1)])
    with pytest.raises(AssertionError, match="terms fall"):
        log.append(2, 1)
    with pytest.raises(AssertionError):
        log.cut(4)
    with pytest.raises(AssertionError, match="entry 7 is not in the log"):
        log.term_of(7)


def test_who_is_up_to_date_has_a_newer_last_term_or_a_log_as_long():
    log = TermLog(0, 0, [(1, 1), (3, 1)])
    assert [log.reaches(*end) for end in [(2, 3), (3, 3), (1, 4)]] == [True] * 3
    assert [log.reaches(*end) for end in [(1, 3), (9, 2)]] == [False] * 2
