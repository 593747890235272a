"""One message at a time through plug-ins' sessions: one turn of the broker for all that follows from a read."""

from collections.abc import Sequence

from node.amqp.methods import QueueDeclare
from node.amqp.properties import Properties
from node.client.base_connection import REPLIES_MAX_BYTES
from node.extension.protocol import Delivery
from tests.kit.world import World
from tests.node.client.told_protocol import ToldClient

PLAIN = Properties()


def world_with_queue() -> World:
    """Return a world with a queue q."""
    world = World()
    world.client().ask(1, QueueDeclare(queue="q"))
    world.settle()
    return world


def turns(world: World) -> int:
    """Let the broker work; return how many turns that took."""
    count = 0
    while world.broker.has_work:
        count += 1
        for connection in world.broker.turn(world.now):
            world.clients[connection].flush()
    return count


def publish_on_read(client: ToldClient, *, is_confirmed: bool) -> None:
    """Have a client publish what it is sent, and answer the confirm."""
    session = client.session
    on_confirm = (lambda is_safe: session.write(b"taken")) if is_confirmed else None
    client.plugged.on_read = lambda data: session.publish("", "q", PLAIN, data, on_confirm)


def show_deliveries(client: ToldClient, *, no_ack: bool) -> None:
    """Have a client consume from q, and write what it is given."""
    session = client.session

    def delivered(deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            session.write(each.body)
            if not no_ack:
                session.ack(each.tag)

    client.plugged.delivered = delivered  # type: ignore[method-assign]
    session.consume("q", "c", lambda: None, no_ack=no_ack)
    client.world.settle()


def test_a_message_its_answer_and_its_delivery_take_one_turn() -> None:
    world = world_with_queue()
    publisher, consumer = ToldClient.opened(world), ToldClient.opened(world)
    publish_on_read(publisher, is_confirmed=True)
    show_deliveries(consumer, no_ack=True)
    for _ in range(2):  # the first one opens the route
        publisher.feed(b"m")
        assert turns(world) == 1
    assert (publisher.written, consumer.written) == (b"takentaken", b"mm")


def test_an_acknowledgement_of_a_delivery_needs_no_turn_of_its_own() -> None:
    world = world_with_queue()
    publisher, consumer = ToldClient.opened(world), ToldClient.opened(world)
    publish_on_read(publisher, is_confirmed=True)
    show_deliveries(consumer, no_ack=False)
    publisher.feed(b"m")
    assert turns(world) == 1
    assert consumer.written == b"m"
    assert not world.queue("q").unacked_count


def test_a_confirm_that_nobody_waits_for_flushes_nothing() -> None:
    world = world_with_queue()
    publisher, consumer = ToldClient.opened(world), ToldClient.opened(world)
    publish_on_read(publisher, is_confirmed=False)
    show_deliveries(consumer, no_ack=True)
    world.settle()
    flushes = publisher.plugged.flushes
    for _ in range(3):
        publisher.feed(b"m")
        world.settle()
    assert publisher.plugged.flushes == flushes
    assert consumer.written == b"mmm"


def test_a_request_waits_for_confirms_that_no_callback_waits_for() -> None:
    world = world_with_queue()
    publisher = ToldClient.opened(world)
    publish_on_read(publisher, is_confirmed=False)
    publisher.feed(b"m")
    publisher.session.after_requests(publisher.plugged.confirmed, is_confirmed=True)
    assert publisher.told() == [b"m", "confirmed"]


def test_what_is_asked_on_a_confirm_is_carried_out_and_answered() -> None:
    world = world_with_queue()
    publisher = ToldClient.opened(world)
    session, log = publisher.session, publisher.plugged.log

    def publish_again(is_safe: bool) -> None:
        log.append("first")
        session.publish("", "q", PLAIN, b"second", publisher.plugged.confirmed)

    publisher.plugged.on_read = lambda data: session.publish("", "q", PLAIN, data, publish_again)
    publisher.feed(b"m")
    assert publisher.told() == [b"m", "first", "confirmed"]


def test_a_write_behind_a_flush_gets_a_turn() -> None:
    world = world_with_queue()
    publisher = ToldClient.opened(world)
    publish_on_read(publisher, is_confirmed=True)
    publisher.feed(b"m")
    world.settle()
    assert not world.broker.has_work
    publisher.session.write(b"later")
    assert turns(world) == 1
    assert publisher.written == b"takenlater"


def test_too_much_output_of_a_flush_holds_up_the_input_until_it_is_written() -> None:
    world = world_with_queue()
    publisher = ToldClient.opened(world)
    connection, session = publisher.connection, publisher.session
    answer = bytes(REPLIES_MAX_BYTES + 1)
    publisher.plugged.on_read = lambda data: session.publish(
        "", "q", PLAIN, data, lambda _: session.write(answer)
    )
    publisher.feed(b"m")
    assert connection.is_reading
    (dirty,) = world.broker.turn(world.now)
    assert dirty is connection
    assert sum(map(len, connection.take_output())) == len(answer)
    assert not connection.is_reading
    connection.flushed()
    assert connection.is_reading
