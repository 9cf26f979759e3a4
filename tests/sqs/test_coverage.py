"""Everything that botocore knows of SQS is shown by a test, or there is a reason why not."""

import pytest
from msgspec.structs import fields

from quiver.server.sqs.door import ACTIONS
from quiver.server.sqs.queues import KNOWN
from quiver.server.sqs.receiving import SYSTEM
from quiver.server.sqs.shapes import INPUTS
from tools import sqs as model


@pytest.mark.parametrize(
    "names",
    [model.actions, model.queue_attributes, model.message_attributes, model.errors],
    ids=lambda names: names.__name__,
)
def test_everything_is_shown(names):
    left = [name for name in names() if name not in model.shown() and name not in model.NEVER]
    assert left == []


def test_nothing_is_shown_that_there_is_not():
    there = {
        *model.actions(), *model.queue_attributes(), *model.message_attributes(), *model.errors(),
    }  # fmt: skip
    assert sorted(set(model.shown()) - there) == []
    assert sorted(set(model.NEVER) - set(model.errors())) == []


def test_our_tables_are_those_of_the_model():
    assert sorted(ACTIONS) == sorted(INPUTS) == sorted(model.actions())
    assert {*KNOWN, "All"} == set(model.queue_attributes())
    assert {*SYSTEM, "All"} == set(model.message_attributes())
    for action, shape in INPUTS.items():
        expected = model.model().operation_model(action).input_shape
        assert {field.encode_name for field in fields(shape)} == set(expected.members), action
