"""Quiver: a durable message queue on Arrow batches.

import quiver

with quiver.connect("data/") as queue:
    queue.create_topic("orders")
    queue.send("orders", b"hello")
    for delivery in queue.receive("orders", group="billing"):
        delivery.ack()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quiver.errors import (
    AnotherRun,
    BehindRetention,
    ClockJumped,
    CorruptBackup,
    CorruptIdentity,
    CorruptLedger,
    CorruptLog,
    CorruptSegment,
    CorruptVote,
    DirectoryInUse,
    DiskFull,
    ExtraMissing,
    Forbidden,
    GroupNotFound,
    InvalidBatch,
    InvalidRequest,
    LimitExceeded,
    MemberFenced,
    MessageNotFound,
    MessageTooLarge,
    NotLeader,
    OutcomeUnknown,
    Overloaded,
    PeersChanging,
    PipelineFailed,
    PlatformNotSupported,
    ProducerFailed,
    ProducerFenced,
    ProtocolError,
    QueryFailed,
    QueueClosed,
    QueueFull,
    QuiverError,
    QuotaExceeded,
    ReadFailed,
    ReadOnly,
    ReceiptError,
    ReceiptExpired,
    ReceiptInvalid,
    RequestError,
    StorageError,
    StorageFailed,
    TopicExists,
    TopicNotFound,
    Unauthenticated,
    UnavailableError,
    Unreachable,
    UnreadableMessages,
    UnsupportedFormat,
)

if TYPE_CHECKING:  # for type checkers and editors; at run time `__getattr__` imports what is used
    from quiver.client.aio import AsyncConsumer, AsyncProducer, AsyncQueue
    from quiver.client.arguments import make_retry as retry
    from quiver.client.async_verbs import AsyncMember, AsyncTransaction
    from quiver.client.backup import restore
    from quiver.client.connect import connect, connect_async
    from quiver.client.once import once
    from quiver.client.results import (
        AsyncDelivery,
        AsyncDeliveryBatch,
        Delivery,
        DeliveryBatch,
        Record,
        Sent,
        SentBatch,
        SentBatches,
    )
    from quiver.client.sync import Consumer, Producer, Queue
    from quiver.client.sync_verbs import Member, Transaction
    from quiver.model.message import Message
    from quiver.model.replies import Backup, Origin, Placed, Published, Sealed, SealedFile, Staged
    from quiver.model.stats import GroupStats, Overview, StorageStats, TopicStats
    from quiver.model.topic import Retry, TopicPolicy

__version__ = "0.1.0"

__all__ = [
    "AnotherRun",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncDeliveryBatch",
    "AsyncMember",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncTransaction",
    "Backup",
    "BehindRetention",
    "ClockJumped",
    "Consumer",
    "CorruptBackup",
    "CorruptIdentity",
    "CorruptLedger",
    "CorruptLog",
    "CorruptSegment",
    "CorruptVote",
    "Delivery",
    "DeliveryBatch",
    "DirectoryInUse",
    "DiskFull",
    "ExtraMissing",
    "Forbidden",
    "GroupNotFound",
    "GroupStats",
    "InvalidBatch",
    "InvalidRequest",
    "LimitExceeded",
    "Member",
    "MemberFenced",
    "Message",
    "MessageNotFound",
    "MessageTooLarge",
    "NotLeader",
    "Origin",
    "OutcomeUnknown",
    "Overloaded",
    "Overview",
    "PeersChanging",
    "PipelineFailed",
    "Placed",
    "PlatformNotSupported",
    "Producer",
    "ProducerFailed",
    "ProducerFenced",
    "ProtocolError",
    "Published",
    "QueryFailed",
    "Queue",
    "QueueClosed",
    "QueueFull",
    "QuiverError",
    "QuotaExceeded",
    "ReadFailed",
    "ReadOnly",
    "ReceiptError",
    "ReceiptExpired",
    "ReceiptInvalid",
    "Record",
    "RequestError",
    "Retry",
    "Sealed",
    "SealedFile",
    "Sent",
    "SentBatch",
    "SentBatches",
    "Staged",
    "StorageError",
    "StorageFailed",
    "StorageStats",
    "TopicExists",
    "TopicNotFound",
    "TopicPolicy",
    "TopicStats",
    "Transaction",
    "Unauthenticated",
    "UnavailableError",
    "Unreachable",
    "UnreadableMessages",
    "UnsupportedFormat",
    "connect",
    "connect_async",
    "once",
    "restore",
    "retry",
]

# Where the names come from that are not errors. They take pyarrow, asyncio and more along: a program that
# only wants to catch an error, or to start quickly, loads none of that.
_HOMES = {
    "quiver.client.aio": "AsyncConsumer AsyncProducer AsyncQueue",
    "quiver.client.async_verbs": "AsyncMember AsyncTransaction",
    "quiver.client.arguments": "retry",
    "quiver.client.backup": "restore",
    "quiver.client.connect": "connect connect_async",
    "quiver.client.once": "once",
    "quiver.client.results": (
        "AsyncDelivery AsyncDeliveryBatch Delivery DeliveryBatch Record Sent SentBatch SentBatches"
    ),
    "quiver.client.sync": "Consumer Producer Queue",
    "quiver.client.sync_verbs": "Member Transaction",
    "quiver.model.message": "Message",
    "quiver.model.replies": "Backup Origin Placed Published Sealed SealedFile Staged",
    "quiver.model.stats": "GroupStats Overview StorageStats TopicStats",
    "quiver.model.topic": "Retry TopicPolicy",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        """A public name, imported when it is asked for."""
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        there = "make_retry" if name == "retry" else name
        value = globals()[name] = getattr(import_module(home), there)
        return value

    def __dir__() -> list[str]:
        """All names, imported or not."""
        return sorted({*globals(), *__all__})
