"""amqp-behaviour §1.11, §7.1: who is blocked when memory or disk runs short, what the client sees, what waits."""

import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD
from node.amqp.field_table import Table, boolean, table
from node.amqp.method_codec import encode_method
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicPublish,
    BasicQos,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUnblocked,
    QueueDeclare,
    QueueDeclareOk,
)
from tests.kit.amqp_client import Channel, Connection, content_header, frame
from tests.kit.servers import Admin, Server, start_restartable_server

WANTS_TO_KNOW: Table = {"capabilities": table({"connection.blocked": boolean(True)})}
NEXT_LOOK_S = 10.5
"""The server has looked at its disk again after this time: 10 s at the latest."""

SILENCE_S = 0.4
"""Nothing must come for this long where something would come at once."""


class Alarm:
    """Sets and clears alarms."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def on(self, resource: str = "memory") -> None:
        self._admin.set_alarm(resource)

    def off(self, resource: str = "memory") -> None:
        self._admin.clear_alarm(resource)


@pytest.fixture
def alarm(admin: Admin) -> Iterator[Alarm]:
    """Alarms to set and clear; none is left at the end."""
    alarms = Alarm(admin)
    yield alarms
    alarms.off("memory")
    alarms.off("disk")


@pytest.fixture
def publisher(connect: Callable[..., Connection]) -> Connection:
    """A connection with channel 1 whose client can take connection.blocked."""
    made = connect(client_properties=WANTS_TO_KNOW)
    made.channel(1)
    return made


@pytest.fixture
def queue(channel: Channel) -> str:
    """A queue of the test, exclusive to `channel`'s connection."""
    return channel.declare(exclusive=True)


def method_bytes(queue: str) -> bytes:
    """The method frame of a publish to a queue on channel 1."""
    return frame(FRAME_METHOD, 1, encode_method(BasicPublish(routing_key=queue)))


def header_bytes(size: int) -> bytes:
    return frame(FRAME_HEADER, 1, content_header(size))


def body_bytes(body: bytes) -> bytes:
    return frame(FRAME_BODY, 1, body)


def whole(queue: str, body: bytes) -> bytes:
    """A publish."""
    return method_bytes(queue) + header_bytes(len(body)) + body_bytes(body)


def blocked(connection: Connection) -> str:
    """The reason of the connection.blocked that comes next on channel 0."""
    return connection.expect(ConnectionBlocked).reason


# --- what blocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", ["memory", "disk"])
def test_a_publish_is_blocked_and_goes_on(
    publisher: Connection, channel: Channel, queue: str, alarm: Alarm, resource: str
) -> None:
    """§1.11; §7.1 rows 2 and 3: blocked at the header; the message completes after unblock and is delivered."""
    alarm.on(resource)
    publisher.send_bytes(whole(queue, b"late"))
    assert blocked(publisher) == f"low on {resource}"
    time.sleep(SILENCE_S)
    assert channel.get(queue) is None
    alarm.off(resource)
    publisher.expect(ConnectionUnblocked)
    assert channel.wait_get(queue).body == b"late"
    publisher.expect_nothing()


def test_the_method_frame_alone_does_not_block(
    publisher: Connection, channel: Channel, queue: str, alarm: Alarm
) -> None:
    """§7.1 row 2: content header or body, not basic.publish itself."""
    alarm.on()
    publisher.send_bytes(method_bytes(queue))
    publisher.expect_nothing(SILENCE_S)
    publisher.send(ChannelOpen, 2)
    publisher.expect(ChannelOpenOk, 2)
    publisher.send_bytes(header_bytes(4))
    assert blocked(publisher) == "low on memory"
    alarm.off()
    publisher.expect(ConnectionUnblocked)
    publisher.send_bytes(body_bytes(b"body"))
    assert channel.wait_get(queue).body == b"body"


def test_a_body_frame_blocks(publisher: Connection, channel: Channel, queue: str, alarm: Alarm) -> None:
    """§7.1 row 2: the alarm came between header and body; a body that is whole then is taken still."""
    publisher.send_bytes(method_bytes(queue) + header_bytes(4))
    publisher.send(ChannelOpen, 2)
    publisher.expect(ChannelOpenOk, 2)
    alarm.on()
    publisher.expect_nothing(SILENCE_S)
    publisher.send_bytes(body_bytes(b"body"))
    assert blocked(publisher) == "low on memory"
    assert channel.wait_get(queue).body == b"body"


def test_part_of_a_body_blocks(publisher: Connection, channel: Channel, queue: str, alarm: Alarm) -> None:
    """§7.1 row 2: the first of two body frames blocks, the second waits."""
    publisher.send_bytes(method_bytes(queue) + header_bytes(4) + body_bytes(b"bo")[:5])
    publisher.expect_nothing()
    alarm.on()
    publisher.expect_nothing(SILENCE_S)
    publisher.send_bytes(body_bytes(b"bo")[5:] + body_bytes(b"dy"))
    assert blocked(publisher) == "low on memory"
    time.sleep(SILENCE_S)
    assert channel.get(queue) is None
    alarm.off()
    publisher.expect(ConnectionUnblocked)
    assert channel.wait_get(queue).body == b"body"


def test_the_rest_of_a_body_blocks_once_it_is_whole(
    publisher: Connection, channel: Channel, queue: str, alarm: Alarm
) -> None:
    """§7.1 row 2: header and half a body frame came before the alarm; the message is taken, then it blocks."""
    data = whole(queue, b"x" * 1000)
    publisher.send_bytes(data[:-500])
    publisher.expect_nothing()
    alarm.on()
    publisher.expect_nothing(SILENCE_S)
    publisher.send_bytes(data[-500:])
    assert blocked(publisher) == "low on memory"
    assert channel.wait_get(queue).body == b"x" * 1000


def test_a_message_without_a_body_is_taken_and_blocks(
    publisher: Connection, channel: Channel, queue: str, alarm: Alarm
) -> None:
    """§7.1 row 2: its header is the whole message."""
    alarm.on()
    publisher.send_bytes((method_bytes(queue) + header_bytes(0)) * 2)
    assert blocked(publisher) == "low on memory"
    assert channel.wait_get(queue).body == b""
    time.sleep(SILENCE_S)
    assert channel.get(queue) is None


def test_who_does_not_publish_is_not_blocked(
    connect: Callable[..., Connection], channel: Channel, queue: str, alarm: Alarm
) -> None:
    """§7.1 row 2: idle and consume-only connections never receive blocked."""
    for number in range(3):
        channel.publish("", queue, b"%d" % number)
    idle = connect(client_properties=WANTS_TO_KNOW)
    consumer = connect(client_properties=WANTS_TO_KNOW).channel(1)
    own = consumer.declare(exclusive=True)
    alarm.on()
    idle.expect_nothing(SILENCE_S)
    consumer.call(QueueDeclare, queue=own, passive=True)
    # `channel` published before the alarm, which is no reason either.
    channel.call(BasicQos, prefetch_count=1)
    channel.consume(queue)
    for number in range(3):
        delivery = channel.deliver()
        assert delivery.body == b"%d" % number
        channel.send(BasicAck, delivery_tag=delivery.method.delivery_tag)
    channel.sync()
    consumer.close()


def test_who_connects_during_an_alarm_is_blocked_too(
    connect: Callable[..., Connection], channel: Channel, queue: str, alarm: Alarm
) -> None:
    """§7.1 row 2."""
    alarm.on("disk")
    late = connect(client_properties=WANTS_TO_KNOW)
    late.channel(1)
    late.send_bytes(whole(queue, b"late"))
    assert blocked(late) == "low on disk"
    alarm.off("disk")
    late.expect(ConnectionUnblocked)
    assert channel.wait_get(queue).body == b"late"


def test_content_on_a_closing_channel_blocks_too(publisher: Connection, alarm: Alarm) -> None:
    """§7.1 row 2: content that is dropped anyway (§2.2)."""
    alarm.on()
    publisher.send(QueueDeclare, 1, queue="amq.nope", passive=True)
    publisher.expect(ChannelClose, 1)
    publisher.send_bytes(whole("nowhere", b"dropped"))
    publisher.send(ChannelCloseOk, 1)
    publisher.send(ChannelOpen, 1)
    assert blocked(publisher) == "low on memory"
    publisher.expect_nothing(SILENCE_S)
    alarm.off()
    publisher.expect(ConnectionUnblocked)
    publisher.expect(ChannelOpenOk, 1)
    publisher.expect_nothing()


# --- what waits --------------------------------------------------------------------------------------------


def test_nothing_is_read_while_blocked(
    publisher: Connection, channel: Channel, queue: str, alarm: Alarm
) -> None:
    """§7.1 row 3: channel operations and all else wait, and are done in order."""
    alarm.on()
    publisher.send_bytes(whole(queue, b"1") + whole(queue, b"2"))
    publisher.send(ChannelOpen, 2)
    publisher.send_bytes(whole(queue, b"3"))
    publisher.send(QueueDeclare, 2, exclusive=True)
    assert blocked(publisher) == "low on memory"
    publisher.expect_nothing(SILENCE_S)
    assert channel.get(queue) is None
    alarm.off()
    publisher.expect(ConnectionUnblocked)
    publisher.expect(ChannelOpenOk, 2)
    publisher.expect(QueueDeclareOk, 2)
    assert [channel.wait_get(queue).body for _ in range(3)] == [b"1", b"2", b"3"]


def test_not_even_a_close_is_read(publisher: Connection, channel: Channel, queue: str, alarm: Alarm) -> None:
    """§7.1 row 3, trap 1: blocked clients cannot even close until the alarm clears."""
    alarm.on()
    publisher.send_bytes(whole(queue, b"last"))
    assert blocked(publisher) == "low on memory"
    publisher.send(ConnectionClose, reply_code=200, reply_text="Goodbye")
    publisher.expect_nothing(SILENCE_S)
    alarm.off()
    publisher.expect(ConnectionUnblocked)
    publisher.expect(ConnectionCloseOk)
    assert channel.wait_get(queue).body == b"last"


def test_confirms_wait_with_their_messages(publisher: Connection, queue: str, alarm: Alarm) -> None:
    """§7.1 row 3: nothing is confirmed that was not taken."""
    publisher.send(ConfirmSelect, 1)
    publisher.next_frame(1)
    alarm.on()
    publisher.send_bytes(whole(queue, b"1"))
    assert blocked(publisher) == "low on memory"
    publisher.expect_nothing(SILENCE_S)
    alarm.off()
    publisher.expect(ConnectionUnblocked)
    assert publisher.expect(BasicAck, 1).delivery_tag == 1


def test_who_does_not_want_to_know_is_blocked_silently(
    connection: Connection, channel: Channel, connect: Callable[..., Connection], alarm: Alarm
) -> None:
    """§7.1 row 4: without the capability there is no frame, but blocking all the same."""
    other = connect().channel(1)
    queue = other.declare(exclusive=True)
    alarm.on()
    channel.publish("", queue, b"silent")
    connection.send(ChannelOpen, 2)
    connection.expect_nothing(SILENCE_S)
    assert other.get(queue) is None
    alarm.off()
    connection.expect(ChannelOpenOk, 2)
    assert other.wait_get(queue).body == b"silent"
    connection.expect_nothing()


# --- why there is an alarm ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_memory_alarm_by_its_watermark(
    connect: Callable[..., Connection], server_with: Callable[..., Server]
) -> None:
    """§7.1 row 1: whoever uses more than the watermark, here any server."""
    server = server_with({"vm_memory_high_watermark.absolute": "1MB"})
    publisher = connect(client_properties=WANTS_TO_KNOW, to=server)
    publisher.channel(1)
    publisher.send_bytes(whole("nowhere", b"x"))
    assert blocked(publisher) == "low on memory"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 100 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
def test_the_disk_alarm_by_free_space(small_disk: Path) -> None:
    """§7.1 row 1: on below the limit, off when there is room again."""
    server = start_restartable_server({"disk_free_limit.absolute": "40MB"}, small_disk)
    try:
        publisher = Connection(server, client_properties=WANTS_TO_KNOW)
        channel = publisher.channel(1)
        channel.publish("", "nowhere", b"x")
        channel.sync()
        publisher.expect_nothing()
        filler = small_disk / "filler"
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 70_000_000)
        time.sleep(NEXT_LOOK_S)
        channel.publish("", "nowhere", b"x")
        assert blocked(publisher) == "low on disk"
        filler.unlink()
        publisher.expect(ConnectionUnblocked, timeout=NEXT_LOOK_S)
    finally:
        server.stop()


# --- several alarms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [("memory", "disk"), ("disk", "memory")])
def test_the_reason_is_that_of_the_first_publish(
    publisher: Connection,
    connect: Callable[..., Connection],
    queue: str,
    alarm: Alarm,
    first: str,
    second: str,
) -> None:
    """§7.1 row 5: one blocked, one unblocked; who is blocked later hears of both."""
    late = connect(client_properties=WANTS_TO_KNOW)
    late.channel(1)
    alarm.on(first)
    publisher.send_bytes(whole(queue, b"1"))
    assert blocked(publisher) == f"low on {first}"
    alarm.on(second)
    publisher.expect_nothing(SILENCE_S)
    late.send_bytes(whole(queue, b"2"))
    assert blocked(late) == "low on disk & memory"
    alarm.off(first)
    publisher.expect_nothing(SILENCE_S)
    late.expect_nothing()
    alarm.off(second)
    publisher.expect(ConnectionUnblocked)
    late.expect(ConnectionUnblocked)


def test_each_episode_has_its_frames(
    publisher: Connection, channel: Channel, queue: str, alarm: Alarm
) -> None:
    """§7, trap 2: exactly one blocked and one unblocked an episode."""
    for number in range(3):
        alarm.on("disk")
        publisher.expect_nothing()  # nobody is blocked by the alarm itself
        publisher.send_bytes(whole(queue, b"%d" % number) + whole(queue, b"+"))
        assert blocked(publisher) == "low on disk"
        alarm.off("disk")
        publisher.expect(ConnectionUnblocked)
        assert [channel.wait_get(queue).body for _ in range(2)] == [b"%d" % number, b"+"]
    publisher.expect_nothing()


# --- what goes on ------------------------------------------------------------------------------------------


def test_a_blocked_consumer_gets_deliveries_but_its_acks_are_not_read(
    publisher: Connection, channel: Channel, alarm: Alarm
) -> None:
    """§7.1 row 6."""
    queue = channel.declare(auto_delete=True)
    for body in (b"1", b"2", b"3"):
        channel.publish("", queue, body)
    publisher.send(BasicQos, 1, prefetch_count=1)
    publisher.next_frame(1)
    publisher.send(BasicConsume, 1, queue=queue, consumer_tag="t")
    publisher.next_frame(1)
    assert publisher.expect_content(BasicDeliver, 1).body == b"1"
    alarm.on()
    publisher.send_bytes(whole("nowhere", b"x"))
    assert blocked(publisher) == "low on memory"
    publisher.send(BasicAck, 1, delivery_tag=1)
    publisher.expect_nothing(SILENCE_S)
    alarm.off()
    publisher.expect(ConnectionUnblocked)
    assert publisher.expect_content(BasicDeliver, 1).body == b"2"


def test_deliveries_to_a_blocked_connection_go_on(
    publisher: Connection, channel: Channel, connect: Callable[..., Connection], alarm: Alarm
) -> None:
    """§7.1 row 6: what comes back into the queue while its consumer is blocked is delivered at once."""
    queue = channel.declare(auto_delete=True)
    channel.publish("", queue, b"1")
    holder = connect().channel(1)
    holder.consume(queue)
    assert holder.deliver().body == b"1"
    publisher.send(BasicConsume, 1, queue=queue, consumer_tag="t")
    publisher.next_frame(1)
    alarm.on()
    publisher.send_bytes(whole("nowhere", b"x"))
    assert blocked(publisher) == "low on memory"
    holder.close()
    assert publisher.expect_content(BasicDeliver, 1).body == b"1"


@pytest.mark.disturbs_everyone
def test_an_operator_can_close_a_blocked_connection(
    publisher: Connection, admin: Admin, alarm: Alarm
) -> None:
    """§1.8, §7.1: the close reaches the client, and its close-ok is heard."""
    alarm.on()
    publisher.send_bytes(whole("nowhere", b"x") * 3)
    assert blocked(publisher) == "low on memory"
    admin.close_all_connections("enough")
    publisher.expect_connection_close(320, "CONNECTION_FORCED - enough", None)


@pytest.mark.slow
def test_heartbeats_go_on_both_ways(
    connect: Callable[..., Connection], channel: Channel, queue: str, alarm: Alarm
) -> None:
    """§1.6, §7.1 row 7: the server sends, and does not miss the client's."""
    publisher = connect(client_properties=WANTS_TO_KNOW, heartbeat=1)
    publisher.channel(1)
    alarm.on()
    publisher.send_bytes(whole(queue, b"late"))
    assert blocked(publisher) == "low on memory"
    began = time.monotonic()
    beats = 0
    while time.monotonic() - began < 5:
        assert publisher.read_frame(2.0).type == FRAME_HEARTBEAT
        beats += 1
    assert beats >= 5
    alarm.off()
    while (arrived := publisher.read_frame()).type == FRAME_HEARTBEAT:
        pass
    assert arrived.payload == encode_method(ConnectionUnblocked())
    assert channel.wait_get(queue).body == b"late"


@pytest.mark.slow
def test_a_blocked_client_that_vanishes_is_noticed(
    connect: Callable[..., Connection], channel: Channel, alarm: Alarm
) -> None:
    """§7.1 row 7: by a heartbeat that can't be sent."""
    publisher = connect(client_properties=WANTS_TO_KNOW, heartbeat=1)
    other = publisher.channel(1)
    queue = channel.declare(auto_delete=True)
    other.consume(queue)
    channel.publish("", queue, b"back soon")
    assert other.deliver().body == b"back soon"
    alarm.on()
    publisher.send_bytes(whole("nowhere", b"x"))
    assert blocked(publisher) == "low on memory"
    channel.consume(queue)
    channel.expect_nothing()
    publisher.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    publisher.socket.close()
    assert channel.deliver().body == b"back soon"
