"""What a principal may do: deny wins, and what nothing allows is refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiver.errors import Forbidden, InvalidRequest
from quiver.server.auth import ANYBODY, VERBS, Principal
from quiver.server.auth.principal import Rule

TOPICS = ["orders", "orders.eu", "orders.us", "invoices"]


def principal(*allow, deny=()):
    return Principal("ann", tuple(map(Rule.parse, allow)), tuple(map(Rule.parse, deny)))


def allowed(who):
    return {(verb, topic) for verb in VERBS for topic in TOPICS if who.may(verb, topic)}


def test_nothing_is_allowed_by_default():
    assert allowed(principal()) == set()


def test_a_rule_allows_its_verbs_on_its_topic_only():
    assert allowed(principal("send,receive:orders")) == {("send", "orders"), ("receive", "orders")}


def test_a_star_at_the_end_is_any_rest_of_a_name():
    assert allowed(principal("send:orders.*")) == {("send", "orders.eu"), ("send", "orders.us")}
    assert allowed(principal("send:orders*")) == {
        ("send", "orders"), ("send", "orders.eu"), ("send", "orders.us"),
    }  # fmt: skip


def test_a_star_for_verbs_is_all_of_them():
    assert allowed(principal("*:*")) == allowed(ANYBODY) == {(v, t) for v in VERBS for t in TOPICS}


def test_deny_wins_whatever_allows():
    who = principal("*:*", "send:orders.eu", deny=["send:orders.*"])
    assert not who.may("send", "orders.eu")
    assert who.may("send", "orders")
    assert who.may("receive", "orders.eu")


def test_all_topics_are_allowed_only_by_a_rule_for_all_and_without_an_exception():
    assert principal("observe:*").may("observe")
    assert not principal("observe:orders.*").may("observe")
    assert not principal("observe:*", deny=["observe:secret.*"]).may("observe")
    assert principal("observe:*", deny=["read:secret.*"]).may("observe")


def test_a_listing_shows_what_anything_is_allowed_on():
    assert principal("send:orders.*", "read:invoices").visible(TOPICS) == [
        "orders.eu", "orders.us", "invoices",
    ]  # fmt: skip
    assert principal().visible(TOPICS) == []
    assert principal("send:*", deny=["send:orders*"]).visible(TOPICS) == ["invoices"]


def test_a_refusal_says_who_what_and_where():
    with pytest.raises(Forbidden, match=r"ann may not send on topic 'orders'.*access file"):
        principal("read:*").demand("send", "orders")
    with pytest.raises(Forbidden, match="observe on every topic"):
        principal("send:*").demand("observe")
    principal("send:*").demand("send", "orders")


@pytest.mark.parametrize(
    "text",
    ["", "send", "send:", ":orders", "fly:orders", "send,:orders", "send,send:orders", "send:a*b",
     "send:a/b", "send:**", "send: orders", "SEND:orders", "send:ö", "send:" + "x" * 300, "*"],
)  # fmt: skip
def test_what_is_no_rule_is_refused(text):
    with pytest.raises(InvalidRequest):
        Rule.parse(text)


@given(st.text(max_size=40))
def test_any_text_is_a_rule_or_refused(text):
    with suppress(InvalidRequest):
        Rule.parse(text)


names = st.text("ab.", min_size=1, max_size=4)
rules = st.builds(
    lambda verbs, pattern, star: f"{','.join(sorted(verbs))}:{pattern}{star}",
    st.sets(st.sampled_from(VERBS), min_size=1),
    names,
    st.sampled_from(["", "*"]),
)


@given(st.lists(rules, max_size=4), st.lists(rules, max_size=4), st.sampled_from(VERBS), names)
def test_the_rules_are_what_they_say(allow, deny, verb, topic):
    def matches(rule):
        verbs, _, pattern = rule.partition(":")
        fits = topic.startswith(pattern[:-1]) if pattern[-1] == "*" else topic == pattern
        return verb in verbs.split(",") and fits

    wanted = any(map(matches, allow)) and not any(map(matches, deny))
    assert principal(*allow, deny=deny).may(verb, topic) == wanted
