"""The public names, and that the sync and the async API are the same API."""

import ast
import inspect
from importlib import import_module

import pytest

import quiver

NAMES = """
AnotherRun AsyncConsumer AsyncDelivery AsyncDeliveryBatch AsyncMember AsyncProducer AsyncQueue
AsyncTransaction Backup BehindRetention ClockJumped Consumer CorruptBackup
CorruptIdentity CorruptLedger CorruptLog CorruptSegment CorruptVote
Delivery DeliveryBatch DirectoryInUse DiskFull ExtraMissing Forbidden
GroupNotFound GroupStats InvalidBatch InvalidRequest LimitExceeded Member MemberFenced Message
MessageNotFound MessageTooLarge NotLeader Origin OutcomeUnknown Overloaded Overview PeersChanging
PipelineFailed Placed
PlatformNotSupported Producer ProducerFailed ProducerFenced ProtocolError Published QueryFailed Queue
QueueClosed QueueFull QuiverError QuotaExceeded ReadFailed ReadOnly ReceiptError ReceiptExpired
ReceiptInvalid Record RequestError Retry Sealed SealedFile Sent SentBatch SentBatches Staged
StorageError StorageFailed StorageStats TopicExists TopicNotFound TopicPolicy TopicStats
Transaction Unauthenticated UnavailableError Unreachable UnreadableMessages UnsupportedFormat
connect connect_async once restore retry
"""

TWINS = [
    (quiver.Queue, quiver.AsyncQueue),
    (quiver.Producer, quiver.AsyncProducer),
    (quiver.Consumer, quiver.AsyncConsumer),
    (quiver.Transaction, quiver.AsyncTransaction),
    (quiver.Member, quiver.AsyncMember),
    (quiver.Delivery, quiver.AsyncDelivery),
    (quiver.DeliveryBatch, quiver.AsyncDeliveryBatch),
]
RENAMED = {"aclose": "close"}


def public(kind):
    return {
        RENAMED.get(name, name): value
        for name, value in inspect.getmembers(kind)
        if not name.startswith("_")
    }


def test_the_public_names_are_these():
    assert quiver.__all__ == NAMES.split()
    assert all(hasattr(quiver, name) for name in quiver.__all__)
    assert set(quiver.__all__) <= set(dir(quiver))
    with pytest.raises(AttributeError, match="module 'quiver' has no attribute 'Quu'"):
        _ = vars(quiver)["__getattr__"]("Quu")


def test_a_type_checker_finds_each_name_where_the_program_does():
    tree = ast.parse(inspect.getsource(quiver))
    [typed] = [node for node in tree.body if isinstance(node, ast.If) and not node.orelse][:1]
    found = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in typed.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    assert {name: module for name, (module, _) in found.items()} == vars(quiver)["_HOME_OF"]
    for name, (module, there) in found.items():
        assert getattr(quiver, name) is getattr(import_module(module), there)


@pytest.mark.parametrize(("sync", "aio"), TWINS, ids=lambda kind: kind.__name__)
def test_the_sync_and_the_async_class_have_the_same_names(sync, aio):
    assert sorted(public(sync)) == sorted(public(aio))


@pytest.mark.parametrize(("sync", "aio"), TWINS, ids=lambda kind: kind.__name__)
def test_the_sync_and_the_async_class_have_the_same_signatures(sync, aio):
    ours, theirs = public(sync), public(aio)
    for name, function in ours.items():
        if inspect.isfunction(function):
            mine = list(inspect.signature(function).parameters.values())
            other = list(inspect.signature(theirs[name]).parameters.values())
            assert mine == other, name


def test_both_ways_to_connect_take_the_same_arguments():
    mine, other = inspect.signature(quiver.connect), inspect.signature(quiver.connect_async)
    assert mine.parameters == other.parameters


@pytest.mark.parametrize("kind", [kind for twins in TWINS for kind in twins])
def test_every_public_verb_says_what_it_does(kind):
    for name, value in public(kind).items():
        if inspect.isfunction(value) or isinstance(value, property):
            assert value.__doc__, f"{kind.__name__}.{name}"


@pytest.mark.parametrize("kind", [kind for twins in TWINS for kind in twins])
def test_at_most_two_things_are_positional(kind):
    for name, value in public(kind).items():
        if inspect.isfunction(value):
            positional = [
                p for p in inspect.signature(value).parameters.values()
                if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"
            ]  # fmt: skip
            assert len(positional) <= 3, f"{kind.__name__}.{name}"
