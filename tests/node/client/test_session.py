"""Clients of a plug-in's protocol: AMQP's rules hold for them, and the plug-in's faults cost one connection."""

from collections.abc import Callable

import pytest

from node.amqp.field_table import long, longstr
from node.amqp.frames import method_frame
from node.amqp.methods import BasicAck, BasicPublish
from node.amqp.properties import Properties
from node.catalogue.commands import DeclareQueue, DeleteQueue, SetPermission, SetTopicPermission
from node.client.backlog import PIECE_BYTES
from node.client.client_session import MESSAGES
from node.client.confirms import Confirms
from node.client.session import SessionConnection
from node.client.session_input import Asked
from node.extension.protocol import Delivery, ProtocolConnection, QueueBinding, QueueFacts, Refusal, Session
from node.queue.intake import Publisher, Targets
from node.queue.run import Batch
from tests.kit.world import World
from tests.node.client.held_authority import USER, HeldAuthority
from tests.node.client.told_protocol import REMOTE, ToldClient, ToldListener

PLAIN = Properties()


def with_queue(name: str = "q") -> World:
    """Return a world with a queue."""
    world = World()
    world.submit(DeclareQueue("/", name, "0" * 32))
    return world


# --- login ---


def test_a_client_logs_in_and_opens_a_vhost() -> None:
    client = ToldClient(World())
    client.session.log_in("guest", b"guest", client.plugged.done)
    client.session.open("/", client.plugged.done)
    assert client.told() == ["done", "done"]
    connection = client.connection
    assert (connection.user_name, connection.vhost, connection.protocol) == ("guest", "/", "TOLD 1")
    assert connection.broker.connection_count("/", None) == 1  # type: ignore[attr-defined]
    assert connection.broker.counters.auth_attempts["told"].succeeded == 1


def test_a_wrong_password_is_refused_and_the_socket_stays_for_a_pause() -> None:
    client = ToldClient(World())
    client.session.log_in("guest", b"wrong", client.plugged.done)
    (refusal,) = client.told()
    assert isinstance(refusal, Refusal)
    assert refusal.code == 403
    client.session.write(b"no")
    client.session.close()
    client.world.settle()
    assert client.written == b"no"
    client.world.advance(2.9)
    assert not client.is_reset
    client.world.advance(0.2)
    assert client.is_reset


def test_guest_is_refused_from_elsewhere() -> None:
    client = ToldClient(World(), REMOTE)
    client.session.log_in("guest", b"guest", client.plugged.done)
    assert client.told() == [Refusal(403, "user 'guest' can only connect via localhost")]


def test_a_vhost_may_be_refused_and_another_one_opened() -> None:
    client = ToldClient(World())
    client.session.log_in("guest", b"guest", client.plugged.done)
    client.session.open("nowhere", client.plugged.done)
    _, refusal = client.told()
    assert isinstance(refusal, Refusal)
    assert refusal.code == 530
    client.session.open("/", client.plugged.done)
    assert client.told() == ["done"]


def test_a_client_that_does_not_log_in_in_time_is_reset() -> None:
    client = ToldClient(World())
    client.world.advance(10.1)
    assert client.is_reset
    assert client.told() == ["lost"]


def test_auth_backends_are_asked_for_these_clients_too() -> None:
    world, authority = with_queue(), HeldAuthority()
    world.broker.authority = authority
    client = ToldClient(world)
    client.session.log_in("ada", b"secret", client.plugged.done)
    assert not client.connection.is_reading
    authority.answer(USER)
    assert client.told() == ["done"]
    client.session.open("/", client.plugged.done)
    authority.answer(False)
    (refusal,) = client.told()
    assert isinstance(refusal, Refusal)
    client.session.open("/", client.plugged.done)
    authority.answer(True)
    assert client.told() == ["done"]
    client.session.publish("", "q", PLAIN, b"m", client.plugged.confirmed)
    assert client.told() == []
    authority.answer(True)
    assert client.told() == ["confirmed"]


# --- declarations ---


def test_declarations_are_carried_out_in_their_order_and_a_refusal_harms_no_other() -> None:
    client = ToldClient.opened(World())
    done = client.plugged.done
    client.session.declare_queue("q", done, durable=True)
    client.session.declare_exchange("", "direct", done)
    client.session.declare_exchange("e", "topic", done)
    client.session.bind("q", "e", "a.#", done)
    client.session.bind("missing", "e", "a.#", done)
    told = client.told()
    assert [each if each == "done" else each.code for each in told] == ["done", 403, "done", "done", 404]  # type: ignore[attr-defined]
    client.session.publish("e", "a.b", PLAIN, b"late")
    client.world.settle()
    assert client.world.queue("q").backlog.count == 1
    client.session.unbind("q", "e", "a.#", done)
    client.session.delete_queue("q", done)
    assert client.told() == ["done", "done"]
    assert client.world.queue_names == set()


def test_a_queue_without_a_name_is_given_one_and_is_the_clients_alone() -> None:
    client = ToldClient.opened(World())
    names: list[str] = []
    client.session.declare_queue("other", client.plugged.done)
    client.session.declare_unnamed_queue(lambda refusal, name: names.append(name))
    client.session.declare_queue("another", client.plugged.done)
    assert client.told() == ["done", "done"]
    assert names[0].startswith("amq.gen-")
    assert client.world.queue_names == {"other", "another", names[0]}
    client.lose()
    client.world.settle()
    assert client.world.queue_names == {"other", "another"}


def test_what_a_session_knows_and_says() -> None:
    client = ToldClient.opened(World())
    client.session.name_protocol("TOLD 2")
    assert client.connection.protocol == "TOLD 2"
    client.session.describe({"product": "x"}, {"told": True})
    assert client.connection.client_properties == {"product": longstr("x")}
    assert client.connection.protocol_facts == {"told": True}
    assert client.session.message_max_bytes == client.world.broker.settings.message_max_bytes
    assert len(client.session.random_bytes(16)) == 16


# --- publishing ---


def test_messages_of_one_read_are_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_queue()
    client = ToldClient.opened(world)
    runs: list[int] = []
    take = world.broker.intake.publish

    def noted(batch: Batch, targets: Targets, publisher: Publisher | None) -> None:
        runs.append(len(batch.contents))
        take(batch, targets, publisher)

    monkeypatch.setattr(world.broker.intake, "publish", noted)

    def publish(data: bytes) -> None:
        for body in data.split():
            client.session.publish("", "q", PLAIN, body, client.plugged.confirmed)

    client.plugged.on_read = publish
    client.feed(b"a b c")
    assert runs == [3]
    assert client.told() == [b"a b c", "confirmed", "confirmed", "confirmed"]
    assert client.connection.recv_oct == 5


def test_a_plugin_that_works_long_has_a_share_of_each_turn() -> None:
    world = with_queue()
    client, other = ToldClient.opened(world), ToldClient.opened(world)
    given: list[bytes] = []

    def read(data: bytes) -> None:
        given.append(data)
        world.cost_s += 0.0015

    client.plugged.on_read = read
    data = bytes(range(256)) * (5 * PIECE_BYTES // 256) + b"end"
    client.feed(data)
    assert len(given) == 2, "the share of a turn is 2 ms"
    assert not client.connection.is_reading
    client.feed(b"more")
    assert len(given) == 2
    other.feed(b"at once")
    assert b"at once" in other.plugged.log
    world.settle()
    assert b"".join(given) == data + b"more"
    assert client.connection.is_reading
    assert client.connection.recv_oct == len(data) + 4


def test_a_plugin_may_hold_its_client_back() -> None:
    client = ToldClient.opened(World())
    session = client.session
    client.plugged.on_read = lambda data: session.hold_reading(data == b"hold")
    client.feed(b"hold")
    assert not client.connection.is_reading
    assert session.is_held_back
    client.feed(bytes(3 * PIECE_BYTES))
    assert client.told() == [b"hold"]
    session.hold_reading(False)
    assert client.told() == [bytes(PIECE_BYTES)] * 3
    assert client.connection.is_reading


def test_a_plugin_may_hold_its_client_back_in_the_middle_of_a_read() -> None:
    client = ToldClient.opened(World())
    client.plugged.on_read = lambda data: client.session.hold_reading(data[0] == 1)
    data = bytes(PIECE_BYTES) + b"\1" * PIECE_BYTES + b"rest"
    client.feed(data)
    assert client.told() == [data[:PIECE_BYTES], data[PIECE_BYTES:-4]]
    client.session.hold_reading(False)
    client.session.hold_reading(False)
    assert client.told() == [b"rest"]


def test_a_client_that_is_lost_is_given_nothing_more() -> None:
    world = World()
    client = ToldClient.opened(world)

    def read(data: bytes) -> None:
        world.cost_s += 1.0

    client.plugged.on_read = read
    client.feed(bytes(3 * PIECE_BYTES))
    client.told()
    client.feed(bytes(3 * PIECE_BYTES))
    client.lose()
    world.settle()
    assert client.told().count("lost") == 1


def test_a_run_is_published_as_its_messages_are() -> None:
    world = with_queue()
    client = ToldClient.opened(world)
    bodies = [b"", b"a", b"bc", b"d", b""]
    properties = Properties(content_type="text/plain", delivery_mode=2)
    client.session.publish_run("", "q", properties, bodies, [client.plugged.confirmed] * 5)
    client.session.publish_run("", "q", properties, [b"e"])
    client.session.publish("", "q", properties, b"f", client.plugged.confirmed)
    assert client.told() == ["confirmed"] * 6
    client.session.consume("q", "c1", lambda: None)
    client.told()
    assert [each.body for each in client.plugged.deliveries] == [*bodies, b"e", b"f"]
    assert {each.properties.content_type for each in client.plugged.deliveries} == {"text/plain"}


def test_a_refused_publish_ends_the_connection_with_the_plugins_last_words() -> None:
    world = with_queue()
    world.submit(SetPermission("/", "guest", ".*", "^$", ".*"))
    client = ToldClient.opened(world)
    client.session.publish("", "q", PLAIN, b"m")
    refusal, lost = client.told()
    assert isinstance(refusal, Refusal)
    assert refusal.code == 403
    assert lost == "lost"
    assert client.written == b"bye"
    assert client.is_reset


def test_a_publisher_is_held_back_by_an_alarm() -> None:
    world = with_queue()
    client = ToldClient.opened(world)
    world.broker.alarms.set("memory", "rabbit@localhost")
    client.plugged.on_read = lambda data: client.session.publish("", "q", PLAIN, data)
    client.feed(b"m")
    world.settle()
    assert not client.connection.is_reading
    assert world.queue("q").backlog.count == 0
    world.broker.alarms.clear("memory", "rabbit@localhost")
    world.settle()
    assert client.connection.is_reading
    assert world.queue("q").backlog.count == 1


# --- the order of requests ---


def test_a_client_is_told_when_its_requests_have_been_carried_out() -> None:
    world = with_queue()
    client = ToldClient.opened(world)
    world.broker.alarms.set("memory", "rabbit@localhost")
    client.session.publish("", "q", PLAIN, b"a")
    client.session.after_requests(client.plugged.confirmed)
    assert client.told() == []
    assert client.session.is_held_back
    world.broker.alarms.clear("memory", "rabbit@localhost")
    assert client.told() == ["confirmed"]
    assert not client.session.is_held_back
    assert world.queue("q").backlog.count == 1


def test_a_client_is_told_when_all_its_publishes_are_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_queue()
    client = ToldClient.opened(world)
    confirms = client.connection.channels[MESSAGES].confirms
    assert confirms is not None
    monkeypatch.setattr(Confirms, "confirm_at_once", Confirms.expect)  # as if a disk or a mirror were late
    client.session.publish("", "nowhere", PLAIN, b"a")
    client.session.after_requests(client.plugged.confirmed, is_confirmed=True)
    client.session.after_requests(lambda is_safe: client.plugged.log.append("carried out"))
    assert client.told() == ["carried out"]
    client.session.publish("", "nowhere", PLAIN, b"later")
    assert client.told() == []
    settle(client, confirms.confirm, 1)
    assert client.told() == ["confirmed"]
    client.session.after_requests(client.plugged.confirmed, is_confirmed=True)
    assert client.told() == []
    settle(client, confirms.reject, 2)
    assert client.told() == ["refused"]


def settle(client: ToldClient, do: Callable[[int, int], None], number: int) -> None:
    """Confirm or reject a publish, as a queue does later."""
    do(number, number)
    client.connection.confirming[client.connection.channels[MESSAGES]] = None
    client.world.broker.has_output(client.connection)


def test_a_publish_is_checked_before_it_is_asked_for() -> None:
    world = with_queue()
    world.submit(SetPermission("/", "guest", ".*", "^amq.topic$", ".*"))
    world.submit(SetTopicPermission("/", "guest", "amq.topic", "^a", ".*"))
    client = ToldClient.opened(world)
    for exchange, key in (("amq.topic", "a.b"), ("amq.topic", "b"), ("amq.fanout", "a")):
        client.session.check_publish(exchange, key, client.plugged.done)
    told = client.told()
    assert [each if each == "done" else each.code for each in told] == ["done", 403, 403]  # type: ignore[attr-defined]
    assert not client.is_reset


def test_auth_backends_are_asked_before_a_publish_that_is_checked() -> None:
    world, authority = with_queue(), HeldAuthority()
    world.broker.authority = authority
    client = ToldClient(world)
    client.session.log_in("ada", b"secret", client.plugged.done)
    authority.answer(USER)
    client.session.open("/", client.plugged.done)
    authority.answer(True)
    client.told()
    client.session.check_publish("amq.topic", "a", client.plugged.done)
    authority.answer(True)
    assert client.told() == []
    authority.answer(False)
    (refusal,) = client.told()
    assert isinstance(refusal, Refusal)
    assert refusal.code == 403


def test_a_protocol_has_exchanges_of_its_own_with_the_nodes_rights() -> None:
    world = with_queue()
    world.submit(SetPermission("/", "guest", "^$", "^$", "^$"))
    client = ToldClient.opened(world)
    session, done = client.session, client.plugged.done
    session.declare_exchange("amq.told", "direct", done, durable=True, internal=True, as_node=True)
    session.bind("q", "amq.told", "k", done, as_node=True)
    session.bind_exchange("amq.told", "amq.fanout", "", done)
    session.bind("q", "missing", "k", done, as_node=True)
    told = client.told()
    assert [each if each == "done" else each.code for each in told] == ["done", "done", "done", 404]  # type: ignore[attr-defined]
    assert session.bindings("q") == [QueueBinding("amq.told", "k", {})]
    assert session.bindings("missing") is None
    session.declare_queue("own", done, durable=True, arguments={"x-expires": long(1000)}, as_node=True)
    assert client.told() == ["done"]
    assert session.find_queue("own") == QueueFacts(True, False, False, {"x-expires": long(1000)})
    assert session.find_queue("missing") is None
    assert (session.has_exchange("amq.told"), session.has_exchange("missing")) == (True, False)
    session.publish("amq.told", "k", PLAIN, b"m", client.plugged.confirmed, as_node=True)
    assert client.told() == ["confirmed"]
    assert world.queue("q").backlog.count == 1
    session.unbind("q", "amq.told", "k", done, as_node=True)
    assert client.told() == ["done"]
    assert session.bindings("q") == []
    session.publish("amq.fanout", "k", PLAIN, b"m")
    refusal, _ = client.told()
    assert isinstance(refusal, Refusal)
    assert refusal.code == 403


# --- consuming ---


def publish(world: World, *bodies: bytes) -> None:
    publisher = world.client()
    for body in bodies:
        publisher.send(1, BasicPublish(routing_key="q"), body, Properties(message_id="id"))
    world.settle()


def test_messages_are_delivered_together_and_settled() -> None:
    world = with_queue()
    publish(world, b"a", b"b", b"c")
    client = ToldClient.opened(world)
    client.session.consume("q", "c1", lambda: client.plugged.log.append("consuming"), prefetch=2)
    assert client.told() == ["consuming", [b"a", b"b"]]
    first = client.plugged.deliveries[0]
    assert (first.consumer, first.exchange, first.routing_key, first.redelivered) == ("c1", "", "q", False)
    assert first.properties.message_id == "id"
    client.session.ack(first.tag)
    assert client.told() == [[b"c"]]
    client.session.nack(2, requeue=True)
    assert client.told() == [[b"b"]]
    assert client.plugged.deliveries[-1].redelivered
    client.session.cancel("c1", lambda: client.plugged.log.append("cancelled"))
    client.session.ack(4, multiple=True)
    assert client.told() == ["cancelled"]
    queue = world.queue("q")
    assert (queue.backlog.count, queue.unacked_count) == (0, 0)


def test_a_consumer_is_told_that_its_queue_is_gone() -> None:
    world = with_queue()
    client = ToldClient.opened(world)
    client.session.consume("q", "c1", lambda: None)
    client.told()
    world.submit(DeleteQueue("/", "q"))
    assert client.told() == ["cancelled c1"]


def test_what_is_not_settled_goes_back_when_the_client_is_lost() -> None:
    world = with_queue()
    publish(world, b"a")
    client = ToldClient.opened(world)
    client.session.consume("q", "c1", lambda: None)
    client.told()
    client.lose()
    assert client.told() == ["lost"]
    assert world.queue("q").backlog.count == 1
    client.session.ack(1)
    client.session.write(b"too late")
    world.settle()


def test_a_message_is_got_and_settled() -> None:
    world = with_queue()
    publish(world, b"a")
    client = ToldClient.opened(world)
    got: list[Delivery | None] = []
    client.session.get("q", got.append)
    client.session.get("q", got.append)
    client.told()
    first, second = got
    assert first is not None
    assert (first.body, second) == (b"a", None)
    client.session.nack(first.tag, requeue=True)
    client.session.get("q", got.append)
    client.told()
    again = got[-1]
    assert again is not None
    assert again.redelivered
    client.session.ack(again.tag)
    client.told()
    assert world.queue("q").unacked_count == 0


def test_a_protocol_without_consumer_timeouts_keeps_its_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_timeout in (True, False):
        monkeypatch.setattr(ToldListener, "has_consumer_timeout", has_timeout)
        world = with_queue()
        publish(world, b"a")
        client = ToldClient.opened(world)
        client.session.consume("q", "c1", lambda: None)
        client.told()
        world.advance(3 * 3600)
        assert client.is_reset is has_timeout


@pytest.mark.parametrize("end", ["lost", "closed", "refused", "forced"])
def test_a_delivery_may_be_dead_lettered_as_the_connection_ends(end: str) -> None:
    world = World()
    arguments = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr("dead")}
    world.submit(DeclareQueue("/", "q", "0" * 32, arguments=arguments))
    world.submit(DeclareQueue("/", "dead", "1" * 32))
    publish(world, b"a", b"b")
    client = ToldClient.opened(world)
    client.session.consume("q", "c1", lambda: None)
    client.told()
    client.plugged.dead_tags = [1]
    match end:
        case "lost":
            client.lose()
        case "closed":
            client.session.close()
        case "refused":
            client.session.publish("missing", "", PLAIN, b"")
        case _:
            client.connection.force_close("shutdown")
    client.told()
    world.settle()
    assert client.is_reset
    assert (world.queue("q").backlog.count, world.queue("dead").backlog.count) == (1, 1)


def test_the_plugin_flushes_once_a_turn() -> None:
    world = with_queue()
    client = ToldClient.opened(world)
    before = client.plugged.flushes
    for _ in range(5):
        client.session.publish("", "q", PLAIN, b"m", client.plugged.confirmed)
    assert client.told() == ["confirmed"] * 5
    assert 0 < client.plugged.flushes - before <= 3


# --- reading ---


def test_the_plugin_holds_the_reading_of_its_client() -> None:
    client = ToldClient.opened(World())
    client.session.hold_reading(True)
    assert not client.connection.is_reading
    client.session.hold_reading(False)
    assert client.connection.is_reading


def test_a_client_has_the_time_of_day_and_its_protocol_is_shown() -> None:
    client = ToldClient.opened(World())
    broker = client.world.broker
    assert client.session.wall_ms == int((broker.now + broker.epoch_s) * 1000)
    client.session.name_protocol("TOLD 2")
    assert client.connection.protocol == "TOLD 2"
    assert len(client.session.random_bytes(7)) == 7


# --- the end ---


def test_the_plugin_says_its_last_words_when_the_node_closes_the_connection() -> None:
    client = ToldClient.opened(World())
    client.connection.force_close("shutdown")
    told = client.told()
    assert told == [Refusal(320, "CONNECTION_FORCED - shutdown"), "lost"]
    assert client.written == b"bye"


def test_timers_are_kept_until_the_client_is_gone() -> None:
    client = ToldClient.opened(World())
    log = client.plugged.log
    client.session.after(1.0, lambda: log.append("one"))
    cancel = client.session.after(2.0, lambda: log.append("two"))
    client.session.after(3.0, lambda: log.append("three"))
    client.world.advance(1.5)
    cancel()
    client.world.advance(1.0)
    assert client.plugged.log == ["one"]
    client.lose()
    client.world.advance(1.0)
    assert client.told() == ["one", "lost"]


@pytest.mark.parametrize("place", ["read", "callback", "delivery", "timer"])
def test_an_exception_in_the_plugin_ends_its_connection_only(place: str) -> None:
    world = with_queue()
    other = ToldClient.opened(world)
    client = ToldClient.opened(world)

    def fail(*arguments: object) -> None:
        raise KeyError("a bug")

    if place == "read":
        client.plugged.on_read = fail
        client.feed(b"x")
    elif place == "callback":
        client.session.declare_queue("new", fail)
    elif place == "delivery":
        client.plugged.delivered = fail  # type: ignore[method-assign]
        client.session.consume("q", "c1", lambda: None)
        publish(world, b"m")
    else:
        client.session.after(1.0, fail)
        world.advance(1.1)
    world.settle()
    assert client.is_reset
    assert world.broker.exchange_types.failures["told"] == 1
    assert not other.is_reset
    if place == "delivery":
        assert world.queue("q").backlog.count == 1, "the message went back"


def test_a_listener_that_makes_no_connection_costs_one_socket() -> None:
    class Broken(ToldListener):
        def connection(self, session: Session) -> ProtocolConnection:
            raise KeyError("a bug")

    world = World()
    connection = SessionConnection(
        world.broker, REMOTE, plugin="told", listener=Broken(), now=world.now, on_change=lambda: None
    )
    assert connection.is_finished
    assert world.broker.exchange_types.failures["told"] == 1


def test_a_plugin_that_publishes_before_it_has_opened_a_vhost_publishes_nothing() -> None:
    world = with_queue()
    client = ToldClient(world)
    client.session.publish("", "q", PLAIN, b"m")
    world.settle()
    assert world.queue("q").backlog.count == 0


@pytest.mark.parametrize("multiple", [False, True])
def test_the_frame_of_an_acknowledgement(multiple: bool) -> None:
    client = ToldClient.opened(World())
    asked: list[Asked] = []
    client.connection.ask_broker = asked.append  # type: ignore[method-assign]
    client.session.ack(1 << 40, multiple=multiple)
    frames = [each if isinstance(each, bytes) else each.frames() for each in asked]
    assert frames == [method_frame(MESSAGES, BasicAck(1 << 40, multiple))]
