"""The door against the service's own model, walked through as botocore ships it, in both protocols.

What to ask follows from the model: each required member left out, each member of another kind, each
name that an enumeration does not have. The model of SQS has no ranges, lengths and patterns: those
are in the tables here, from the documentation, and no member may be missing in them.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from botocore.model import ListShape, MapShape, OperationModel, Shape, StructureShape

from quiver.server.sqs import faults
from tests.sqs.protocols import PROTOCOLS, Answer, Asker
from tests.sqs.query import Query
from tools import sqs as model

SERVICE: Final = model.model()
ACTIONS: Final = model.actions()
CODES: Final = {**model.CODES, **model.NOT_MODELLED}
SOURCE: Final = Path(faults.__file__).parent

MISSING: Final = "MissingRequiredParameterException"
INVALID: Final = "InvalidParameterValueException"
BEYOND: Final = {  # what an action says although the model does not list it for this one
    ("ReceiveMessage", "InvalidAttributeName"),
}


def operation(action: str) -> OperationModel:
    return SERVICE.operation_model(action)


# -- walking ---------------------------------------------------------------------------------------


class Member(NamedTuple):
    """A member of a request, however deep: `SendMessageBatch.Entries.Id`."""

    path: tuple[str, ...]
    shape: Shape
    required: bool

    def __str__(self) -> str:
        return ".".join(self.path)


def inner(shape: Shape) -> Shape:
    """What is in a list or a map."""
    if isinstance(shape, ListShape):
        return inner(shape.member)
    if isinstance(shape, MapShape):
        return inner(shape.value)
    return shape


def below(path: tuple[str, ...], shape: Shape) -> Iterator[Member]:
    if isinstance(shape, StructureShape):
        for name, member in shape.members.items():
            at = (*path, name)
            yield Member(at, member, name in shape.required_members)
            yield from below(at, inner(member))


MEMBERS: Final = [
    member for action in ACTIONS for member in below((action,), operation(action).input_shape)
]


def filled(shape: Shape) -> Any:
    """A request with all that there can be in it, of the right kinds and no more."""
    match shape:
        case StructureShape():
            return {name: filled(member) for name, member in shape.members.items()}
        case ListShape():
            return [filled(shape.member)]
        case MapShape():
            return {"x": filled(shape.value)}
        case _:
            return {"integer": 1, "blob": "eA=="}.get(shape.type_name, "x")


def replaced(
    request: Any, path: tuple[str, ...], change: Callable[[dict[str, Any], str], None]
) -> Any:
    """A copy of a request in which the place of this path is changed, in lists and maps in their first."""
    copy = json.loads(json.dumps(request))
    place = copy
    for name in path[:-1]:
        place = place[name]
        while not isinstance(place, dict) or (
            name.endswith("Attributes") and "DataType" not in place
        ):
            place = place[0] if isinstance(place, list) else next(iter(place.values()))
    change(place, path[-1])
    return copy


def put(value: Any) -> Callable[[dict[str, Any], str], None]:
    def change(place: dict[str, Any], name: str) -> None:
        place[name] = value

    return change


def leave_out(place: dict[str, Any], name: str) -> None:
    del place[name]


# -- what is asked ---------------------------------------------------------------------------------


class World(NamedTuple):
    """What good requests are about: a queue, a FIFO queue, and a dead-letter queue."""

    url: str
    fifo: str
    arn: str
    receipt: str

    def good(self, action: str) -> dict[str, Any]:
        """A request that would go well."""
        entry = {"Id": "a", "ReceiptHandle": self.receipt}
        attributes = {"a": {"DataType": "String", "StringValue": "x"}}
        system = {"AWSTraceHeader": {"DataType": "String", "StringValue": "x"}}
        sent = {
            "MessageBody": "x", "MessageAttributes": attributes, "MessageSystemAttributes": system,
        }  # fmt: skip
        task = b64encode(json.dumps({"taskId": "1", "sourceArn": self.arn}).encode()).decode()
        requests: dict[str, dict[str, Any]] = {
            "AddPermission": {
                "Label": "l", "AWSAccountIds": ["1" * 12], "Actions": ["SendMessage"],
            },
            "CancelMessageMoveTask": {"TaskHandle": task},
            "ChangeMessageVisibility": {"ReceiptHandle": self.receipt, "VisibilityTimeout": 9},
            "ChangeMessageVisibilityBatch": {"Entries": [{**entry, "VisibilityTimeout": 9}]},
            "CreateQueue": {"QueueName": self.url.rpartition("/")[2], "Attributes": {}},
            "DeleteMessage": {"ReceiptHandle": self.receipt},
            "DeleteMessageBatch": {"Entries": [entry]},
            "GetQueueAttributes": {"AttributeNames": ["All"]},
            "GetQueueUrl": {"QueueName": self.url.rpartition("/")[2]},
            "ListMessageMoveTasks": {"SourceArn": self.arn},
            "ListQueues": {"QueueNamePrefix": self.url.rpartition("/")[2]},
            "ReceiveMessage": {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]},
            "RemovePermission": {"Label": "l"},
            "SendMessage": sent,
            "SendMessageBatch": {"Entries": [{"Id": "a", **sent}]},
            "SetQueueAttributes": {"Attributes": {"DelaySeconds": "0"}},
            "StartMessageMoveTask": {"SourceArn": self.arn},
            "TagQueue": {"Tags": {"a": "b"}},
            "UntagQueue": {"TagKeys": ["c"]},
        }  # fmt: skip
        own = requests.get(action, {})
        if "QueueUrl" in operation(action).input_shape.members:
            return {"QueueUrl": self.url, **own}
        return own


@pytest.fixture(scope="module")
def world(sqs) -> World:
    def make(name, **attributes):
        return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    dead, url = make("model-dead"), make("model")
    found = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
    arn = found["Attributes"]["QueueArn"]
    make(
        "model-source", RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    )
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (got,) = sqs.receive_message(QueueUrl=url, VisibilityTimeout=3600)["Messages"]
    return World(url, make("model.fifo", FifoQueue="true"), arn, got["ReceiptHandle"])


@pytest.fixture(params=PROTOCOLS)
def ask(request, query: Query) -> Asker:
    return Asker(request.param, query)


def refused(answer: Answer, action: str, shape: str, message: str | None = None) -> None:
    """The answer is this error, told as the model says, or it is what became of a batch's only entry."""
    wanted = CODES[shape]
    if answer.status == 200:
        assert answer.texts("Code") == [wanted.code], answer
        assert message in (None, *answer.texts("Message"))
        return
    assert (answer.code, answer.status) == wanted, answer
    assert answer.kind == "Sender"
    assert answer.shape in ("", shape)
    assert message is None or answer.message == message
    listed = {error.name for error in operation(action).error_shapes} | set(model.NOT_MODELLED)
    assert shape in listed or (action, shape) in BEYOND, f"{action} has no {shape}"


# -- actions ---------------------------------------------------------------------------------------


def conforms(value: Any, shape: Shape, where: str) -> None:
    """An answer in JSON has what its shape has, and nothing else."""
    match shape:
        case StructureShape():
            assert isinstance(value, dict), where
            assert set(shape.required_members) <= set(value) <= set(shape.members), where
            for name, inside in value.items():
                conforms(inside, shape.members[name], f"{where}.{name}")
        case ListShape():
            assert isinstance(value, list), where
            for inside in value:
                conforms(inside, shape.member, where)
        case MapShape():
            assert isinstance(value, dict), where
            for inside in value.values():
                conforms(inside, shape.value, where)
        case _:
            kinds = {"integer": int, "long": int, "boolean": bool}
            assert isinstance(value, kinds.get(shape.type_name, str)), where


@pytest.mark.parametrize("action", ACTIONS)
def test_answers_have_the_shapes_of_the_model(sqs, query, world, name, action):
    request = world.good(action)
    if action not in ("SendMessage", "ReceiveMessage") and "QueueUrl" in request:
        request["QueueUrl"] = sqs.create_queue(QueueName=name())["QueueUrl"]
    if action == "ReceiveMessage":
        sent = {"QueueUrl": world.url, "MessageBody": "x"}
        attributes = {"b": {"DataType": "Binary", "BinaryValue": b"x"}}
        sqs.send_message(**sent, MessageAttributes=attributes)
        request["VisibilityTimeout"] = 0
    answer = Asker("json", query)(action, **request)
    output = operation(action).output_shape
    if action in (
        "CancelMessageMoveTask",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "RemovePermission",
    ):
        assert answer.status in (400, 404), "of another queue, and no such task"
    elif output is None:
        assert (answer.status, answer.body) == (200, b"")
    else:
        assert answer.status == 200, answer
        empty: dict[str, Any] = (
            {"Failed": []} if action == "SendMessageBatch" else {}
        )  # which AWS leaves out
        conforms({**empty, **answer.result}, output, action)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_queue_that_is_not_there(ask, world, action):
    request = world.good(action)
    for name in ("QueueUrl", "QueueName"):
        if name in request:
            request[name] += "-gone"
            if action != "CreateQueue":
                refused(ask(action, **request), action, "QueueDoesNotExist")
            return
    if "SourceArn" in request:
        request["SourceArn"] += "-gone"
        refused(ask(action, **request), action, "ResourceNotFoundException")


# -- members ---------------------------------------------------------------------------------------

ENTRY: Final = ("ChangeMessageVisibilityBatch", "DeleteMessageBatch", "SendMessageBatch")
ABSENT: Final = {  # what is said if not that the member itself is missing
    **{f"{action}.Entries": ("EmptyBatchRequest",
                             f"There should be at least one {action}RequestEntry in the request.")
       for action in ENTRY},
    **{f"{action}.Entries.Id": (MISSING,
                                "The request must contain the parameter "
                                f"{action}RequestEntry.1.Id.")
       for action in ENTRY},
}  # fmt: skip
UNTYPED: Final = {
    "MessageAttributes": "The message attribute 'a' must contain non-empty message attribute type.",
    "MessageSystemAttributes":
        "Message system attribute 'AWSTraceHeader' must contain a non-empty value of type 'String'.",
}  # fmt: skip


@pytest.mark.parametrize("member", [x for x in MEMBERS if x.required], ids=str)
def test_what_is_required_is_asked_for(ask, world, member):
    action, *path = member.path
    request = replaced(world.good(action), tuple(path), leave_out)
    shape, text = ABSENT.get(
        str(member), (MISSING, f"The request must contain the parameter {path[-1]}.")
    )
    if path[-1] == "DataType":
        shape, text = INVALID, UNTYPED[path[-2]]
    refused(ask(action, **request), action, shape, text)


@pytest.mark.parametrize("member", MEMBERS, ids=str)
def test_a_member_of_another_kind_cannot_be_read(query, member):
    action, *path = member.path
    wrong = put("x" if member.shape.type_name in ("list", "map", "integer", "structure") else 5)
    request = replaced(filled(operation(action).input_shape), tuple(path), wrong)
    answer = Asker("json", query)(action, **request)
    refused(answer, action, "SerializationException")
    if member.shape.type_name == "integer":
        form = replaced(filled(operation(action).input_shape), tuple(path), put("one"))
        refused(Asker("query", query)(action, **form), action, INVALID)


def names_of(shape: Shape) -> list[str] | None:
    """The names that a list can have, or a map as its keys."""
    inside = shape.member if isinstance(shape, ListShape) else getattr(shape, "key", None)
    return list(getattr(inside, "enum", ())) or None


@pytest.mark.parametrize("member", [x for x in MEMBERS if names_of(x.shape)], ids=str)
def test_names_that_an_enumeration_does_not_have(ask, world, member):
    action, *path = member.path
    value = {"DataType": "String", "StringValue": "x"} if "System" in path[-1] else "x"
    bad = ["Mood"] if isinstance(member.shape, ListShape) else {"Mood": value}
    request = replaced(world.good(action), tuple(path), put(bad))
    if path[-1] == "MessageSystemAttributes":
        refused(ask(action, **request), action, INVALID)
    else:
        refused(ask(action, **request), action, "InvalidAttributeName", "Unknown Attribute Mood.")


SET: Final = {  # attributes that can be set, each with a value that it can have
    "ContentBasedDeduplication": "true", "DeduplicationScope": "messageGroup",
    "DelaySeconds": "1", "FifoThroughputLimit": "perQueue", "KmsDataKeyReusePeriodSeconds": "60",
    "KmsMasterKeyId": "k", "MaximumMessageSize": "1024", "MessageRetentionPeriod": "60",
    "Policy": "{}", "ReceiveMessageWaitTimeSeconds": "1", "RedriveAllowPolicy": "{}",
    "RedrivePolicy": "", "SqsManagedSseEnabled": "true", "VisibilityTimeout": "1", "FifoQueue": "true",
}  # fmt: skip


@pytest.mark.parametrize("attribute", model.queue_attributes())
def test_attributes_of_queues_are_settable_or_refused(ask, name, attribute):
    given = {"FifoQueue": "true", attribute: SET.get(attribute, "1")}
    answer = ask("CreateQueue", QueueName=name(".fifo"), Attributes=given)
    if attribute in SET:
        assert answer.status == 200, answer
    else:
        text = f"Unknown Attribute {attribute}."
        refused(answer, "CreateQueue", "InvalidAttributeName", text)


# -- what the model does not say -------------------------------------------------------------------


class Range(NamedTuple):
    """The numbers that a member can be, from the page of this name in the API reference."""

    low: int
    high: int
    page: str


RANGES: Final = {
    "ChangeMessageVisibility.VisibilityTimeout": Range(0, 43_200, "ChangeMessageVisibility"),
    "ChangeMessageVisibilityBatch.Entries.VisibilityTimeout":
        Range(0, 43_200, "ChangeMessageVisibilityBatchRequestEntry"),
    "ListDeadLetterSourceQueues.MaxResults": Range(1, 1_000, "ListDeadLetterSourceQueues"),
    "ListMessageMoveTasks.MaxResults": Range(1, 10, "ListMessageMoveTasks"),
    "ListQueues.MaxResults": Range(1, 1_000, "ListQueues"),
    "ReceiveMessage.MaxNumberOfMessages": Range(1, 10, "ReceiveMessage"),
    "ReceiveMessage.VisibilityTimeout": Range(0, 43_200, "ReceiveMessage"),
    "ReceiveMessage.WaitTimeSeconds": Range(0, 20, "ReceiveMessage"),
    "SendMessage.DelaySeconds": Range(0, 900, "SendMessage"),
    "SendMessageBatch.Entries.DelaySeconds": Range(0, 900, "SendMessageBatchRequestEntry"),
    "StartMessageMoveTask.MaxNumberOfMessagesPerSecond": Range(1, 500, "StartMessageMoveTask"),
}  # fmt: skip


class Most(NamedTuple):
    """How many may be in a list or map, what is said to more, and where that is documented."""

    most: int
    shape: str
    page: str


MOST: Final = {
    "AddPermission.Actions": Most(7, "OverLimit", "AddPermission"),
    "ChangeMessageVisibilityBatch.Entries":
        Most(10, "TooManyEntriesInBatchRequest", "ChangeMessageVisibilityBatch"),
    "CreateQueue.tags": Most(50, INVALID, "Quotas related to queues"),
    "DeleteMessageBatch.Entries": Most(10, "TooManyEntriesInBatchRequest", "DeleteMessageBatch"),
    "SendMessage.MessageAttributes": Most(10, INVALID, "Message quotas"),
    "SendMessageBatch.Entries": Most(10, "TooManyEntriesInBatchRequest", "SendMessageBatch"),
    "SendMessageBatch.Entries.MessageAttributes": Most(10, INVALID, "Message quotas"),
    "TagQueue.Tags": Most(50, INVALID, "Quotas related to queues"),
    # "Not implemented. Reserved for future use."
    "StringListValues": Most(0, "UnsupportedOperation", "MessageAttributeValue"),
    "BinaryListValues": Most(0, "UnsupportedOperation", "MessageAttributeValue"),
}  # fmt: skip
ANY: Final = {  # which have no bound of their own: the names in them are checked one by one
    "AddPermission.AWSAccountIds", "CreateQueue.Attributes", "GetQueueAttributes.AttributeNames",
    "ReceiveMessage.AttributeNames", "ReceiveMessage.MessageAttributeNames",
    "ReceiveMessage.MessageSystemAttributeNames", "SendMessage.MessageSystemAttributes",
    "SendMessageBatch.Entries.MessageSystemAttributes", "SetQueueAttributes.Attributes",
    "UntagQueue.TagKeys",
}  # fmt: skip

# Texts that a member cannot be, by its name: the value, and what is said to it.
BAD: Final[dict[str, list[tuple[str, str]]]] = {
    "DataType": [("", INVALID), ("Mood", INVALID), ("String." + "x" * 250, INVALID)],
    "DestinationArn": [("junk", "ResourceNotFoundException")],
    "Id": [("", "InvalidBatchEntryId"), ("a b", "InvalidBatchEntryId"),
           ("a" * 81, "InvalidBatchEntryId")],
    "Label": [("", MISSING), ("a b", INVALID), ("a" * 81, INVALID)],
    "MessageBody": [("", MISSING), ("\x00", "InvalidMessageContents"),
                    ("\ufffe", "InvalidMessageContents")],
    "MessageDeduplicationId": [("x", INVALID)],  # on a standard queue
    "MessageGroupId": [("", INVALID), ("a b", INVALID), ("a" * 129, INVALID)],
    "NextToken": [("?", INVALID)],
    "QueueName": [("", MISSING), ("a b", ""), ("a" * 81, ""), ("a/b", "")],
    "QueueUrl": [("", "QueueDoesNotExist"), ("http://[/x", "InvalidAddress")],
    "ReceiptHandle": [("", MISSING), ("junk", "ReceiptHandleIsInvalid")],
    "ReceiveRequestAttemptId": [("x", INVALID)],  # on a standard queue
    "SourceArn": [("", MISSING), ("junk", "ResourceNotFoundException")],
    "StringValue": [("", INVALID), ("\x00", INVALID)],
    "TaskHandle": [("", MISSING), ("junk", INVALID)],
}  # fmt: skip
FREE: Final = {"QueueOwnerAWSAccountId", "QueueNamePrefix", "BinaryValue"}  # any will do


def test_the_model_says_no_more_than_is_asked_for():
    """A newer botocore may have ranges and patterns, or the errors' codes: then they are to be used."""
    shapes = [SERVICE.shape_for(name) for name in SERVICE.shape_names]
    for shape in shapes:
        assert not {"min", "max", "pattern"} & set(shape.metadata), shape
    raw = SERVICE._service_description["shapes"]
    assert not [name for name in raw if "error" in raw[name]]


def test_no_member_is_left_out_of_the_tables():
    kinds: dict[str, set[str]] = {}
    for member in MEMBERS:
        kinds.setdefault(member.shape.type_name, set()).add(str(member))
    assert kinds.pop("integer") == set(RANGES)
    many = {
        path if not path.endswith("ListValues") else path.rpartition(".")[2]
        for path in kinds.pop("list") | kinds.pop("map")
    }
    assert many == set(MOST) | ANY
    names = {path.rpartition(".")[2] for path in kinds.pop("string") | kinds.pop("blob")}
    assert names == set(BAD) | FREE
    assert not kinds


@pytest.mark.parametrize("path", RANGES)
def test_numbers_have_a_range(ask, world, path):
    action, *place = path.split(".")
    low, high, _ = RANGES[path]
    for value in (low - 1, high + 1, 2**31 - 1, -(2**31)):
        request = replaced(world.good(action), tuple(place), put(value))
        refused(ask(action, **request), action, INVALID)


@pytest.mark.parametrize(
    "member", [x for x in MEMBERS if x.shape.type_name in ("list", "map")], ids=str
)
def test_lists_and_maps_have_an_end(ask, world, member):
    action, *path = member.path
    bound = MOST.get(str(member), MOST.get(path[-1]))
    if bound is None:
        assert str(member) in ANY
        return
    good = world.good(action)
    value: Any
    if isinstance(member.shape, MapShape):
        one = {"DataType": "String", "StringValue": "x"} if "Message" in path[-1] else "x"
        value = {f"a{at}": one for at in range(bound.most + 1)}
    elif path[-1] == "Entries":
        value = [{**good["Entries"][0], "Id": str(at)} for at in range(bound.most + 1)]
    else:
        value = ["eA==" if "Binary" in path[-1] else "SendMessage"] * (bound.most + 1)
    refused(ask(action, **replaced(good, tuple(path), put(value))), action, bound.shape)


@pytest.mark.parametrize("member", [x for x in MEMBERS if x.path[-1] in BAD], ids=str)
def test_texts_that_a_member_cannot_be(ask, world, member):
    action, *path = member.path
    for value, shape in BAD[path[-1]]:
        if not shape:
            shape = INVALID if action == "CreateQueue" else "QueueDoesNotExist"  # noqa: PLW2901
        request = replaced(world.good(action), tuple(path), put(value))
        refused(ask(action, **request), action, shape)


# -- errors ----------------------------------------------------------------------------------------

ACTIONS_8: Final = [
    "ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl",
    "ListDeadLetterSourceQueues", "PurgeQueue", "ReceiveMessage", "SendMessage",
]  # fmt: skip


def twice(ask: Asker, action: str, **request: Any) -> Answer:
    assert ask(action, **request).status == 200
    return ask(action, **request)


def made_again(ask: Asker, world: World, queue: str) -> Answer:
    ask("CreateQueue", QueueName=queue)
    ask("DeleteQueue", QueueUrl=queue)
    return ask("CreateQueue", QueueName=queue)


def purged(ask: Asker, world: World, queue: str) -> Answer:
    ask("CreateQueue", QueueName=queue)
    return twice(ask, "PurgeQueue", QueueUrl=queue)


def batch(*entries: dict[str, Any]) -> Callable[[Asker, World, str], Answer]:
    def send(ask: Asker, world: World, queue: str) -> Answer:
        return ask("SendMessageBatch", QueueUrl=world.url, Entries=list(entries))

    return send


def changed(action: str, **change: Any) -> Callable[[Asker, World, str], Answer]:
    """A good request, but for this."""
    return lambda ask, world, queue: ask(action, **{**world.good(action), **change})


RAISED: Final[dict[str, Callable[[Asker, World, str], Answer]]] = {
    "BatchEntryIdsNotDistinct": batch(*[{"Id": "a", "MessageBody": "x"}] * 2),
    "BatchRequestTooLong": batch(*[{"Id": x, "MessageBody": "x" * 600_000} for x in "ab"]),
    "EmptyBatchRequest": batch(),
    "InvalidAddress": changed("DeleteQueue", QueueUrl="http://[/x"),
    "InvalidAttributeName": changed("SetQueueAttributes", Attributes={"Mood": "good"}),
    "InvalidAttributeValue": changed("SetQueueAttributes", Attributes={"DelaySeconds": "901"}),
    "InvalidBatchEntryId": batch({"Id": "a b", "MessageBody": "x"}),
    "InvalidMessageContents": changed("SendMessage", MessageBody="\x00"),
    "InvalidParameterValueException": changed("ReceiveMessage", MaxNumberOfMessages=11),
    "MissingRequiredParameterException": changed("SendMessage", MessageBody=""),
    "OverLimit": changed("AddPermission", Actions=ACTIONS_8),
    "PurgeQueueInProgress": purged,
    "QueueDeletedRecently": made_again,
    "QueueDoesNotExist": changed("SendMessage", QueueUrl="gone"),
    "QueueNameExists": changed("CreateQueue", Attributes={"DelaySeconds": "9"}),
    "ReceiptHandleIsInvalid": changed("DeleteMessage", ReceiptHandle="junk"),
    "ResourceNotFoundException": changed("ListMessageMoveTasks", SourceArn="junk"),
    "SerializationException": lambda ask, *_: ask.said_in_json("SendMessage", "{"),
    "TooManyEntriesInBatchRequest": batch(*[{"Id": str(x), "MessageBody": "x"} for x in range(11)]),
    "UnknownOperationException": lambda ask, *_: ask("Dance"),
    "UnsupportedOperation": changed("SendMessage", MessageAttributes={
        "a": {"DataType": "String", "StringValue": "x", "StringListValues": ["x"]}}),
}  # fmt: skip
ELSEWHERE: Final = {"RequestThrottled": "needs quotas: see test_faults"}


@pytest.mark.parametrize("shape", RAISED)
def test_errors_have_the_code_and_status_of_the_model(ask, world, name, shape):
    answer = RAISED[shape](ask, world, name())
    assert (answer.code, answer.status) == CODES[shape]
    assert answer.kind == "Sender"
    assert answer.message
    if ask.protocol == "json":
        assert answer.shape == shape


def test_every_error_is_raised_or_there_is_a_reason():
    assert sorted([*RAISED, *ELSEWHERE, *model.NEVER]) == model.errors()
    assert sorted(model.CODES) == sorted(error.name for error in SERVICE.error_shapes)


def test_codes_in_the_door_are_those_of_the_model():
    for shape, (code, status) in CODES.items():
        fault = faults.Fault(shape, "")
        known = (fault.code, fault.status)
        if shape not in model.NEVER:
            assert known == (code, status)


def test_the_door_has_no_error_of_its_own():
    """Those that the model does not have are AWS's for every service, or about who asks."""
    common = {"AccessDeniedException", "InternalFailure", "InvalidAction", "InvalidClientTokenId",
              "ServiceUnavailable"}  # fmt: skip
    said = {
        found
        for path in SOURCE.glob("*.py")
        for found in re.findall(r'Fault\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert said - common <= set(CODES)
