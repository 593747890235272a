"""The client's connection, against a broker of the test's process."""

import pytest

from node.amqp import methods as m
from node.amqp.constants import PROTOCOL_HEADER, ReplyCode
from node.amqp.frames import HEARTBEAT, body_size, method_frame, split_content
from node.amqp.method_codec import encode_method
from node.amqp.properties import Properties
from node.amqp_client import events
from node.amqp_client.connection import HEARTBEAT_TIMEOUT, ClientConnection
from node.amqp_client.phase import Phase
from node.amqp_client.settings import ClientSettings, client_properties
from tests.kit.wire import Wire, open_wire
from tests.kit.world import World


def _declared(wire: Wire, queue: str = "q") -> None:
    wire.core.call(1, m.QueueDeclare(queue=queue))
    assert isinstance(wire.only(events.Answered).answer, m.QueueDeclareOk)


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_a_client_logs_in(mechanism: str) -> None:
    world = World()
    wire = Wire(world, ClientSettings(mechanisms=(mechanism,), properties=client_properties("name of mine")))
    assert wire.only(events.Opened).server_properties["cluster_name"].tag == "S"
    assert wire.core.phase is Phase.RUNNING
    (connection,) = world.broker.connections.values()
    assert (connection.user_name, connection.client_name) == ("guest", "name of mine")


def test_a_wrong_password_ends_the_connection_with_the_brokers_words() -> None:
    wire = Wire(World(), ClientSettings(password="wrong", properties=client_properties("x")))
    closed = wire.only(events.Closed)
    assert (closed.code, closed.phase) == (403, Phase.AUTHENTICATING)
    assert closed.text.startswith("ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN")


def test_an_unknown_vhost_ends_the_connection_with_the_brokers_words() -> None:
    wire = Wire(World(), ClientSettings(vhost="none", properties=client_properties("x")))
    closed = wire.only(events.Closed)
    assert (closed.code, closed.phase) == (530, Phase.OPENING)
    assert closed.text == "NOT_ALLOWED - vhost none not found"


def test_no_common_mechanism_ends_the_connection() -> None:
    closed = Wire(World(), ClientSettings(mechanisms=("EXTERNAL",))).only(events.Closed)
    assert closed.phase is Phase.STARTING
    assert "no suitable auth mechanism" in closed.text


def test_requests_are_answered_in_their_order() -> None:
    wire = open_wire(World())
    declare, bind = m.QueueDeclare(queue="q"), m.QueueBind(queue="q", exchange="amq.fanout")
    wire.core.call(1, declare)
    wire.core.call(1, m.QueueDeclare(queue="unanswered", nowait=True))
    wire.core.call(1, bind)
    assert wire.settle() == [
        events.Answered(1, declare, m.QueueDeclareOk(queue="q")),
        events.Answered(1, bind, m.QueueBindOk()),
    ]


def test_a_channel_that_the_broker_closes_says_why_and_takes_no_more() -> None:
    wire = open_wire(World())
    passive = m.QueueDeclare(queue="none", passive=True)
    wire.core.call(1, passive)
    closed = wire.only(events.ChannelClosed)
    assert closed == events.ChannelClosed(1, 404, "NOT_FOUND - no queue 'none' in vhost '/'", 50, 10, passive)
    assert not wire.core.is_channel_open(1)
    wire.core.call(1, passive)
    assert wire.core.publish(1, "", "q", [b""]) == 0
    assert wire.settle() == []
    wire.core.open_channel(1)
    assert isinstance(wire.only(events.Answered).answer, m.ChannelOpenOk)


@pytest.mark.parametrize("step", [None, 1, 7, 1000])
def test_messages_pass_through_as_they_came(step: int | None) -> None:
    """Runs join messages of one exchange and key; how the bytes are cut into reads does not show."""
    world = World()
    wire = open_wire(world, 1, 2, step=step)
    _declared(wire)
    wire.core.call(1, m.ConfirmSelect())
    wire.settle()
    bodies = [b"one", b"two", b"a longer one", b"", b"x" * 300_000, b"last"]
    numbers = [
        wire.core.publish_body(1, "", "q", body, Properties(message_id=f"{len(body)}")) for body in bodies
    ]
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert wire.core.unconfirmed(1) == 6
    confirmed = [event for event in wire.settle() if isinstance(event, events.Confirmed)]
    assert sum(event.last + 1 - event.first for event in confirmed) == 6
    assert wire.core.unconfirmed(1) == 0

    wire.core.call(2, m.BasicConsume(queue="q", consumer_tag="c"))
    consumed, *delivered = wire.settle()
    assert isinstance(consumed, events.Answered)
    contents = []
    for event in delivered:
        assert isinstance(event, events.Delivered)
        assert (event.channel, event.consumer_tag, event.exchange, event.routing_key) == (2, "c", "", "q")
        assert event.first_tag == len(contents) + 1
        contents += event.contents
    assert [split_content(content)[1] for content in contents] == bodies

    first = wire.core.publish(1, "", "q", contents)
    assert first == 7
    wire.core.ack(2, 6, multiple=True)
    again = [event for event in wire.settle() if isinstance(event, events.Delivered)]
    assert [split_content(each)[1] for event in again for each in event.contents] == bodies


def test_a_body_is_cut_again_for_a_broker_with_smaller_frames() -> None:
    world = World()
    wide = open_wire(world)
    narrow = open_wire(world, settings=ClientSettings(frame_max_bytes=4096))
    _declared(wide)
    wide.core.publish_body(1, "", "q", b"b" * 20_000, Properties())
    wide.core.call(1, m.BasicGet(queue="q", no_ack=True))
    got = wide.only(events.Answered)
    assert isinstance(got.answer, m.BasicGetOk)
    assert narrow.core.frame_max_bytes == 4096
    narrow.core.publish(1, "", "q", [got.content])
    assert narrow.settle() == []
    assert world.queue("q").backlog.count == 1
    assert body_size(got.content) == 20_000


def test_a_returned_message_comes_before_its_confirm() -> None:
    wire = open_wire(World())
    wire.core.call(1, m.ConfirmSelect())
    wire.settle()
    wire.core.publish_body(1, "", "nowhere", b"body", Properties(), mandatory=True)
    returned, confirmed = wire.settle()
    assert isinstance(returned, events.Returned)
    assert (returned.code, returned.text, returned.routing_key) == (312, "NO_ROUTE", "nowhere")
    assert confirmed == events.Confirmed(1, 1, 1, is_ack=True)


def test_a_consumer_whose_queue_goes_is_cancelled() -> None:
    wire = open_wire(World(), settings=ClientSettings(properties=client_properties("x")))
    _declared(wire)
    wire.core.call(1, m.BasicConsume(queue="q", consumer_tag="c"))
    wire.settle()
    wire.core.call(1, m.QueueDelete(queue="q"))
    assert events.ConsumerCancelled(1, "c") in wire.settle()


def test_a_channel_that_we_close_drops_what_still_comes() -> None:
    wire = open_wire(World())
    _declared(wire)
    wire.core.publish_body(1, "", "q", b"1", Properties())
    wire.settle()
    wire.core.call(1, m.BasicConsume(queue="q", consumer_tag="c"))
    wire.core.close_channel(1)
    closed = wire.only(events.Answered)
    assert isinstance(closed.answer, m.ChannelCloseOk)


def test_the_client_closes_in_good_order() -> None:
    world = World()
    wire = open_wire(world)
    wire.core.close()
    assert wire.only(events.Closed).is_ours
    assert wire.core.is_finished
    assert "closed in good order" in world.diary.entries


def test_the_broker_closes_the_connection() -> None:
    wire = open_wire(World())
    core = wire.core
    core.receive_data(method_frame(0, m.ConnectionClose(320, "CONNECTION_FORCED - broker shutdown")), 0.0)
    assert core.take_events() == [events.Closed(320, "CONNECTION_FORCED - broker shutdown")]
    assert core.take_output() == [method_frame(0, m.ConnectionCloseOk())]
    assert core.is_finished


def test_a_blocked_connection_says_so() -> None:
    core = open_wire(World()).core
    core.receive_data(method_frame(0, m.ConnectionBlocked("low on disk")), 0.0)
    assert core.take_events() == [events.Blocked("low on disk")]
    assert core.is_blocked
    core.receive_data(method_frame(0, m.ConnectionUnblocked()), 0.0)
    assert core.take_events() == [events.Unblocked()]
    assert not core.is_blocked


def test_heartbeats_are_sent_and_missed() -> None:
    world = World()
    wire = open_wire(world, settings=ClientSettings(heartbeat_s=10))
    core, start = wire.core, world.now
    assert core.next_deadline == start + 5
    core.tick(start + 5)
    assert core.take_output() == []  # the handshake was spoken in this time
    core.tick(start + 10)
    assert core.take_output() == [HEARTBEAT]
    core.receive_data(HEARTBEAT, start + 11)
    for second in range(15, 35, 5):
        core.tick(start + second)
        assert core.phase is Phase.RUNNING
    core.tick(start + 35)
    assert core.take_events() == [events.Closed(0, HEARTBEAT_TIMEOUT)]
    assert core.next_deadline is None


def test_a_broker_is_not_silent_while_we_do_not_read() -> None:
    world = World()
    core = open_wire(world, settings=ClientSettings(heartbeat_s=10)).core
    core.is_reading_held = True
    for second in range(5, 100, 5):
        core.tick(world.now + second)
    assert core.phase is Phase.RUNNING


def test_a_late_loop_is_not_the_brokers_silence() -> None:
    world = World()
    core = open_wire(world, settings=ClientSettings(heartbeat_s=10)).core
    core.tick(world.now + 500)
    core.tick(world.now + 1000)
    assert core.phase is Phase.RUNNING


@pytest.mark.parametrize(
    "data",
    [
        b"AMQP\x00\x00\x09\x01",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        method_frame(0, m.ConnectionTune()),
        method_frame(1, m.BasicAck(delivery_tag=1)),
        b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x0a\x00",
        b"\x08\x00\x00\x7f\xff\xff\xff",
        b"\x02\x00\x01\x00\x00\x00\x00\xce",
    ],
)
def test_a_peer_that_is_no_broker_ends_the_connection(data: bytes) -> None:
    core = ClientConnection(ClientSettings())
    assert core.take_output() == [PROTOCOL_HEADER]
    core.receive_data(data, 0.0)
    core.lost("eof")
    (closed,) = core.take_events()
    assert isinstance(closed, events.Closed)
    assert closed.phase is Phase.STARTING


def test_a_confirm_that_was_never_due_ends_the_connection() -> None:
    wire = open_wire(World())
    wire.core.call(1, m.ConfirmSelect())
    wire.settle()
    wire.core.receive_data(method_frame(1, m.BasicAck(delivery_tag=1)), 0.0)
    (closed,) = wire.core.take_events()
    assert isinstance(closed, events.Closed)
    assert closed.code == ReplyCode.PRECONDITION_FAILED
    assert any(encode_method(m.ConnectionClose())[:4] in part for part in wire.core.take_output())


def test_a_body_that_is_too_large_ends_the_connection() -> None:
    world = World()
    big = open_wire(world)
    _declared(big)
    big.core.publish_body(1, "", "q", b"b" * 20_000, Properties())
    big.settle()
    small = open_wire(world, settings=ClientSettings(content_max_bytes=10_000, frame_max_bytes=4096))
    small.core.call(1, m.BasicGet(queue="q"))
    (closed,) = small.settle()
    assert isinstance(closed, events.Closed)
    assert closed.text == (
        "PRECONDITION_FAILED - message size 20000 is larger than configured max size 10000"
    )
