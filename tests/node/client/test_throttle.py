"""amqp-behaviour §7.1, §7.2: publishers that are held, what they miss meanwhile, and how they go on."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.field_table import Table, boolean
from node.amqp.frames import HEARTBEAT, content_frames, frame, method_frame
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicPublish,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUnblocked,
    QueueDeclare,
    QueueDeclareOk,
)
from node.amqp.properties import Properties, content_header
from node.broker.broker import FLOW_ENDS_MAX
from node.client.throttle import FLOW_SHOWN_S
from node.queue.storage import MemoryStorage
from tests.kit.world import Client, Received, World, check_invariants

WANTS_TO_KNOW: Table = {"connection.blocked": boolean(True)}
BLOCKED = Received(0, ConnectionBlocked("low on memory"))
UNBLOCKED = Received(0, ConnectionUnblocked())

METHOD = method_frame(1, BasicPublish(routing_key="q"))


def publish(body: bytes) -> bytes:
    """A whole publish to the queue q, as it stands on the wire."""
    return METHOD + content_frames(1, content_header(len(body), Properties()), body, 131072)


class CongestedStorage(MemoryStorage):
    """A storage with as much to write as a test says."""

    is_congested = True


@pytest.fixture
def world() -> World:
    """A broker with a queue q."""
    made = World()
    assert isinstance(made.client().ask(1, QueueDeclare(queue="q")), QueueDeclareOk)
    return made


@pytest.fixture
def client(world: World) -> Client:
    """A publisher who can be told that it is blocked."""
    return world.client(capabilities=WANTS_TO_KNOW)


def ready(world: World) -> int:
    world.settle()
    check_invariants(world)
    return world.queue("q").backlog.count


# --- alarms ------------------------------------------------------------------------------------------------


def test_an_alarm_blocks_at_the_content_header(world: World, client: Client) -> None:
    """§7.1 rows 2 and 3: not at the method; the message is taken once the alarm is over."""
    world.broker.alarms.set("memory")
    data = publish(b"body")
    client.feed(METHOD)
    assert client.received() == []
    assert client.connection.is_reading
    client.feed(data[len(METHOD) : len(METHOD) + 22])
    assert client.received() == [BLOCKED]
    assert not client.connection.is_reading
    assert client.connection.throttle.state == "blocked"
    client.feed(data[len(METHOD) + 22 :])
    assert ready(world) == 0
    world.broker.alarms.clear("memory")
    assert client.received() == [UNBLOCKED]
    assert client.connection.is_reading
    assert ready(world) == 1


@pytest.mark.parametrize("step", [1, 7, 22, 10_000])
def test_how_the_bytes_were_cut_does_not_matter(world: World, client: Client, step: int) -> None:
    """§7.1 row 3: everything behind the first header waits, and is done in order."""
    client.send(1, ConfirmSelect())
    assert client.methods() == [ConfirmSelectOk()]
    world.broker.alarms.set("memory")
    data = publish(b"1") + publish(b"2") + method_frame(2, ChannelOpen()) + publish(b"3")
    for at in range(0, len(data), step):
        client.feed(data[at : at + step])
    assert client.received() == [BLOCKED]
    assert ready(world) == 0
    world.broker.alarms.clear("memory")
    answers = client.received()
    assert answers[0] == UNBLOCKED
    assert Received(2, ChannelOpenOk()) in answers
    assert answers[-1] == Received(1, BasicAck(3, multiple=True))
    assert ready(world) == 3


def test_an_empty_message_is_taken_and_blocks(world: World, client: Client) -> None:
    """§7.1 row 2: its header is all of it."""
    world.broker.alarms.set("memory")
    client.feed(publish(b"") + publish(b""))
    assert client.received() == [BLOCKED]
    assert ready(world) == 1


@pytest.mark.parametrize("cut", [1, 5, 500])
def test_what_was_read_of_a_message_before_the_alarm_does_not_block(
    world: World, client: Client, cut: int
) -> None:
    """§7.1 row 2: the frame that completes the message does, when it is whole."""
    data = publish(b"x" * 1000)
    client.feed(data[:-cut])
    world.broker.alarms.set("memory")
    assert client.received() == []
    assert client.connection.throttle.state == "blocking"
    client.feed(data[-cut:] + publish(b"next"))
    assert client.received() == [BLOCKED]
    assert ready(world) == 1


def test_a_method_that_was_cut_off_before_the_alarm(world: World, client: Client) -> None:
    """Any other unfinished frame is taken when it is whole."""
    data = method_frame(2, ChannelOpen())
    client.feed(data[:5])
    world.broker.alarms.set("memory")
    client.feed(data[5:])
    assert client.received() == [Received(2, ChannelOpenOk())]


def test_who_does_not_publish_is_not_blocked(world: World, client: Client) -> None:
    """§7.1 row 2, §7.2: such a connection is `blocking`."""
    consumer = world.client(capabilities=WANTS_TO_KNOW)
    client.feed(publish(b"1"))
    assert client.connection.throttle.state == "running"
    world.broker.alarms.set("memory")
    consumer.send(1, BasicConsume(queue="q", consumer_tag="t"))
    assert consumer.methods() == [BasicConsumeOk("t"), BasicDeliver("t", 1, False, "", "q")]
    consumer.send(1, BasicAck(1))
    assert consumer.received() == []
    assert world.queue("q").unacked_count == 0
    assert consumer.connection.throttle.state == "blocking"
    assert client.received() == []
    world.broker.alarms.clear("memory")
    assert client.received() == []
    assert client.connection.throttle.state == "running"


def test_without_the_capability_nothing_is_said(world: World) -> None:
    """§7.1 row 4: but blocked all the same."""
    silent = world.client()
    world.broker.alarms.set("memory")
    silent.feed(publish(b"1"))
    assert silent.received() == []
    assert silent.connection.throttle.is_blocked
    assert ready(world) == 0
    world.broker.alarms.clear("memory")
    assert silent.received() == []
    assert ready(world) == 1


def test_several_alarms(world: World, client: Client) -> None:
    """§7.1 row 5: one frame each way; who is blocked later hears of both."""
    late = world.client(capabilities=WANTS_TO_KNOW)
    world.broker.alarms.set("memory")
    client.feed(publish(b"1"))
    assert client.received() == [BLOCKED]
    world.broker.alarms.set("disk")
    assert client.received() == []
    late.feed(publish(b"2"))
    assert late.methods() == [ConnectionBlocked("low on disk & memory")]
    world.broker.alarms.clear("memory")
    assert client.received() == []
    assert ready(world) == 0
    world.broker.alarms.clear("disk")
    assert client.received() == [UNBLOCKED]
    assert late.received() == [UNBLOCKED]
    assert ready(world) == 2


def test_an_alarm_holds_for_who_connects_later(world: World) -> None:
    """§7.1 row 2."""
    world.broker.alarms.set("memory")
    late = world.client(capabilities=WANTS_TO_KNOW)
    assert late.connection.throttle.state == "blocking"
    late.feed(publish(b"1"))
    assert late.received() == [BLOCKED]


def test_an_alarm_that_comes_back_at_once(world: World, client: Client) -> None:
    """§7, trap 2: each episode has its frames, although nothing was read in between."""
    world.broker.alarms.set("memory")
    client.feed(publish(b"1") + publish(b"2"))
    assert client.received() == [BLOCKED]
    world.broker.alarms.clear("memory")
    world.broker.alarms.set("memory")
    assert client.received() == [UNBLOCKED, BLOCKED]
    assert ready(world) == 1  # the body of the first, which blocked again
    world.broker.alarms.clear("memory")
    assert client.received() == [UNBLOCKED]
    assert ready(world) == 2


def test_a_blocked_consumer_still_gets_messages(world: World, client: Client) -> None:
    """§7.1 row 6."""
    client.send(1, BasicConsume(queue="q", consumer_tag="t", no_ack=True))
    client.received()
    world.broker.alarms.set("memory")
    client.feed(publish(b"mine"))
    assert client.received() == [BLOCKED]
    other = world.client()
    other.publish(1, "q", b"")
    assert [item.method for item in client.received()] == [BasicDeliver("t", 1, False, "", "q")]


def test_a_blocked_client_is_not_timed_out(world: World) -> None:
    """§1.6, §7.1 row 7: we go on beating, and don't wait for theirs."""
    client = world.client(capabilities=WANTS_TO_KNOW, heartbeat=2)
    world.broker.alarms.set("memory")
    client.feed(publish(b"1"))
    client.received()
    world.advance(20)
    assert not client.is_reset
    assert client.methods() == [None] * 20
    world.broker.alarms.clear("memory")
    assert client.received() == [UNBLOCKED]
    world.advance(3)
    client.feed(HEARTBEAT)
    world.advance(3)
    assert not client.is_reset
    world.advance(3)
    assert client.is_reset


def test_a_blocked_connection_can_be_closed_by_us(world: World, client: Client) -> None:
    """§1.8: the forced close goes out, its close-ok is read, what waited is dropped."""
    world.broker.alarms.set("memory")
    client.feed(publish(b"1") * 3)
    assert client.received() == [BLOCKED]
    world.broker.close_connections("enough", lambda connection: connection is client.connection)
    (close,) = client.methods()
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == ReplyCode.CONNECTION_FORCED
    assert client.connection.is_reading
    client.feed(publish(b"2") + method_frame(0, ConnectionCloseOk()))
    assert client.received() == []
    assert client.is_reset
    world.broker.alarms.clear("memory")
    assert ready(world) == 0


def test_a_blocked_client_may_vanish(world: World, client: Client) -> None:
    """§7.1 row 7: once TCP tells."""
    world.broker.alarms.set("memory")
    client.feed(publish(b"1") * 3)
    client.lose()
    world.broker.alarms.clear("memory")
    assert ready(world) == 0
    assert client.connection not in world.broker.in_flow


def test_a_message_that_ends_the_connection_blocks_nothing(world: World, client: Client) -> None:
    """§4.1: the connection fails at the header; what is left to say is the close."""
    world.broker.alarms.set("memory")
    bad = method_frame(1, BasicPublish(routing_key="q", immediate=True))
    client.feed(bad + frame(2, 1, content_header(0, Properties())))
    (close,) = client.methods()
    assert isinstance(close, ConnectionClose)
    assert client.connection.is_reading


def test_content_on_a_closing_channel_blocks(world: World, client: Client) -> None:
    """§2.2, §7.1 row 2: dropped as it is, it is a publish."""
    world.broker.alarms.set("memory")
    client.refusal(QueueDeclare(queue="nope", passive=True))
    client.feed(publish(b"1"))
    assert client.received() == [BLOCKED]


# --- flow --------------------------------------------------------------------------------------------------


def test_a_congested_storage_holds_who_publishes(world: World, client: Client) -> None:
    """§7.2: no frames to the client, it just isn't read; the others are."""
    storage = world.broker.storage = CongestedStorage()
    other = world.client()
    client.feed(publish(b"1"))
    assert not client.connection.is_reading
    assert client.connection.throttle.state == "flow"
    client.feed(publish(b"2"))
    assert client.received() == []
    assert ready(world) == 1
    other.send(2, ChannelOpen())
    assert other.methods() == [ChannelOpenOk()]
    storage.is_congested = False
    world.broker.relieved()
    assert ready(world) == 2
    assert client.connection.is_reading


def test_flow_is_shown_for_a_while(world: World, client: Client) -> None:
    """§7.2: it comes and goes within milliseconds."""
    storage = world.broker.storage = CongestedStorage()
    client.feed(publish(b"1"))
    storage.is_congested = False
    world.broker.relieved()
    world.settle()
    world.advance(FLOW_SHOWN_S - 0.1)
    assert client.connection.throttle.state == "flow"
    world.advance(0.2)
    assert client.connection.throttle.state == "running"


def test_publishers_go_on_in_turn(world: World) -> None:
    """The publisher that has waited longest goes on first; when there is too much again the rest wait on."""

    class SmallStorage(MemoryStorage):
        limit = 0

        @property
        def is_congested(self) -> bool:  # type: ignore[override]
            return world.queue("q").backlog.count > self.limit

    storage = world.broker.storage = SmallStorage()
    clients = [world.client() for _ in range(3)]
    for client in clients:
        client.feed(publish(b"1"))
        client.feed(publish(b"2"))
        client.feed(publish(b"3"))
    assert ready(world) == 3
    first, second, third = (client.connection for client in clients)
    storage.limit = 3
    world.broker.relieved()
    assert ready(world) == 5
    assert list(world.broker.in_flow) == [second, third, first]
    storage.limit = 100
    world.broker.relieved()
    assert ready(world) == 9
    assert not world.broker.in_flow


def test_many_publishers_take_several_turns(world: World) -> None:
    """No number of them holds up a turn."""
    storage = world.broker.storage = CongestedStorage()
    for _ in range(FLOW_ENDS_MAX + 1):
        world.client().feed(publish(b"1"))
    assert len(world.broker.in_flow) == FLOW_ENDS_MAX + 1
    storage.is_congested = False
    world.broker.relieved()
    world.broker.turn(world.now)
    assert len(world.broker.in_flow) == 1
    assert world.broker.has_work
    world.settle()
    assert not world.broker.in_flow


def test_an_alarm_while_in_flow(world: World, client: Client) -> None:
    """Either holds the publisher alone."""
    storage = world.broker.storage = CongestedStorage()
    client.feed(publish(b"1"))
    world.broker.alarms.set("memory")
    client.feed(publish(b"2"))
    assert client.received() == []
    storage.is_congested = False
    world.broker.relieved()
    assert client.received() == [BLOCKED]
    storage.is_congested = True
    world.broker.alarms.clear("memory")
    assert client.received() == [UNBLOCKED]
    assert ready(world) == 1
    assert client.connection.throttle.state == "flow"
    storage.is_congested = False
    world.broker.relieved()
    assert ready(world) == 2
    assert client.connection.is_reading


def test_blocked_and_in_flow_at_once(world: World, client: Client) -> None:
    """The body that completes a message can do both; the end of one doesn't end the other."""
    storage = world.broker.storage = CongestedStorage()
    data = publish(b"1")
    client.feed(data[:-1])
    world.broker.alarms.set("memory")
    client.feed(data[-1:] + publish(b"2"))
    assert client.received() == [BLOCKED]
    storage.is_congested = False
    world.broker.relieved()
    world.settle()
    assert not client.connection.is_reading
    world.broker.alarms.clear("memory")
    assert client.received() == [UNBLOCKED]
    assert ready(world) == 2


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_connection_that_ends_in_flow(world: World, client: Client, is_lost: bool) -> None:
    """By its socket or by us: it isn't remembered."""
    world.broker.storage = CongestedStorage()
    client.feed(publish(b"1") * 2 + publish(b""))
    if is_lost:
        client.lose()
    else:
        world.broker.close_connections("enough", lambda connection: connection is client.connection)
        client.feed(method_frame(0, ConnectionCloseOk()))
        world.settle()
    assert client.is_reset
    assert not world.broker.in_flow
