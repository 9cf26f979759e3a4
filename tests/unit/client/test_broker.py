"""What a broker must be, and what a flow says when it lacks an ability."""

from pathlib import Path
from typing import Any

import pytest

from quiver.client.broker import Broker
from quiver.client.following import Follower
from quiver.client.local import LocalBroker, open_flows
from quiver.client.threads import run
from quiver.errors import InvalidRequest, ReadOnly
from quiver.model.topic import Retention, TopicPolicy

BROKERS: tuple[type[Broker], ...] = (LocalBroker, Follower)  # which is for mypy to say


@pytest.fixture
def flows(tmp_path: Path):
    made, close = open_flows(tmp_path, 1_000, "disk")
    run(made.create_topic("t", TopicPolicy(retention=Retention(compact=True))))
    yield made
    close()


VERBS: dict[str, Any] = {
    "seal": lambda flows, folder: flows.seal(),
    "compact": lambda flows, folder: flows.compact("t"),
    "backup": lambda flows, folder: flows.backup(folder / "backup"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_a_broker_is_not_able_to_is_refused_before_anything_is_done(
    flows, tmp_path, verb
):
    flows.broker.abilities -= {verb}
    with pytest.raises(InvalidRequest, match=f"cannot {verb}"):
        run(VERBS[verb](flows, tmp_path))
    assert not (tmp_path / "backup").exists()
    flows.broker.abilities -= {"write"}
    with pytest.raises(ReadOnly):
        run(VERBS[verb](flows, tmp_path))


@pytest.mark.parametrize("verb", VERBS)
def test_a_shard_is_able_to_all_of_them(flows, tmp_path, verb):
    run(VERBS[verb](flows, tmp_path.with_suffix(".elsewhere")))
