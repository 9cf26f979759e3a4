"""Errors as SQS has them: a shape for JSON, an older code for the query protocol, an HTTP status."""

from typing import Final

from quiver import errors

PREFIX: Final = "AWS.SimpleQueueService."

# Shapes whose code in the query protocol is not their name. SDKs show this older code to programs.
CODES: Final = {
    "BatchEntryIdsNotDistinct": PREFIX + "BatchEntryIdsNotDistinct",
    "BatchRequestTooLong": PREFIX + "BatchRequestTooLong",
    "EmptyBatchRequest": PREFIX + "EmptyBatchRequest",
    "InvalidBatchEntryId": PREFIX + "InvalidBatchEntryId",
    "MessageNotInflight": PREFIX + "MessageNotInflight",
    "PurgeQueueInProgress": PREFIX + "PurgeQueueInProgress",
    "QueueDeletedRecently": PREFIX + "QueueDeletedRecently",
    "QueueDoesNotExist": PREFIX + "NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "TooManyEntriesInBatchRequest": PREFIX + "TooManyEntriesInBatchRequest",
    "UnsupportedOperation": PREFIX + "UnsupportedOperation",
    "AccessDeniedException": "AccessDenied",
    "InvalidParameterValueException": "InvalidParameterValue",
    "MissingRequiredParameterException": "MissingParameter",
    "UnknownOperationException": "InvalidAction",
}
NOT_FOR_TYPE: Final = "The request include parameter that is not valid for this queue type."
STATUSES: Final = {  # all others are 400
    "AccessDeniedException": 403,
    "IncompleteSignature": 403,
    "InvalidAddress": 404,
    "InvalidClientTokenId": 403,
    "MissingAuthenticationToken": 403,
    "OverLimit": 403,
    "PurgeQueueInProgress": 403,
    "ReceiptHandleIsInvalid": 404,
    "RequestExpired": 403,
    "RequestThrottled": 403,
    "ResourceNotFoundException": 404,
    "SignatureDoesNotMatch": 403,
    "InternalFailure": 500,
    "ServiceUnavailable": 503,
}


class Fault(Exception):
    """A request is refused: what SQS would say to it."""

    def __init__(self, shape: str, message: str) -> None:
        super().__init__(message)
        self.shape = shape
        self.message = message

    @property
    def code(self) -> str:
        """The name in the query protocol, and in the entries of a batch."""
        return CODES.get(self.shape, self.shape)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUSES.get(self.shape, 400)

    @property
    def sender(self) -> bool:
        """Whether it is the sender's fault."""
        return self.status < 500


def invalid(value: object, parameter: str, reason: str) -> Fault:
    """A parameter has a value that it cannot have."""
    return Fault(
        "InvalidParameterValueException",
        f"Value {value} for parameter {parameter} is invalid. Reason: {reason}",
    )


def invalid_parameter(message: str) -> Fault:
    """As `invalid`, in other words."""
    return Fault("InvalidParameterValueException", message)


def missing(parameter: str) -> Fault:
    """A parameter that must be there is not."""
    return Fault(
        "MissingRequiredParameterException", f"The request must contain the parameter {parameter}."
    )


def unknown_attribute(name: str) -> Fault:
    """A queue or a message has no such attribute."""
    return Fault("InvalidAttributeName", f"Unknown Attribute {name}.")


def bad_attribute(name: str, reason: str = "") -> Fault:
    """An attribute of a queue cannot have this value."""
    because = f" Reason: {reason}" if reason else ""
    return Fault("InvalidAttributeValue", f"Invalid value for the parameter {name}.{because}")


def no_queue() -> Fault:
    """There is no such queue. The query protocol has a longer text, see `query.error`."""
    return Fault("QueueDoesNotExist", "The specified queue does not exist.")


def over_limit() -> Fault:
    """As many messages are in flight as there may be."""
    return Fault(
        "OverLimit",
        "Too many messages have been received without being deleted. Please delete your received "
        "messages or let them timeout before receiving more.",
    )


def bad_receipt(handle: str) -> Fault:
    """That was never a receipt handle of this queue."""
    return Fault(
        "ReceiptHandleIsInvalid",
        f'The input receipt handle "{handle}" is not a valid receipt handle.',
    )


def of(error: errors.QuiverError) -> Fault:
    """What SQS would say to an error of ours that no action has translated by itself."""
    text = str(error)
    match error:
        case errors.TopicNotFound():
            return no_queue()
        case errors.Forbidden():
            return Fault("AccessDeniedException", text)
        case errors.Unauthenticated():
            return Fault(error.reason or "InvalidClientTokenId", text)
        case errors.ReceiptError():
            return Fault("ReceiptHandleIsInvalid", text)
        case errors.LimitExceeded():
            return Fault("OverLimit", text)
        case errors.QuotaExceeded():
            return Fault("RequestThrottled", text)
        case errors.UnavailableError() | errors.QueueClosed():
            return Fault("ServiceUnavailable", text)  # a status that every SDK tries again on
        case errors.RequestError():
            return invalid_parameter(text)
        case _:
            return Fault("InternalFailure", text)
