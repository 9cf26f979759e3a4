"""What every error promises: its own code, its place in the tree, its way through pickle."""

import builtins
import inspect
import pickle
import re

import pytest

import quiver
from quiver import errors
from quiver.errors import QuiverError, RequestError, StorageError, UnavailableError

ERRORS = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, QuiverError)
]
MESSAGE = 'topic "orders" does not exist; create it first'
LATER_STATUSES = {429, 503, 507}  # the HTTP answers that mean: the same call may succeed later

each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)


@each_error
def test_a_code_is_its_own_and_stable_looking(error: type[QuiverError]):
    assert "code" in vars(error), "a code is not inherited"
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", error.code)


def test_no_two_errors_share_a_code():
    codes = [error.code for error in ERRORS]
    assert sorted(codes) == sorted(set(codes))


@each_error
def test_an_error_survives_pickle(error: type[QuiverError]):
    original = error(MESSAGE)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(original, protocol))
        assert type(copy) is error
        assert str(copy) == str(original)
        assert copy.args == original.args
        assert vars(copy) == vars(original)


@each_error
def test_the_message_is_what_was_said(error: type[QuiverError]):
    assert MESSAGE in str(error(MESSAGE))


@each_error
def test_an_error_is_exported(error: type[QuiverError]):
    assert error.__name__ in quiver.__all__
    assert getattr(quiver, error.__name__) is error


@each_error
def test_an_error_says_what_it_means(error: type[QuiverError]):
    assert "__doc__" in vars(error)
    assert (error.__doc__ or "").strip().endswith(".")


@each_error
def test_an_error_does_not_shadow_a_builtin(error: type[QuiverError]):
    assert error.__name__ not in vars(builtins)


@each_error
def test_retryable_and_status_agree(error: type[QuiverError]):
    assert 400 <= error.http_status <= 599
    assert error.retryable == issubclass(error, UnavailableError)
    if error.retryable:
        assert error.http_status in LATER_STATUSES


def test_the_status_says_whose_turn_it_is():
    for error in ERRORS:
        if issubclass(error, RequestError) and error is not errors.QueueClosed:
            assert 400 <= error.http_status <= 499, error
    assert RequestError.http_status == 400
    assert StorageError.http_status == 500


def test_the_tree_in_the_docstring_is_the_tree_of_classes():
    shown = dict(drawn_tree(errors.__doc__ or ""))
    assert shown == {error.__name__: error.__bases__[0].__name__ for error in ERRORS[1:]}


def drawn_tree(docstring: str):
    """Each (name, name of its base) of the drawing; names of one line are siblings."""
    bases = {0: QuiverError.__name__}  # depth to the last name seen there
    for line in docstring.splitlines():
        drawn = re.match(r"(\s{4}[│ ]*)[├└]─ (\w+(?: · \w+)*)", line)
        if drawn:
            depth = (len(drawn[1]) - 4) // 3 + 1
            for name in drawn[2].split(" · "):
                bases[depth] = name
                yield name, bases[depth - 1]
