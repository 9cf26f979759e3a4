"""`help()` explains every argument of every public verb."""

import inspect
import re

import pytest

import quiver

CLASSES = [
    quiver.Queue, quiver.AsyncQueue, quiver.Producer, quiver.AsyncProducer, quiver.Consumer,
    quiver.AsyncConsumer, quiver.Transaction, quiver.AsyncTransaction, quiver.Member,
    quiver.AsyncMember, quiver.Delivery, quiver.AsyncDelivery, quiver.DeliveryBatch,
    quiver.AsyncDeliveryBatch,
]  # fmt: skip
FUNCTIONS = [quiver.connect, quiver.connect_async, quiver.once, quiver.restore, quiver.retry]
VERBS = [
    pytest.param(verb, id=f"{kind.__name__}.{name}")
    for kind in CLASSES
    for name, verb in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_")
] + [pytest.param(verb, id=verb.__name__) for verb in FUNCTIONS]


def explained(verb):
    """The arguments that a docstring explains, in its order."""
    _, _, section = (inspect.getdoc(verb) or "").partition("\nArgs:\n")
    return re.findall(r"^ {4}(\w+): .", section, re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS)
def test_the_docstring_explains_each_argument(verb):
    taken = [name for name in inspect.signature(verb).parameters if name != "self"]
    assert explained(verb) == taken


def test_both_faces_explain_arguments_alike():
    def section(verb):
        return (inspect.getdoc(verb) or "").partition("Args:")[2]

    assert section(quiver.AsyncQueue.send) == section(quiver.Queue.send) != ""
    assert section(quiver.AsyncDelivery.nack) == section(quiver.Delivery.nack) != ""
