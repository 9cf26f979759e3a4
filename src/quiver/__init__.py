"""Quiver: a durable message queue on Arrow batches.

import quiver

with quiver.connect("data/") as queue:
    queue.create_topic("orders")
    queue.send("orders", b"hello")
    for delivery in queue.receive("orders", group="billing"):
        delivery.ack()
"""

from quiver.client.aio import (
    AsyncConsumer,
    AsyncMember,
    AsyncProducer,
    AsyncQueue,
    AsyncTransaction,
)
from quiver.client.arguments import make_retry as retry
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
from quiver.client.sync import Consumer, Member, Producer, Queue, Transaction
from quiver.errors import (
    BehindRetention,
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
    QueueClosed,
    QueueFull,
    QuiverError,
    QuotaExceeded,
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
from quiver.model.replies import Origin, Placed, Published
from quiver.model.stats import GroupStats, Overview, StorageStats, TopicStats
from quiver.model.topic import Retry, TopicPolicy

__version__ = "0.1.0"

__all__ = [
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncDeliveryBatch",
    "AsyncMember",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncTransaction",
    "BehindRetention",
    "Consumer",
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
    "Queue",
    "QueueClosed",
    "QueueFull",
    "QuiverError",
    "QuotaExceeded",
    "ReadOnly",
    "ReceiptError",
    "ReceiptExpired",
    "ReceiptInvalid",
    "Record",
    "RequestError",
    "Retry",
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
    "retry",
]
