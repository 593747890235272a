"""The broker around queues and connections: turns, what follows from the catalogue, dead-lettering between queues.

The marks § are sections of amqp-behaviour.
"""

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.field_table import Table, array, boolean, long, longstr
from node.amqp.frames import content_frames, method_frame
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicReject,
    ChannelClose,
    ConfirmSelect,
    ConnectionClose,
    ConnectionCloseOk,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
)
from node.amqp.properties import Properties, content_header
from node.broker.broker import Broker
from node.broker.deletions import DELETIONS_MAX
from node.broker.forwarding import FORWARDED_MAX
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    ClearPolicy,
    Command,
    DeleteExchange,
    DeleteQueue,
    DeleteVhost,
    PutVhost,
    Refused,
    SetParameter,
    SetPolicy,
    SetUserLimits,
)
from node.catalogue.records import UserLimits
from node.catalogue.replicated_log import LocalLog
from node.client.settings import BrokerSettings
from node.queue.run import Run
from node.scheduling.chores import CHORES_S
from node.scheduling.timers import Timers
from node.scheduling.waste import FREED_AT_ONCE
from tests.kit.memory import assert_gone, no_search_for_cycles
from tests.kit.world import EPOCH_S, Client, World, check_invariants


def declared(world: World, queue: str, **arguments: object) -> Client:
    """A client that has declared a queue; `max_length` for x-max-length and so on."""
    client = world.client()
    declare(client, queue, **arguments)
    return client


def declare(client: Client, queue: str, **arguments: object) -> None:
    table: Table = {
        f"x-{name.replace('_', '-')}": longstr(value) if isinstance(value, str) else long(value)  # type: ignore[arg-type]
        for name, value in arguments.items()
    }
    assert isinstance(client.ask(1, QueueDeclare(queue=queue, arguments=table)), QueueDeclareOk)


def taken(client: Client, queue: str) -> tuple[Properties, bytes]:
    """The message at the head of a queue, taken out, once all that died has got where it goes."""
    client.world.settle()
    client.send(1, BasicGet(queue=queue, no_ack=True))
    (item,) = client.received()
    assert item.properties is not None, f"{queue} is empty"
    return item.properties, item.body


def deaths(properties: Properties) -> list[tuple[object, object, object]]:
    """Queue, reason and count of each entry of x-death."""
    assert properties.headers is not None
    entries = properties.headers["x-death"].value
    assert isinstance(entries, list)
    return [tuple(entry.value[name].value for name in ("queue", "reason", "count")) for entry in entries]


# --- turns ------------------------------------------------------------------------------------------------


def test_a_fault_in_one_queue_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a turn that one of our own faults broke off is done in the next."""
    world = World()
    broken, sound = declared(world, "broken"), declared(world, "sound")
    for client, queue in ((broken, "broken"), (sound, "sound")):
        client.ask(1, BasicConsume(queue=queue, no_ack=True))

    def fail(now: float) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(world.queue("broken"), "pump", fail)
    for client, queue in ((broken, "broken"), (sound, "sound")):
        client.feed(
            method_frame(1, BasicPublish(routing_key=queue))
            + content_frames(1, content_header(0, Properties()), b"", 0)
        )
    with pytest.raises(ZeroDivisionError):
        world.settle()
    world.settle()
    (item,) = sound.received()
    assert isinstance(item.method, BasicDeliver)


def test_many_deaths_take_several_turns() -> None:
    """A nack of everything with a dead-letter exchange: a bounded number a turn, all of them in the end, in order."""
    world, client = dead_letter_pair()
    count = 2 * FORWARDED_MAX + 1
    client.publish(1, "q", *(b"%d" % number for number in range(count)))
    client.send(1, BasicConsume(queue="q"))
    assert len(client.received()) == 1 + count
    client.feed(method_frame(1, BasicNack(0, multiple=True, requeue=False)))
    lengths = []
    while world.broker.has_work:
        world.broker.turn(world.now)
        lengths.append(world.queue("dead").backlog.count)
    assert lengths == [FORWARDED_MAX, 2 * FORWARDED_MAX, count]
    assert [taken(client, "dead")[1] for _ in range(count)] == [b"%d" % number for number in range(count)]
    check_invariants(world)


def test_the_shell_is_woken_when_there_is_work() -> None:
    world = World()
    clients = [world.client(), declared(world, "q")]
    clients[1].send(1, BasicConsume(queue="q", no_ack=True))
    world.settle()
    woken: list[int] = []
    world.broker.wake = lambda: woken.append(1)
    for client in clients:
        client.publish(1, "q", b"1", b"2")
        client.send(1, ConfirmSelect())
    assert woken
    world.settle()
    assert not world.broker.has_work
    woken.clear()
    clients[0].publish(1, "q", b"3")
    assert woken


def test_a_turn_says_whom_to_flush() -> None:
    world = World()
    sender, receiver = world.client(), declared(world, "q")
    receiver.send(1, BasicConsume(queue="q", no_ack=True))
    world.settle()
    sender.publish(1, "q", b"1")
    assert list(world.broker.turn(world.now)) == [receiver.connection]
    assert not world.broker.has_work
    assert list(world.broker.turn(world.now)) == []


def test_what_a_turn_brings_up_for_other_queues_is_not_forgotten() -> None:
    """A pump dead-letters into another queue, whose consumer must get it though nothing else happens."""
    world = World()
    client = declared(world, "dead")
    declare(client, "q", dead_letter_exchange="", dead_letter_routing_key="dead", message_ttl=1000)
    client.publish(1, "q", b"old")
    client.send(1, BasicConsume(queue="dead", consumer_tag="dead", no_ack=True))
    client.received()
    world.now += 5  # no timer has gone off yet
    client.send(1, BasicConsume(queue="q", consumer_tag="q", no_ack=True))
    assert [(m.consumer_tag) for m in client.methods() if isinstance(m, BasicDeliver)] == ["dead"]


# --- what follows from the catalogue ----------------------------------------------------------------------


def test_a_policy_reaches_the_live_queues() -> None:
    """§6.2: limits act at once, and go with the policy."""
    world = World()
    client = declared(world, "q")
    client.publish(1, "q", b"1", b"2", b"3")
    world.submit(SetPolicy("/", "p", "^q", {"max-length": 1}))
    assert world.queue("q").backlog.count == 1
    world.submit(ClearPolicy("/", "p"))
    client.publish(1, "q", b"4")
    assert world.queue("q").backlog.count == 2


def test_a_policy_sets_the_alternate_exchange() -> None:
    world = World()
    client = declared(world, "q")
    client.send(1, ExchangeDeclare(exchange="x"))
    client.send(1, QueueBind(queue="q", exchange="amq.fanout"))
    client.publish(1, "k", b"lost", exchange="x")
    world.submit(SetPolicy("/", "p", "^x$", {"alternate-exchange": "amq.fanout"}, apply_to="exchanges"))
    client.publish(1, "k", b"kept", exchange="x")
    client.received()
    assert taken(client, "q")[1] == b"kept"


@pytest.mark.parametrize(
    "command",
    [DeleteQueue("/", "q"), DeleteExchange("/", "x"), DeleteVhost("other")],
)
def test_operators_change_what_clients_use(command: Command[object]) -> None:
    world = World()
    world.submit(PutVhost("other"))
    client = declared(world, "q")
    client.send(1, ExchangeDeclare(exchange="x"))
    client.send(1, QueueBind(queue="q", exchange="x"))
    client.publish(1, "", b"1", exchange="x")
    client.received()
    world.submit(command)
    client.publish(1, "q", b"2")
    check_invariants(world)
    assert not client.connection.is_finished
    assert set(world.broker.vhosts) == {"/", "other"} - (
        {"other"} if isinstance(command, DeleteVhost) else set()
    )


def test_a_queue_declared_anew_is_another_queue() -> None:
    """A message held from a deleted queue is not requeued into a new queue of the same name."""
    world = World()
    client = declared(world, "q")
    client.publish(1, "q", b"old")
    client.send(1, BasicGet(queue="q"))
    client.send(1, QueueDelete(queue="q"))
    client.received()
    declare(client, "q")
    client.send(1, BasicNack(1, requeue=True))
    assert client.received() == []
    assert world.queue("q").backlog.count == 0


def test_an_expired_queue_is_deleted_and_its_consumers_elsewhere_stay() -> None:
    """§5.3."""
    world = World()
    declared(world, "q", expires=1000)
    declared(world, "other")
    world.advance(1.1)
    assert world.queue_names == {"other"}


def test_expiry_cancels_nobody_who_came_in_time() -> None:
    world = World()
    client = declared(world, "q", expires=1000)
    world.advance(0.9)
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    world.advance(5)
    client.ask(1, BasicCancel("t"))
    world.advance(0.9)
    assert world.queue_names == {"q"}
    world.advance(0.2)
    assert world.queue_names == set()


# --- §5.5: dead-lettering between queues ------------------------------------------------------------------


def dead_letter_pair(**arguments: object) -> tuple[World, Client]:
    """The queue q, whose dead messages go to the queue dead."""
    world = World()
    client = declared(world, "dead")
    declare(client, "q", dead_letter_exchange="", dead_letter_routing_key="dead", **arguments)
    return world, client


def test_the_three_reasons() -> None:
    world, client = dead_letter_pair(max_length=1, message_ttl=1000)
    client.publish(1, "q", b"maxlen", b"rejected")
    client.send(1, BasicGet(queue="q"))
    client.received()
    client.send(1, BasicReject(1, requeue=False))
    client.publish(1, "q", b"expired")
    world.advance(1)
    for reason in (b"maxlen", b"rejected", b"expired"):
        properties, body = taken(client, "dead")
        assert (body, deaths(properties)) == (reason, [(b"q", reason, 1)])


def test_the_time_of_a_death_is_the_time_of_day() -> None:
    world, client = dead_letter_pair(max_length=0)
    world.advance(7.9)
    client.publish(1, "q", b"x")
    headers = taken(client, "dead")[0].headers
    assert headers is not None
    entries = headers["x-death"].value
    assert isinstance(entries, list)
    assert isinstance(entries[0].value, dict)
    assert entries[0].value["time"].value == int(EPOCH_S + 7.9)


def test_without_an_exchange_the_dead_are_gone() -> None:
    """§5.5: missing exchange → dropped silently."""
    world = World()
    client = declared(world, "q", dead_letter_exchange="missing", max_length=0)
    client.publish(1, "q", b"x")
    assert client.received() == []
    check_invariants(world)


def test_keys_of_the_dead() -> None:
    """§5.5: original key, CC and the hidden BCC keys, unless there is a dead-letter routing key."""
    world = World()
    client = declared(world, "q", dead_letter_exchange="amq.direct", max_length=0)
    for key in ("q", "cc", "bcc"):
        declare(client, f"by {key}")
        client.send(1, QueueBind(queue=f"by {key}", exchange="amq.direct", routing_key=key))
        client.received()
    headers = {"CC": array([longstr("cc")]), "BCC": array([longstr("bcc")])}
    client.publish(1, "q", b"x", properties=Properties(headers=headers))
    for key in ("q", "cc", "bcc"):
        properties, _ = taken(client, f"by {key}")
        assert properties.headers is not None
        assert properties.headers["CC"] == headers["CC"]
        assert "BCC" not in properties.headers


def test_the_dead_are_not_redelivered() -> None:
    """§4.11: dead-lettered copies start with false in the new queue."""
    _, client = dead_letter_pair()
    client.publish(1, "q", b"x")
    for _ in range(2):
        client.send(1, BasicGet(queue="q"))
    client.send(1, BasicNack(1, requeue=True))
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicReject(2, requeue=False))
    client.received()
    client.send(1, BasicConsume(queue="dead", consumer_tag="t"))
    assert [m.redelivered for m in client.methods() if isinstance(m, BasicDeliver)] == [False]


def test_multiple_nack_keeps_the_order() -> None:
    """§5.5: dead-lettered in original order."""
    _, client = dead_letter_pair()
    client.publish(1, "q", *(b"%d" % n for n in range(5)))
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    client.send(1, BasicNack(0, multiple=True, requeue=False))
    assert [taken(client, "dead")[1] for _ in range(5)] == [b"%d" % n for n in range(5)]


def test_an_automatic_cycle_is_cut() -> None:
    """§5.5: self TTL cycle dropped."""
    world = World()
    client = declared(world, "q", dead_letter_exchange="", dead_letter_routing_key="q", message_ttl=1000)
    client.publish(1, "q", b"x")
    world.advance(10)
    assert world.queue("q").backlog.count == 0
    assert world.diary.entries[-1] == "cycled: q"


def test_a_cycle_with_a_rejection_goes_on() -> None:
    """§5.5: work → reject → retry → ttl → work loops with counts."""
    world = World()
    client = declared(world, "work", dead_letter_exchange="", dead_letter_routing_key="retry")
    declare(client, "retry", dead_letter_exchange="", dead_letter_routing_key="work", message_ttl=1000)
    client.publish(1, "work", b"x")
    client.send(1, BasicConsume(queue="work", consumer_tag="t"))
    client.received()
    for tag in range(1, 4):
        client.send(1, BasicReject(tag, requeue=False))
        assert client.received() == []
        world.advance(1)
        (item,) = client.received()
        assert item.properties is not None
        assert sorted(deaths(item.properties), key=str) == [
            (b"retry", b"expired", tag),
            (b"work", b"rejected", tag),
        ]
    client.send(1, BasicAck(4))
    check_invariants(world)


def test_a_chain_of_full_queues_ends() -> None:
    """Dead-lettering into queues that are full themselves must come to an end."""
    world = World()
    client = world.client()
    for n in range(20):
        declare(
            client, f"q{n}", dead_letter_exchange="", dead_letter_routing_key=f"q{(n + 1) % 20}", max_length=0
        )
    client.publish(1, "q0", b"x")
    world.settle()
    assert all(world.queue(f"q{n}").backlog.count == 0 for n in range(20))
    assert world.diary.entries[-1] == "cycled: q0"


def test_death_by_what_a_client_claims() -> None:
    """Headers that a client made up must not break the broker."""
    world, client = dead_letter_pair()
    for n, x_death in enumerate(
        [array([array([])]), longstr("x"), array([long(2**63 - 1)]), boolean(True)], 1
    ):
        client.publish(1, "q", b"x", properties=Properties(headers={"x-death": x_death}))
        client.send(1, BasicGet(queue="q"))
        client.send(1, BasicReject(n, requeue=False))
        client.received()
    assert world.queue("dead").backlog.count == 4


# --- connections ------------------------------------------------------------------------------------------


def test_connections_are_numbered_and_named() -> None:
    world = World()
    first, second = world.connect().connection, world.connect().connection
    assert (first.number, second.number) == (1, 2)
    assert set(world.broker.connections) == {first.id, second.id}
    assert first.id != second.id


def test_exclusive_queues_go_with_their_connection_and_no_other() -> None:
    """§3.13."""
    world = World()
    first, second = world.client(), world.client()
    first.send(1, QueueDeclare(queue="one", exclusive=True))
    first.send(1, QueueDeclare(queue="two", exclusive=True))
    first.send(1, QueueDelete(queue="two"))
    second.send(1, QueueDeclare(queue="other", exclusive=True))
    first.received()
    first.lose()
    assert world.queue_names == {"other"}


class SlowLog(LocalLog):
    """A log of a cluster: commands are applied when it says so."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.catalogue, broker.react)
        self.waiting: deque[tuple[Command[Any], Callable[[Any], None] | None]] = deque()

    def submit(self, command: Command[Any], on_applied: Callable[[Any], None] | None = None) -> None:
        self.waiting.append((command, on_applied))

    def apply_next(self) -> None:
        super().submit(*self.waiting.popleft())


def test_other_changes_do_not_wait_behind_all_deletions_of_one_client() -> None:
    world = World()
    client = world.client()
    for number in range(3 * DELETIONS_MAX):
        client.send(1, QueueDeclare(queue=f"q{number}", exclusive=True))
    client.received()
    world.broker.log = log = SlowLog(world.broker)
    client.send(0, ConnectionClose())
    world.settle()
    longest = 0
    while log.waiting:
        longest = max(longest, len(log.waiting))
        log.apply_next()
        world.settle()
        assert bool(world.queue_names) is (client.received() == []), "close-ok comes after the last one"
    assert longest == DELETIONS_MAX
    assert world.queue_names == set()


def test_deletions_that_are_refused_at_once_are_not_counted_as_under_way() -> None:
    world = World()
    client = world.client()
    for number in range(10 * DELETIONS_MAX):
        client.send(1, QueueDeclare(queue=f"q{number}", exclusive=True))
    client.received()

    class Refusing(SlowLog):
        def submit(self, command: Command[Any], on_applied: Callable[[Any], None] | None = None) -> None:
            self.waiting.append((command, None))
            if on_applied is not None:
                on_applied(Refused(ReplyCode.PRECONDITION_FAILED, "no majority"))

    world.broker.log = log = Refusing(world.broker)
    client.send(0, ConnectionClose())
    world.settle()
    assert len(log.waiting) == 10 * DELETIONS_MAX
    assert client.methods() == [ConnectionCloseOk()]


def test_messages_of_a_deleted_queue_are_freed_in_coming_turns() -> None:
    """The deletion itself is applied on all nodes at the same moment, and must not take long."""
    world = World()
    client = world.client()
    client.send(1, QueueDeclare(queue="q"))
    count = 3 * FREED_AT_ONCE
    for number in range(count):
        client.publish(1, "q", b"m", properties=Properties(delivery_mode=1 + number % 2))
    lists: list[list[Run]] = []
    add = world.broker._waste.add
    world.broker._waste.add = lambda objects: (lists.append(objects), add(objects))[1]  # type: ignore[method-assign]
    world.broker.chores._taken_s = CHORES_S
    world.submit(DeleteQueue("/", "q"))
    assert [len(each) for each in lists] == [count]
    world.settle()
    assert [len(each) for each in lists] == [0]


def test_a_publisher_that_rests_does_not_keep_deleted_queues() -> None:
    """Each connection remembers where it published to."""
    world = World()
    owner, publisher = world.client(), world.client()
    for number in range(20):
        owner.send(1, QueueDeclare(queue=f"q{number}", exclusive=True))
        owner.send(1, QueueBind(queue=f"q{number}", exchange="amq.fanout"))
        owner.send(1, BasicConsume(queue=f"q{number}"))
    publisher.publish(1, "", b"m", exchange="amq.fanout")
    world.settle()
    with no_search_for_cycles():
        queues = [weakref.ref(queue) for queue in world.broker.local_queues]
        owner.lose()
        del owner
        world.advance(world.broker.settings.channel_tick_s)
        assert_gone(*queues)


@pytest.mark.parametrize("closes_channel", [True, False])
def test_a_publisher_that_is_blocked_does_not_keep_deleted_queues(closes_channel: bool) -> None:
    world = World()
    owner, publisher = world.client(), world.client()
    owner.send(1, QueueDeclare(queue="q", exclusive=True))
    owner.send(1, BasicConsume(queue="q"))
    publisher.publish(1, "q", b"1")
    world.settle()
    with no_search_for_cycles():
        queue = weakref.ref(world.queue("q"))
        world.broker.alarms.set("memory")
        publisher.publish(1, "q", b"2")
        if closes_channel:
            owner.send(1, ChannelClose(200, "", 0, 0))
        owner.lose()
        del owner
        world.settle()
        assert_gone(queue)


def test_who_is_gone_counts_no_longer() -> None:
    """§1.5 steps 2 and 3."""
    world = World()
    world.submit(SetParameter("/", "vhost-limits", "limits", {"max-connections": 2}))
    world.submit(SetUserLimits("guest", UserLimits(max_connections=2)))
    world.client()
    for _ in range(3):
        world.client().lose()
    assert set(world.broker.connection_counts.values()) == {1}


def test_closing_some_connections() -> None:
    world = World()
    first, second = world.client(), world.client()
    world.broker.close_connections("because", lambda connection: connection is first.connection)
    assert len(first.received()) == 1
    assert second.received() == []


def test_what_is_shared_is_kept_even_if_it_is_empty() -> None:
    """Others' deadlines hang on the same heap."""
    timers, catalogue = Timers(), Catalogue()
    broker = Broker(BrokerSettings(), entropy=bytes, timers=timers, catalogue=catalogue)
    assert broker.timers is timers
    assert broker.catalogue is catalogue
