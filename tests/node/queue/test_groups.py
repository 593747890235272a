"""Message groups: one consumer at a time for each group, in order, whatever settles, comes back or leaves."""

from dataclasses import replace

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node.amqp.field_table import VOID, Field, array, long, longstr
from node.amqp.properties import Properties
from node.catalogue.policy import QueueSettings
from node.queue.consumer import Consumer
from node.queue.groups import BLOCKED_MAX
from node.queue.queue import EXPIRED, MAXLEN, REJECTED, Queue
from node.queue.run import Batch, Run
from tests.kit.messages import FakeHost, FakeOutlet, answer, bodies_of, content, envelope, make_queue

HEADER = "x-group"


def grouped(body: bytes, group: Field | None) -> bytes:
    """A content with this group."""
    return content(body, properties=Properties(headers={} if group is None else {HEADER: group}))


class Bench:
    """A queue with groups, and consumers on channels of their own."""

    def __init__(self, **settings: object) -> None:
        self.host = FakeHost()
        self.now = 0.0
        self.queue = make_queue(
            self.host,
            settings=QueueSettings(group_header=HEADER, **settings),  # type: ignore[arg-type]
        )
        self.held: dict[Consumer, list[Run]] = {}

    def publish(self, *bodies: str, priority: int = 0, expiration_ms: int | None = None) -> None:
        """Publish messages whose group is their first letter; `-` stands for none."""
        for body in bodies:
            group = None if body.startswith("-") else longstr(body[0])
            made = envelope(priority=priority, expiration_ms=expiration_ms)
            self.queue.enqueue(Batch(made, [grouped(body.encode(), group)], len(body)), self.now)

    def join(self, tag: str, prefetch: int = 0, *, priority: int = 0, no_ack: bool = False) -> Consumer:
        made = Consumer(tag, FakeOutlet(), self.queue, prefetch=prefetch, priority=priority, no_ack=no_ack)
        self.held[made] = []
        self.queue.add_consumer(made, self.now)
        return made

    def pump(self) -> None:
        """Deliver what can be delivered."""
        self.queue.pump(self.now)
        for consumer in self.held:
            assert isinstance(consumer.channel, FakeOutlet)
            if not consumer.no_ack:
                self.held[consumer] += [run for _, run in consumer.channel.runs]
            consumer.channel.runs.clear()

    def got(self, consumer: Consumer) -> str:
        """All that a consumer was given so far."""
        self.pump()
        assert isinstance(consumer.channel, FakeOutlet)
        return " ".join(body.decode() for _, _, body in consumer.channel.taken)

    def take(self, consumer: Consumer, body: str) -> Run:
        """Take a message from a consumer that it has not settled; it has credit for another one then."""
        self.pump()
        run = next(run for run in self.held[consumer] if bodies_of(run) == [body.encode()])
        self.held[consumer].remove(run)
        consumer.unacked -= 1
        return run

    def ack(self, consumer: Consumer, *bodies: str) -> None:
        for body in bodies:
            self.queue.ack(self.take(consumer, body))
        self.resume(consumer)

    def requeue(self, consumer: Consumer, *bodies: str) -> None:
        runs = [self.take(consumer, body) for body in bodies]
        self.queue.requeue(runs[::-1], self.now)
        self.resume(consumer)

    def resume(self, consumer: Consumer) -> None:
        if consumer in self.queue.consumers.all:
            self.queue.resume(consumer)

    def leave(self, consumer: Consumer) -> None:
        """Close the consumer's channel: it leaves, then its messages come back."""
        self.queue.unsubscribe(consumer, self.now)
        runs, self.held[consumer] = self.held[consumer], []
        self.queue.requeue(runs[::-1], self.now)

    @property
    def ready(self) -> int:
        self.pump()
        return self.queue.backlog.count


# --- who gets what ----------------------------------------------------------------------------------------


def test_a_group_stays_with_its_consumer() -> None:
    bench = Bench()
    first, second = bench.join("1"), bench.join("2")
    bench.publish("a1", "b1", "a2", "b2", "b3", "a3")
    assert (bench.got(first), bench.got(second)) == ("a1 a2 a3", "b1 b2 b3")


def test_without_the_header_any_consumer_will_do() -> None:
    bench = Bench()
    first, second = bench.join("1"), bench.join("2")
    bench.publish("a1", "-1", "-2", "a2", "-3")
    assert (bench.got(first), bench.got(second)) == ("a1 -2 a2", "-1 -3")


def test_groups_are_dealt_out_fairly() -> None:
    bench = Bench()
    consumers = [bench.join(str(number)) for number in range(3)]
    bench.publish(*(f"{letter}1" for letter in "abcdef"))
    assert [bench.got(consumer) for consumer in consumers] == ["a1 d1", "b1 e1", "c1 f1"]


def test_a_blocked_group_does_not_hold_up_the_others() -> None:
    """The holder has no credit left: later messages of other groups pass, and those of the group keep their order."""
    bench = Bench()
    first, second = bench.join("1", prefetch=1), bench.join("2")
    bench.publish("a1", "a2", "a3", "b1", "b2")
    assert (bench.got(first), bench.got(second)) == ("a1", "b1 b2")
    assert bench.ready == 2
    bench.ack(first, "a1")
    assert (bench.got(first) + " " + bench.got(second)).count("a2") == 1


def test_a_group_is_free_when_all_of_it_is_settled() -> None:
    bench = Bench()
    first = bench.join("1", prefetch=2)
    bench.publish("a1", "a2", "a3")
    assert bench.got(first) == "a1 a2"
    second = bench.join("2")
    assert bench.got(second) == ""
    bench.ack(first, "a2")
    assert (bench.got(first), bench.got(second)) == ("a1 a2 a3", "")  # a1 is still with the first
    bench.ack(first, "a1", "a3")
    bench.queue.unsubscribe(first, 0.0)
    bench.publish("a4")
    assert bench.got(second) == "a4"


def test_a_group_that_becomes_free_wakes_the_queue() -> None:
    bench = Bench()
    first, second = bench.join("1", prefetch=1), bench.join("2")
    bench.publish("a1", "a2")
    assert (bench.got(first), bench.got(second)) == ("a1", "")
    bench.host.touched.clear()
    bench.queue.ack(bench.take(first, "a1"))  # without credit for the first consumer
    assert bench.host.touched == [bench.queue]
    assert bench.got(second) == "a2"


def test_a_rejected_message_is_settled() -> None:
    bench = Bench()
    first, second = bench.join("1", prefetch=1), bench.join("2")
    bench.publish("a1", "a2")
    bench.queue.reject(bench.take(first, "a1"), 0.0)
    assert (bench.got(second), bench.host.dead) == ("a2", [(REJECTED, b"a1")])


def test_a_lost_consumer_gives_its_groups_back_in_order() -> None:
    bench = Bench()
    first, second = bench.join("1", prefetch=2), bench.join("2")
    bench.publish("a1", "a2", "a3", "b1")
    assert (bench.got(first), bench.got(second)) == ("a1 a2", "b1")
    bench.leave(first)
    assert bench.got(second) == "b1 a1 a2 a3"


def test_a_cancelled_consumer_holds_its_groups_until_it_has_settled_them() -> None:
    bench = Bench()
    first, second = bench.join("1", prefetch=1), bench.join("2")
    bench.publish("a1", "a2", "b1")
    assert (bench.got(first), bench.got(second)) == ("a1", "b1")
    bench.queue.unsubscribe(first, 0.0)
    bench.publish("a3")
    assert bench.got(second) == "b1"
    bench.ack(first, "a1")
    assert bench.got(second) == "b1 a2 a3"


def test_a_requeued_message_goes_to_the_holder_again_while_it_has_others() -> None:
    bench = Bench()
    first, second = bench.join("1"), bench.join("2")
    bench.publish("a1", "a2")
    bench.pump()
    bench.requeue(first, "a1")
    assert (bench.got(first), bench.got(second)) == ("a1 a2 a1", "")


def test_a_requeued_message_comes_before_the_others_of_its_group() -> None:
    bench = Bench()
    first = bench.join("1", prefetch=1)
    bench.publish("a1", "a2", "-1", "-2")
    second = bench.join("2", prefetch=1)
    assert (bench.got(first), bench.got(second)) == ("a1", "-1")
    bench.requeue(first, "a1")
    assert bench.got(first) == "a1 a1"
    bench.requeue(second, "-1")
    assert bench.got(second) == "-1 -1"
    assert bench.ready == 2


def test_a_consumer_that_does_not_acknowledge_holds_nothing() -> None:
    bench = Bench()
    first, second = bench.join("1", no_ack=True), bench.join("2", no_ack=True)
    bench.publish("a1", "a2", "a3", "a4")
    assert (bench.got(first), bench.got(second)) == ("a1 a3", "a2 a4")
    assert bench.queue.consumers.groups is not None
    assert bench.queue.consumers.groups.held == 0


def test_get_takes_the_head_whoever_holds_its_group() -> None:
    bench = Bench()
    first = bench.join("1", prefetch=1)
    bench.publish("a1", "a2", "a3")
    assert bench.got(first) == "a1"
    run = bench.queue.get(0.0)
    assert run is not None
    assert bodies_of(run) == [b"a2"]
    bench.ack(first, "a1")
    assert bench.got(first) == "a1 a3"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (longstr("g"), longstr("g"), True),
        (long(5), Field("b", 5), True),
        (longstr("5"), long(5), False),
        (longstr("x" * 99), longstr("x" * 99), True),
        (longstr("x" * 99), longstr("x" * 98 + "y"), False),
        (array([long(1)]), array([long(1)]), True),
    ],
)
def test_values_of_any_type_name_groups(one: Field, other: Field, same: bool) -> None:
    bench = Bench()
    first, second = bench.join("1"), bench.join("2")
    contents = [grouped(b"1", one), grouped(b"2", other)]
    bench.queue.enqueue(Batch(envelope(), contents, 1), 0.0)
    assert (bench.got(first), bench.got(second)) == (("1 2", "") if same else ("1", "2"))


def test_a_void_value_names_no_group() -> None:
    bench = Bench()
    first, second = bench.join("1"), bench.join("2")
    bench.queue.enqueue(Batch(envelope(), [grouped(b"1", VOID), grouped(b"2", VOID)], 1), 0.0)
    assert (bench.got(first), bench.got(second)) == ("1", "2")


# --- with the other rules ---------------------------------------------------------------------------------


def test_a_single_active_consumer_gets_all_groups() -> None:
    bench = Bench(single_active_consumer=True)
    first, second = bench.join("1", prefetch=2), bench.join("2")
    bench.publish("a1", "b1", "a2")
    assert (bench.got(first), bench.got(second)) == ("a1 b1", "")
    bench.leave(first)
    assert bench.got(second) == "a1 b1 a2"


def test_consumers_of_higher_priority_get_the_groups() -> None:
    bench = Bench()
    low, high = bench.join("low"), bench.join("high", prefetch=2, priority=1)
    bench.publish("a1", "b1", "c1", "a2", "c2")
    assert (bench.got(low), bench.got(high)) == ("c1 c2", "a1 b1")
    bench.ack(high, "b1")
    assert bench.got(high) == "a1 b1 a2"


def test_higher_priority_goes_first_within_a_group() -> None:
    bench = Bench(max_priority=5)
    first = bench.join("1", prefetch=1)
    bench.publish("a1")
    assert bench.got(first) == "a1"
    bench.publish("a2", "b2")
    bench.publish("a3", "b3", priority=3)
    second = bench.join("2")
    assert bench.got(second) == "b3 b2"
    bench.ack(first, "a1")
    assert (bench.got(first), bench.got(second)) == ("a1", "b3 b2 a3 a2")


def test_expired_messages_are_not_given_out() -> None:
    """One behind the head stays until it is the head, as in any queue."""
    bench = Bench()
    first, second = bench.join("1", prefetch=1), bench.join("2")
    bench.publish("a1", "a2")
    bench.publish("a3", expiration_ms=1000)
    bench.publish("b1")
    assert (bench.got(first), bench.got(second)) == ("a1", "b1")
    bench.now = 2.0
    bench.host.timers.run(2.0)
    bench.ack(first, "a1")
    both = f"{bench.got(first)} {bench.got(second)}"
    assert "a2" in both
    assert "a3" not in both
    bench.pump()
    assert bench.host.dead == [(EXPIRED, b"a3")]


def test_blocked_messages_are_dropped_like_others() -> None:
    bench = Bench(max_length=2)
    first = bench.join("1", prefetch=1)
    second = bench.join("2", prefetch=1)
    bench.publish("a1", "b1", "a2", "b2", "a3", "b3")
    assert (bench.got(first), bench.got(second)) == ("a1", "b1")
    assert bench.host.dead == [(MAXLEN, b"a2"), (MAXLEN, b"b2")]
    bench.ack(first, "a1")
    bench.ack(second, "b1")
    assert sorted((bench.got(first) + " " + bench.got(second)).split()) == ["a1", "a3", "b1", "b3"]


def test_purge_drops_blocked_messages() -> None:
    bench = Bench()
    first, second = bench.join("1", prefetch=1), bench.join("2")
    bench.publish("a1", "a2", "a3")
    assert (bench.got(first), bench.got(second)) == ("a1", "")
    assert answer(bench.queue.purge()) == 2
    bench.publish("a4")
    bench.ack(first, "a1")
    assert sorted((bench.got(first) + " " + bench.got(second)).split()) == ["a1", "a4"]


def test_groups_begin_and_end_with_the_policy() -> None:
    bench = Bench()
    first, second = bench.join("1", prefetch=1), bench.join("2", prefetch=5)
    bench.publish("a1", "a2", "a3")
    assert (bench.got(first), bench.got(second)) == ("a1", "")
    bench.host.touched.clear()
    bench.queue.apply_settings(replace(bench.queue.settings, group_header=None), 0.0)
    assert bench.host.touched == [bench.queue]
    assert bench.got(second) == "a2 a3"
    bench.requeue(second, "a2")
    assert bench.queue.backlog.levels[0].near.came_back is None
    bench.queue.apply_settings(replace(bench.queue.settings, group_header=HEADER), 0.0)
    bench.publish("b1", "b2")
    assert bench.got(second) == "a2 a3 a2 b1 b2"


# --- bounds -----------------------------------------------------------------------------------------------


def test_nothing_is_kept_of_settled_groups() -> None:
    bench = Bench()
    first = bench.join("1", prefetch=1)
    second = bench.join("2", prefetch=1)
    for number in range(50):
        bench.publish(f"{chr(97 + number % 26)}{number}")
    for _ in range(60):
        for consumer in (first, second):
            bench.pump()
            for run in list(bench.held[consumer]):
                bench.ack(consumer, bodies_of(run)[0].decode())
    groups = bench.queue.consumers.groups
    assert groups is not None
    assert bench.ready == 0
    assert (groups._groups, groups._unsettled, groups._owing, groups._free) == ({}, {}, {}, {})
    assert groups.blocked == 0


def test_no_more_is_looked_at_than_the_bound() -> None:
    bench = Bench()
    first, second = bench.join("1", prefetch=1), bench.join("2")
    batch = [grouped(b"a", longstr("a"))] * (BLOCKED_MAX + 2)
    bench.queue.enqueue(Batch(envelope(), batch, 1), 0.0)
    bench.publish("b1")
    assert (bench.got(first), bench.got(second)) == ("a", "")
    groups = bench.queue.consumers.groups
    assert groups is not None
    assert groups.blocked == BLOCKED_MAX
    bench.queue.get(0.0)  # makes room for one more, and b1 is the next but one
    bench.queue.get(0.0)
    assert bench.got(second) == "b1"


# --- any history ------------------------------------------------------------------------------------------


class Histories(RuleBasedStateMachine):
    """Any order of publishes, settlements, requeues and comings and goings of consumers."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.published = 0
        self.settled: list[str] = []
        self.left: list[Consumer] = []

    @property
    def consumers(self) -> list[Consumer]:
        return list(self.bench.queue.consumers.all)

    @rule(groups=st.lists(st.sampled_from("abc-"), min_size=1, max_size=6))
    def publish(self, groups: list[str]) -> None:
        for group in groups:
            self.published += 1
            self.bench.publish(f"{group}{self.published:04}")

    @precondition(lambda self: len(self.consumers) < 4)
    @rule(prefetch=st.integers(1, 3), priority=st.sampled_from((0, 0, 1)))
    def join(self, prefetch: int, priority: int) -> None:
        self.bench.join(f"c{len(self.bench.held)}", prefetch, priority=priority)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.bench.leave(data.draw(st.sampled_from(self.consumers)))

    @precondition(lambda self: any(self.bench.held.values()))
    @rule(data=st.data(), way=st.sampled_from(("ack", "ack", "requeue", "reject")))
    def settle(self, data: st.DataObject, way: str) -> None:
        consumer = data.draw(st.sampled_from([each for each, runs in self.bench.held.items() if runs]))
        run = data.draw(st.sampled_from(self.bench.held[consumer]))
        body = bodies_of(run)[0].decode()
        if way == "ack":
            self.bench.ack(consumer, body)
            self.settled.append(body)
        elif way == "requeue":
            self.bench.requeue(consumer, body)
        else:
            self.bench.queue.reject(self.bench.take(consumer, body), 0.0)
            self.bench.resume(consumer)
            self.settled.append(body)

    @precondition(lambda self: self.bench.queue.backlog.count)
    @rule()
    def get(self) -> None:
        run = self.bench.queue.get(0.0)
        assert run is not None
        self.settled += [body.decode() for body in bodies_of(run)]

    @invariant()
    def one_holder_for_each_group(self) -> None:
        self.bench.pump()
        holders: dict[str, set[Consumer]] = {}
        for consumer, runs in self.bench.held.items():
            for run in runs:
                holders.setdefault(bodies_of(run)[0].decode()[0], set()).add(consumer)
        holders.pop("-", None)
        assert all(len(each) == 1 for each in holders.values())

    @invariant()
    def nothing_is_lost(self) -> None:
        held = sum(map(len, self.bench.held.values()))
        assert self.bench.ready + held + len(self.settled) == self.published

    @invariant()
    def no_consumer_waits_in_vain(self) -> None:
        """A ready message waits only if no consumer has credit, or its group is held by one that has none."""
        self.bench.pump()
        free = [each for each in self.consumers if each.unacked < each.prefetch]
        if not free:
            return
        holders = {
            bodies_of(run)[0].decode()[0]: consumer
            for consumer, runs in self.bench.held.items()
            for run in runs
        }
        for run in self.bench.queue.backlog.levels[0].near:
            for body in bodies_of(run):
                group = body.decode()[0]
                assert group != "-"
                assert group in holders
                assert holders[group] not in free

    @invariant()
    def each_group_is_in_order(self) -> None:
        """Messages that a consumer is given for the first time are in order within each group."""
        for consumer in self.bench.held:
            assert isinstance(consumer.channel, FakeOutlet)
            first: dict[str, str] = {}
            seen: set[str] = set()
            for _, _, raw in consumer.channel.taken:
                body = raw.decode()
                if body in seen or body[0] == "-":
                    continue
                seen.add(body)
                if body[0] in first and not self.came_back(body):
                    assert body > first[body[0]]
                first[body[0]] = max(body, first.get(body[0], ""))

    def came_back(self, body: str) -> bool:
        """True if a message was with another consumer, too."""
        given = 0
        for consumer in self.bench.held:
            assert isinstance(consumer.channel, FakeOutlet)
            given += any(raw.decode() == body for _, _, raw in consumer.channel.taken)
        return given > 1


Histories.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase


def test_a_queue_without_groups_has_no_rule() -> None:
    queue: Queue = make_queue()
    assert queue.consumers.groups is None
