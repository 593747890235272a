"""Exchange types of plug-ins in whole brokers: publishes, dead letters, faults, and several nodes."""

import subprocess
import sys
from collections import Counter

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.field_table import array, long, longstr
from node.amqp.methods import (
    BasicReturn,
    ChannelClose,
    ConnectionClose,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDeclareOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    TxCommit,
    TxSelect,
)
from node.amqp.properties import Properties
from node.catalogue import limits
from node.catalogue.commands import DisablePlugin, EnablePlugin, Refused
from node.queue.queue import Queue
from tests.kit.cluster import Cluster
from tests.kit.world import Client, World

HASH = EnablePlugin("rabbitmq_consistent_hash_exchange", ("x-consistent-hash",))
RANDOM = EnablePlugin("rabbitmq_random_exchange", ("x-random", "x-local-random"))
MODULUS = EnablePlugin("rabbitmq_sharding", ("x-modulus-hash",))


def plugged() -> tuple[World, Client]:
    """A broker with all built-in plug-ins, and a client."""
    world = World()
    for command in (HASH, RANDOM, MODULUS):
        world.submit(command)
    return world, world.client()


def declare(
    client: Client, exchange: str, type_: str, queues: str = "", key: str = "", **arguments: str
) -> None:
    """Declare an exchange, and queues of single letters that are bound to it."""
    asked = {name.replace("_", "-"): longstr(value) for name, value in arguments.items()}
    answer = client.ask(1, ExchangeDeclare(exchange=exchange, type=type_, arguments=asked))
    assert answer == ExchangeDeclareOk(), answer
    for queue in queues:
        client.ask(1, QueueDeclare(queue=queue))
        assert client.ask(1, QueueBind(queue=queue, exchange=exchange, routing_key=key)) == QueueBindOk()


def counts(world: World) -> dict[str, int]:
    """Return the number of messages in each queue that has some."""
    world.settle()
    queues = world.broker.vhosts["/"].queues.items()
    return {
        name: queue.backlog.count
        for name, queue in queues
        if isinstance(queue, Queue) and queue.backlog.count
    }


def refusal(client: Client, method: Method) -> ChannelClose | ConnectionClose:
    answer = client.ask(1, method)
    assert isinstance(answer, ChannelClose | ConnectionClose), answer
    return answer


@pytest.mark.real
def test_nothing_of_a_plugin_is_imported_before_it_is_enabled() -> None:
    program = (
        "import sys; from tests.kit.world import World; from tests.node.broker.test_plugins import HASH;"
        "world = World(); loaded = lambda: sorted(name for name in sys.modules if 'plugins.exchanges' in name);"
        "print(loaded()); world.submit(HASH); print(loaded())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after = done.stdout.splitlines()
    assert before == "[]"
    assert "node.plugins.exchanges.consistent_hash" in after
    assert "random_choice" not in after


def test_a_type_is_known_while_its_plugin_is_enabled() -> None:
    world = World()
    method = ExchangeDeclare(exchange="e", type="x-random")
    unknown = refusal(world.client(), method)
    assert isinstance(unknown, ConnectionClose)
    assert unknown.reply_text == "COMMAND_INVALID - unknown exchange type 'x-random'"
    world.submit(RANDOM)
    client = world.client()
    assert client.ask(1, method) == ExchangeDeclareOk()
    assert isinstance(world.broker.catalogue.apply(DisablePlugin(RANDOM.name)), Refused)
    assert client.ask(1, method) == ExchangeDeclareOk()


def test_messages_with_one_method_frame_part_ways() -> None:
    """A run of messages is split, also where the exchange that varies is reached through another one."""
    world, client = plugged()
    declare(client, "r", "x-random", "ab")
    client.publish(1, "k", *[b"m"] * 40, exchange="r")
    found = counts(world)
    assert sum(found.values()) == 40
    assert set(found) == {"a", "b"}
    declare(client, "f", "fanout")
    client.ask(1, ExchangeBind(destination="r", source="f"))
    client.publish(1, "k", *[b"m"] * 40, exchange="f")
    assert sum(counts(world).values()) == 80
    assert all(now > then for now, then in zip(counts(world).values(), found.values(), strict=True))


def test_a_property_decides_for_each_message() -> None:
    world, client = plugged()
    declare(client, "h", "x-consistent-hash", "abc", "1", hash_property="message_id")
    for number in range(30):
        for _ in range(2):
            client.publish(1, "k", b"m", exchange="h", properties=Properties(message_id=f"{number}"))
    found = counts(world)
    assert sum(found.values()) == 60
    assert len(found) == 3
    assert all(count % 2 == 0 for count in found.values())


def test_a_header_decides_for_each_message() -> None:
    """Messages of one read part ways by it, and those without it go together, whatever ids they have."""
    world, client = plugged()
    declare(client, "h", "x-consistent-hash", "abc", "1", hash_header="h")
    assert not world.broker.vhosts["/"].router.varies("h")
    for number in range(30):
        for mark in "12":
            properties = Properties(headers={"h": longstr(str(number))}, message_id=mark)
            client.publish(1, "k", b"m", exchange="h", properties=properties)
    found = counts(world)
    assert sum(found.values()) == 60
    assert len(found) == 3
    assert all(count % 2 == 0 for count in found.values())
    for number in range(10):
        client.publish(1, "k", b"m", exchange="h", properties=Properties(message_id=str(number)))
    now = counts(world)
    assert sorted(now[name] - found[name] for name in now) == [0, 0, 10]


def test_keys_alone_give_a_route_that_is_kept() -> None:
    """Messages of one run with one key stay together, as by a direct exchange, and are not looked at one by one."""
    world, client = plugged()
    declare(client, "h", "x-consistent-hash", "abc", "1")
    client.publish(1, "k", *[b"m"] * 20, exchange="h")
    ((queue, count),) = counts(world).items()
    assert count == 20
    router = world.broker.vhosts["/"].router
    assert not router.varies("h")
    client.ask(1, QueueDeclare(queue="d"))
    client.ask(1, QueueBind(queue="d", exchange="h", routing_key="1000000"))
    client.publish(1, "k", b"m", exchange="h")
    assert counts(world) == {queue: 20, "d": 1}


def test_mandatory_messages_and_transactions() -> None:
    world, client = plugged()
    declare(client, "r", "x-random")
    client.publish(1, "k", b"m", exchange="r", mandatory=True)
    (returned,) = client.received()
    assert isinstance(returned.method, BasicReturn)
    declare(client, "s", "x-random", "ab")
    client.ask(1, TxSelect())
    client.publish(1, "k", *[b"m"] * 20, exchange="s")
    assert counts(world) == {}
    client.ask(1, TxCommit())
    assert sum(counts(world).values()) == 20


def test_dead_letters_are_hashed_by_their_headers() -> None:
    world, client = plugged()
    declare(client, "h", "x-consistent-hash", "abc", "1", hash_header="h")
    client.ask(1, QueueDeclare(queue="dead", arguments={"x-dead-letter-exchange": longstr("h")}))
    for number in range(30):
        headers = {"h": longstr(f"{number % 10}")}
        client.publish(1, "dead", b"m", properties=Properties(headers=headers, expiration="0"))
        client.publish(1, "k", b"m", exchange="h", properties=Properties(headers=headers))
    found = counts(world)
    assert sum(found.values()) == 60
    assert len(found) > 1
    assert all(count % 6 == 0 for count in found.values()), "dead or alive, a message goes to the same queue"


def test_keys_of_cc_are_seen_with_the_first() -> None:
    world, client = plugged()
    declare(client, "h", "x-modulus-hash", "ab")
    headers = {"CC": array([longstr("1"), longstr("2")])}
    client.publish(1, "k", *[b"m"] * 10, exchange="h", properties=Properties(headers=headers))
    assert list(counts(world).values()) == [10], "once, although there are three keys"


def test_bindings_are_checked() -> None:
    world, client = plugged()
    declare(client, "h", "x-consistent-hash", "a", "1")
    closed = refusal(client, QueueBind(queue="a", exchange="h", routing_key="none"))
    assert closed.reply_text == 'PRECONDITION_FAILED - The binding key must be an integer: <<"none">>'
    assert len(world.broker.catalogue.bindings_from("/", "h")) == 1


def test_bindings_from_an_exchange_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PLUGGED_BINDINGS_MAX", 1)
    _, client = plugged()
    declare(client, "r", "x-random", "a")
    declare(client, "f", "fanout", "b")
    client.ask(1, QueueBind(queue="a", exchange="f"))
    closed = refusal(client, QueueBind(queue="b", exchange="r"))
    assert "exchange 'r' in vhost '/': binding limit (1)" in closed.reply_text


def test_a_plugin_that_the_node_lacks_is_named_to_clients() -> None:
    """The catalogue needs it, so another node has it. No message is taken that might go astray."""
    world = World()
    world.submit(EnablePlugin("absent", ("x-absent",)))
    client = world.client(1, 2)
    closed = refusal(client, ExchangeDeclare(exchange="e", type="x-absent"))
    assert closed.reply_text == "PRECONDITION_FAILED - plug-in 'absent' is not installed on this node"


def test_a_plugin_that_raises_costs_the_publisher_its_channel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection, the other channels and the other exchanges go on."""
    from node.plugins.exchanges.random_choice import RandomIndex

    world, client = plugged()
    declare(client, "r", "x-random", "a")
    declare(client, "d", "fanout", "b")

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(RandomIndex, "route", fail)
    told: list[str] = []
    monkeypatch.setattr(
        world.broker.exchange_types, "_on_failure", lambda failure: told.append(failure.action)
    )
    client.publish(1, "k", b"m", exchange="r")
    (closed,) = client.received()
    assert isinstance(closed.method, ChannelClose)
    assert closed.method.reply_code == ReplyCode.PRECONDITION_FAILED
    assert closed.method.reply_text == (
        "PRECONDITION_FAILED - exchange 'r' in vhost '/' cannot route messages: "
        "its plug-in failed; the log has the reason"
    )
    assert told == ["route a message of exchange 'r' in vhost '/'"]
    other = world.client()
    other.publish(1, "k", b"m", exchange="d")
    assert counts(world) == {"b": 1}


# --- several nodes ------------------------------------------------------------------------------------------


def test_all_nodes_hash_alike_whatever_nodes_are_down() -> None:
    """A node that is down and comes back does not move the queues of its peers, nor its own."""
    cluster = Cluster("n1", "n2", "n3")
    cluster["n1"].submit(HASH)
    cluster.settle()
    for number, name in enumerate(("n1", "n2", "n3", "n1")):
        client = cluster[name].client()
        if not number:
            declare(client, "h", "x-consistent-hash")
        client.ask(1, QueueDeclare(queue=f"q{number}", durable=True))
        client.ask(1, QueueBind(queue=f"q{number}", exchange="h", routing_key="1"))

    def routes(name: str) -> list[list[str]]:
        router = cluster[name].broker.vhosts["/"].router
        return [router.route("h", [f"k{number}"]) for number in range(40)]

    before = routes("n1")
    assert Counter(map(tuple, before)).keys() == {("q0",), ("q1",), ("q2",), ("q3",)}
    assert routes("n2") == routes("n3") == before
    cluster.crash("n2")
    cluster.settle()
    lost = [[] if each == ["q1"] else each for each in before]
    assert routes("n1") == routes("n3") == lost
    cluster.start("n2")
    cluster.settle()
    assert routes("n1") == routes("n2") == routes("n3") == before


def test_local_random_takes_queues_of_the_publishers_node() -> None:
    cluster = Cluster("n1", "n2")
    cluster["n1"].submit(RANDOM)
    cluster.settle()
    client = cluster["n1"].client()
    declare(client, "l", "x-local-random", "ab")
    for _ in range(10):
        cluster["n1"].client().publish(1, "", b"m", exchange="l")
    assert sum(counts(cluster["n1"]).values()) == 10
    other = cluster["n2"].client()
    other.publish(1, "", b"m", exchange="l", mandatory=True)
    assert isinstance(other.received()[0].method, BasicReturn)
    other.ask(1, QueueDeclare(queue="c"))
    other.ask(1, QueueBind(queue="c", exchange="l"))
    for _ in range(10):
        other.publish(1, "", b"m", exchange="l")
    assert counts(cluster["n2"]) == {"c": 10}


def test_delayed_messages_part_ways_when_they_are_due() -> None:
    """A delayed exchange that leads to one that varies looks at each of its messages."""
    world, client = plugged()
    declare(client, "r", "x-random", "ab")
    declare(client, "d", "x-delayed-message", x_delayed_type="fanout")
    client.ask(1, ExchangeBind(destination="r", source="d"))
    properties = Properties(headers={"x-delay": long(1000)})
    client.publish(1, "k", *[b"m"] * 40, exchange="d", properties=properties)
    world.advance(0.9)
    assert counts(world).keys().isdisjoint("ab")
    world.advance(0.2)
    found = counts(world)
    assert found["a"] + found["b"] == 40
    assert min(found["a"], found["b"]) > 0
