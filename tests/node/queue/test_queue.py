"""One queue: limits, times to live, requeue, use; and no message is lost count of (amqp-behaviour §4.11, §5)."""

from dataclasses import replace

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node.amqp.reader import MIXED_SIZES
from node.catalogue.policy import QueueSettings
from node.queue.consumer import Consumer
from node.queue.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from node.queue.queue import Queue
from node.queue.run import NEVER, Batch, Run
from tests.kit.messages import FakeHost, FakeOutlet, answer, bodies_of, content, envelope, make_queue


class Bench:
    """A queue with what is around it."""

    def __init__(self, *, auto_delete: bool = False, type: str = "classic", **limits: object) -> None:
        self.host = FakeHost()
        self.queue = make_queue(
            self.host,
            auto_delete=auto_delete,
            type=type,
            settings=QueueSettings(**limits),  # type: ignore[arg-type]
        )
        self.now = 0.0

    def publish(self, *bodies: bytes, priority: int = 0, expiration_ms: int | None = None) -> list[int]:
        sizes = {len(body) for body in bodies}
        size = sizes.pop() if len(sizes) == 1 else MIXED_SIZES
        made = envelope(priority=priority, expiration_ms=expiration_ms)
        return self.queue.enqueue(Batch(made, [content(body) for body in bodies], size), self.now)

    def get(self) -> Run:
        run = self.queue.get(self.now)
        assert run is not None
        self.queue.delivered(run)
        return run

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.host.timers.run(self.now)

    def consumer(self, outlet: FakeOutlet, prefetch: int = 0) -> Consumer:
        made = Consumer("c", outlet, self.queue, prefetch=prefetch)
        self.queue.add_consumer(made, self.now)
        return made

    @property
    def ready(self) -> list[bytes]:
        """The ready bodies in order; a look that changes nothing."""
        taken, backlog = [], self.queue.backlog
        while backlog.count:
            taken.append(backlog.take(1))
        for run in reversed(taken):
            backlog.put_back(run)
        return [body for run in taken for body in bodies_of(run)]


# --- in and out -------------------------------------------------------------------------------------------


def test_first_in_first_out() -> None:
    bench = Bench()
    assert bench.publish(b"a", b"bb") == []
    bench.publish(b"c")
    assert [bodies_of(bench.get()) for _ in range(3)] == [[b"a"], [b"bb"], [b"c"]]
    assert bench.queue.get(0.0) is None


def test_a_plain_publish_waits_for_the_end_of_the_turn() -> None:
    bench, outlet = Bench(), FakeOutlet()
    bench.publish(b"a")
    assert bench.host.touched == []
    bench.consumer(outlet)
    bench.publish(b"b")
    assert bench.host.touched == [bench.queue] * 2
    assert outlet.taken == []
    bench.queue.pump(0.0)
    assert [body for _, _, body in outlet.taken] == [b"a", b"b"]


def test_counts_of_what_is_out() -> None:
    bench = Bench()
    bench.publish(b"aa", b"b", b"ccc")
    runs = [bench.get() for _ in range(3)]
    assert (bench.queue.unacked_count, bench.queue.unacked_bytes) == (3, 6)
    bench.queue.ack(runs[0])
    assert (bench.queue.unacked_count, bench.queue.unacked_bytes) == (2, 4)
    bench.queue.reject(runs[1], 0.0)
    bench.queue.requeue([runs[2]], 0.0)
    assert (bench.queue.unacked_count, bench.queue.unacked_bytes) == (0, 0)
    assert bench.host.dead == [(REJECTED, b"b")]


# --- §4.11: requeue ---------------------------------------------------------------------------------------


def test_requeued_to_its_old_place_and_redelivered() -> None:
    """§4.11: 1, 3 requeued while 0, 2 unacked: order 1, 3, 4, 5."""
    bench = Bench()
    bench.publish(b"0", b"1", b"2", b"3", b"4", b"5")
    runs = [bench.get() for _ in range(4)]
    bench.queue.requeue([runs[3], runs[1]], 0.0)
    assert bench.ready == [b"1", b"3", b"4", b"5"]
    assert [bench.get().deliveries for _ in range(3)] == [1, 1, 0]
    assert bench.host.touched


def test_a_quorum_queue_takes_what_is_asked_back_at_its_tail() -> None:
    """At RabbitMQ 3.10 a b c becomes b c a, for a queue of that type without a delivery limit."""
    bench = Bench(type="quorum")
    bench.publish(b"a", b"b", b"c")
    bench.queue.requeue([bench.get()], 0.0, is_asked=True)
    assert bench.ready == [b"b", b"c", b"a"]
    runs = [bench.get(), bench.get()]
    bench.queue.requeue(runs[::-1], 0.0, is_asked=True)
    assert bench.ready == [b"a", b"b", b"c"]
    assert [bench.get().deliveries for _ in range(3)] == [1, 1, 1]
    counters = bench.queue.counters
    assert (counters.publish, counters.ack, bench.queue.unacked_count) == (3, 0, 3)


def test_a_stride_comes_back_at_the_tail_in_order() -> None:
    bench = Bench(type="quorum")
    bench.publish(b"0", b"1", b"2", b"3", b"4")
    outlets = [FakeOutlet(), FakeOutlet()]
    for outlet in outlets:
        bench.consumer(outlet, prefetch=2)
    bench.queue.pump(0.0)
    run = bench.queue.backlog.take(1)
    bench.queue.backlog.put_back(run)
    assert bodies_of(run) == [b"4"]
    stride = Run(envelope(), range(1, 5, 2), [content(b"0"), content(b"2")], 1)
    bench.queue.requeue([stride], 0.0, is_asked=True)
    assert bench.ready == [b"4", b"0", b"2"]


@pytest.mark.parametrize(
    ("kind", "is_asked", "limit"), [("quorum", False, None), ("quorum", True, 5), ("classic", True, None)]
)
def test_any_other_requeue_is_to_the_old_place(kind: str, is_asked: bool, limit: int | None) -> None:
    """As when a channel closes."""
    bench = Bench(type=kind, delivery_limit=limit)
    bench.publish(b"a", b"b", b"c")
    bench.queue.requeue([bench.get()], 0.0, is_asked=is_asked)
    assert bench.ready == [b"a", b"b", b"c"]


def test_a_requeue_over_the_limit_drops_the_requeued() -> None:
    """§5.4: limit 2, ready 2, 3, requeue 0, 1: 2 and 3 remain."""
    bench = Bench(max_length=2)
    bench.publish(b"0", b"1")
    runs = [bench.get(), bench.get()]
    bench.publish(b"2", b"3")
    bench.queue.requeue(runs[::-1], 0.0)
    assert bench.ready == [b"2", b"3"]
    assert bench.host.dead == [(MAXLEN, b"0"), (MAXLEN, b"1")]


def test_what_expired_with_the_client_is_dropped_when_it_is_requeued() -> None:
    """§4.11 last row."""
    bench = Bench(message_ttl=1000)
    bench.publish(b"a")
    run = bench.get()
    bench.advance(5)
    assert bench.host.dead == []
    bench.queue.requeue([run], bench.now)
    bench.advance(0)
    assert bench.host.dead == [(EXPIRED, b"a")]


def test_the_delivery_limit() -> None:
    bench = Bench(delivery_limit=1)
    bench.publish(b"a", b"b")
    for _ in range(2):
        runs = [bench.get(), bench.get()]
        bench.queue.requeue(runs[::-1], 0.0)
    assert bench.host.dead == [(DELIVERY_LIMIT, b"a"), (DELIVERY_LIMIT, b"b")]
    assert bench.queue.unacked_count == 0


# --- §5.2: time to live -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue_ms", "message_ms", "lives_s"),
    [(1000, None, 1), (None, 2000, 2), (1000, 2000, 1), (2000, 1000, 1)],
)
def test_the_smaller_time_to_live_counts(
    queue_ms: int | None, message_ms: int | None, lives_s: float
) -> None:
    bench = Bench(message_ttl=queue_ms)
    bench.publish(b"a", expiration_ms=message_ms)
    bench.advance(lives_s - 0.001)
    assert bench.ready == [b"a"]
    bench.advance(0.001)
    assert bench.ready == []
    assert bench.host.dead == [(EXPIRED, b"a")]


def test_only_the_head_expires() -> None:
    """§5.2: an expired message behind an unexpired one stays, and counts."""
    bench = Bench()
    bench.publish(b"a")
    bench.publish(b"b", expiration_ms=1000)
    bench.advance(5)
    assert bench.queue.backlog.count == 2
    bench.get()
    assert bench.queue.get(bench.now) is None
    assert bench.host.dead == [(EXPIRED, b"b")]


@pytest.mark.parametrize("before", [None, 60_000])
def test_the_next_head_expires_in_time(before: int | None) -> None:
    """§5.2: the timer is on the head's expiry, whoever was the head before."""
    bench = Bench()
    bench.publish(b"a", expiration_ms=before)
    bench.publish(b"b", expiration_ms=1000)
    bench.get()
    bench.advance(1)
    assert bench.host.dead == [(EXPIRED, b"b")]


def test_the_next_head_expires_in_time_after_a_delivery() -> None:
    bench = Bench()
    bench.publish(b"a")
    bench.publish(b"b", expiration_ms=1000)
    bench.consumer(FakeOutlet(), prefetch=1)
    bench.queue.pump(0.0)
    bench.advance(1)
    assert bench.host.dead == [(EXPIRED, b"b")]


def test_the_next_head_expires_in_time_after_a_drop() -> None:
    bench = Bench()
    bench.publish(b"a")
    bench.publish(b"b", expiration_ms=1000)
    bench.queue.apply_settings(QueueSettings(max_length=1), bench.now)
    bench.advance(1)
    assert bench.host.dead == [(MAXLEN, b"a"), (EXPIRED, b"b")]


def test_the_next_head_expires_in_time_with_priorities() -> None:
    bench = Bench(max_priority=5)
    bench.publish(b"a", priority=1)
    bench.publish(b"b", expiration_ms=1000)
    bench.get()
    bench.advance(1)
    assert bench.host.dead == [(EXPIRED, b"b")]


def test_a_later_time_to_live_does_not_touch_what_is_queued() -> None:
    """§5.2: fixed at enqueue time."""
    bench = Bench(message_ttl=5000)
    bench.publish(b"a")
    bench.queue.apply_settings(QueueSettings(message_ttl=1000), bench.now)
    bench.publish(b"b")
    bench.advance(4)
    assert bench.ready == [b"a", b"b"]
    bench.advance(1)
    assert bench.ready == []


def test_time_to_live_0_reaches_a_waiting_consumer() -> None:
    """§5.1 step 3."""
    bench, outlet = Bench(message_ttl=0), FakeOutlet()
    bench.consumer(outlet, prefetch=2)
    bench.publish(b"a", b"b", b"c")
    assert [body for _, _, body in outlet.taken] == [b"a", b"b"]
    assert bench.host.dead == [(EXPIRED, b"c")]


def test_what_has_expired_is_not_delivered_because_something_new_comes() -> None:
    bench, outlet = Bench(message_ttl=1000), FakeOutlet()
    bench.publish(b"old")
    bench.now += 2
    bench.consumer(outlet)
    bench.publish(b"new")
    assert [body for _, _, body in outlet.taken] == [b"new"]


# --- §5.3: queue expiry -----------------------------------------------------------------------------------


def test_an_unused_queue_expires() -> None:
    bench = Bench(expires=1000)
    bench.advance(0.999)
    bench.publish(b"a")  # publishing does not refresh
    assert bench.host.unused == []
    bench.advance(0.001)
    assert bench.host.unused == [bench.queue]


@pytest.mark.parametrize("use", ["get", "used"])
def test_use_begins_the_time_anew(use: str) -> None:
    bench = Bench(expires=1000)
    bench.advance(0.6)
    getattr(bench.queue, use)(bench.now)
    bench.advance(0.6)
    assert bench.host.unused == []
    bench.advance(0.4)
    assert bench.host.unused == [bench.queue]


def test_consumers_keep_it() -> None:
    bench = Bench(expires=1000)
    consumer = bench.consumer(FakeOutlet())
    bench.advance(9)
    bench.queue.unsubscribe(consumer, bench.now)
    bench.advance(0.9)
    assert bench.host.unused == []
    bench.advance(0.1)
    assert bench.host.unused == [bench.queue]


def test_a_policy_brings_an_expiry() -> None:
    bench = Bench()
    bench.queue.apply_settings(QueueSettings(expires=1000), 0.0)
    bench.advance(1)
    assert bench.host.unused == [bench.queue]


def test_a_policy_takes_the_expiry_away() -> None:
    bench = Bench(expires=1000)
    bench.queue.apply_settings(QueueSettings(), 0.5)
    bench.advance(9)
    assert bench.host.unused == []


# --- §3.12: auto-delete -----------------------------------------------------------------------------------


def test_an_auto_delete_queue_goes_with_its_last_consumer() -> None:
    bench = Bench(auto_delete=True)
    first, second = bench.consumer(FakeOutlet()), bench.consumer(FakeOutlet())
    bench.queue.unsubscribe(first, 0.0)
    assert bench.host.unused == []
    bench.queue.unsubscribe(second, 0.0)
    assert bench.host.unused == [bench.queue]


def test_other_queues_stay() -> None:
    bench = Bench()
    bench.queue.unsubscribe(bench.consumer(FakeOutlet()), 0.0)
    assert bench.host.unused == []


# --- §5.4: length limits ----------------------------------------------------------------------------------


def test_max_length_drops_the_oldest() -> None:
    bench = Bench(max_length=2)
    assert bench.publish(b"a", b"b", b"c", b"d") == []
    assert bench.ready == [b"c", b"d"]
    assert bench.host.dead == [(MAXLEN, b"a"), (MAXLEN, b"b")]


def test_max_length_bytes_counts_bodies() -> None:
    bench = Bench(max_length_bytes=5)
    bench.publish(b"aaa", b"bb", b"c")
    assert bench.ready == [b"bb", b"c"]
    bench.publish(b"too much")
    assert bench.ready == []


def test_max_length_0_reaches_a_waiting_consumer() -> None:
    """§5.1 step 3."""
    bench, outlet = Bench(max_length=0), FakeOutlet()
    bench.consumer(outlet, prefetch=1)
    bench.publish(b"a", b"b")
    assert [body for _, _, body in outlet.taken] == [b"a"]
    assert bench.host.dead == [(MAXLEN, b"b")]


def test_unacknowledged_messages_do_not_count() -> None:
    bench = Bench(max_length=1)
    bench.publish(b"a")
    bench.get()
    bench.publish(b"b")
    assert bench.host.dead == []


def test_overflow_drops_the_highest_priority_first() -> None:
    """§5.4: 0, 5, 5, 1 with limit 2 keeps 1 and 0."""
    bench = Bench(max_length=2, max_priority=5)
    for body, priority in ((b"0", 0), (b"5", 5), (b"5'", 5), (b"1", 1)):
        bench.publish(body, priority=priority)
    assert bench.ready == [b"1", b"0"]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_reject_publish(overflow: str) -> None:
    bench = Bench(max_length=2, overflow=overflow)
    assert bench.publish(b"a", b"b", b"c", b"d") == [2, 3]
    assert bench.ready == [b"a", b"b"]
    rejected = [(MAXLEN, b"c"), (MAXLEN, b"d")]
    assert bench.host.dead == (rejected if overflow == "reject-publish-dlx" else [])


def test_reject_publish_by_bytes() -> None:
    bench = Bench(max_length_bytes=4, overflow="reject-publish")
    assert bench.publish(b"aaa", b"bb", b"c") == [1]
    assert bench.ready == [b"aaa", b"c"]


def test_a_waiting_consumer_does_not_help_against_reject_publish_with_0() -> None:
    """§5.1 step 1."""
    bench, outlet = Bench(max_length=0, overflow="reject-publish"), FakeOutlet()
    bench.consumer(outlet)
    assert bench.publish(b"a") == [0]
    assert outlet.taken == []


def test_a_consumer_makes_room_for_the_next() -> None:
    bench, outlet = Bench(max_length=1, overflow="reject-publish"), FakeOutlet()
    bench.consumer(outlet, prefetch=1)
    assert bench.publish(b"a", b"b", b"c") == [2]


def test_a_lowered_limit_drops_at_once() -> None:
    """§5.4 last row: drop-head mode only."""
    bench = Bench()
    bench.publish(b"a", b"b", b"c")
    bench.queue.apply_settings(QueueSettings(max_length=1, overflow="reject-publish"), 0.0)
    assert bench.ready == [b"a", b"b", b"c"]
    bench.queue.apply_settings(QueueSettings(max_length=1), 0.0)
    assert bench.ready == [b"c"]


# --- the end ----------------------------------------------------------------------------------------------


def test_attributes_are_few_enough_to_need_no_dict() -> None:
    """CPython 3.11 gives each object with 30 or more a dict of its own: 1.3 kB a queue, and slower to look up."""
    assert len(vars(Bench().queue)) < 30


def test_a_deleted_queue_drops_everything_and_cancels() -> None:
    """§3.11: deleted messages are never dead-lettered."""
    bench, outlet = Bench(message_ttl=1000, expires=2000), FakeOutlet()
    bench.publish(b"a", b"b")
    run = bench.get()
    consumer = bench.consumer(outlet, prefetch=1)
    bench.queue.close()
    assert bench.queue.count_at_deletion == 1
    assert outlet.cancelled == [consumer]
    assert len(bench.queue.consumers) == 0
    bench.advance(99)
    bench.queue.pump(bench.now)
    bench.queue.requeue([run], bench.now)
    assert bench.publish(b"late") == []
    assert (bench.host.dead, bench.host.unused, bench.queue.backlog.count) == ([], [], 0)
    assert bench.queue.unacked_count == 0
    assert len(bench.host.timers) == 0


def test_rejecting_what_came_from_a_deleted_queue() -> None:
    bench = Bench()
    bench.publish(b"a")
    run = bench.get()
    bench.queue.close()
    bench.queue.reject(run, 0.0)
    assert bench.host.dead == []


def test_nothing_is_dead_lettered_from_a_deleted_queue() -> None:
    """A transaction may commit publishes to a queue that is gone."""
    bench = Bench(max_length=0, overflow="reject-publish-dlx")
    bench.queue.close()
    bench.publish(b"a")
    assert bench.host.dead == []


def test_purge() -> None:
    """§3.11: ready only."""
    bench = Bench()
    bench.publish(b"a", b"b", b"c")
    bench.get()
    assert answer(bench.queue.purge()) == 2
    assert (bench.ready, bench.queue.unacked_count) == ([], 1)


# --- no message is lost count of --------------------------------------------------------------------------


class QueueMachine(RuleBasedStateMachine):
    """Every message is in one place: refused, ready, with a client, dead, done or purged; bodies tell them apart."""

    def __init__(self) -> None:
        super().__init__()
        self.host = FakeHost()
        self.settings = QueueSettings()
        self.queue: Queue = make_queue(self.host, settings=self.settings)
        self.now = 0.0
        self.order: dict[bytes, tuple[int, int]] = {}
        """The place of each message: priority turned round, number."""
        self.gone: set[bytes] = set()
        self.out: list[tuple[Consumer | None, Run]] = []
        self.consumers: list[Consumer] = []
        self.seen_dead = 0
        self.purged = 0

    @rule(max_priority=st.sampled_from([None, 2]))
    @precondition(lambda self: not self.order)
    def begin(self, max_priority: int | None) -> None:
        self.settings = replace(self.settings, max_priority=max_priority)
        self.queue = make_queue(self.host, now=self.now, settings=self.settings)
        self.consumers.clear()

    @rule(
        sizes=st.lists(st.integers(4, 6), min_size=1, max_size=5),
        priority=st.integers(0, 3),
        expiration_ms=st.sampled_from([None, None, 0, 1000, 3000]),
    )
    def publish(self, sizes: list[int], priority: int, expiration_ms: int | None) -> None:
        bodies = []
        for size in sizes:
            number = len(self.order)
            bodies.append(b"%04d" % number + b"." * (size - 4))
            effective = min(priority, self.settings.max_priority or 0)
            self.order[bodies[-1]] = (-effective, number)
        size = sizes[0] if len(set(sizes)) == 1 else MIXED_SIZES
        made = envelope(priority=priority, expiration_ms=expiration_ms)
        refused = self.queue.enqueue(Batch(made, [content(body) for body in bodies], size), self.now)
        assert refused == sorted(set(refused))
        if self.settings.overflow == "drop-head":
            assert refused == []
        if self.settings.overflow != "reject-publish-dlx":
            self.gone.update(bodies[index] for index in refused)
        self._settle()

    @rule()
    def get(self) -> None:
        run = self.queue.get(self.now)
        if run is not None:
            self.queue.delivered(run)
            self.out.append((None, run))
            assert run.expiry > self.now
        self._settle()

    @precondition(lambda self: len(self.consumers) < 3)
    @rule(prefetch=st.integers(0, 3), priority=st.integers(0, 1))
    def consume(self, prefetch: int, priority: int) -> None:
        made = Consumer("c", FakeOutlet(), self.queue, prefetch=prefetch, priority=priority)
        self.consumers.append(made)
        self.queue.add_consumer(made, self.now)
        self._settle()

    @precondition(lambda self: self.consumers)
    @rule(which=st.integers(0))
    def cancel(self, which: int) -> None:
        self.queue.unsubscribe(self.consumers.pop(which % len(self.consumers)), self.now)
        self._settle()

    @precondition(lambda self: self.out)
    @rule(
        which=st.integers(0),
        start=st.integers(0, 3),
        stop=st.integers(1, 4),
        how=st.sampled_from(["ack", "reject", "requeue", "requeue"]),
    )
    def settle_some(self, which: int, start: int, stop: int, how: str) -> None:
        consumer, run = self.out.pop(which % len(self.out))
        rest = [part for part in (run[:start], run[max(start, stop) :]) if len(part)]
        self.out += [(consumer, part) for part in rest]
        chosen = run[start:stop]
        if not len(chosen):
            return
        if consumer is not None:
            consumer.unacked -= len(chosen)
            if consumer in self.consumers:
                self.queue.consumers.rejoin(consumer)
        if how == "ack":
            self.queue.ack(chosen)
            self.gone.update(bodies_of(chosen))
        elif how == "reject":
            self.queue.reject(chosen, self.now)
        else:
            self.queue.requeue([chosen], self.now)
        self.queue.pump(self.now)
        self._settle()

    @rule(
        message_ttl=st.sampled_from([None, 0, 2000]),
        max_length=st.sampled_from([None, None, 0, 3]),
        max_length_bytes=st.sampled_from([None, None, 12]),
        overflow=st.sampled_from(["drop-head", "drop-head", "reject-publish", "reject-publish-dlx"]),
    )
    def change(
        self, message_ttl: int | None, max_length: int | None, max_length_bytes: int | None, overflow: str
    ) -> None:
        self.settings = replace(
            self.settings,
            message_ttl=message_ttl,
            max_length=max_length,
            max_length_bytes=max_length_bytes,
            overflow=overflow,
        )
        self.queue.apply_settings(self.settings, self.now)
        self._settle()

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.host.timers.run(self.now)
        self._settle()

    @rule()
    def purge(self) -> None:
        expected = self._ready()
        assert answer(self.queue.purge()) == len(expected)
        self.gone |= expected

    def _settle(self) -> None:
        """Collect what the step brought about; the end of the turn."""
        if self.host.touched:
            self.host.touched.clear()
            self.queue.pump(self.now)
        for consumer in self.consumers:
            assert isinstance(consumer.channel, FakeOutlet)
            self.out += consumer.channel.runs
            consumer.channel.runs.clear()
        for _, body in self.host.dead[self.seen_dead :]:
            assert body not in self.gone, "died twice"
            self.gone.add(body)
        self.seen_dead = len(self.host.dead)

    def _out(self) -> set[bytes]:
        bodies = [body for _, run in self.out for body in bodies_of(run)]
        assert len(bodies) == len(set(bodies)), "with two clients at once"
        return set(bodies)

    def _ready(self) -> set[bytes]:
        return self.order.keys() - self.gone - self._out()

    @invariant()
    def counts(self) -> None:
        out, ready = self._out(), self._ready()
        assert out.isdisjoint(self.gone)
        assert (self.queue.unacked_count, self.queue.unacked_bytes) == (len(out), sum(map(len, out)))
        assert (self.queue.backlog.count, self.queue.backlog.body_bytes) == (len(ready), sum(map(len, ready)))

    @invariant()
    def limits(self) -> None:
        if self.settings.overflow == "drop-head":
            assert self.settings.max_length is None or self.queue.backlog.count <= self.settings.max_length
            assert (
                self.settings.max_length_bytes is None
                or self.queue.backlog.body_bytes <= self.settings.max_length_bytes
            )

    @invariant()
    def the_head_expires_in_time(self) -> None:
        expiry = self.queue.backlog.head_expiry
        if expiry != NEVER:
            deadline = self.host.timers.next_deadline()
            assert deadline is not None
            assert deadline <= expiry

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        if self.queue.backlog.count:
            for consumer in self.consumers:
                assert consumer.channel.credit(consumer) <= 0

    def teardown(self) -> None:
        """Check that ready messages come out by priority and in their old order."""
        self.settings = QueueSettings(max_priority=self.settings.max_priority)
        self.queue.apply_settings(self.settings, self.now)
        while self.consumers:
            self.cancel(0)
        expected = sorted(self._ready(), key=lambda body: self.order[body])
        backlog, left = self.queue.backlog, []
        while backlog.count:
            left += bodies_of(backlog.take(3))
        assert left == expected


TestNoMessageIsLostCountOf = QueueMachine.TestCase
TestNoMessageIsLostCountOf.settings = hypothesis_settings(
    max_examples=80, stateful_step_count=30, deadline=None
)
