"""A queue's attributes, and how a topic keeps them.

Retention and dead letters are the topic's policy. Everything else is text in its labels, under
`sqs.<attribute>` and `sqs.tag.<key>`; what nobody has set is not there, and has its default. So a
topic that others made is a queue with default attributes.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

from quiver import limits
from quiver.model.topic import Retention, TopicPolicy
from quiver.server.config import Sqs
from quiver.server.sqs.faults import Fault, bad_attribute, invalid, unknown_attribute

GROUP: Final = "default"  # consumers through SQS
FIFO: Final = ".fifo"
LABEL: Final = "sqs."
TAG: Final = "sqs.tag."
CREATED: Final = "sqs.created"
MODIFIED: Final = "sqs.modified"
SCOPE: Final = "sqs.scope"  # of deduplication when the queue was made; that is what counts
PURGES: Final = "sqs.purged"  # when it was purged: what was sent before is no duplicate any more
TARGET: Final = "sqs.target"  # the dead-letter queue's ARN as it was given
OWN: Final = "sqs.RedrivePolicy"  # of a queue that is its own dead-letter queue; no topic can be

COUNTS: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
FIXED: Final = (*COUNTS, "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn")
FLAGS: Final = ("ContentBasedDeduplication", "SqsManagedSseEnabled", "FifoQueue")
CHOICES: Final = {
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
ONLY_FIFO: Final = ("FifoQueue", "ContentBasedDeduplication", *CHOICES)
REMOVABLE: Final = ("Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId")
SETTABLE: Final = (
    "DelaySeconds", "MaximumMessageSize", "MessageRetentionPeriod",
    "ReceiveMessageWaitTimeSeconds", "VisibilityTimeout", "KmsDataKeyReusePeriodSeconds",
    *FLAGS, *CHOICES, *REMOVABLE,
)  # fmt: skip
KNOWN: Final = (*SETTABLE, *FIXED)
RETENTION_SECONDS: Final = 345_600
DEFAULTS: Final = {
    "DelaySeconds": "0",
    "MaximumMessageSize": str(limits.SQS_MESSAGE_BYTES_MAX),
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "VisibilityTimeout": "30",
}
FIFO_DEFAULTS: Final = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}
PLAIN_NUMBER: Final = re.compile(r"[0-9]{1,12}")  # labels may be set by others, too
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ARN: Final = re.compile(r"arn:[a-z-]+:sqs:[a-z0-9-]*:[0-9]*:([A-Za-z0-9._-]+)")


class Change(NamedTuple):
    """What becomes of a topic: its labels, and other parts of its policy."""

    labels: dict[str, str]
    policy: dict[str, Any]


class SqsQueue:
    """What an action must know of a queue. One is made for each policy a topic has had."""

    __slots__ = ("by_group", "content_dedup", "delay", "fifo", "max_bytes", "name", "policy",
                 "purges", "visibility", "wait")  # fmt: skip

    def __init__(self, name: str, policy: TopicPolicy) -> None:
        self.name = name
        self.policy = policy
        self.fifo = name.endswith(FIFO) and policy.order == "key"
        labels = policy.labels
        self.visibility = _number(labels, "VisibilityTimeout")
        self.delay = _number(labels, "DelaySeconds")
        self.wait = _number(labels, "ReceiveMessageWaitTimeSeconds")
        self.max_bytes = _number(labels, "MaximumMessageSize")
        self.content_dedup = labels.get(LABEL + "ContentBasedDeduplication") == "true"
        self.by_group = labels.get(SCOPE) == "messageGroup"
        self.purges = labels.get(PURGES, "")  # some text that another purge changes

    @property
    def tags(self) -> dict[str, str]:
        """The tags."""
        labels = self.policy.labels
        return {name[len(TAG) :]: labels[name] for name in labels if name.startswith(TAG)}

    @property
    def kept(self) -> dict[str, str]:
        """The attributes that labels have, as they were set. Without a key, some are not shown."""
        labels = self.policy.labels
        return {name: labels[LABEL + name] for name in SETTABLE if LABEL + name in labels}

    def attributes(self, arn: str, target_arn: str) -> dict[str, str]:
        """Everything but the counts. `target_arn` is for a dead-letter topic that others have set."""
        labels = self.policy.labels
        found = {**DEFAULTS, **(FIFO_DEFAULTS if self.fifo else {}), **self.kept}
        if "KmsMasterKeyId" in found:
            found["SqsManagedSseEnabled"] = "false"
        else:
            found.pop("KmsDataKeyReusePeriodSeconds", None)
        found["MessageRetentionPeriod"] = str(retention_seconds(self.policy.retention))
        found["QueueArn"] = arn
        found["CreatedTimestamp"] = labels.get(CREATED, "0")
        found["LastModifiedTimestamp"] = labels.get(MODIFIED, found["CreatedTimestamp"])
        if self.policy.dead_letter is not None and self.policy.max_attempts is not None:
            found["RedrivePolicy"] = redrive_text(
                labels.get(TARGET, target_arn), self.policy.max_attempts
            )
        return found


def _number(labels: Mapping[str, str], name: str) -> int:
    text = labels.get(LABEL + name, "")
    return int(text if PLAIN_NUMBER.fullmatch(text) else DEFAULTS[name])


def retention_seconds(retention: Retention) -> int:
    """How long a message waits at most; what SQS would say, where nothing does."""
    return RETENTION_SECONDS if retention.time_ms is None else retention.time_ms // 1000


def redrive_text(arn: str, count: int) -> str:
    """The attribute RedrivePolicy."""
    return f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{count}}}'


def check_name(name: str, *, fifo: bool) -> None:
    """Refuse a name that SQS would refuse."""
    stem = name.removesuffix(FIFO) if fifo else name
    if fifo and not (name.endswith(FIFO) and len(name) <= 80 and _NAME.fullmatch(stem)):
        raise Fault(
            "InvalidParameterValueException",
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            "underscores, must end with .fifo suffix and be 1 to 80 in length.",
        )
    if not _NAME.fullmatch(stem):
        raise Fault(
            "InvalidParameterValueException",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        )


def name_of_arn(arn: str) -> str | None:
    """The queue that an ARN names, in whatever region and account."""
    found = _ARN.fullmatch(arn)
    return found[1] if found else None


# -- setting ---------------------------------------------------------------------------------------


def check(attributes: Mapping[str, str], bounds: Sqs, *, fifo: bool) -> dict[str, str]:
    """Refuse attributes that SQS would refuse; otherwise as they are kept."""
    ranges = {
        "DelaySeconds": (0, bounds.delay_seconds),
        "MaximumMessageSize": (1024, bounds.message_bytes),
        "MessageRetentionPeriod": (60, bounds.retention_seconds),
        "ReceiveMessageWaitTimeSeconds": (0, bounds.wait_seconds),
        "VisibilityTimeout": (0, bounds.visibility_seconds),
        "KmsDataKeyReusePeriodSeconds": (60, 86_400),
    }
    found: dict[str, str] = {}
    for name, value in attributes.items():
        if name in CHOICES and not fifo:
            raise Fault(
                "InvalidAttributeName",
                f"You can specify the {name} only when FifoQueue is set to true.",
            )
        if name not in SETTABLE or (name in ONLY_FIFO and not fifo):
            raise unknown_attribute(name)
        if name in ranges:
            low, high = ranges[name]
            if not (PLAIN_NUMBER.fullmatch(value) and low <= int(value) <= high):
                raise bad_attribute(name)
            found[name] = str(int(value))
        elif name in FLAGS:
            if value.lower() not in ("true", "false"):
                raise bad_attribute(name)
            found[name] = value.lower()
        elif name in CHOICES:
            if value not in CHOICES[name]:
                raise bad_attribute(name)
            found[name] = value
        else:
            if value and name in ("Policy", "RedriveAllowPolicy"):
                json_map(value, name)
            found[name] = value
    if found.get("KmsMasterKeyId") and found.get("SqsManagedSseEnabled") == "true":
        raise Fault(
            "InvalidAttributeName",
            "You can use one type of server-side encryption (SSE) at one time. You can either enable "
            "KMS SSE or SQS SSE.",
        )
    if found.get("FifoQueue") == "false":
        raise bad_attribute("FifoQueue", "Modifying queue type is not supported.")
    return found


def check_throughput(attributes: Mapping[str, str]) -> None:
    """Refuse a limit per message group where duplicates are looked for in the whole queue."""
    if (
        attributes.get("FifoThroughputLimit") == "perMessageGroupId"
        and attributes.get("DeduplicationScope", "queue") != "messageGroup"
    ):
        raise bad_attribute(
            "FifoThroughputLimit",
            "The perMessageGroupId value is allowed only when the value for DeduplicationScope is "
            "messageGroup.",
        )


def json_map(text: str, name: str) -> dict[str, Any]:
    """An attribute that is a JSON object."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        found = None
    if not isinstance(found, dict):
        raise bad_attribute(name)
    return found


def allows(text: str, source: str) -> bool:
    """Whether a RedriveAllowPolicy lets queue `source` use the queue for its dead letters."""
    policy = json_map(text, "RedriveAllowPolicy")
    match policy.get("redrivePermission", "allowAll"):
        case "denyAll":
            return False
        case "byQueue":
            return source in [name_of_arn(str(arn)) for arn in policy.get("sourceQueueArns", ())]
        case _:
            return True


def change(
    policy: TopicPolicy, attributes: Mapping[str, str], target: str | None, now_s: int
) -> Change:
    """What checked attributes make of a topic; `target` is the dead-letter topic, if one is set."""
    labels = dict(policy.labels)
    other: dict[str, Any] = {}
    for name, value in attributes.items():
        if name == "MessageRetentionPeriod":
            other |= retention(policy, int(value))
        elif name == "RedrivePolicy":
            other |= {"max_attempts": None, "dead_letter": None}
            labels.pop(TARGET, None)
            labels.pop(OWN, None)
            arn, count = read_redrive(value) if value else ("", 0)
            if value and target is None:
                labels[OWN] = redrive_text(arn, count)
            elif value:
                other = {**other, "max_attempts": count, "dead_letter": target}
                labels[TARGET] = arn
        elif name != "FifoQueue":
            if value:
                labels[LABEL + name] = value
            else:
                labels.pop(LABEL + name, None)
            if name == "SqsManagedSseEnabled" and value == "true":
                labels.pop(LABEL + "KmsMasterKeyId", None)
            if name == "KmsMasterKeyId" and value:  # also once the key is taken away
                labels[LABEL + "SqsManagedSseEnabled"] = "false"
    labels[MODIFIED] = str(now_s)
    return Change(labels, other)


def retention(policy: TopicPolicy, seconds: int) -> dict[str, Any]:
    """As long as this in the queue, and, unless others want replay, gone when it is deleted."""
    known = policy.retention
    if known.keeps:
        return {"retention": replace(known, time_ms=seconds * 1000, forever=False)}
    made = replace(known, time_ms=seconds * 1000, settled=True)
    return {"retention": made, "keep_unsettled": False}


def read_redrive(text: str) -> tuple[str, int]:
    """The target's ARN and the count in a RedrivePolicy, as SQS checks them."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        found = None
    if not isinstance(found, dict):
        raise invalid(text, "RedrivePolicy", "Redrive policy is not a valid JSON map.")
    for name in ("deadLetterTargetArn", "maxReceiveCount"):
        if name not in found:
            raise invalid(
                text, "RedrivePolicy",
                f"Redrive policy does not contain mandatory attribute: {name}.",
            )  # fmt: skip
    arn, count = found["deadLetterTargetArn"], found["maxReceiveCount"]
    number = int(count) if re.fullmatch(r"[0-9]{1,6}", str(count)) else 0
    if not 1 <= number <= 1000:
        raise invalid(
            text, "RedrivePolicy",
            f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both "
            "inclusive.",
        )  # fmt: skip
    if not isinstance(arn, str) or name_of_arn(arn) is None:
        raise invalid(text, "RedrivePolicy", "Invalid value for deadLetterTargetArn.")
    return arn, number
