"""Delayed exchanges in a broker without sockets: what waits, when it goes out, where it goes, and what is refused.

The cases of the archived plug-in's tests are among them.
"""

from collections.abc import Sequence

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.field_table import Field, boolean, long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicReturn,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)
from node.amqp.properties import Properties
from node.broker.delayed_messages import DUE_MAX, TURN_MAX
from node.broker.forwarding import RETRY_S
from node.catalogue.commands import DeleteVhost, SetPolicy
from node.catalogue.delayed import DELAY_MAX_MS, DELAYED_TYPE, waiting_queue
from node.queue.delay_backlog import ROUNDING_S, TIMER_MAX_S
from node.queue.delayed_queue import DelayedQueue
from tests.kit.world import World, check_invariants
from tests.node.broker.delayed_scene import (
    bound,
    declaration,
    fabric,
    fetched,
    later,
    publish,
    ready,
    waiting,
)

WAITING = waiting_queue("x")
ORDER = (500, 100, 300, 200, 100, 400)


# --- when -------------------------------------------------------------------------------------------------


def test_a_message_goes_out_at_its_time_and_not_before() -> None:
    world, client = fabric()
    publish(client, 1000)
    assert (ready(world), waiting(world)) == (0, 1)
    world.advance(1.0)
    assert ready(world) == 0
    world.advance(ROUNDING_S)
    assert (ready(world), waiting(world)) == (1, 0)
    check_invariants(world)


def test_messages_go_out_in_the_order_of_their_times() -> None:
    """Messages that are due at the same time keep the order in which they came."""
    world, client = fabric()
    for number, delay in enumerate(ORDER):
        publish(client, delay, b"%d:%d" % (delay, number))
    later(world, 1.0)
    assert fetched(client) == [b"100:1", b"100:4", b"200:3", b"300:2", b"400:5", b"500:0"]


@pytest.mark.parametrize(
    "delay",
    [
        None,
        0,
        -1,
        longstr("soon"),
        longstr(""),
        boolean(True),
        Field("V", None),
        Field("x", b"100"),
        Field("T", 100),
        long(DELAY_MAX_MS + 1),
        long(-(1 << 63)),
    ],
)
def test_without_a_delay_a_message_is_routed_at_once(delay: Field | int | None) -> None:
    """No header, a number that is no time to wait, and values that are no number."""
    world, client = fabric()
    publish(client, delay)
    assert (ready(world), waiting(world)) == (1, 0)


@pytest.mark.parametrize(
    "delay",
    [
        Field("I", 100),
        Field("i", 100),
        Field("b", 100),
        Field("B", 100),
        Field("s", 100),
        Field("u", 100),
        Field("l", 100),
        Field("d", 100.9),
        Field("f", 100.5),
        Field("D", (1, 1009)),
        longstr("100"),
        longstr("+100"),
    ],
)
def test_all_that_means_a_number_delays(delay: Field) -> None:
    world, client = fabric()
    publish(client, delay)
    assert (ready(world), waiting(world)) == (0, 1)
    later(world, 0.1)
    client.send(1, BasicGet(queue="q", no_ack=True))
    (item,) = client.received()
    assert item.properties is not None
    assert item.properties.headers == {"x-delay": Field("I", -100)}


def test_a_delay_of_years() -> None:
    """The timer is set again and again; the header keeps the number."""
    world, client = fabric()
    publish(client, long(DELAY_MAX_MS))
    timers = world.broker.timers
    deadline = timers.next_deadline()
    assert deadline is not None
    assert deadline <= world.now + TIMER_MAX_S
    later(world, 10 * TIMER_MAX_S)
    assert (ready(world), waiting(world)) == (0, 1)
    world.now += DELAY_MAX_MS / 1000
    later(world, 0.0)
    client.send(1, BasicGet(queue="q", no_ack=True))
    (item,) = client.received()
    assert item.properties is not None
    assert item.properties.headers == {"x-delay": Field("l", -DELAY_MAX_MS)}


def test_a_shorter_delay_overtakes_a_longer_one_that_is_waited_for() -> None:
    """The timer of the first message must not keep the second one back."""
    world, client = fabric()
    publish(client, 60_000, b"later")
    later(world, 1.0)
    publish(client, 10, b"sooner")
    later(world, 0.010)
    assert fetched(client) == [b"sooner"]


def test_many_that_are_due_at_once_take_several_turns() -> None:
    """A bounded number a turn and on the way, all of them in the end, in order."""
    world, client = fabric()
    count = DUE_MAX + TURN_MAX
    for number in range(count):
        publish(client, 1000, b"%d" % number)
    world.now += 2.0
    world.broker.tick(world.now)
    lengths = []
    while world.broker.has_work:
        world.broker.turn(world.now)
        lengths.append(world.queue("q").backlog.count)
    steps = [after - before for before, after in zip([0, *lengths], lengths, strict=False)]
    assert max(steps) <= TURN_MAX
    assert lengths[-1] == count
    assert fetched(client) == [b"%d" % number for number in range(count)]
    assert waiting(world) == 0


# --- where ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [None, 100])
@pytest.mark.parametrize(
    ("type_", "bindings", "keys", "count"),
    [
        ("topic", ("a.b.c", "a.*.c", "a.#"), ("a.b.c", "a.z.c", "a.j.k", "b.b.c"), 3),
        ("direct", ("mykey",), ("mykey", "noroute", "mykey"), 2),
        ("fanout", ("mykey", "", "otherkey"), ("mykey", "noroute", "mykey"), 3),
    ],
)
def test_the_routing_type_decides(
    type_: str, bindings: Sequence[str], keys: Sequence[str], count: int, delay: int | None
) -> None:
    world, client = fabric(type_, *bindings)
    for key in keys:
        publish(client, delay, key=key)
    later(world, 1.0)
    assert ready(world) == count
    assert waiting(world) == 0


def test_a_headers_exchange_sees_the_headers() -> None:
    world, client = fabric("headers")
    bound(client, "red", "", arguments={"colour": longstr("red")})
    publish(client, 100, b"red", headers={"colour": longstr("red")})
    publish(client, None, b"at once", headers={"colour": longstr("red")})
    publish(client, 100, b"blue", headers={"colour": longstr("blue")})
    assert fetched(client, "red") == [b"at once"]
    later(world, 1.0)
    assert fetched(client, "red") == [b"red"]


def test_bindings_count_when_the_message_is_due() -> None:
    """Routes that were learnt from earlier messages do not count either."""
    world, client = fabric()
    publish(client, 100, b"before")
    later(world, 0.1)
    assert fetched(client) == [b"before"]
    publish(client, 100)
    bound(client, "later", "k")
    client.ask(1, QueueUnbind(queue="q", exchange="x", routing_key="k"))
    later(world, 0.1)
    assert (ready(world), ready(world, "later")) == (0, 1)


@pytest.mark.parametrize("delays", [(0,), ORDER])
def test_from_a_delayed_exchange_to_another_a_message_is_delayed_once(delays: Sequence[int]) -> None:
    """The second one sees a negative delay."""
    world = World()
    client = world.client()
    client.ask(1, declaration("x"))
    client.ask(1, declaration("y"))
    assert client.ask(1, ExchangeBind(source="x", destination="y", routing_key="k")) == ExchangeBindOk()
    bound(client, "q", "k", exchange="y")
    for delay in delays:
        publish(client, delay, b"%d" % delay)
    later(world, max(delays) / 1000)
    assert fetched(client) == [b"%d" % delay for delay in sorted(delays)]
    assert (waiting(world, "x"), waiting(world, "y")) == (0, 0)


def test_behind_another_exchange_only_the_delayed_way_is_delayed() -> None:
    world, client = fabric()
    client.ask(1, ExchangeDeclare(exchange="first", type="fanout"))
    client.ask(1, ExchangeBind(source="first", destination="x", routing_key=""))
    bound(client, "direct", "", exchange="first")
    publish(client, 100, exchange="first")
    assert (ready(world, "direct"), ready(world, "q")) == (1, 0)
    later(world, 0.1)
    assert (ready(world, "direct"), ready(world, "q")) == (1, 1)


def test_the_copy_is_as_published_but_for_the_delay() -> None:
    """Properties, body, routing key and exchange; its own time to live begins when it is routed."""
    world, client = fabric()
    publish(
        client,
        5000,
        b"body" * 50_000,
        headers={"a": longstr("b")},
        expiration="1000",
        message_id="id",
        delivery_mode=2,
        priority=3,
    )
    later(world, 5.0)
    client.send(1, BasicGet(queue="q", no_ack=True))
    (item,) = client.received()
    assert (item.method.exchange, item.method.routing_key) == ("x", "k")  # type: ignore[union-attr]
    assert item.body == b"body" * 50_000
    assert item.properties == Properties(
        headers={"a": longstr("b"), "x-delay": Field("I", -5000)},
        expiration="1000",
        message_id="id",
        delivery_mode=2,
        priority=3,
    )
    publish(client, 5000, expiration="1000")
    later(world, 5.5)
    assert ready(world) == 1
    later(world, 0.6)
    assert ready(world) == 0


def test_carbon_copies_go_out_too() -> None:
    world, client = fabric()
    bound(client, "copy", "other")
    publish(client, 100, headers={"CC": Field("A", [longstr("other")])})
    assert waiting(world) == 1
    later(world, 0.1)
    assert (ready(world), ready(world, "copy")) == (1, 1)


def test_a_dead_letter_with_a_delay_waits_too() -> None:
    """The usual retry: a queue whose dead letters go to a delayed exchange."""
    world, client = fabric()
    arguments = {"x-dead-letter-exchange": longstr("x"), "x-dead-letter-routing-key": longstr("k")}
    client.ask(1, QueueDeclare(queue="work", arguments={**arguments, "x-message-ttl": long(0)}))
    publish(client, 100, exchange="", key="work")
    assert (ready(world), waiting(world)) == (0, 1)
    later(world, 0.1)
    assert ready(world) == 1


def test_the_alternate_exchange_gets_what_no_binding_selects_when_it_is_due() -> None:
    world, client = fabric()
    client.ask(1, ExchangeDeclare(exchange="other", type="fanout"))
    bound(client, "rest", "", exchange="other")
    arguments = {"x-delayed-type": longstr("direct"), "alternate-exchange": longstr("other")}
    client.ask(1, ExchangeDeclare(exchange="y", type=DELAYED_TYPE, arguments=arguments))
    publish(client, 100, exchange="y", key="nowhere")
    publish(client, None, b"at once", exchange="y", key="nowhere")
    assert fetched(client, "rest") == [b"at once"]
    later(world, 0.1)
    assert fetched(client, "rest") == [b"m"]


def test_a_mandatory_message_is_returned_only_if_it_is_not_delayed() -> None:
    """When a delayed one is due, its publisher may be gone."""
    world, client = fabric()
    publish(client, 100, key="nowhere", mandatory=True)
    later(world, 0.2)
    assert client.received() == []
    assert waiting(world) == 0
    publish(client, None, key="nowhere", mandatory=True)
    (item,) = client.received()
    assert isinstance(item.method, BasicReturn)


# --- publishers ---------------------------------------------------------------------------------------------


def test_a_delayed_message_is_confirmed_when_it_waits() -> None:
    world, client = fabric()
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    publish(client, 1000, delivery_mode=2)
    assert client.methods() == [BasicAck(1, multiple=False)]
    assert waiting(world) == 1


def test_a_transaction_delays_from_its_commit() -> None:
    world, client = fabric()
    assert client.ask(1, TxSelect()) == TxSelectOk()
    publish(client, 100)
    later(world, 1.0)
    assert (ready(world), waiting(world)) == (0, 0)
    assert client.ask(1, TxCommit()) == TxCommitOk()
    assert (ready(world), waiting(world)) == (0, 1)
    later(world, 0.1)
    assert ready(world) == 1


# --- the exchange -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "refusal"),
    [
        (
            None,
            (
                ReplyCode.PRECONDITION_FAILED,
                "PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing exchange type",
            ),
        ),
        (
            DELAYED_TYPE,
            (
                ReplyCode.PRECONDITION_FAILED,
                "PRECONDITION_FAILED - Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
            ),
        ),
        (
            "x-not-valid-type",
            (ReplyCode.COMMAND_INVALID, "COMMAND_INVALID - unknown exchange type 'x-not-valid-type'"),
        ),
    ],
)
def test_the_routing_type_must_be_one(type_: str | None, refusal: tuple[int, str]) -> None:
    world = World()
    assert world.client().refusal(declaration(type_=type_)) == refusal
    assert world.queue_names == set()


def test_a_routing_type_that_is_no_text_is_refused() -> None:
    method = ExchangeDeclare(exchange="x", type=DELAYED_TYPE, arguments={"x-delayed-type": long(1)})
    code, _ = World().client().refusal(method)
    assert code == ReplyCode.PRECONDITION_FAILED


def test_deleting_the_exchange_drops_what_waits() -> None:
    world, client = fabric()
    publish(client, 100)
    assert client.ask(1, ExchangeDelete(exchange="x")) == ExchangeDeleteOk()
    assert world.queue_names == {"q"}
    assert client.ask(1, declaration()) == ExchangeDeclareOk()
    client.ask(1, QueueBind(queue="q", exchange="x", routing_key="k"))
    later(world, 1.0)
    assert (ready(world), waiting(world)) == (0, 0)


def test_an_auto_delete_exchange_takes_its_messages_along() -> None:
    world = World()
    client = world.client()
    client.ask(1, declaration(auto_delete=True))
    bound(client, "q", "k")
    publish(client, 100)
    assert isinstance(client.ask(1, QueueDelete(queue="q")), QueueDeleteOk)
    assert world.queue_names == set()


def test_deleting_the_vhost_takes_all_along() -> None:
    world, client = fabric()
    publish(client, 100)
    world.submit(DeleteVhost("/"))
    world.settle()
    later(world, 1.0)
    assert world.broker.vhosts == {}


def test_declaring_the_exchange_again_changes_nothing() -> None:
    world, client = fabric()
    publish(client, 100)
    assert client.ask(1, declaration()) == ExchangeDeclareOk()
    assert waiting(world) == 1


# --- the queue where they wait ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        BasicConsume(queue=WAITING),
        BasicGet(queue=WAITING),
        QueuePurge(queue=WAITING),
        QueueDelete(queue=WAITING),
        QueueDeclare(queue=WAITING),
        QueueDeclare(queue=WAITING, passive=True),
        QueueBind(queue=WAITING, exchange="amq.fanout"),
    ],
)
def test_clients_cannot_use_the_waiting_queue(method: BasicGet) -> None:
    world, client = fabric()
    publish(client, 100)
    code, _ = client.refusal(method)
    assert code == ReplyCode.ACCESS_REFUSED
    assert waiting(world) == 1


def test_clients_cannot_publish_to_the_waiting_queue() -> None:
    """The default exchange needs no permission for the delayed one, so it does not lead there."""
    world, client = fabric()
    publish(client, 100, exchange="", key=WAITING)
    publish(client, None, exchange="", key="q", headers={"CC": Field("A", [longstr(WAITING)])})
    assert (ready(world), waiting(world)) == (1, 0)


def test_policies_for_queues_do_not_drop_what_waits() -> None:
    """One that is for all queues may limit their length and age."""
    world, client = fabric()
    limits = {"max-length": 0, "message-ttl": 1, "expires": 1000, "dead-letter-exchange": "amq.fanout"}
    world.submit(SetPolicy("/", "all", ".*", limits, apply_to="queues"))
    assert client.ask(1, QueueDelete(queue="q")) is not None
    world.submit(SetPolicy("/", "all", "amq.*", limits, apply_to="queues"))
    bound(client, "kept", "k")
    publish(client, 5000)
    later(world, 4.9)
    assert waiting(world) == 1
    later(world, 0.1)
    assert ready(world, "kept") == 1


def test_an_operator_may_purge_what_waits() -> None:
    """Nothing goes out then."""
    world, client = fabric()
    publish(client, 100)
    queue = world.queue(WAITING)
    assert isinstance(queue, DelayedQueue)
    with pytest.raises(StopIteration) as done:
        next(queue.purge())
    assert done.value.value == 1
    later(world, 1.0)
    assert (ready(world), waiting(world)) == (0, 0)


def test_a_message_that_the_disk_did_not_keep_goes_out_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node ends then; until it does, nothing is forgotten, and the loop is not kept busy."""
    world, client = fabric()
    assert isinstance(client.ask(1, QueueDeclare(queue="kept", durable=True)), QueueDeclareOk)
    client.ask(1, QueueBind(queue="kept", exchange="x", routing_key="k"))
    publish(client, 100, delivery_mode=2)
    with monkeypatch.context() as failing:
        failing.setattr(
            world.broker.storage,
            "await_safety",
            lambda waiter, first, last: waiter.settle(first, last, is_safe=False),
        )
        later(world, 0.1)
        assert ready(world, "kept") == 1
    later(world, RETRY_S)
    assert ready(world, "kept") == 2
    later(world, 10 * RETRY_S)
    assert ready(world, "kept") == 2
