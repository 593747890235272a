"""Queues with `x-message-deduplication`: no two messages of one id, whatever leaves, comes back or restarts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.amqp.field_table import VOID, Field, boolean, long, longstr
from node.amqp.properties import Properties
from node.amqp.reader import MIXED_SIZES
from node.catalogue.policy import NO_POLICY, EffectivePolicy, QueueSettings, queue_settings
from node.catalogue.records import QueueRecord
from node.queue.consumer import Consumer
from node.queue.deduplicating_queue import DeduplicatingQueue, MeteredDeduplicatingQueue
from node.queue.delay_backlog import DelayBacklog
from node.queue.id_window import IdWindow, first_text_id, id_of, pieces_of
from node.queue.kinds import apply_settings, new_queue
from node.queue.metering import Meter
from node.queue.paged_backlog import PagedBacklog
from node.queue.priority_backlog import PriorityBacklog
from node.queue.queue import EXPIRED, MAXLEN, REJECTED, Queue
from node.queue.run import NEVER, Batch, Run
from node.queue.storage import MemoryStorage
from tests.kit.messages import FakeHost, FakeOutlet, answer, bodies_of, content, envelope

ID = "x-deduplication-header"


def identified(body: bytes, id_: Field | str | None) -> bytes:
    """A content with this id."""
    field = longstr(id_) if isinstance(id_, str) else id_
    return content(body, properties=Properties(headers={} if field is None else {ID: field}))


class Host(FakeHost):
    """A host that has the queue forget what it drops at once, as a broker without dead-letter exchange does."""

    def dead_letter(self, queue: object, run: Run, reason: str, now: float) -> None:
        assert isinstance(queue, DeduplicatingQueue)
        super().dead_letter(queue, run, reason, now)
        queue.forget(run)


class Bench:
    """A deduplicating queue with what is around it."""

    def __init__(self, *, type: str = "classic", **settings: object) -> None:
        self.host = Host()
        self.now = 0.0
        self.queue = self.make(type, **settings)

    def make(self, type: str = "classic", **settings: object) -> DeduplicatingQueue:
        arguments = {"x-message-deduplication": boolean(True)}
        record = QueueRecord("/", "q", "uid", type=type, arguments=arguments)  # type: ignore[arg-type]
        made = QueueSettings(is_deduplicating=True, **settings)  # type: ignore[arg-type]
        return DeduplicatingQueue(record, made, self.host, MemoryStorage(), self.now)

    def publish(self, *ids: str | None, expiration_ms: int | None = None) -> list[int]:
        """Publish messages in one batch; the body is the id, or `-`."""
        contents = [identified((each or "-").encode(), each) for each in ids]
        batch = Batch(envelope(expiration_ms=expiration_ms), contents, MIXED_SIZES)
        return self.queue.enqueue(batch, self.now)

    def get(self) -> Run:
        run = self.queue.get(self.now)
        assert run is not None
        self.queue.delivered(run)
        return run

    @property
    def ready(self) -> str:
        runs = [run for level in self.queue.backlog.levels for run in level.in_memory(0)]
        return " ".join(body.decode() for run in runs for body in bodies_of(run))


# --- what is a duplicate ----------------------------------------------------------------------------------


def test_a_second_message_with_an_id_is_dropped_and_not_refused() -> None:
    bench = Bench()
    assert bench.publish("a", "b", "a", None, None) == []
    assert bench.publish("b", "c") == []
    assert bench.ready == "a b - - c"
    assert (bench.queue.duplicates, bench.host.duplicate_count, bench.queue.ids) == (2, 2, 3)


def test_duplicates_count_as_published() -> None:
    bench = Bench()
    bench.publish("a", "a", "a")
    assert bench.queue.counters.publish == 3


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (longstr("5"), longstr("5"), True),
        (long(5), Field("b", 5), True),
        (long(5), Field("d", 5.0), True),
        (longstr("5"), long(5), False),
        (longstr(""), longstr(""), True),
        (VOID, VOID, True),
        (boolean(True), longstr("true"), False),
        (longstr("x" * 500), longstr("x" * 500), True),
        (longstr("x" * 500), longstr("x" * 499 + "y"), False),
    ],
)
def test_ids_of_any_type(one: Field, other: Field, same: bool) -> None:
    assert (id_of(identified(b"1", one)) == id_of(identified(b"2", other))) is same


def test_without_the_header_there_is_no_id() -> None:
    assert id_of(content(b"x")) is None
    assert id_of(content(b"x", properties=Properties(headers={"x": longstr("y")}))) is None


@given(
    st.binary(max_size=40),
    st.dictionaries(st.sampled_from(["a", "x-cache-ttl", "x-deduplication-header2"]), st.integers(-5, 5)),
    st.booleans(),
    st.none() | st.text(max_size=9),
    st.none() | st.text(max_size=9),
)
def test_the_short_way_to_an_id_finds_what_the_long_way_finds(
    id_: bytes, others: dict[str, int], is_first: bool, type_: str | None, encoding: str | None
) -> None:
    own = {ID: longstr(id_)}
    more = {name: long(value) for name, value in others.items()}
    headers = {**own, **more} if is_first else {**more, **own}
    properties = Properties(content_type=type_, content_encoding=encoding, headers=headers, delivery_mode=2)
    made = content(b"x", properties=properties)
    assert first_text_id(made) == (id_ if is_first or not more else None)
    assert id_of(made) == id_of(content(b"x", properties=Properties(headers=own)))
    bare = content(b"x", properties=Properties(content_type=type_, headers=more))
    assert first_text_id(bare) is None


# --- when an id leaves ------------------------------------------------------------------------------------


def acked(bench: Bench, run: Run) -> None:
    bench.queue.ack(run)


def rejected(bench: Bench, run: Run) -> None:
    bench.queue.reject(run, 0.0)
    assert bench.host.dead == [(REJECTED, b"a")]


@pytest.mark.parametrize("settle", [acked, rejected])
def test_an_id_is_there_until_its_message_is_settled(settle: Callable[[Bench, Run], None]) -> None:
    bench = Bench()
    bench.publish("a")
    run = bench.get()
    bench.publish("a")
    assert bench.ready == ""
    settle(bench, run)
    bench.publish("a")
    assert bench.ready == "a"


def test_a_requeued_message_keeps_its_id() -> None:
    bench = Bench()
    bench.publish("a", "b")
    bench.queue.requeue([bench.get()], 0.0, is_asked=True)
    bench.publish("a", "b")
    assert bench.ready == "a b"


def test_a_message_that_goes_to_the_tail_keeps_its_id() -> None:
    """A quorum queue without a delivery limit puts it there, under another number."""
    bench = Bench(type="quorum")
    bench.publish("a", "b")
    bench.queue.requeue([bench.get()], 0.0, is_asked=True)
    bench.publish("a", "b")
    assert bench.ready == "b a"
    bench.queue.ack(bench.get())
    bench.queue.ack(bench.get())
    bench.publish("a", "b")
    assert bench.ready == "a b"


RETRY: dict[str, object] = {"delayed_retry_type": "all", "delayed_retry_min": 1000}


def test_a_message_that_waits_to_be_retried_keeps_its_id() -> None:
    """A message gets another number when it begins to wait, and when it is ready again."""
    bench = Bench(**RETRY)
    bench.publish("a", "b")
    bench.queue.requeue([bench.get()], 0.0, is_asked=True)
    bench.publish("a", "b")
    assert (bench.ready, bench.queue.duplicates, bench.queue.ids) == ("b", 2, 2)
    bench.now = 2.0
    bench.host.timers.run(bench.now)
    bench.publish("a", "b")
    assert (bench.ready, bench.queue.duplicates, bench.queue.ids) == ("b a", 4, 2)
    bench.queue.ack(bench.get())
    bench.queue.ack(bench.get())
    bench.publish("a", "b")
    assert (bench.ready, bench.queue.ids) == ("a b", 2)


def test_a_purge_takes_the_ids_of_what_waits_to_be_retried() -> None:
    bench = Bench(**RETRY)
    bench.publish("a", "b")
    bench.queue.requeue([bench.get()], 0.0, is_asked=True)
    assert answer(bench.queue.purge()) == 2
    assert bench.queue.ids == 0
    bench.publish("a")
    assert bench.ready == "a"


def test_a_message_that_a_crash_left_twice_waits_once() -> None:
    """Under its old number it is ready, under the new one it waits: whichever is found first stays."""
    for is_first in (True, False):
        bench = Bench(**RETRY)
        waits = envelope().counterpart()
        old = Run(envelope(), range(1, 2), [identified(b"a", "a")], 1)
        new = Run(waits, range(2, 3), [identified(b"a", "a")], 1, expiry=1.0)
        bench.queue.begin_with(Copy([old], 3), bool) if is_first else None
        bench.queue.take_waiting(new)
        bench.queue.begin_with(Copy([old], 3), bool) if not is_first else None
        assert (bench.queue.duplicates, bench.queue.ids) == (1, 1)
        bench.now = 2.0
        bench.host.timers.run(bench.now)
        assert bench.ready == "a"


def test_an_id_that_waits_is_known_while_the_window_is_made() -> None:
    """A read that finds a message which is ready again, under its old number, finds no duplicate."""
    bench = Bench(**RETRY)
    waits = Run(envelope().counterpart(), range(5, 6), [identified(b"a", "a")], 1, expiry=1.0)

    class Late(Copy):
        """A copy whose messages are due, and read once more, before the window is complete."""

        def fill(self, backlog: object, on_done: Callable[[], None]) -> None:
            bench.queue._on_learnt = on_done
            bench.queue.take_waiting(waits)
            bench.host.timers.run(2.0)
            bench.queue._learn(waits)
            on_done()

    bench.queue.begin_with(Late([], 6), bool)
    assert (bench.ready, bench.queue.duplicates, bench.queue.ids) == ("a", 0, 1)


def test_without_acknowledgements_an_id_leaves_with_the_delivery() -> None:
    bench, outlet = Bench(), FakeOutlet()
    bench.publish("a")
    run = bench.queue.get(0.0)
    assert run is not None
    bench.queue.consumed(run)
    bench.publish("a")
    assert (bench.ready, bench.queue.ids, outlet.taken) == ("a", 1, [])


def test_what_a_limit_drops_loses_its_id() -> None:
    bench = Bench(max_length=1)
    bench.publish("a", "b")
    assert (bench.ready, bench.host.dead) == ("b", [(MAXLEN, b"a")])
    bench.publish("a")
    assert bench.ready == "a"


def test_what_a_limit_refuses_gets_no_id() -> None:
    bench = Bench(max_length=2, overflow="reject-publish")
    assert bench.publish("a", "a", "b", "c", "d") == [3, 4]
    assert (bench.ready, bench.queue.ids) == ("a b", 2)
    bench.queue.ack(bench.get())
    assert bench.publish("c", "b") == []
    assert bench.ready == "b c"


def test_an_expired_message_makes_room_for_one_with_its_id() -> None:
    """The id is free also if the message is not at the head yet, where it is dropped."""
    bench = Bench()
    bench.publish("first")
    bench.publish("a", expiration_ms=1000)
    bench.now = 0.9
    bench.publish("a")
    assert bench.ready == "first a"
    bench.now = 1.5
    bench.publish("a")
    assert bench.ready == "first a a"
    bench.queue.ack(bench.get())
    bench.queue.drop_expired(1.5)
    assert (bench.ready, bench.host.dead) == ("a", [(EXPIRED, b"a")])
    bench.publish("a")
    assert bench.ready == "a"


def test_a_purge_leaves_the_ids_of_messages_with_clients() -> None:
    bench = Bench()
    bench.publish("a", "b", "c", None)
    run = bench.get()
    assert answer(bench.queue.purge()) == 3
    bench.publish("a", "b", "c")
    assert (bench.ready, bench.queue.ids) == ("b c", 3)
    bench.queue.ack(run)
    bench.publish("a")
    assert bench.ready == "b c a"


def test_lost_messages_leave_no_ids() -> None:
    bench = Bench()
    bench.publish("a", "b")
    bench.queue.lost([range(1, 2)])
    bench.publish("a", "b")
    assert bench.ready == "a b a"


def test_nothing_is_kept_of_settled_messages() -> None:
    bench = Bench()
    bench.publish(*(str(number) for number in range(100)), None, None)
    while bench.queue.backlog.count:
        bench.queue.ack(bench.get())
    window = bench.queue._window
    assert (window._numbers, window._ids, window._expiries, window._out) == ({}, {}, {}, set())


def test_consumers_get_each_once() -> None:
    bench, outlet = Bench(), FakeOutlet()
    consumer = Consumer("c", outlet, bench.queue, prefetch=2)
    bench.queue.add_consumer(consumer, 0.0)
    bench.publish("a", "b", "a", "c", "b")
    bench.queue.pump(0.0)
    assert [body for _, _, body in outlet.taken] == [b"a", b"b"]
    assert bench.ready == "c"


# --- beginning with messages ------------------------------------------------------------------------------


@dataclass
class Copy:
    """A mirror's copy with messages that were ready or out with clients."""

    runs: list[Run]
    next_seq: int

    def fill(
        self, backlog: PagedBacklog | PriorityBacklog | DelayBacklog, on_done: Callable[[], None]
    ) -> None:
        for run in self.runs:
            backlog.add(run)
        on_done()


def test_a_next_master_knows_the_ids_before_it_is_live() -> None:
    bench = Bench()
    first = Run(envelope(), range(3, 5), [identified(b"a", "a"), identified(b"b", "b")], 1)
    second = Run(envelope("other"), range(7, 8), [identified(b"c", "c")], 1)
    live: list[int] = []
    bench.queue.begin_with(Copy([first, second], 9), lambda: live.append(bench.queue.ids))
    assert live == [3]
    bench.publish("a", "b", "c", "d")
    assert (bench.ready, bench.queue.next_seq) == ("a b c d", 10)


def test_a_metered_queue_does_the_same() -> None:
    meter = Meter(lambda: 0, lambda: 0)
    record = QueueRecord("/", "q", "uid")
    settings = QueueSettings(is_deduplicating=True)
    queue = MeteredDeduplicatingQueue(record, settings, Host(), MemoryStorage(), 0.0, meter)
    contents = [identified(b"a", "a"), identified(b"bb", "a"), identified(b"c", None)]
    queue.enqueue(Batch(envelope(), contents, MIXED_SIZES), 0.0)
    assert (queue.backlog.count, queue.duplicates, queue.account.pub_bytes) == (2, 1, 2)


# --- policies -------------------------------------------------------------------------------------------


ON, OFF = QueueSettings(is_deduplicating=True), QueueSettings()


class Ruled(Bench):
    """A queue without the argument, and the policies that it is under."""

    def __init__(self, *, is_metered: bool = False) -> None:
        super().__init__()
        meter = Meter(lambda: 0, lambda: 0) if is_metered else None
        plain = new_queue(QueueRecord("/", "q", "uid"), OFF, self.host, MemoryStorage(), meter)
        self.queue = cast("DeduplicatingQueue", plain)

    def rule(self, settings: QueueSettings) -> None:
        """Change the policy; the queue is served once if it asks for that."""
        self.host.touched.clear()
        apply_settings(self.queue, settings, self.now)
        if self.host.touched:
            self.queue.pump(self.now)


@pytest.mark.parametrize("is_metered", [False, True])
def test_a_policy_has_a_live_queue_deduplicate(is_metered: bool) -> None:
    """Messages that were there stay, duplicates too; later ones are dropped."""
    bench = Ruled(is_metered=is_metered)
    bench.publish("a", "b", "a", None)
    kind = type(bench.queue)
    bench.rule(ON)
    assert isinstance(bench.queue, DeduplicatingQueue)
    assert (bench.ready, bench.queue.ids, bench.queue.duplicates) == ("a b a -", 2, 0)
    bench.publish("a", "b", "c", "c")
    assert (bench.ready, bench.queue.duplicates) == ("a b a - c", 3)
    bench.rule(OFF)
    assert type(bench.queue) is kind
    bench.publish("a", "c")
    assert bench.ready == "a b a - c a c"
    bench.rule(ON)
    bench.publish("a")
    assert bench.ready == "a b a - c a c"


def test_what_comes_while_the_ids_are_learnt_is_looked_at_too() -> None:
    bench, outlet = Ruled(), FakeOutlet()
    bench.queue.add_consumer(Consumer("c", outlet, bench.queue, prefetch=1), 0.0)
    bench.publish("a", "b")
    bench.queue.pump(0.0)
    assert [body for _, _, body in outlet.taken] == [b"a"]
    apply_settings(bench.queue, ON, 0.0)
    bench.publish("b", "c", "c")
    assert bench.ready == "b b c c"
    bench.queue.pump(0.0)
    assert (bench.queue.duplicates, bench.host.duplicate_count) == (2, 2)
    assert bench.ready == "b c"
    bench.publish("a")  # the id of a message that was with a client then is not known
    assert bench.ready == "b c a"


def test_a_policy_that_goes_while_the_ids_are_learnt() -> None:
    bench = Ruled()
    bench.publish("a")
    apply_settings(bench.queue, ON, 0.0)
    apply_settings(bench.queue, OFF, 0.0)
    bench.publish("b")
    bench.queue.pump(0.0)
    assert type(bench.queue) is Queue
    assert not bench.queue.consumers._holds
    bench.publish("b")
    assert bench.ready == "a b b"


def test_a_policy_changes_nothing_of_a_queue_with_the_argument() -> None:
    bench = Bench()
    bench.publish("a")
    for policy in (True, False):
        definition = EffectivePolicy("p", None, {"message-deduplication": policy})
        apply_settings(bench.queue, queue_settings(bench.queue.record.arguments, definition), 0.0)
        bench.publish("a")
    assert (bench.ready, bench.queue.duplicates) == ("a", 2)


def test_a_next_master_keeps_duplicates_that_came_before_a_policy() -> None:
    bench = Ruled()
    bench.rule(ON)
    copy = Copy([Run(envelope(), range(3, 5), [identified(b"a", "a"), identified(b"a", "a")], 1)], 9)
    bench.queue.begin_with(copy, lambda: None)
    assert bench.ready == "a a"
    bench.publish("a", "b")
    assert bench.ready == "a a b"


# --- its parts --------------------------------------------------------------------------------------------


def test_pieces() -> None:
    assert pieces_of([]) == []
    assert pieces_of([0, 1, 2]) == [(0, 3)]
    assert pieces_of([1, 3, 4, 9]) == [(1, 2), (3, 5), (9, 10)]


def test_a_window_whose_id_has_moved_on() -> None:
    window = IdWindow()
    window.add("a", 1, 5.0)
    assert window.has("a", 4.0)
    assert not window.has("a", 5.0)
    window.add("a", 2, NEVER)
    window.renumbered(range(1, 2), range(3, 4), NEVER)
    assert (window.is_of("a", 1), window.is_of("a", 3)) == (False, True)
    window.left(range(3, 4))
    assert window.has("a", 9.0)
    window.left(range(2, 4))
    assert not window.has("a", 9.0)


def test_the_argument() -> None:
    assert queue_settings({"x-message-deduplication": boolean(True)}, NO_POLICY).is_deduplicating
    assert not queue_settings({"x-message-deduplication": boolean(False)}, NO_POLICY).is_deduplicating
    assert not queue_settings({}, NO_POLICY).is_deduplicating
