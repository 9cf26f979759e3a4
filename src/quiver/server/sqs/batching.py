"""What the batches of three actions share: entries with ids, successes and failures side by side."""

import re
from typing import Any, Final, TypeVar

from quiver.server.sqs import shapes
from quiver.server.sqs.faults import Fault, missing
from quiver.server.sqs.service import SqsCall
from quiver.server.sqs.shapes import Output

ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")

E = TypeVar(
    "E",
    shapes.SendMessageBatchRequestEntry,
    shapes.DeleteMessageBatchRequestEntry,
    shapes.ChangeMessageVisibilityBatchRequestEntry,
)


class Results:
    """What became of the entries of a batch."""

    def __init__(self) -> None:
        self._done: dict[str, Output] = {}
        self._failed: dict[str, Output] = {}

    def succeed(self, name: str, answer: Output | None = None) -> None:
        """It is done."""
        self._done[name] = {"Id": name, **(answer or {})}

    def fail(self, name: str, fault: Fault) -> None:
        """It was refused."""
        self._failed[name] = {
            "Id": name, "SenderFault": fault.sender, "Code": fault.code, "Message": fault.message,
        }  # fmt: skip

    def output(self, order: dict[str, Any]) -> Output:
        """Both lists, in the order of the entries."""
        return {
            "Successful": [self._done[name] for name in order if name in self._done],
            "Failed": [self._failed[name] for name in order if name in self._failed],
        }


def entries_of(call: SqsCall, entries: list[E] | None, kind: str) -> dict[str, E]:
    """The entries of a batch by their ids."""
    if not entries:
        raise Fault("EmptyBatchRequest", f"There should be at least one {kind} in the request.")
    most = call.bounds.batch_entries
    if len(entries) > most:
        raise Fault(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {most}. You have sent {len(entries)}.",
        )
    found: dict[str, E] = {}
    for at, entry in enumerate(entries, 1):
        if entry.id is None:
            raise missing(f"{kind}.{at}.Id")
        if not ENTRY_ID.fullmatch(entry.id):
            raise Fault(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                "It can be at most 80 letters long.",
            )
        if entry.id in found:
            raise Fault("BatchEntryIdsNotDistinct", f"Id {entry.id} repeated.")
        found[entry.id] = entry
    return found
