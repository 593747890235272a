"""Messages that a client returned wait before they are ready again: how long, which, and what counts meanwhile."""

import pytest

from node.amqp.field_table import longstr
from node.amqp.properties import Properties
from node.catalogue.delayed import DELAY_MAX_MS
from node.catalogue.policy import QueueSettings
from node.queue import retries
from node.queue.dead_letter import DELIVERY_LIMIT, EXPIRED
from node.queue.delay_backlog import ROUNDING_S
from node.queue.retries import READY_MAX, delay_ms
from node.queue.run import Batch, Run
from tests.kit.messages import FakeOutlet, answer, bodies_of, content, envelope
from tests.node.queue.test_queue import Bench


def retrying(kind: str = "all", **settings: object) -> Bench:
    """Return a queue whose messages wait a second for each time that they came back."""
    return Bench(**{"delayed_retry_type": kind, "delayed_retry_min": 1000, **settings})  # type: ignore[arg-type]


def returned(bench: Bench, *, is_asked: bool = True, count: int = 1) -> list[Run]:
    runs = [bench.get() for _ in range(count)]
    bench.queue.requeue(runs[::-1], bench.now, is_asked=is_asked)
    return runs


def waiting(bench: Bench) -> int:
    return 0 if bench.queue.retries is None else bench.queue.retries.count


@pytest.mark.parametrize(
    ("longest", "multiplier", "expected"),
    [
        (None, None, [100, 200, 300, 400]),
        (250, None, [100, 200, 250, 250]),
        (None, 1, [100, 100, 100, 100]),
        (None, 2, [100, 200, 400, 800]),
        (500, 3, [100, 300, 500, 500]),
    ],
)
def test_how_long_a_message_waits(longest: int | None, multiplier: int | None, expected: list[int]) -> None:
    """Linear as in RabbitMQ 4.3, or by a multiplier."""
    settings = QueueSettings(
        delayed_retry_min=100,
        delayed_retry_max=longest or DELAY_MAX_MS,
        delayed_retry_multiplier=multiplier,
    )
    assert [delay_ms(settings, deliveries) for deliveries in (1, 2, 3, 4)] == expected
    assert delay_ms(settings, 10**6) <= DELAY_MAX_MS


def test_a_returned_message_is_ready_when_it_is_due() -> None:
    bench = retrying()
    bench.publish(b"a", b"b")
    returned(bench)
    assert (waiting(bench), bench.ready) == (1, [b"b"])
    bench.advance(1.0)
    assert waiting(bench) == 1
    bench.advance(ROUNDING_S)
    assert (waiting(bench), bench.ready) == (0, [b"b", b"a"])
    assert [bench.get().deliveries for _ in range(2)] == [0, 1]


def test_it_waits_longer_each_time() -> None:
    bench = retrying()
    bench.publish(b"a")
    for times in (1, 2, 3):
        returned(bench)
        bench.advance(times - 0.01)
        assert bench.ready == []
        bench.advance(0.02)
        assert bench.ready == [b"a"]


@pytest.mark.parametrize(
    ("kind", "asked", "gone"),
    [("disabled", 0, 0), ("all", 1, 1), ("failed", 1, 0), ("returned", 0, 1)],
)
def test_which_messages_wait(kind: str, asked: int, gone: int) -> None:
    for is_asked, expected in ((True, asked), (False, gone)):
        bench = retrying(kind)
        bench.publish(b"a")
        returned(bench, is_asked=is_asked)
        assert (waiting(bench), len(bench.ready)) == (expected, 1 - expected)


def test_without_a_shortest_delay_nothing_waits() -> None:
    bench = Bench(delayed_retry_type="all")
    bench.publish(b"a")
    returned(bench)
    assert bench.ready == [b"a"]


def test_the_delivery_limit_ends_it() -> None:
    bench = retrying(delivery_limit=2)
    bench.publish(b"a")
    for _ in range(3):
        returned(bench)
        bench.advance(10)
    assert bench.host.dead == [(DELIVERY_LIMIT, b"a")]
    assert (waiting(bench), bench.ready) == (0, [])


def test_messages_come_back_in_the_order_in_which_they_are_due() -> None:
    bench = retrying()
    bench.publish(b"a", b"b")
    returned(bench)
    bench.advance(1.1)
    returned(bench, count=2)  # b for the first time, a for the second
    bench.publish(b"c")
    bench.advance(3)
    assert bench.ready == [b"c", b"b", b"a"]


def test_it_goes_to_a_consumer_that_waits() -> None:
    bench, outlet = retrying(), FakeOutlet()
    bench.publish(b"a")
    returned(bench)
    bench.consumer(outlet)
    bench.advance(1.1)
    bench.queue.pump(bench.now)
    assert [body for _, _, body in outlet.taken] == [b"a"]


def test_what_waits_does_not_expire_and_its_time_to_live_begins_anew() -> None:
    bench = retrying(message_ttl=500)
    bench.publish(b"a")
    returned(bench)
    bench.advance(1.1)
    assert bench.ready == [b"a"]
    bench.advance(0.45)
    assert bench.host.dead == []
    bench.advance(0.1)
    assert bench.host.dead == [(EXPIRED, b"a")]


def test_priorities_are_kept() -> None:
    bench = retrying(max_priority=5)
    bench.publish(b"low", priority=1)
    bench.publish(b"high", priority=4)
    returned(bench)
    bench.advance(1.1)
    assert bench.ready == [b"high", b"low"]


def test_a_purge_drops_what_waits() -> None:
    bench = retrying()
    bench.publish(b"a", b"b")
    returned(bench)
    assert answer(bench.queue.purge()) == 2
    bench.advance(10)
    assert (waiting(bench), bench.ready) == (0, [])


def test_a_deleted_queue_forgets_what_waits() -> None:
    bench = retrying()
    bench.publish(b"a")
    returned(bench)
    bench.queue.close()
    bench.advance(10)
    assert bench.queue.backlog.count == 0
    assert len(bench.host.timers) == 0


def test_a_settled_message_is_no_longer_counted_as_unacknowledged() -> None:
    bench = retrying()
    bench.publish(b"a")
    returned(bench)
    assert (bench.queue.unacked_count, bench.queue.unacked_bytes) == (0, 0)
    assert bench.queue.counters.publish == 1
    bench.advance(2)
    assert bench.queue.counters.publish == 1


def test_too_many_come_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory for those that wait is bounded."""
    monkeypatch.setattr(retries, "RETRIES_MAX_BYTES", retries.RETRY_BYTES + 100)
    bench = retrying()
    bench.publish(b"a" * 100, b"b", b"c")
    returned(bench, count=3)
    assert (waiting(bench), bench.ready) == (1, [b"b", b"c"])
    bench.advance(1.1)
    assert (waiting(bench), bench.ready) == (0, [b"b", b"c", b"a" * 100])
    returned(bench, count=3)
    assert (waiting(bench), bench.ready) == (2, [b"a" * 100])


def test_properties_count_for_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message without a body may have headers of any size."""
    monkeypatch.setattr(retries, "RETRIES_MAX_BYTES", retries.RETRY_BYTES + 1000)
    bench = retrying()
    headers = {"h": longstr("x" * 1000)}
    for _ in range(2):
        batch = Batch(envelope(), [content(b"", properties=Properties(headers=headers))], 0)
        bench.queue.enqueue(batch, bench.now)
    returned(bench, count=2)
    assert (waiting(bench), len(bench.ready)) == (1, 1)


def test_what_is_counted_of_the_memory_goes_with_the_messages() -> None:
    bench = retrying()
    bench.publish(b"a", b"bb", b"ccc")
    returned(bench, count=3)
    queue = bench.queue
    assert queue.retries is not None
    assert queue.retries.memory_bytes > 3 * retries.RETRY_BYTES
    queue.retries.drop(queue.next_seq - 1)
    assert answer(queue.purge()) == 2
    assert queue.retries.memory_bytes == 0
    bench.publish(b"a")
    returned(bench)
    bench.advance(1.1)
    assert (queue.retries.memory_bytes, bench.ready) == (0, [b"a"])


def test_many_that_are_due_come_in_parts() -> None:
    bench = retrying()
    count = READY_MAX + 10
    bench.publish(*[b"%d" % number for number in range(count)])
    returned(bench, count=count)
    assert waiting(bench) == count
    bench.advance(1.1)
    bench.advance(0)
    assert [int(body) for body in bench.ready] == list(range(count))


def test_the_setting_goes_while_messages_wait() -> None:
    """Messages that wait are ready when they were to be."""
    bench = retrying()
    bench.publish(b"a")
    returned(bench)
    bench.queue.apply_settings(QueueSettings(), bench.now)
    bench.advance(0.5)
    assert bench.ready == []
    bench.advance(1)
    assert bench.ready == [b"a"]
    assert bodies_of(returned(bench)[0]) == [b"a"]
    assert bench.ready == [b"a"]
