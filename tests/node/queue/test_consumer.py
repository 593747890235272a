"""Consumers get runs as if messages were dealt out one by one (amqp-behaviour §4.8)."""

from collections import deque
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.queue.backlog import Backlog
from node.queue.consumer import Consumer, Consumers, Ready
from node.queue.run import Batch
from tests.kit.messages import FakeOutlet, content, envelope, make_queue, priority_backlog

QUEUE = make_queue()


def consumer(
    tag: str,
    outlet: FakeOutlet | None = None,
    *,
    prefetch: int = 0,
    priority: int = 0,
    no_ack: bool = False,
    exclusive: bool = False,
) -> Consumer:
    return Consumer(
        tag,
        outlet or FakeOutlet(),
        QUEUE,
        prefetch=prefetch,
        priority=priority,
        no_ack=no_ack,
        exclusive=exclusive,
    )


def joined(*members: Consumer, single_active: bool = False) -> Consumers:
    consumers = Consumers(single_active=single_active)
    for member in members:
        consumers.add(member)
    return consumers


def numbered(count: int, first_seq: int = 1) -> Backlog:
    backlog = Backlog()
    backlog.append(Batch(envelope(), [content(b"x")] * count, 1), first_seq)
    return backlog


def got(member: Consumer) -> list[int]:
    """The numbers of the messages that a consumer was given."""
    assert isinstance(member.channel, FakeOutlet)
    return [seq for tag, seq, _ in member.channel.taken if tag == member.tag]


# --- one level --------------------------------------------------------------------------------------------


def test_round_robin() -> None:
    """§4.8: a, b, c, a, b, c."""
    a, b, c = consumer("a"), consumer("b"), consumer("c")
    joined(a, b, c).dispatch(numbered(7), 0.0)
    assert (got(a), got(b), got(c)) == ([1, 4, 7], [2, 5], [3, 6])


def test_the_next_in_turn_goes_on_later() -> None:
    a, b = consumer("a"), consumer("b")
    consumers = joined(a, b)
    consumers.dispatch(numbered(1), 0.0)
    consumers.dispatch(numbered(2, first_seq=2), 0.0)
    assert (got(a), got(b)) == ([1, 3], [2])


def test_a_single_consumer_gets_runs_whole() -> None:
    outlet = FakeOutlet()
    joined(consumer("a", outlet)).dispatch(numbered(1000), 0.0)
    assert [len(run) for _, run in outlet.runs] == [1000]


def test_several_consumers_get_their_shares_by_the_run() -> None:
    outlets = [FakeOutlet() for _ in range(4)]
    joined(*(consumer(str(n), outlet) for n, outlet in enumerate(outlets))).dispatch(numbered(1000), 0.0)
    assert [len(outlet.runs) for outlet in outlets] == [1, 1, 1, 1]


def test_prefetch_blocks() -> None:
    a, b = consumer("a", prefetch=2), consumer("b", prefetch=3)
    backlog = numbered(9)
    joined(a, b).dispatch(backlog, 0.0)
    assert (got(a), got(b)) == ([1, 3], [2, 4, 5])
    assert backlog.count == 4


def test_prefetch_is_nothing_to_a_consumer_that_does_not_acknowledge() -> None:
    """§4.9: ignored for no_ack."""
    a = consumer("a", prefetch=1, no_ack=True)
    joined(a).dispatch(numbered(5), 0.0)
    assert got(a) == [1, 2, 3, 4, 5]


def test_who_was_blocked_rejoins_behind_the_others() -> None:
    """§4.8: an unblocked consumer rejoins behind the active ones of its priority."""
    a, b, c = consumer("a", prefetch=1), consumer("b"), consumer("c")
    consumers = joined(a, b, c)
    consumers.dispatch(numbered(4), 0.0)
    assert isinstance(a.channel, FakeOutlet)
    assert a.channel.blocked == [a]
    assert not a.is_waiting
    a.unacked = 0
    consumers.rejoin(a)
    consumers.rejoin(a)
    consumers.dispatch(numbered(4, first_seq=5), 0.0)
    assert (got(a), got(b), got(c)) == ([1, 7], [2, 4, 6], [3, 5, 8])


def test_a_limit_that_consumers_of_a_channel_share() -> None:
    """§4.9: global=true counts for all of them together."""
    outlet = FakeOutlet(prefetch_limit=3)
    a, b = consumer("a", outlet), consumer("b", outlet)
    backlog = numbered(9)
    joined(a, b).dispatch(backlog, 0.0)
    assert (got(a), got(b)) == ([1, 3], [2])
    assert backlog.count == 6


def test_tags_on_one_channel_rise_with_the_numbers() -> None:
    """Two consumers of a channel: its delivery tags follow the order of the queue."""
    outlet = FakeOutlet()
    joined(consumer("a", outlet), consumer("b", outlet)).dispatch(numbered(6), 0.0)
    assert [seq for _, seq, _ in outlet.taken] == [1, 2, 3, 4, 5, 6]
    assert [tag for tag, _, _ in outlet.taken] == ["a", "b"] * 3


def test_a_full_socket_blocks() -> None:
    outlet = FakeOutlet(room=0)
    a, b = consumer("a", outlet), consumer("b")
    joined(a, b).dispatch(numbered(3), 0.0)
    assert (got(a), got(b)) == ([], [1, 2, 3])
    assert outlet.blocked == [a]


def test_a_socket_gets_about_what_it_has_room_for() -> None:
    """One message beyond the room: a message that is bigger than any room must go out too."""
    outlet = FakeOutlet(room=10_000)
    backlog = Backlog()
    backlog.append(Batch(envelope(), [content(b"x" * 1000)] * 100, 1000), 1)
    joined(consumer("a", outlet)).dispatch(backlog, 0.0)
    assert 10 <= len(outlet.taken) <= 12


# --- priorities -------------------------------------------------------------------------------------------


def test_lower_priority_gets_messages_when_all_higher_are_blocked() -> None:
    """§4.8."""
    low, high, higher = (
        consumer("low", priority=-1),
        consumer("high", priority=5, prefetch=2),
        consumer("x", priority=5, prefetch=1),
    )
    joined(low, high, higher).dispatch(numbered(6), 0.0)
    assert (got(high), got(higher), got(low)) == ([1, 3], [2], [4, 5, 6])


def test_a_level_that_comes_back_is_served_first_again() -> None:
    low, high = consumer("low"), consumer("high", priority=1, prefetch=1)
    consumers = joined(low, high)
    consumers.dispatch(numbered(2), 0.0)
    high.unacked = 0
    consumers.rejoin(high)
    consumers.dispatch(numbered(2, first_seq=3), 0.0)
    assert (got(high), got(low)) == ([1, 3], [2, 4])


# --- joining and leaving ----------------------------------------------------------------------------------


def test_who_leaves_gets_nothing_more() -> None:
    a, b = consumer("a"), consumer("b")
    consumers = joined(a, b)
    consumers.remove(a)
    assert (len(consumers), consumers.all) == (1, [b])
    consumers.dispatch(numbered(2), 0.0)
    assert (got(a), got(b)) == ([], [1, 2])


def test_a_blocked_consumer_can_leave() -> None:
    a = consumer("a", prefetch=1)
    consumers = joined(a)
    consumers.dispatch(numbered(2), 0.0)
    consumers.remove(a)
    assert len(consumers) == 0


def test_nobody_there() -> None:
    backlog = numbered(2)
    Consumers().dispatch(backlog, 0.0)
    assert backlog.count == 2


@pytest.mark.parametrize("flags", [[], [False], [True]])
def test_exclusive(flags: list[bool]) -> None:
    consumers = joined(*(consumer("a", exclusive=flag) for flag in flags))
    assert consumers.exclusive is any(flags)


# --- expiry -----------------------------------------------------------------------------------------------


def test_what_has_expired_is_dropped_not_delivered() -> None:
    """§5.2: also evaluated on deliver, head by head."""
    backlog = Backlog()
    for seq, expiry in enumerate([1.0, 9.0, 1.0, 9.0], 1):
        backlog.append(Batch(envelope(), [content(b"x")], 1), seq, expiry)
    a = consumer("a")
    dropped: list[int] = []

    def drop_expired(now: float) -> None:
        while backlog.head_expiry <= now:
            dropped.extend(backlog.take(9).seqs)

    joined(a).dispatch(backlog, 5.0, drop_expired)
    assert (got(a), dropped) == ([2, 4], [1, 3])


# --- single active consumer -------------------------------------------------------------------------------


def test_the_first_that_came_is_the_active_one() -> None:
    """§4.8: regardless of x-priority."""
    a, b = consumer("a"), consumer("b", priority=9)
    consumers = joined(a, b, single_active=True)
    consumers.dispatch(numbered(3), 0.0)
    assert (got(a), got(b), consumers.active) == ([1, 2, 3], [], a)


def test_the_next_is_picked_by_priority_then_age() -> None:
    """§4.8."""
    a, b, c, d = consumer("a"), consumer("b"), consumer("c", priority=2), consumer("d", priority=2)
    consumers = joined(a, b, c, d, single_active=True)
    order = []
    for seq in range(1, 5):
        assert consumers.active is not None
        order.append(consumers.active.tag)
        consumers.dispatch(numbered(1, first_seq=seq), 0.0)
        consumers.remove(consumers.active)
    assert order == ["a", "c", "d", "b"]
    assert consumers.active is None
    assert [got(each) for each in (a, b, c, d)] == [[1], [4], [2], [3]]


def test_another_that_leaves_changes_nothing() -> None:
    a, b = consumer("a"), consumer("b")
    consumers = joined(a, b, single_active=True)
    consumers.remove(b)
    assert consumers.active is a


def test_a_blocked_active_consumer_stays_active() -> None:
    a, b = consumer("a", prefetch=1), consumer("b")
    consumers = joined(a, b, single_active=True)
    consumers.dispatch(numbered(2), 0.0)
    assert (got(a), got(b), consumers.active) == ([1], [], a)
    consumers.rejoin(b)
    assert not b.is_waiting


# --- against message by message ---------------------------------------------------------------------------


class Member(NamedTuple):
    """A consumer for the property below: on which channel, and its limits."""

    channel: int
    priority: int
    prefetch: int
    no_ack: bool


members = st.lists(
    st.builds(Member, st.integers(0, 3), st.integers(0, 1), st.integers(0, 3), st.booleans()),
    min_size=1,
    max_size=5,
)
batches = st.lists(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=6), max_size=4)
"""Messages that come together, each with a priority."""


@given(members, st.lists(st.sampled_from([0, 0, 2, 3]), min_size=4, max_size=4), batches, st.booleans())
def test_as_if_message_by_message(
    given_members: list[Member], limits: list[int], given_batches: list[list[int]], has_priorities: bool
) -> None:
    """On each channel the same consumers get the same messages in the same order, and the same are left over."""
    ours = [FakeOutlet(prefetch_limit=limit) for limit in limits]
    theirs = [FakeOutlet(prefetch_limit=limit) for limit in limits]
    consumers = joined(*_made(given_members, ours))
    reference = [
        deque(each for each in _made(given_members, theirs) if each.priority == priority)
        for priority in (1, 0)
    ]
    backlogs = [priority_backlog(1) if has_priorities else Backlog() for _ in range(2)]
    seq = 1
    for priorities in given_batches:
        for priority in priorities:
            for backlog in backlogs:
                backlog.append(Batch(envelope(priority=priority), [content(b"%d" % seq)], len(str(seq))), seq)
            seq += 1
        consumers.dispatch(backlogs[0], 0.0)
        _message_by_message(reference, backlogs[1])
        assert [outlet.taken for outlet in ours] == [outlet.taken for outlet in theirs]
        assert backlogs[0].count == backlogs[1].count


def _made(given_members: list[Member], outlets: list[FakeOutlet]) -> list[Consumer]:
    return [
        consumer(
            str(number),
            outlets[member.channel],
            prefetch=member.prefetch,
            priority=member.priority,
            no_ack=member.no_ack,
        )
        for number, member in enumerate(given_members)
    ]


def _message_by_message(levels: list[deque[Consumer]], backlog: Ready) -> None:
    """§4.8 to the letter: the first of the highest level that can take a message gets it and goes to the back."""
    while backlog.count:
        level = next((level for level in levels if level), None)
        if level is None:
            return
        chosen = level.popleft()
        if chosen.channel.credit(chosen) > 0:
            chosen.channel.deliver(chosen, backlog.take(1), 0.0)
            level.append(chosen)
