"""What of SQS there is, and which tests show it: the model of botocore against `covers` marks.

A test says what it shows with `@pytest.mark.covers("SendMessage", …)`. Everything in the model must
be shown by some test, or be in `NEVER` with the reason.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from botocore.model import ServiceModel
from botocore.session import Session

TESTS = Path(__file__).resolve().parents[1] / "tests" / "sqs"


class Coded(NamedTuple):
    """How an error is told: its code in the query protocol, and its HTTP status in both."""

    code: str
    status: int = 400


OLD: Final = "AWS.SimpleQueueService."
# From the service's Smithy model, as the SDKs for JavaScript, Go and Rust ship it (its traits
# `awsQueryError` and `httpError`). botocore leaves both out: that nothing else is missing here is tested.
CODES: Final = {
    "BatchEntryIdsNotDistinct": Coded(OLD + "BatchEntryIdsNotDistinct"),
    "BatchRequestTooLong": Coded(OLD + "BatchRequestTooLong"),
    "EmptyBatchRequest": Coded(OLD + "EmptyBatchRequest"),
    "InvalidAddress": Coded("InvalidAddress", 404),
    "InvalidAttributeName": Coded("InvalidAttributeName"),
    "InvalidAttributeValue": Coded("InvalidAttributeValue"),
    "InvalidBatchEntryId": Coded(OLD + "InvalidBatchEntryId"),
    "InvalidIdFormat": Coded("InvalidIdFormat"),
    "InvalidMessageContents": Coded("InvalidMessageContents"),
    "InvalidSecurity": Coded("InvalidSecurity", 403),
    "KmsAccessDenied": Coded("KMS.AccessDeniedException"),
    "KmsDisabled": Coded("KMS.DisabledException"),
    "KmsInvalidKeyUsage": Coded("KMS.InvalidKeyUsageException"),
    "KmsInvalidState": Coded("KMS.InvalidStateException"),
    "KmsNotFound": Coded("KMS.NotFoundException"),
    "KmsOptInRequired": Coded("KMS.OptInRequired", 403),
    "KmsThrottled": Coded("KMS.ThrottlingException"),
    "MessageNotInflight": Coded(OLD + "MessageNotInflight"),
    "OverLimit": Coded("OverLimit", 403),
    "PurgeQueueInProgress": Coded(OLD + "PurgeQueueInProgress", 403),
    "QueueDeletedRecently": Coded(OLD + "QueueDeletedRecently"),
    "QueueDoesNotExist": Coded(OLD + "NonExistentQueue"),
    "QueueNameExists": Coded("QueueAlreadyExists"),
    "ReceiptHandleIsInvalid": Coded("ReceiptHandleIsInvalid", 404),
    "RequestThrottled": Coded("RequestThrottled", 403),
    "ResourceNotFoundException": Coded("ResourceNotFoundException", 404),
    "TooManyEntriesInBatchRequest": Coded(OLD + "TooManyEntriesInBatchRequest"),
    "UnsupportedOperation": Coded(OLD + "UnsupportedOperation"),
}
# Every action has these, and no model: the page "Common Errors" of the API reference names most.
NOT_MODELLED: Final = {
    "InvalidParameterValueException": Coded("InvalidParameterValue"),
    "MissingRequiredParameterException": Coded("MissingParameter"),
    "SerializationException": Coded("SerializationException"),
    "UnknownOperationException": Coded("InvalidAction"),
}
KMS = "there are no keys: what is said about them is kept and echoed"
NEVER = {
    "KmsAccessDenied": KMS,
    "KmsDisabled": KMS,
    "KmsInvalidKeyUsage": KMS,
    "KmsInvalidState": KMS,
    "KmsNotFound": KMS,
    "KmsOptInRequired": KMS,
    "KmsThrottled": KMS,
    "InvalidSecurity": "who asks is checked before: see the errors of access",
    "InvalidIdFormat": "AWS has given it up for ReceiptHandleIsInvalid",
    "MessageNotInflight": "AWS accepts a receipt whose visibility has ended, and so do we",
}


@cache
def model() -> ServiceModel:
    """SQS as botocore describes it."""
    return Session().get_service_model("sqs")


def actions() -> list[str]:
    """All actions."""
    return list(model().operation_names)


def queue_attributes() -> list[str]:
    """All attributes of queues."""
    return list(model().shape_for("QueueAttributeName").enum)


def message_attributes() -> list[str]:
    """All attributes that a queue gives to messages."""
    return list(model().shape_for("MessageSystemAttributeName").enum)


def errors() -> list[str]:
    """All errors, and those that the model leaves out."""
    return sorted({*(shape.name for shape in model().error_shapes), *NOT_MODELLED})


@cache
def shown() -> dict[str, list[str]]:
    """What tests show, and their names as sentences."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                for name in _covered(node):
                    sentence = node.name.removeprefix("test_").replace("_", " ")
                    found.setdefault(name, []).append(sentence)
    return found


def _covered(test: ast.FunctionDef) -> Iterator[str]:
    for mark in test.decorator_list:
        if (
            isinstance(mark, ast.Call)
            and isinstance(mark.func, ast.Name)
            and mark.func.id == "covers"
        ):
            yield from (str(arg.value) for arg in mark.args if isinstance(arg, ast.Constant))


def table(names: list[str]) -> str:
    """A table of these names and what shows them; of errors, also how they are told."""
    found = shown()
    codes = {**CODES, **NOT_MODELLED} if names == errors() else {}
    lines = ["| | code | status | shown by |", "|---|---|---|---|"] if codes else [
        "| | shown by |", "|---|---|",
    ]  # fmt: skip
    for name in names:
        proof = " · ".join(found.get(name, ())) or f"*{NEVER[name]}*"
        told = f"`{codes[name].code}` | {codes[name].status} | " if codes else ""
        lines.append(f"| `{name}` | {told}{proof} |")
    return "\n".join(lines)
