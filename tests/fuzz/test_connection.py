"""Whole connections, fed with arbitrary methods in arbitrary order: nothing is ever raised, nothing is lost count of.

Names, tags and arguments come from small pools, so that the clients meet in the same queues; some of what they send is
nonsense. After each step the invariants of `tests.kit.world` hold and nobody waits for what is there.
"""

from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from typing import Literal

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from node.amqp.connection_state import ConnectionState
from node.amqp.constants import PROTOCOL_HEADER
from node.amqp.field_table import Table, array, boolean, long, longstr, table
from node.amqp.frames import HEARTBEAT, frame, method_frame
from node.amqp.methods import (
    METHODS,
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicReject,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ConfirmSelect,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionStartOk,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxRollback,
    TxSelect,
)
from node.amqp.properties import Properties
from node.catalogue.commands import ClearPolicy, Command, DeleteQueue, DeleteUser, DeleteVhost, SetPolicy
from node.client.settings import BrokerSettings
from node.queue.storage import MemoryStorage
from tests.kit.world import Client, World, check_invariants

REPLY_TO = "amq.rabbitmq.reply-to"

queue = st.sampled_from(["a", "b", "c", "", REPLY_TO])
exchange = st.sampled_from(["", "x", "amq.fanout", "amq.topic", "amq.headers"])
key = st.sampled_from(["a", "b", "c", "#", ""])
tag = st.sampled_from(["s", "t", ""])
flag = st.booleans()
rarely = st.sampled_from([False, False, False, True])
delivery_tag = st.integers(0, 6)
queue_arguments: st.SearchStrategy[Table] = st.fixed_dictionaries(
    {},
    optional={
        "x-message-ttl": st.sampled_from([long(0), long(1000), longstr("bad")]),
        "x-expires": st.just(long(2000)),
        "x-max-length": st.sampled_from([long(0), long(2)]),
        "x-max-length-bytes": st.just(long(3)),
        "x-overflow": st.sampled_from([longstr("reject-publish"), longstr("reject-publish-dlx")]),
        "x-dead-letter-exchange": st.sampled_from([longstr(""), longstr("amq.fanout")]),
        "x-dead-letter-routing-key": st.sampled_from([longstr("b"), longstr("c")]),
        "x-max-priority": st.just(long(2)),
        "x-single-active-consumer": st.just(boolean(True)),
    },
)
x_death = st.sampled_from(
    [
        longstr("mine"),
        array([table({"queue": array([]), "reason": table({})})]),
        array([table({"queue": longstr("a"), "reason": longstr("expired"), "count": long(2**63 - 1)})]),
    ]
)
headers: st.SearchStrategy[Table] = st.fixed_dictionaries(
    {},
    optional={
        "CC": st.sampled_from([array([longstr("b"), longstr("b")]), longstr("bad")]),
        "BCC": st.sampled_from([array([longstr("c")]), array([long(1)])]),
        "x-death": x_death,
        "h": st.just(longstr("v")),
    },
)
properties = st.builds(
    Properties,
    headers=st.none() | headers,
    delivery_mode=st.sampled_from([None, 1, 2, 2, 7]),
    priority=st.sampled_from([None, 1, 9]),
    expiration=st.sampled_from([None, None, "0", "1500", "x"]),
    reply_to=st.sampled_from([None, None, REPLY_TO]),
    user_id=st.sampled_from([None, None, "guest", "bob"]),
)

usual = st.one_of(
    st.builds(
        QueueDeclare,
        queue=queue,
        passive=rarely,
        exclusive=rarely,
        auto_delete=rarely,
        nowait=rarely,
        arguments=queue_arguments,
    ),
    st.builds(QueueDeclare, queue=queue),
    st.builds(QueueBind, queue=queue, exchange=exchange, routing_key=key),
    st.builds(QueueUnbind, queue=queue, exchange=exchange, routing_key=key),
    st.builds(QueueDelete, queue=queue, if_unused=rarely, if_empty=rarely),
    st.builds(QueuePurge, queue=queue),
    st.builds(
        ExchangeDeclare, exchange=exchange, type=st.sampled_from(["fanout", "direct", "topic", "bogus"])
    ),
    st.builds(ExchangeDelete, exchange=exchange),
    st.builds(ExchangeBind, destination=exchange, source=exchange, routing_key=key),
    st.builds(
        BasicConsume,
        queue=queue,
        consumer_tag=tag,
        no_ack=flag,
        exclusive=rarely,
        nowait=rarely,
        arguments=st.sampled_from([{}, {}, {"x-priority": long(1)}, {"x-priority": longstr("bad")}]),
    ),
    st.builds(BasicConsume, queue=queue, no_ack=flag),
    st.builds(BasicCancel, consumer_tag=tag, nowait=rarely),
    st.builds(BasicGet, queue=queue, no_ack=flag),
    st.builds(BasicAck, delivery_tag=delivery_tag, multiple=flag),
    st.builds(BasicNack, delivery_tag=delivery_tag, multiple=flag, requeue=flag),
    st.builds(BasicReject, delivery_tag=delivery_tag, requeue=flag),
    st.builds(BasicRecover, requeue=st.sampled_from([True, True, False])),
    st.builds(BasicQos, prefetch_count=st.integers(0, 3), global_=flag),
    st.sampled_from([TxSelect(), TxCommit(), TxRollback(), ConfirmSelect(), ChannelOpen()]),
    st.sampled_from([ChannelClose(), ChannelCloseOk(), ConnectionClose(), ConnectionCloseOk()]),
)
any_method = st.sampled_from(list(METHODS.values())).map(lambda cls: cls())


@dataclass(frozen=True)
class Send:
    """A client sends a method, with this body and these properties if it is a publish."""

    client: int
    channel: int
    method: Method
    body: bytes = b""
    properties: Properties | None = None


@dataclass(frozen=True)
class Raw:
    """A client sends these bytes."""

    client: int
    data: bytes


class Event(Enum):
    """Lists what happens to the socket of a client."""

    SLOW = auto()
    FAST = auto()
    LOST = auto()
    TURN = auto()


@dataclass(frozen=True)
class Socket:
    """The socket of a client fills up, is drained, goes away; or everybody gets a turn."""

    client: int
    event: Event


@dataclass(frozen=True)
class Wait:
    """Time goes by."""

    seconds: float


@dataclass(frozen=True)
class Operate:
    """Somebody changes the catalogue."""

    command: Command[object]


@dataclass(frozen=True)
class Shortage:
    """Memory, disk space or the disk's speed falls short, or suffices again."""

    resource: Literal["memory", "disk", "speed"]
    is_short: bool


Action = Send | Raw | Socket | Wait | Operate | Shortage

client_number = st.integers(0, 2)
channel_number = st.sampled_from([1, 1, 1, 2])
publish = st.builds(
    Send,
    client_number,
    channel_number,
    st.builds(BasicPublish, exchange=exchange, routing_key=key, mandatory=flag, immediate=st.just(False)),
    st.binary(max_size=3),
    st.none() | properties,
)
send = st.builds(Send, client_number, channel_number, usual)
action: st.SearchStrategy[Action] = st.one_of(
    send,
    send,
    send,
    publish,
    publish,
    st.builds(Send, client_number, st.sampled_from([0, 1, 2, 3]), usual | any_method),
    st.builds(
        Raw,
        client_number,
        st.one_of(
            st.binary(max_size=12),
            st.just(HEARTBEAT),
            st.builds(frame, st.sampled_from([1, 2, 3, 9]), st.sampled_from([0, 1]), st.binary(max_size=16)),
            st.builds(lambda cut: method_frame(1, BasicPublish(routing_key="a"))[:cut], st.integers(1, 30)),
        ),
    ),
    st.builds(Socket, client_number, st.sampled_from(Event)),
    st.builds(Wait, st.sampled_from([0.5, 1.0, 3.0, 70.0])),
    st.builds(Shortage, st.sampled_from(["memory", "disk", "speed"]), st.booleans()),
    st.builds(
        Operate,
        st.sampled_from(
            [
                DeleteQueue("/", "a"),
                SetPolicy("/", "p", "a|b", {"max-length": 1, "expires": 2000}),
                SetPolicy("/", "p", ".", {"dead-letter-exchange": "", "message-ttl": 500}),
                ClearPolicy("/", "p"),
            ]
        ),
    ),
)
last_act: st.SearchStrategy[Action] = st.sampled_from(
    [Operate(DeleteVhost("/")), Operate(DeleteUser("guest")), Wait(1e5)]
)

SETTINGS = BrokerSettings(consumer_timeout_ms=100_000, message_max_bytes=1000)


def act(world: World, clients: list[Client], step: Action) -> None:
    match step:
        case Send(number, channel, method, body, props):
            clients[number].send(channel, method, body, props)
        case Raw(number, data):
            clients[number].feed(data)
        case Socket(number, event):
            disturb(world, clients[number], event)
        case Wait(seconds):
            world.advance(seconds)
        case Operate(command):
            world.submit(command)
        case Shortage("speed", is_short):
            assert isinstance(world.broker.storage, SlowStorage)
            world.broker.storage.is_congested = is_short
            if not is_short:
                world.broker.relieved()
        case Shortage("memory" | "disk" as resource, is_short):
            (world.broker.alarms.set if is_short else world.broker.alarms.clear)(resource)


class SlowStorage(MemoryStorage):
    """Keeps up with what is published, or doesn't."""

    is_congested = False


def disturb(world: World, client: Client, event: Event) -> None:
    if event is Event.LOST:
        client.lose()
    elif event is Event.TURN or client.is_reset:
        world.settle()
    elif event is Event.SLOW:
        client.takes_output = client.connection.is_writable = False
    else:
        client.takes_output = client.connection.is_writable = True
        client.flush()


def check_all_is_delivered(world: World) -> None:
    """After a turn nobody waits for what is there: a ready message means that each consumer is at its limit."""
    for live in world.broker.vhosts["/"].queues.values():
        if live.backlog.count and live.backlog.head_expiry > world.now:
            members = live.consumers.all
            if live.consumers.single_active:
                assert live.consumers.active in members or not members
                members = [live.consumers.active] if live.consumers.active else []
            for consumer in members:
                channel = consumer.channel
                assert channel.room_bytes() <= 0 or channel.credit(consumer) <= 0, "a consumer is forgotten"


def check_tags(client: Client) -> None:
    """Delivery tags rise by one on each channel; there is no delivery on a channel that we have closed."""
    tags: dict[int, list[int]] = {}
    for item in client.received():
        is_reply = isinstance(item.method, BasicDeliver) and item.method.routing_key.startswith(REPLY_TO)
        if isinstance(item.method, BasicDeliver | BasicGetOk) and not is_reply:
            tags.setdefault(item.channel, []).append(item.method.delivery_tag)
        elif isinstance(item.method, ChannelClose):
            tags.pop(item.channel, None)
    for numbers in tags.values():
        # A channel that was closed and opened again starts over.
        assert all(later == earlier + 1 or later == 1 for earlier, later in pairwise(numbers))


@given(st.lists(action, max_size=40), last_act)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(
    [
        Send(0, 1, QueueDeclare(queue="a")),
        Send(0, 1, BasicQos(prefetch_count=1)),
        Send(0, 1, BasicConsume(queue="a")),
        Send(1, 1, BasicPublish(routing_key="a"), b"1"),
        Send(1, 1, BasicPublish(routing_key="a"), b"2"),
        Socket(0, Event.TURN),
        Socket(0, Event.SLOW),
        Send(0, 1, BasicAck(1)),
        Socket(0, Event.FAST),
    ],
    Wait(1e5),
)
def test_nothing_breaks_the_broker(steps: list[Action], last: Action) -> None:
    world = World(SETTINGS)
    world.broker.storage = SlowStorage()
    timers = len(world.broker.timers)
    clients = [world.client(1, 2) for _ in range(3)]
    for step in steps:
        act(world, clients, step)
        check_invariants(world)
        assert {client.connection.state for client in clients} <= set(ConnectionState)
    ends: list[Literal["memory", "disk", "speed"]] = ["memory", "disk", "speed"]
    for resource in ends:
        act(world, clients, Shortage(resource, False))
    for client in clients:
        disturb(world, client, Event.FAST)
    world.settle()
    assert all(
        client.connection.is_reading or client.connection.state is not ConnectionState.OPEN
        for client in clients
    )
    assert not world.broker.in_flow
    check_all_is_delivered(world)
    for client in clients:
        check_tags(client)
    act(world, clients, last)
    world.settle()
    for client in clients:
        client.lose()
    assert world.broker.connections == {}
    for vhost in world.broker.vhosts.values():
        for live in vhost.queues.values():
            assert (live.unacked_count, live.unacked_bytes, len(live.consumers)) == (0, 0, 0)
            assert live.record.exclusive_owner is None
    world.advance(1e4)
    for name in [name for vhost in world.broker.vhosts.values() for name in vhost.queues]:
        world.submit(DeleteQueue("/", name))
    assert len(world.broker.timers) == timers, "a timer is left behind"


handshake = st.one_of(
    st.just(PROTOCOL_HEADER),
    st.binary(max_size=9),
    st.builds(method_frame, st.sampled_from([0, 0, 0, 1]), any_method),
    st.builds(
        method_frame,
        st.just(0),
        st.builds(
            ConnectionStartOk, st.just({}), st.sampled_from(["PLAIN", "AMQPLAIN", "X"]), st.binary(max_size=8)
        ),
    ),
    st.builds(frame, st.sampled_from([1, 2, 3, 8, 9]), st.just(0), st.binary(max_size=8)),
)


@given(st.booleans(), st.lists(handshake, max_size=8))
def test_nothing_breaks_a_handshake(is_proper: bool, pieces: list[bytes]) -> None:
    """Whatever comes before connection.open: the connection is open, waits, or is gone after all time-outs."""
    world = World()
    client = world.connect()
    for piece in [PROTOCOL_HEADER, *pieces] if is_proper else pieces:
        client.feed(piece)
        client.received()
    world.advance(100)
    assert client.is_reset
    assert world.broker.connections == {}


@given(st.lists(send.map(lambda step: method_frame(step.channel, step.method)), max_size=12), st.data())
@settings(deadline=None)
def test_the_cut_into_reads_never_shows(frames: list[bytes], data: st.DataObject) -> None:
    """Two clients send the same, one of them in odd pieces: they get the same, and leave the same behind."""
    raw = b"".join(frames)
    results = []
    for in_pieces in (False, True):
        world = World(SETTINGS)
        client = world.client(1, 2)
        at = 0
        while at < len(raw):
            size = data.draw(st.integers(1, 40)) if in_pieces else len(raw)
            client.feed(raw[at : at + size])
            at += size
        received = [
            item for item in client.received() if not isinstance(item.method, BasicDeliver | BasicGetOk)
        ]
        results.append((received, {name: world.queue(name).backlog.count for name in world.queue_names}))
    assert results[0] == results[1]
