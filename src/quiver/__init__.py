"""Quiver: a durable message queue on Arrow batches.

import quiver

with quiver.connect("data/") as queue:
    queue.create_topic("orders")
    queue.send("orders", b"hello")
    for delivery in queue.receive("orders", group="billing"):
        delivery.ack()
"""

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
    Staged,
)
from quiver.client.sync import Consumer, Producer, Queue
from quiver.client.sync_verbs import Member, Transaction
from quiver.errors import (
    AnotherRun,
    BehindRetention,
    ClockJumped,
    CorruptBackup,
    CorruptLedger,
    CorruptLog,
    CorruptSegment,
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
    OutcomeUnknown,
    Overloaded,
    PipelineFailed,
    ProducerFailed,
    ProducerFenced,
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
from quiver.model.message import Message
from quiver.model.replies import Backup, Origin, Placed, Published, Sealed, SealedFile
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
    "CorruptLedger",
    "CorruptLog",
    "CorruptSegment",
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
    "Origin",
    "OutcomeUnknown",
    "Overloaded",
    "Overview",
    "PipelineFailed",
    "Placed",
    "Producer",
    "ProducerFailed",
    "ProducerFenced",
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
