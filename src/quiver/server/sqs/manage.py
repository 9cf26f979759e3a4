"""Actions on queues: make, find, change, tag, purge, delete."""

import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Final, TypeVar

import msgspec

from quiver import limits
from quiver.client.tasks import run
from quiver.errors import TopicExists, TopicNotFound
from quiver.model.queries import ListTopics
from quiver.model.stats import TopicStats
from quiver.model.topic import TopicPolicy
from quiver.node.placing import TopicHandle
from quiver.server.sqs import queues, shapes
from quiver.server.sqs.faults import (
    Fault,
    bad_attribute,
    invalid,
    invalid_parameter,
    missing,
    unknown_attribute,
)
from quiver.server.sqs.service import SqsCall
from quiver.server.sqs.shapes import Output

LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
ACCOUNT: Final = re.compile(r"[0-9]{12}")
GRANTABLE: Final = (
    "*", "ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl",
    "ListDeadLetterSourceQueues", "PurgeQueue", "ReceiveMessage", "SendMessage",
)  # fmt: skip


R = TypeVar("R", bound=shapes.Input)
T = TypeVar("T")


def one_at_a_time(
    action: Callable[[SqsCall, R], Awaitable[T]],
) -> Callable[[SqsCall, R], Awaitable[T]]:
    """An action that no other of its kind may come in between."""

    @wraps(action)
    async def alone(call: SqsCall, request: R) -> T:
        async with call.service.changing:
            return await action(call, request)

    return alone


# -- making and finding ----------------------------------------------------------------------------


@one_at_a_time
async def create_queue(call: SqsCall, request: shapes.CreateQueue) -> Output:
    name, service = request.queue_name, call.service
    if not name:
        raise missing("QueueName")
    given = request.attributes or {}
    fifo = given.get("FifoQueue", "").lower() == "true"
    queues.check_name(name, fifo=fifo)
    call.principal.demand("manage", name)
    attributes = queues.check(given, call.bounds, fifo=fifo)
    queues.check_throughput(attributes)
    _check_tags(name, request.tags or {})
    try:
        handle = await run(service.flows.find(name))
    except TopicNotFound:
        await _make(call, name, attributes, request.tags or {}, fifo=fifo)
    else:
        _check_same(call, handle, attributes)
    return {"QueueUrl": call.url(name)}


async def _make(
    call: SqsCall, name: str, attributes: dict[str, str], tags: dict[str, str], *, fifo: bool
) -> None:
    service = call.service
    now_ms = service.now_ms()
    deleted_ms = service.deleted.get(name)
    if call.bounds.strict and deleted_ms is not None and now_ms - deleted_ms < 60_000:
        raise Fault(
            "QueueDeletedRecently",
            "You must wait 60 seconds after deleting a queue before you can create another with the "
            "same name.",
        )
    plain = TopicPolicy(order="key" if fifo else "none")
    target = await _target(call, name, attributes.get("RedrivePolicy"), fifo=fifo)
    wanted = {"MessageRetentionPeriod": str(queues.RETENTION_SECONDS), **attributes}
    labels, policy = queues.change(plain, wanted, target, now_ms // 1000)
    labels[queues.CREATED] = labels[queues.MODIFIED]
    labels |= {queues.TAG + key: value for key, value in tags.items()}
    if fifo:
        labels[queues.SCOPE] = attributes.get("DeduplicationScope", "queue")
    try:
        await service.queue.create_topic(name, order=plain.order, labels=labels, **policy)
    except TopicExists:  # somebody was faster
        _check_same(call, await service.handle(name), attributes)
        return
    await service.queue.create_group(name, queues.GROUP)


def _check_same(call: SqsCall, handle: TopicHandle, attributes: Mapping[str, str]) -> None:
    """Making a queue again is fine, as long as nothing is asked of it that it is not."""
    known = {**call.service.look(handle).kept, **_attributes(call, handle)}
    for name, value in attributes.items():
        if name == "RedrivePolicy" and value:
            value = queues.redrive_text(*queues.read_redrive(value))  # noqa: PLW2901
        if known.get(name, "") != value:
            raise Fault(
                "QueueNameExists",
                f"A queue already exists with the same name and a different value for attribute {name}",
            )


async def get_queue_url(call: SqsCall, request: shapes.GetQueueUrl) -> Output:
    if not request.queue_name:
        raise missing("QueueName")
    if not call.principal.sees(request.queue_name):
        call.principal.demand("observe", request.queue_name)
    await call.service.handle(request.queue_name)
    return {"QueueUrl": call.url(request.queue_name)}


async def list_queues(call: SqsCall, request: shapes.ListQueues) -> Output:
    start = request.queue_name_prefix or ""
    names = call.principal.visible(await call.service.queue.topics())
    names = [name for name in names if name.startswith(start)]
    return _page(call, "QueueUrls", names, request)


async def list_dead_letter_source_queues(
    call: SqsCall, request: shapes.ListDeadLetterSourceQueues
) -> Output:
    handle = await call.topic(request.queue_url, "observe")
    names = call.principal.visible(await sources(call, handle.name))
    return {"queueUrls": [], **_page(call, "queueUrls", names, request)}


async def sources(call: SqsCall, name: str) -> list[str]:
    """The queues that have this one for their dead letters."""
    found = await run(call.service.flows.ask(ListTopics(dead_letter=name)))
    own = queues.OWN in (await call.service.handle(name)).policy.labels
    return sorted([*found, name]) if own else found


def _page(
    call: SqsCall, key: str, names: list[str],
    request: shapes.ListQueues | shapes.ListDeadLetterSourceQueues,
) -> Output:  # fmt: skip
    most = request.max_results
    if most is not None and not 1 <= most <= limits.SQS_PAGE_MAX:
        raise invalid(
            most, "MaxResults", f"MaxResults must be between 1 and {limits.SQS_PAGE_MAX}."
        )
    if request.next_token:
        after = _untoken(request.next_token)
        names = [name for name in names if name > after]
    page = names[: most or limits.SQS_PAGE_MAX]
    found: Output = {key: [call.url(name) for name in page]} if page else {}
    if most is not None and len(names) > len(page):
        found["NextToken"] = b64encode(page[-1].encode()).decode()
    return found


def _untoken(token: str) -> str:
    try:
        return b64decode(token, validate=True).decode()
    except ValueError:
        raise invalid_parameter("Invalid or expired next token.") from None


async def delete_queue(call: SqsCall, request: shapes.DeleteQueue) -> None:
    handle = await call.topic(request.queue_url, "manage")
    service = call.service
    await service.queue.delete_topic(handle.name)
    service.deleted.put(handle.name, service.now_ms())


@one_at_a_time
async def purge_queue(call: SqsCall, request: shapes.PurgeQueue) -> None:
    handle = await call.topic(request.queue_url, "manage")
    service, name = call.service, handle.name
    now_ms, before_ms = service.now_ms(), service.purged.get(handle.name)
    if call.bounds.strict and before_ms is not None and now_ms - before_ms < 60_000:
        raise Fault(
            "PurgeQueueInProgress",
            f"Only one PurgeQueue operation on {name} is allowed every 60 seconds.",
        )
    service.purged.put(name, now_ms)
    await service.queue.purge(name)
    queue = service.look(handle)
    if queue.fifo:
        labels = {**handle.policy.labels, queues.PURGES: str(now_ms)}
        await service.queue.alter_topic(name, labels=labels)


# -- attributes ------------------------------------------------------------------------------------


async def get_queue_attributes(call: SqsCall, request: shapes.GetQueueAttributes) -> Output:
    handle = await call.topic(request.queue_url, "observe")
    names = request.attribute_names or []
    for name in names:
        if name != "All" and name not in queues.KNOWN:
            raise unknown_attribute(name)
    if not names:
        return {}
    found = _attributes(call, handle)
    if "All" in names or any(name in queues.COUNTS for name in names):
        found |= _counts(await call.service.queue.stats(handle.name))
    if "All" not in names:
        found = {name: found[name] for name in names if name in found}
    return {"Attributes": found} if found else {}


def _attributes(call: SqsCall, handle: TopicHandle) -> dict[str, str]:
    queue = call.service.look(handle)
    return queue.attributes(call.arn(handle.name), call.arn(handle.policy.dead_letter or ""))


def _counts(stats: TopicStats) -> dict[str, str]:
    group = stats.groups.get(queues.GROUP)
    if group is None:  # nobody has received yet
        numbers = (stats.depth - stats.delayed, 0, stats.delayed)
    else:
        numbers = (group.ready, group.in_flight, group.delayed)
    return dict(zip(queues.COUNTS, map(str, numbers), strict=True))


@one_at_a_time
async def set_queue_attributes(call: SqsCall, request: shapes.SetQueueAttributes) -> None:
    handle = await call.topic(request.queue_url, "manage")
    service = call.service
    queue = service.look(handle)
    if not request.attributes:
        raise missing("Attributes")
    attributes = queues.check(request.attributes, call.bounds, fifo=queue.fifo)
    if queue.fifo:
        queues.check_throughput({**_attributes(call, handle), **attributes})
    target = await _target(call, queue.name, attributes.get("RedrivePolicy"), fifo=queue.fifo)
    labels, policy = queues.change(handle.policy, attributes, target, service.now_ms() // 1000)
    await service.queue.alter_topic(handle.name, labels=labels, **policy)


async def _target(call: SqsCall, name: str, text: str | None, *, fifo: bool) -> str | None:
    """The topic for dead letters, which must be there, be of the same type and let itself be used.

    There is none for a queue that is its own: what dies there stays where it is.
    """
    if not text:
        return None
    arn, _ = queues.read_redrive(text)
    target = queues.name_of_arn(arn)
    assert target is not None, "read_redrive has looked"
    call.principal.demand("manage", target)  # it would fill with what this queue gives up
    try:
        found = call.service.look(await call.service.handle(target))
    except Fault:
        raise invalid(text, "RedrivePolicy", "Dead letter target does not exist.") from None
    if found.fifo != fifo:
        raise invalid(
            text, "RedrivePolicy", "Dead-letter queue must be same type of queue as the source."
        )
    allowed = found.policy.labels.get(queues.LABEL + "RedriveAllowPolicy")
    if allowed and not queues.allows(allowed, name):
        raise invalid(
            text, "RedrivePolicy", "The dead-letter queue does not allow this queue as its source."
        )
    return None if target == name else target


# -- tags ------------------------------------------------------------------------------------------


@one_at_a_time
async def tag_queue(call: SqsCall, request: shapes.TagQueue) -> None:
    handle = await call.topic(request.queue_url, "manage")
    if not request.tags:
        raise missing("Tags")
    tags = {**call.service.look(handle).tags, **request.tags}
    _check_tags(handle.name, tags)
    await _retag(call, handle, tags)


@one_at_a_time
async def untag_queue(call: SqsCall, request: shapes.UntagQueue) -> None:
    handle = await call.topic(request.queue_url, "manage")
    if request.tag_keys is None:
        raise missing("TagKeys")
    _check_tag_keys(request.tag_keys or [""])  # an empty list in a form is one empty key
    tags = call.service.look(handle).tags
    kept = {key: value for key, value in tags.items() if key not in request.tag_keys}
    await _retag(call, handle, kept)


async def _retag(call: SqsCall, handle: TopicHandle, tags: dict[str, str]) -> None:
    labels = handle.policy.labels
    kept = {name: labels[name] for name in labels if not name.startswith(queues.TAG)}
    kept |= {queues.TAG + key: value for key, value in tags.items()}
    if kept != labels:
        await call.service.queue.alter_topic(handle.name, labels=kept)


def _check_tags(name: str, tags: Mapping[str, str]) -> None:
    if len(tags) > limits.SQS_TAGS_MAX:
        raise invalid_parameter(f"Too many tags added for queue {name}.")
    _check_tag_keys(tags)
    for value in tags.values():
        if len(value) > 256:
            raise invalid_parameter("Tag values must be between 0 and 256 characters in length.")


def _check_tag_keys(keys: Iterable[str]) -> None:
    if not all(1 <= len(key) <= 128 for key in keys):
        raise invalid_parameter("Tag keys must be between 1 and 128 characters in length.")


async def list_queue_tags(call: SqsCall, request: shapes.ListQueueTags) -> Output:
    handle = await call.topic(request.queue_url, "observe")
    tags = call.service.look(handle).tags
    return {"Tags": tags} if tags else {}


# -- permissions -----------------------------------------------------------------------------------


@one_at_a_time
async def add_permission(call: SqsCall, request: shapes.AddPermission) -> None:
    handle = await call.topic(request.queue_url, "manage")
    label, accounts, actions = _permission(request)
    arn = call.arn(handle.name)
    policy = _policy(handle) or {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [],
    }
    if any(statement.get("Sid") == label for statement in policy["Statement"]):
        raise invalid(label, "Label", "Already exists.")
    principals = [f"arn:aws:iam::{account}:root" for account in accounts]
    allowed = [f"SQS:{action}" for action in actions]
    policy["Statement"].append(
        {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {"AWS": principals[0] if len(principals) == 1 else principals},
            "Action": allowed[0] if len(allowed) == 1 else allowed,
            "Resource": arn,
        }
    )
    await _set_policy(call, handle, policy)


def _permission(request: shapes.AddPermission) -> tuple[str, list[str], list[str]]:
    label, accounts, actions = request.label, request.account_ids, request.actions
    if not label:
        raise missing("Label")
    if not actions:
        raise missing("Actions")
    if accounts is None:
        raise missing("AWSAccountIds")
    if not LABEL.fullmatch(label):
        raise invalid(
            label, "Label",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.",
        )  # fmt: skip
    if len(actions) > limits.SQS_ACTIONS_MAX:
        raise Fault(
            "OverLimit",
            f"{len(actions)} Actions were found, maximum allowed is {limits.SQS_ACTIONS_MAX}.",
        )
    for account in accounts or [""]:
        if not ACCOUNT.fullmatch(account):
            raise invalid(f"[{account}]", "PrincipalId", "Unable to verify.")
    for action in actions:
        if action in GRANTABLE:
            continue
        reason = "Please refer to the appropriate WSDL for a list of valid actions. "
        if action in shapes.INPUTS:
            reason = "Only the queue owner is allowed to invoke this action."
        raise invalid(f"SQS:{action}", "ActionName", reason)
    return label, accounts, actions


@one_at_a_time
async def remove_permission(call: SqsCall, request: shapes.RemovePermission) -> None:
    handle = await call.topic(request.queue_url, "manage")
    label = request.label
    if not label:
        raise missing("Label")
    policy = _policy(handle)
    if policy is None:
        raise invalid(label, "Label", "can't find label.")
    statements = policy["Statement"]
    kept = [statement for statement in statements if statement.get("Sid") != label]
    if len(kept) == len(statements):
        raise invalid(label, "Label", "can't find label on existing policy.")
    await _set_policy(call, handle, {**policy, "Statement": kept} if kept else None)


def _policy(handle: TopicHandle) -> dict[str, Any] | None:
    text = handle.policy.labels.get(queues.LABEL + "Policy")
    if text is None:
        return None
    found = queues.json_map(text, "Policy")
    statements = found.get("Statement", [])
    if isinstance(statements, dict):
        statements = [statements]
    if not isinstance(statements, list) or not all(isinstance(x, dict) for x in statements):
        raise bad_attribute("Policy")
    return {**found, "Statement": statements}


async def _set_policy(call: SqsCall, handle: TopicHandle, policy: dict[str, Any] | None) -> None:
    labels = dict(handle.policy.labels)
    labels.pop(queues.LABEL + "Policy", None)
    if policy is not None:
        labels[queues.LABEL + "Policy"] = msgspec.json.encode(policy).decode()
    await call.service.queue.alter_topic(handle.name, labels=labels)
