"""Members of a group that share out whole partitions."""

import pytest

import quiver
from quiver import Message
from tests.contract.verbs import bodies

SPLIT = ["b", "c", "d"]  # four partitions: a, b, c, d


@pytest.fixture
def shared(queue):
    """Topic "p" has four partitions with two messages each: a0 a1 in the first, and so on."""
    queue.create_topic("p", partitions=4, partition_by=SPLIT)
    queue.send_batch("p", [Message(f"{key}{at}", key=key) for at in range(2) for key in "abcd"])
    return queue


def settle_down(*members):
    """Let everybody hear of the new assignment: who loses partitions first, then who gets them."""
    for _ in range(2):
        for member in members:
            member.fetch(max_messages=1)
    return [member.partitions for member in members]


def owned(*members):
    for _ in range(2):
        for member in members:
            member.heartbeat()
    return [member.partitions for member in members]


def test_one_member_owns_every_partition(shared):
    with shared.join("p", "g", "m1") as member:
        assert member.partitions == [0, 1, 2, 3]
        assert sorted(bodies(member.fetch())) == sorted(
            f"{key}{at}".encode() for at in range(2) for key in "abcd"
        )
        assert member.fetch() == []


def test_a_partition_is_read_in_order(shared):
    with shared.join("p", "g", "m1") as member:
        found = bodies(member.fetch(max_messages=3)) + bodies(member.fetch())
    for key in "abcd":
        mine = [body for body in found if body.decode()[0] == key]
        assert mine == [f"{key}0".encode(), f"{key}1".encode()]


def test_a_second_member_gets_its_share_and_the_rest_stays(shared):
    with shared.join("p", "g", "m1") as one, shared.join("p", "g", "m2") as two:
        first, second = settle_down(one, two)
        assert sorted(first + second) == [0, 1, 2, 3]
        assert len(first) == len(second) == 2
        assert one.generation == two.generation


def test_assignment_is_sticky(shared):
    with shared.join("p", "g", "m1") as one, shared.join("p", "g", "m2") as two:
        before = settle_down(one, two)
        three = shared.join("p", "g", "m3")
        settle_down(one, two, three)
        three.leave()
        after = settle_down(one, two)
        for old, new in zip(before, after, strict=True):
            assert len(set(old) & set(new)) >= 1
        assert sorted(after[0] + after[1]) == [0, 1, 2, 3]


def test_a_partition_never_has_two_owners(shared):
    one = shared.join("p", "g", "m1")
    one.fetch()
    two = shared.join("p", "g", "m2")
    assert two.partitions == []  # m1 has not let go yet
    two.fetch()
    assert two.partitions == []
    one.fetch()  # lets go
    two.fetch()
    assert len(two.partitions) == 2
    assert set(one.partitions).isdisjoint(two.partitions)
    one.leave()
    two.leave()


def test_what_a_leaving_member_committed_is_not_read_again(shared):
    with shared.join("p", "g", "m1") as one:
        read = bodies(one.fetch(max_messages=3))
        one.commit()
        lost = bodies(one.fetch(max_messages=2))
    with shared.join("p", "g", "m2") as two:
        rest = bodies(two.fetch())
    assert len(read) == 3
    assert set(lost) <= set(rest)
    assert sorted(read + rest) == sorted(f"{k}{at}".encode() for at in range(2) for k in "abcd")


def test_a_session_that_ends_gives_the_partitions_to_the_others(shared, clock):
    shared.join("p", "g", "m1", session=10)
    with shared.join("p", "g", "m2", session=30) as two:
        clock.advance(10)
        assert owned(two) == [[0, 1, 2, 3]]
        assert shared.groups("p")["g"].members == 1


def test_a_heartbeat_keeps_the_session(shared, clock):
    with shared.join("p", "g", "m1", session=10) as one:
        for _ in range(5):
            clock.advance(9)
            one.heartbeat()
        assert one.partitions == [0, 1, 2, 3]


def test_a_member_whose_session_ended_can_neither_fetch_nor_commit(shared, clock):
    one = shared.join("p", "g", "m1", session=10)
    one.fetch()
    clock.advance(10)
    for refused in (one.commit, one.fetch, one.heartbeat, one.leave):
        with pytest.raises(quiver.MemberFenced, match="join again"):
            refused()
    with shared.join("p", "g", "m2") as two:
        assert len(two.fetch()) == 8


def test_a_commit_for_a_partition_that_others_own_now_is_fenced(shared, clock):
    one = shared.join("p", "g", "m1", session=10)
    one.fetch()
    clock.advance(10)
    with shared.join("p", "g", "m2") as two:
        two.heartbeat()
        again = shared.join("p", "g", "m1")
        with pytest.raises(quiver.MemberFenced, match="does not own"):
            one.commit()  # as it was before its session ended: it owned everything
        two.commit()
        again.leave()
    with shared.join("p", "g", "m3") as three:
        assert len(three.fetch()) == 8


def test_more_members_than_partitions_leave_some_idle(queue):
    queue.create_topic("ten", partitions=10)
    members = [queue.join("ten", "g", f"m{at}") for at in range(11)]
    shares = [len(partitions) for partitions in owned_after_release(members)]
    assert sorted(shares) == [0] + [1] * 10
    idle = members[shares.index(0)]
    assert idle.fetch() == []
    members[shares.index(1)].leave()
    idle.heartbeat()
    assert len(idle.partitions) == 1
    for member in members:
        if member.partitions and member is not members[shares.index(1)]:
            member.leave()


def owned_after_release(members):
    for _ in range(2):
        for member in members:
            member.fetch()
    return [member.partitions for member in members]


def test_members_and_leases_do_not_mix_in_one_group(shared):
    held = shared.receive("p", "leases")
    with pytest.raises(quiver.InvalidRequest, match="leased messages out"):
        shared.join("p", "leases", "m1")
    shared.ack(held)
    with shared.join("p", "g", "m1"), pytest.raises(quiver.InvalidRequest, match="join it instead"):
        shared.receive("p", "g")


def test_a_fetch_waits_for_the_next_message(world, shared):
    with shared.join("p", "g", "m1") as one:
        one.fetch()
        waiting = world.in_background(one.fetch, wait=60)
        shared.send("p", b"new", key="b")
        assert bodies(waiting.result()) == [b"new"]


def test_a_paused_group_fetches_nothing(shared):
    with shared.join("p", "g", "m1") as one:
        shared.pause("p", "g")
        assert one.fetch() == []
        shared.resume("p", "g")
        assert len(one.fetch()) == 8


def test_a_member_does_not_fetch_a_message_before_it_is_due(queue, clock):
    queue.create_topic("p")
    with queue.join("p", "g", "m1", session="1h") as one:
        queue.send("p", b"later", delay=60)
        assert one.fetch() == []
        clock.advance(60)
        assert bodies(one.fetch()) == [b"later"]


def test_what_is_not_due_in_one_partition_hides_nothing_of_another(queue, clock):
    queue.create_topic("p", partitions=4, partition_by=SPLIT)
    with queue.join("p", "g", "m1") as member:
        queue.send("p", b"gone", key="a", ttl=1)
        queue.send("p", b"later", key="a", delay=60)
        clock.advance(2)
        queue.send("p", b"now", key="b")
        assert bodies(member.fetch(max_messages=1)) == [b"now"]
