"""What the documentation of the two faces has in common."""

from collections.abc import Callable
from inspect import cleandoc, isfunction
from typing import Any, TypeVar

C = TypeVar("C", bound=type[Any])


def explained_by(twin: type[Any]) -> Callable[[C], C]:
    """A class decorator: `help()` of a method explains its arguments as that of the twin's does.

    They take the same arguments, so the source explains them once.
    """

    def explain(kind: C) -> C:
        for name, method in vars(kind).items():
            model = getattr(vars(twin).get(name), "__doc__", None)
            if isfunction(method) and method.__doc__ and model:  # none under `python -OO`
                _, found, explained = cleandoc(model).partition("\n\nArgs:")
                method.__doc__ = cleandoc(method.__doc__) + found + explained
        return kind

    return explain
