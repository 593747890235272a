"""Queues with a meter count their operations, bytes and time for telemetry."""

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.amqp.field_table import Field, Table
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicQos,
    ConfirmSelect,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from node.amqp.properties import Properties
from node.queue.cpu_windows import EVERY
from node.queue.metering import BUCKETS, KEPT_BYTES, MARKS_MAX, Account, Meter, MeteredQueue, bucket_of
from node.queue.queue import Queue
from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS, bucket_limit_us
from tests.kit.world import Client, World

STEP_NS = 1000


def metered_world() -> World:
    """Return a world whose meter's clocks go on by a microsecond at each look, and whose first window is open."""
    world = World()
    looks = count()
    world.broker.meter = Meter(lambda: next(looks) * STEP_NS, lambda: next(looks) * STEP_NS)
    open_window(world)
    return world


def open_window(world: World) -> None:
    """Let turns pass until a window is open."""
    meter = world.broker.meter
    assert meter is not None
    while not meter.windows.is_open:
        meter.windows.end_turn()


def end_turn(world: World) -> None:
    meter = world.broker.meter
    assert meter is not None
    meter.windows.end_turn()


@pytest.fixture
def world() -> World:
    return metered_world()


@pytest.fixture
def client(world: World) -> Client:
    client = world.client(1)
    client.ask(1, QueueDeclare(queue="q", durable=True))
    return client


def queue(world: World, name: str = "q") -> MeteredQueue:
    found = world.queue(name)
    assert isinstance(found, MeteredQueue)
    return found


def limits(**values: int) -> Table:
    """Arguments of a queue."""
    return {name.replace("_", "-"): Field("I", value) for name, value in values.items()}


def account(world: World, name: str = "q") -> Account:
    return queue(world, name).account


def test_without_a_meter_queues_are_plain() -> None:
    """A queue without a meter is a plain `Queue`: whoever does not use it does not pay for it."""
    world = World()
    world.client(1).ask(1, QueueDeclare(queue="q"))
    assert type(world.queue("q")) is Queue


@given(st.floats(min_value=0, max_value=1e8))
def test_buckets_are_those_of_the_schema(us: float) -> None:
    """Readers and nodes have the same limits."""
    assert BUCKETS == HISTOGRAM_BUCKETS
    bucket = bucket_of(us)
    assert us < bucket_limit_us(bucket) or bucket == BUCKETS - 1
    assert bucket == 0 or us >= bucket_limit_us(bucket - 1)


def test_each_kind_of_operation_costs_time(world: World, client: Client) -> None:
    """A run that comes in, a delivery turn, a settled run."""
    client.publish(1, "q", b"one")
    world.settle()
    published = account(world).cpu_ns
    assert published == EVERY * STEP_NS
    client.send(1, BasicConsume(queue="q", consumer_tag="c"))
    client.received()
    delivered = account(world).cpu_ns
    assert delivered == 2 * EVERY * STEP_NS
    client.send(1, BasicAck(delivery_tag=0, multiple=True))
    world.settle()
    assert account(world).cpu_ns == 3 * EVERY * STEP_NS


def test_outside_of_windows_nothing_is_timed(world: World, client: Client) -> None:
    """Work between two windows is not timed: each window counts for five turns."""
    end_turn(world)
    before = account(world).cpu_ns
    client.publish(1, "q", b"x")
    world.settle()
    client.ask(1, BasicGet(queue="q", no_ack=True))
    client.ask(1, QueuePurge(queue="q"))
    assert account(world).cpu_ns == before
    open_window(world)
    client.publish(1, "q", b"x")
    world.settle()
    assert account(world).cpu_ns > before


def test_what_is_nested_counts_once(world: World, client: Client) -> None:
    """The time of the outer operation is without that of the inner one, which counts by itself."""

    class Outer(MeteredQueue):
        def drop_expired(self, now: float) -> None:
            self.purge()

    client.publish(1, "q", b"x")
    world.settle()
    mine = account(world)
    found, before = queue(world), mine.cpu_ns
    found.__class__ = Outer
    found.get(0.0)
    assert mine.cpu_ns - before == 3 * EVERY * STEP_NS


def test_the_rest_of_a_window_is_for_clients(world: World, client: Client) -> None:
    """Sockets and parsing are for this node's client, as long as nothing is kept on disk or sent to other nodes."""
    client.publish(1, "q", b"x")
    world.settle()
    mine, own = account(world), account(world).cpu_ns
    end_turn(world)
    assert mine.client_ns > 0
    assert mine.cpu_ns == own


def test_what_is_kept_costs_the_queue_more(world: World, client: Client) -> None:
    """Persistent messages cost the loop the preparation of disk jobs, and the disk's thread its time."""
    client.ask(1, QueueDeclare(queue="transient"))
    meter = world.broker.meter
    assert meter is not None
    for name in ("q", "transient"):
        client.publish(1, name, b"x", properties=Properties(delivery_mode=2))
    world.settle()
    before = account(world).cpu_ns
    end_turn(world)
    assert account(world).cpu_ns > before
    list(meter.share_disk(1_000_000))
    assert account(world).disk_ns == 1_000_000
    assert account(world, "transient").disk_ns == 0
    list(meter.share_disk(1_000_000))
    assert account(world).disk_ns == 1_000_000  # the disk kept nothing of any queue


def test_the_disk_is_shared_by_bytes_and_messages(world: World, client: Client) -> None:
    """A message of 64 KiB costs the disk more than a small one, and many small ones more than one."""
    meter = world.broker.meter
    assert meter is not None
    for name, bodies in {"large": [bytes(65536)], "many": [b""] * 9, "one": [b""]}.items():
        client.ask(1, QueueDeclare(queue=name, durable=True))
        client.publish(1, name, *bodies, properties=Properties(delivery_mode=2))
    world.settle()
    list(meter.share_disk(65536 + 11 * KEPT_BYTES))
    assert account(world, "large").disk_ns == 65536 + KEPT_BYTES
    assert account(world, "many").disk_ns == 9 * KEPT_BYTES
    assert account(world, "one").disk_ns == KEPT_BYTES


def test_bytes(world: World, client: Client) -> None:
    """Bodies that came in and went out, whatever way."""
    client.publish(1, "q", b"12345", b"12345", b"1")
    world.settle()
    assert account(world).pub_bytes == 11
    client.ask(1, BasicGet(queue="q", no_ack=True))
    assert account(world).dlv_bytes == 5
    client.ask(1, BasicGet(queue="q"))
    assert account(world).dlv_bytes == 10
    client.send(1, BasicConsume(queue="q", consumer_tag="c", no_ack=True))
    client.received()
    assert account(world).dlv_bytes == 11


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.booleans())
def test_bytes_of_any_run(bodies: list[bytes], is_limited: bool) -> None:
    """By the plain path and by that of queues with rules."""
    world = metered_world()
    client = world.client(1)
    arguments = limits(x_max_length=1000) if is_limited else {}
    client.ask(1, QueueDeclare(queue="q", arguments=arguments))
    client.publish(1, "q", *bodies)
    world.settle()
    assert account(world).pub_bytes == sum(map(len, bodies))


def test_deaths_by_reason(world: World) -> None:
    """Expired, dropped for a limit, and those that have somewhere to go."""
    client = world.client(1)
    client.ask(1, QueueDeclare(queue="old", arguments=limits(x_message_ttl=1000)))
    client.ask(1, QueueDeclare(queue="full", arguments=limits(x_max_length=1)))
    client.ask(1, QueueDeclare(queue="dlx", arguments={"x-dead-letter-exchange": Field("S", b"")}))
    client.publish(1, "old", b"a", b"b")
    client.publish(1, "full", b"a", b"b", b"c")
    client.publish(1, "dlx", b"a")
    world.advance(2)
    assert (account(world, "old").expired, account(world, "old").dead_lettered) == (2, 0)
    assert account(world, "full").dropped == 2
    client.ask(1, BasicGet(queue="dlx"))
    client.send(1, BasicNack(delivery_tag=1, requeue=False))
    world.settle()
    assert account(world, "dlx").dead_lettered == 1


def test_confirms_are_timed_now_and_then(world: World, client: Client) -> None:
    """One of many runs within a tenth of a second is timed; all are confirmed."""
    client.ask(1, ConfirmSelect())
    persistent = Properties(delivery_mode=2)
    for _ in range(5):
        client.publish(1, "q", b"x", properties=persistent)
        client.received()
    timed = account(world).confirm_us
    assert timed is not None
    assert sum(timed) == 1
    assert timed[0] == 1  # the broker has no disk: at once
    world.advance(0.2)
    client.publish(1, "q", b"x", properties=persistent)
    assert [type(method) for method in client.methods()] == [BasicAck]
    assert sum(timed) == 2
    channel = next(iter(client.connection.channels.values()))
    assert channel.confirms is not None
    assert channel.confirms.confirmed == 6


def test_the_head_ages(world: World, client: Client) -> None:
    """The age of the first ready message, as exactly as marks are."""
    found = queue(world)
    assert found.head_age_s(world.now) == 0.0
    client.publish(1, "q", b"first")
    world.advance(10)
    client.publish(1, "q", b"second")
    world.advance(5)
    assert found.head_age_s(world.now) == pytest.approx(15, abs=1)
    client.ask(1, BasicGet(queue="q", no_ack=True))
    assert found.head_age_s(world.now) == pytest.approx(5, abs=1)
    client.ask(1, QueuePurge(queue="q"))
    assert found.head_age_s(world.now) == 0.0


def test_marks_are_bounded(world: World, client: Client) -> None:
    """However long messages wait."""
    client.publish(1, "q", b"first")
    for _ in range(3 * MARKS_MAX):
        world.advance(1.5)
        client.publish(1, "q", b"x")
        world.settle()
    found = queue(world)
    assert len(found._marks) <= MARKS_MAX
    assert found.head_age_s(world.now) == pytest.approx(3 * MARKS_MAX * 1.5, abs=2)


def test_accounts_stay_while_the_queue_is_there(world: World, client: Client) -> None:
    """Counters rise, also over masters; a queue declared anew begins anew."""
    meter = world.broker.meter
    assert meter is not None
    client.publish(1, "q", b"x", b"y")
    world.settle()
    former = queue(world)
    mine = former.account
    assert mine.counts(former.counters)[0] == 2
    former.retire()
    assert mine.counts()[0] == 2
    list(meter.sweep(world.broker.catalogue.queue))
    assert meter.account(former.record) is mine
    client.ask(1, QueueDelete(queue="q"))
    list(meter.sweep(world.broker.catalogue.queue))
    assert meter.accounts == {}


def _histories() -> st.SearchStrategy[list[tuple[str, int]]]:
    step = st.tuples(
        st.sampled_from(["publish", "ack", "nack", "requeue", "get", "advance", "purge"]), st.integers(1, 5)
    )
    return st.lists(step, max_size=30)


def _replay(world: World, history: list[tuple[str, int]]) -> list[object]:
    client = world.client(1)
    arguments = limits(x_message_ttl=2500, x_max_length=8)
    client.ask(1, QueueDeclare(queue="q", arguments=arguments))
    client.ask(1, QueueDeclare(queue="plain"))
    client.send(1, BasicQos(prefetch_count=3))
    client.send(1, BasicConsume(queue="plain", consumer_tag="c"))
    seen: list[object] = [client.received()]
    steps: dict[str, Callable[[int], object]] = {
        "publish": lambda n: [client.publish(1, name, *[bytes(n)] * n) for name in ("q", "plain")],
        "ack": lambda n: client.send(1, BasicAck(delivery_tag=0, multiple=True)),
        "nack": lambda n: client.send(1, BasicNack(delivery_tag=0, multiple=True, requeue=False)),
        "requeue": lambda n: client.send(1, BasicNack(delivery_tag=0, multiple=True, requeue=True)),
        "get": lambda n: client.send(1, BasicGet(queue="q", no_ack=bool(n % 2))),
        "advance": lambda n: world.advance(n / 2),
        "purge": lambda n: client.send(1, QueuePurge(queue="q")),
    }
    for name, number in history:
        steps[name](number)
        seen.append(client.received())
    return seen


@given(_histories())
def test_metered_queues_do_what_plain_ones_do(history: list[tuple[str, int]]) -> None:
    """Clients cannot tell whether anybody keeps account."""
    assert _replay(metered_world(), history) == _replay(World(), history)
