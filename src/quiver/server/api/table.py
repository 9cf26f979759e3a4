"""The endpoints, all of them: routes, checks and the description are made from this table."""

from typing import Final

from quiver import limits
from quiver.client.results import Sent, SentBatch
from quiver.model.replies import Assigned, ProducerOpened, Published, Sealed, Staged
from quiver.model.stats import Overview, TopicStats
from quiver.server.api import groups, history, messages, topics
from quiver.server.api.endpoint import Endpoint
from quiver.wire import shapes

_TOPIC: Final = "/v1/topics/{topic}"
_GROUP: Final = _TOPIC + "/groups/{group}"
_MEMBER: Final = _GROUP + "/members/{member}"
_JSON: Final = limits.API_JSON_BYTES_MAX

ENDPOINTS: Final = (
    Endpoint("GET", "/v1", None, topics.about, "Version and capabilities", shapes.About),
    Endpoint("GET", "/v1/overview", None, topics.overview, "What all topics are doing", Overview,
             large=True),
    # -- topics
    Endpoint("GET", "/v1/topics", None, topics.list_topics, "List topics", shapes.Topics,
             large=True),
    Endpoint("PUT", _TOPIC, "manage", topics.create_topic, "Make a topic; again changes nothing",
             shapes.TopicOut, shapes.TopicArguments),
    Endpoint("GET", _TOPIC, "observe", topics.show_topic, "A topic and its policy", shapes.TopicOut),
    Endpoint("PATCH", _TOPIC, "manage", topics.alter_topic, "Change a topic's policy",
             shapes.TopicOut, shapes.TopicChanges),
    Endpoint("DELETE", _TOPIC, "manage", topics.delete_topic, "Delete a topic and its messages"),
    Endpoint("GET", _TOPIC + "/stats", "observe", topics.stats, "What it is doing", TopicStats),
    Endpoint("POST", _TOPIC + "/purge", "manage", topics.purge, "Drop all messages", shapes.Count),
    Endpoint("POST", _TOPIC + "/compact", "manage", topics.compact,
             "Drop what newer messages of the same key have superseded", shapes.Count),
    Endpoint("GET", _TOPIC + "/segments", "read", topics.segments,
             "The Parquet files of the topic, and what is in none of them", Sealed, large=True),
    # -- messages
    Endpoint("POST", _TOPIC + "/messages", "send", messages.send, "Send one message", Sent,
             shapes.MessageIn, shapes.SendQuery, limit=limits.API_MESSAGE_BYTES_MAX),
    Endpoint("POST", _TOPIC + "/batches", "send", messages.send_batch,
             "Send many messages, all or none", SentBatch, shapes.MessagesIn, shapes.SendQuery,
             arrow_in=True, limit=_JSON),
    Endpoint("POST", _TOPIC + "/producers/{producer}", "send", messages.open_producer,
             "Open a named producer, whose batches are stored once", ProducerOpened),
    Endpoint("POST", _TOPIC + "/staged", "send", messages.stage,
             "Store messages that are not to be had before they are published", Staged,
             shapes.MessagesIn, arrow_in=True, limit=_JSON),
    Endpoint("POST", _TOPIC + "/publish", "send", messages.publish,
             "Let a topic have staged messages, all at once, each batch once", Published,
             shapes.PublishIn, limit=_JSON),
    Endpoint("POST", _TOPIC + "/unstage", "send", messages.unstage,
             "Drop staged messages", shapes.Count, shapes.StagedIn, limit=_JSON),
    Endpoint("GET", _TOPIC + "/applications/{application}", "send", messages.published,
             "The last batch of an application", shapes.ApplicationOut),
    Endpoint("POST", _TOPIC + "/read", "read", messages.read, "Replay, a page at a time",
             shapes.ReadOut, shapes.ReadIn, arrow_out=True, large=True),
    Endpoint("POST", _GROUP + "/receive", "receive", messages.receive,
             "Lease messages, waiting for the first", shapes.ReceivedMessages, shapes.ReceiveIn,
             arrow_out=True, large=True),
    Endpoint("POST", "/v1/settle", None, messages.settle,
             "Ack, nack, extend, dead-letter, begin or release", shapes.SettledOut, shapes.SettlePart,
             limit=_JSON),
    Endpoint("POST", "/v1/transactions", None, messages.transact,
             "Settle and send, all or nothing", list[SentBatch], shapes.TransactionIn,
             limit=_JSON, somewhere=("send", "receive")),
    # -- groups
    Endpoint("PUT", _GROUP, "manage", groups.create_group, "Make a group", None, shapes.GroupIn),
    Endpoint("DELETE", _GROUP, "manage", groups.delete_group, "Forget a group"),
    Endpoint("POST", _GROUP + "/seek", "manage", groups.seek, "Put a group elsewhere", None,
             shapes.SeekIn),
    Endpoint("POST", _GROUP + "/pause", "manage", groups.pause, "Stop deliveries to a group"),
    Endpoint("POST", _GROUP + "/resume", "manage", groups.resume, "Go on with deliveries"),
    Endpoint("PUT", _MEMBER, "receive", groups.join, "Become a member of a group", Assigned,
             shapes.JoinIn),
    Endpoint("GET", _MEMBER, "receive", groups.assigned, "What is a member's", Assigned),
    Endpoint("DELETE", _MEMBER, "receive", groups.leave, "Leave a group"),
    Endpoint("POST", _MEMBER + "/heartbeat", "receive", groups.heartbeat, "Still here", Assigned,
             shapes.HeartbeatIn),
    Endpoint("POST", _MEMBER + "/fetch", "receive", groups.fetch,
             "The next messages of a member's partitions", shapes.Fetched, shapes.FetchIn,
             arrow_out=True, large=True),
    Endpoint("POST", _MEMBER + "/commit", "receive", groups.commit,
             "Everything before these offsets is processed", Assigned, shapes.CommitIn),
    # -- dead letters
    Endpoint("POST", _TOPIC + "/redrive", "manage", groups.redrive, "Move dead letters back",
             shapes.Count, shapes.RedriveIn),
    Endpoint("POST", _TOPIC + "/discard", "manage", groups.discard, "Drop pending messages",
             shapes.Count, shapes.DiscardIn),
    # -- what happened
    Endpoint("GET", "/v1/ledger", None, history.ledger, "What happened to messages", shapes.Rows,
             query=history.LedgerQuery, arrow_out=True, large=True),
    Endpoint("GET", "/v1/messages/{message}/trace", None, history.trace,
             "What happened to one message", shapes.Rows, arrow_out=True, large=True),
    Endpoint("POST", "/v1/sql", "read", history.sql, "One SELECT over topics", shapes.Rows,
             shapes.QuestionIn, arrow_out=True, large=True),
    Endpoint("POST", "/v1/seal", "manage", topics.seal, "Write what is kept into Parquet now"),
)  # fmt: skip
