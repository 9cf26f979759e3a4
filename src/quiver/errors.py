"""Every error Quiver raises on purpose.

    QuiverError
    ├─ RequestError            the caller can fix it
    │  ├─ InvalidRequest       a value is out of range or of the wrong kind
    │  │  ├─ InvalidBatch      an Arrow batch that is not a batch of messages
    │  │  └─ AnotherRun        an application numbers its batches anew
    │  ├─ TopicNotFound · TopicExists · GroupNotFound · MessageNotFound
    │  ├─ MessageTooLarge
    │  ├─ LimitExceeded        a named bound was reached
    │  ├─ ProtocolError        what came over a connection is not the protocol of a queue
    │  ├─ QueryFailed          the process that a query ran in has ended
    │  ├─ ReceiptError
    │  │  ├─ ReceiptInvalid    not a receipt of this queue
    │  │  └─ ReceiptExpired    the lease ended or was settled: somebody else may have the message
    │  ├─ ProducerFenced       a newer producer took the name
    │  ├─ MemberFenced         the member's session or generation ended
    │  ├─ ExtraMissing         it needs an optional package that is not installed
    │  ├─ PlatformNotSupported  it needs another operating system
    │  ├─ Unauthenticated      the node does not know who asks
    │  ├─ Forbidden            it knows, and the rules do not allow it
    │  ├─ ReadOnly             the queue was opened for reading
    │  └─ QueueClosed
    ├─ UnavailableError        retry later: nothing was done
    │  ├─ QueueFull            the topic's backlog limit
    │  ├─ Overloaded           too much in flight
    │  ├─ QuotaExceeded        the principal asks for more than its share
    │  ├─ Unreachable          no node answers
    │  ├─ NotLeader            another peer decides, or for a moment none does
    │  ├─ PeersChanging        one change of who takes part at a time
    │  └─ DiskFull             no room for another write
    ├─ OutcomeUnknown          the connection broke: a send may be stored or not
    ├─ ProducerFailed          what a producer sent behind your back was refused; it has the messages
    ├─ PipelineFailed          Spark gave up a batch; nothing is lost, the next run does it again
    └─ StorageError            the directory needs a person
       ├─ DirectoryInUse       another process owns it
       ├─ CorruptLog           damage where nothing may be damaged
       ├─ CorruptSegment       old messages cannot be read from their file
       ├─ CorruptBackup        a file of a backup is damaged or missing; nothing was restored
       ├─ CorruptLedger        a file of the ledger is damaged; messages are not affected
       ├─ CorruptVote          a node of a cluster cannot know what it has promised
       ├─ CorruptIdentity      a node of a cluster cannot know who it is
       ├─ UnsupportedFormat    written by a newer Quiver
       ├─ ClockJumped          the machine's clock and the time of the log are far apart
       ├─ ReadFailed           the disk did not give what it holds; the queue goes on
       └─ StorageFailed        a write or sync failed; the queue has stopped

And one warning, of Python's own kind, because it is no reason to stop:

    BehindRetention            messages that a group or reader should have had are gone

`code` is the stable name on the wire, `retryable` says whether the same call may succeed later
without a change, `http_status` is what an HTTP door answers. The message always says what to do.
"""

from typing import Any, ClassVar


class QuiverError(Exception):
    """Base of everything Quiver raises on purpose."""

    code: ClassVar[str] = "quiver_error"
    retryable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500


class RequestError(QuiverError):
    """The request cannot be done as it stands; the caller can fix it."""

    code = "request_error"
    http_status = 400


class InvalidRequest(RequestError):
    """An argument is out of range or of the wrong kind."""

    code = "invalid_request"


class InvalidBatch(InvalidRequest):
    """An Arrow batch is not a batch of messages."""

    code = "invalid_batch"


class AnotherRun(InvalidRequest):
    """An application publishes batches in another run than before, so their numbers mean others."""

    code = "another_run"


class TopicNotFound(RequestError):
    """There is no topic of that name."""

    code = "topic_not_found"
    http_status = 404


class TopicExists(RequestError):
    """A topic of that name exists with another policy."""

    code = "topic_exists"
    http_status = 409


class GroupNotFound(RequestError):
    """The topic has no group of that name."""

    code = "group_not_found"
    http_status = 404


class MessageNotFound(RequestError):
    """The ledger does not know a message of that id."""

    code = "message_not_found"
    http_status = 404


class MessageTooLarge(RequestError):
    """A message or batch is over its size limit."""

    code = "message_too_large"
    http_status = 413


class LimitExceeded(RequestError):
    """A named bound of `quiver.limits` was reached."""

    code = "limit_exceeded"
    http_status = 429


class ProtocolError(RequestError):
    """What came over a connection is not the protocol of a queue, or another version of it."""

    code = "protocol_error"
    http_status = 400


class QueryFailed(RequestError):
    """The process of a node in which a query in SQL ran has ended without an answer; the node goes on."""

    code = "query_failed"
    http_status = 422


class ReceiptError(RequestError):
    """A receipt cannot be used."""

    code = "receipt_error"
    http_status = 409


class ReceiptInvalid(ReceiptError):
    """The receipt was not issued by this queue, or belongs to something that is gone."""

    code = "receipt_invalid"


class ReceiptExpired(ReceiptError):
    """The lease behind a receipt has ended: settled already, timed out, or taken over.

    `refused` has the deliveries or receipts that were refused; the others were settled.
    """

    code = "receipt_expired"

    def __init__(self, message: str, refused: tuple[Any, ...] = ()) -> None:
        super().__init__(message, refused)
        self.refused = refused

    def __str__(self) -> str:
        return str(self.args[0])


class ProducerFenced(RequestError):
    """A newer producer opened under the same name."""

    code = "producer_fenced"
    http_status = 409


class MemberFenced(RequestError):
    """The member is no longer part of the group, or does not own the partition."""

    code = "member_fenced"
    http_status = 409


class ExtraMissing(RequestError):
    """What was asked for needs an optional package; the message says how to install it."""

    code = "extra_missing"


class PlatformNotSupported(RequestError):
    """This operating system cannot hold a queue in a directory. The client of a node works on it."""

    code = "platform_not_supported"


class Unauthenticated(RequestError):
    """The credentials are missing, wrong or expired.

    `reason` is what AWS calls it.
    """

    code = "unauthenticated"
    http_status = 401

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message, reason)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


class Forbidden(RequestError):
    """The principal's rules do not allow this."""

    code = "forbidden"
    http_status = 403


class ReadOnly(RequestError):
    """The queue was opened with `read_only=True`, and this would change it."""

    code = "read_only"
    http_status = 403

    def __init__(
        self, message: str = "the queue was opened with read_only=True; connect without it"
    ) -> None:
        super().__init__(message)


class QueueClosed(RequestError):
    """The queue was closed, or belongs to another process after a fork."""

    code = "queue_closed"
    http_status = 503


class UnavailableError(QuiverError):
    """Nothing was done; the same call may succeed later."""

    code = "unavailable"
    retryable = True
    http_status = 503


class QueueFull(UnavailableError):
    """The topic holds as many unsettled messages as its policy allows."""

    code = "queue_full"
    http_status = 429


class Overloaded(UnavailableError):
    """More is in flight than the queue may hold in memory."""

    code = "overloaded"
    http_status = 429


class QuotaExceeded(UnavailableError):
    """The principal has used up its share for now.

    After `retry_after` seconds it has some again.
    """

    code = "quota_exceeded"
    http_status = 429

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message, retry_after)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return str(self.args[0])


class Unreachable(UnavailableError):
    """No node answered in time, and nothing was done."""

    code = "unreachable"


class NotLeader(UnavailableError):
    """This peer does not lead, or is handing over. `leader` is the number of the one to ask."""

    code = "not_leader"

    def __init__(self, message: str, leader: int | None = None) -> None:
        super().__init__(message, leader)
        self.leader = leader

    def __str__(self) -> str:
        return str(self.args[0])


class PeersChanging(UnavailableError):
    """A change of the peers that was proposed before is not in effect yet."""

    code = "peers_changing"


class DiskFull(UnavailableError):
    """The disk has no room for another write. Nothing confirmed is affected."""

    code = "disk_full"
    http_status = 507


class OutcomeUnknown(QuiverError):
    """The connection to the node broke before the answer: it may have been done or not."""

    code = "outcome_unknown"
    http_status = 503


class ProducerFailed(QuiverError):
    """A producer's batch was not stored, or nobody knows (the cause is OutcomeUnknown). `unsent` has
    its messages."""

    code = "producer_failed"
    http_status = 503

    def __init__(self, message: str, unsent: tuple[Any, ...] = ()) -> None:
        super().__init__(message, unsent)
        self.unsent = unsent

    def __str__(self) -> str:
        return str(self.args[0])


class PipelineFailed(QuiverError):
    """Spark gave up a batch of a pipeline. The next run does it again, with the same messages."""

    code = "pipeline_failed"


class StorageError(QuiverError):
    """The data directory needs a person."""

    code = "storage_error"


class DirectoryInUse(StorageError):
    """Another process owns the directory."""

    code = "directory_in_use"
    http_status = 409


class CorruptLog(StorageError):
    """Stored bytes are damaged where nothing may be damaged.

    If only messages of one log file cannot be read, `file` is the first entry of it.
    """

    code = "corrupt_log"

    def __init__(self, message: str, file: int | None = None) -> None:
        super().__init__(message)
        self.file = file


class CorruptSegment(StorageError):
    """Messages that have left the log cannot be read from their file; all others can."""

    code = "corrupt_segment"


class CorruptBackup(StorageError):
    """A backup cannot be restored, because a file of it is damaged or missing. Nothing was changed."""

    code = "corrupt_backup"


class CorruptLedger(StorageError):
    """A file of the ledger cannot be read. Messages are not affected."""

    code = "corrupt_ledger"


class CorruptVote(StorageError):
    """A node of a cluster cannot know whom it has voted for: it may neither vote nor lead."""

    code = "corrupt_vote"


class CorruptIdentity(StorageError):
    """A node of a cluster cannot know which one it is: it may not take part."""

    code = "corrupt_identity"


class UnsupportedFormat(StorageError):
    """The files were written by a newer version."""

    code = "unsupported_format"


class ClockJumped(StorageError):
    """The machine's clock and the time of the log's last entry are too far apart to go on unasked."""

    code = "clock_jumped"


class ReadFailed(StorageError):
    """The operating system could not read a file. That is no damage: a later read may succeed.

    `path` is the file, `errno` what the system said. The queue goes on, and leaves the file as it is.
    """

    code = "read_failed"

    def __init__(self, message: str, path: str = "", errno: int = 0) -> None:
        super().__init__(message, path, errno)
        self.path = path
        self.errno = errno

    def __str__(self) -> str:
        return str(self.args[0])


class StorageFailed(StorageError):
    """A write or sync failed. The queue has stopped; whether the last requests were kept is unknown."""

    code = "storage_failed"


class UnreadableMessages(UserWarning):
    """Messages were left out, because they cannot be read from their file; others were given."""


class BehindRetention(UserWarning):
    """Retention has let go of messages before a group or reader had them.

    `count` says how many of group `group` (empty for a reader) were lost; 0 if that is not known.
    """

    def __init__(self, message: str, topic: str, group: str = "", count: int = 0) -> None:
        super().__init__(message, topic, group, count)
        self.topic = topic
        self.group = group
        self.count = count

    def __str__(self) -> str:
        return str(self.args[0])
