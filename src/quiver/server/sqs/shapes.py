"""What requests have in them. Names are those of the API: `queue_url` is `QueueUrl` on the wire.

Nothing is required here, so that what is missing is told in the words of SQS.
"""

from typing import Any, Final

from msgspec import Struct, field


class Input(Struct, rename="pascal", kw_only=True):
    """Of an action, or of an entry of a batch."""


class OfQueue(Input):
    """Of an action on one queue."""

    queue_url: str | None = None


class Attribute(Input):
    """A message attribute's value."""

    data_type: str | None = None
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: list[str] | None = None
    binary_list_values: list[bytes] | None = None


class CreateQueue(Input):
    queue_name: str | None = None
    attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = field(name="tags", default=None)


class GetQueueUrl(Input):
    queue_name: str | None = None
    queue_owner_account: str | None = field(name="QueueOwnerAWSAccountId", default=None)


class ListQueues(Input):
    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class DeleteQueue(OfQueue):
    pass


class PurgeQueue(OfQueue):
    pass


class GetQueueAttributes(OfQueue):
    attribute_names: list[str] | None = None


class SetQueueAttributes(OfQueue):
    attributes: dict[str, str] | None = None


class TagQueue(OfQueue):
    tags: dict[str, str] | None = None


class UntagQueue(OfQueue):
    tag_keys: list[str] | None = None


class ListQueueTags(OfQueue):
    pass


class AddPermission(OfQueue):
    label: str | None = None
    account_ids: list[str] | None = field(name="AWSAccountIds", default=None)
    actions: list[str] | None = None


class RemovePermission(OfQueue):
    label: str | None = None


class ListDeadLetterSourceQueues(OfQueue):
    next_token: str | None = None
    max_results: int | None = None


class Sendable(Input):
    """A message to send."""

    message_body: str | None = None
    delay_seconds: int | None = None
    message_attributes: dict[str, Attribute] | None = None
    message_system_attributes: dict[str, Attribute] | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessage(Sendable):
    queue_url: str | None = None


class SendMessageBatchRequestEntry(Sendable):
    id: str | None = None


class SendMessageBatch(OfQueue):
    entries: list[SendMessageBatchRequestEntry] | None = None


class ReceiveMessage(OfQueue):
    attribute_names: list[str] | None = None
    message_system_attribute_names: list[str] | None = None
    message_attribute_names: list[str] | None = None
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class DeleteMessage(OfQueue):
    receipt_handle: str | None = None


class DeleteMessageBatchRequestEntry(Input):
    id: str | None = None
    receipt_handle: str | None = None


class DeleteMessageBatch(OfQueue):
    entries: list[DeleteMessageBatchRequestEntry] | None = None


class ChangeMessageVisibility(OfQueue):
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatchRequestEntry(Input):
    id: str | None = None
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatch(OfQueue):
    entries: list[ChangeMessageVisibilityBatchRequestEntry] | None = None


class StartMessageMoveTask(Input):
    source_arn: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class CancelMessageMoveTask(Input):
    task_handle: str | None = None


class ListMessageMoveTasks(Input):
    source_arn: str | None = None
    max_results: int | None = None


Output = dict[str, Any]

INPUTS: Final[dict[str, type[Input]]] = {
    shape.__name__: shape
    for shape in (
        AddPermission, CancelMessageMoveTask, ChangeMessageVisibility,
        ChangeMessageVisibilityBatch, CreateQueue, DeleteMessage, DeleteMessageBatch, DeleteQueue,
        GetQueueAttributes, GetQueueUrl, ListDeadLetterSourceQueues, ListMessageMoveTasks,
        ListQueueTags, ListQueues, PurgeQueue, ReceiveMessage, RemovePermission, SendMessage,
        SendMessageBatch, SetQueueAttributes, StartMessageMoveTask, TagQueue, UntagQueue,
    )
}  # fmt: skip
