"""amqp-behaviour §1.8, §1.9: how an open connection ends, and update-secret."""

import re
import socket
import struct
import time
from collections.abc import Callable

import pytest

from node.amqp.field_table import Table, boolean, table
from node.amqp.methods import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    QueueDeclare,
)
from tests.kit.amqp_client import Connection
from tests.kit.servers import Admin, Server, start_server

Connect = Callable[..., Connection]
Name = Callable[[str], str]
MakeUser = Callable[..., str]
MakeVhost = Callable[[], str]

TELLS_OF_FAILURE: Table = {"capabilities": table({"authentication_failure_close": boolean(True)})}


# §1.8 Close


def test_close_is_answered(connect: Connect) -> None:
    """§1.8: close, close-ok; the server leaves the socket to the client (§0.3)."""
    connection = connect()
    connection.send(ConnectionClose, reply_code=200, reply_text="Goodbye")
    assert connection.expect(ConnectionCloseOk) == ConnectionCloseOk()
    connection.expect_nothing(0.3)


def test_close_while_a_channel_is_open_and_another_is_closing(connect: Connect, name: Name) -> None:
    """§1.8, §2.2: no channel must be closed first, no channel.close answered."""
    connection = connect()
    connection.channel(1)
    connection.channel(2).send(QueueDeclare, queue=name("missing"), passive=True)
    connection.next_frame(2)
    connection.close()


def test_close_deletes_exclusive_queues_first(connect: Connect, name: Name) -> None:
    """§1.8: exclusive queues are gone when close-ok comes."""
    other = connect().channel()
    for _ in range(5):
        owner = connect()
        queue = owner.channel().declare(name("q"), exclusive=True)
        owner.close()
        other.send(QueueDeclare, queue=queue, passive=True)
        other.expect_close(404, f"NOT_FOUND - no queue '{queue}' in vhost '/'", QueueDeclare)
        other = other.connection.channel(other.number)


def test_close_requeues_what_is_unacked(connect: Connect, name: Name) -> None:
    """§1.8: unacked messages are back in the queue when close-ok comes."""
    other = connect().channel()
    queue = other.declare(name("q"))
    owner = connect()
    channel = owner.channel()
    channel.publish("", queue, b"once")
    channel.wait_get(queue, no_ack=False)
    owner.close()
    content = other.get(queue)
    assert content is not None
    assert (content.body, content.method.redelivered) == (b"once", True)


def test_abrupt_end_deletes_exclusive_queues_soon(connect: Connect, name: Name) -> None:
    """§1.8: asynchronously; until then another connection gets 405."""
    owner = connect()
    queue = owner.channel().declare(name("q"), exclusive=True)
    owner.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    owner.socket.close()
    other = connect()
    deadline = time.monotonic() + 5
    while True:
        channel = other.channel(1)
        channel.send(QueueDeclare, queue=queue, passive=True)
        close = channel.expect(ChannelClose)
        channel.send(ChannelCloseOk)
        assert close.reply_code in (404, 405)
        if close.reply_code == 404:
            break
        assert time.monotonic() < deadline


def test_frames_are_ignored_after_the_server_closed(connect: Connect, name: Name) -> None:
    """§1.8: in server-sent-close state every frame is ignored except close and close-ok."""
    connection = connect()
    channel = connection.channel()
    channel.send(ChannelOpen)
    connection.expect_connection_close(
        504, "CHANNEL_ERROR - second 'channel.open' seen", ChannelOpen, answer=False
    )
    queue = name("q")
    channel.send(QueueDeclare, queue=queue)
    channel.publish("", queue, b"ignored")
    connection.send_frame(9, 1, b"nonsense")
    connection.expect_nothing(0.3)
    connection.send(ConnectionCloseOk)
    connection.expect_end()
    other = connect().channel()
    other.send(QueueDeclare, queue=queue, passive=True)
    other.expect_close(404, f"NOT_FOUND - no queue '{queue}' in vhost '/'", QueueDeclare)


def test_both_sides_close_at_once(connect: Connect) -> None:
    """§1.8: a client's close is answered with close-ok even after the server's close.

    Not both in one write: RabbitMQ hears of the channel's error from a process, and sends only its close.
    """
    connection = connect()
    connection.channel().send(ChannelOpen)
    connection.expect(ConnectionClose)
    connection.send(ConnectionClose, reply_code=200, reply_text="Goodbye")
    connection.expect(ConnectionCloseOk)
    connection.send(ConnectionCloseOk)
    connection.expect_end()


# §1.8 Forced close


@pytest.mark.disturbs_everyone
def test_close_all_connections(connect: Connect, admin: Admin) -> None:
    """§1.8 row close_all_connections: 320 with the operator's reason."""
    connections = [connect() for _ in range(3)]
    admin.close_all_connections("we are moving")
    for connection in connections:
        connection.expect_connection_close(320, "CONNECTION_FORCED - we are moving", None)


def test_user_deleted(connect: Connect, make_user: MakeUser, admin: Admin) -> None:
    """§1.8 row user deleted."""
    user = make_user()
    connection = connect(user, user)
    admin.delete_user(user)
    connection.expect_connection_close(320, f"CONNECTION_FORCED - user '{user}' is deleted", None)


def test_vhost_deleted(connect: Connect, make_vhost: MakeVhost, admin: Admin) -> None:
    """§1.8 row vhost deleted: `is deleted`, or `is down` if its process dies first."""
    vhost = make_vhost()
    connection = connect(vhost=vhost)
    admin.delete_vhost(vhost)
    text = re.compile(f"CONNECTION_FORCED - vhost '{vhost}' is (deleted|down)")
    connection.expect_connection_close(320, text, None)


def test_password_changed(connect: Connect, make_user: MakeUser, admin: Admin) -> None:
    """§1.8 row password changed: the connection stays, the old password is refused from now on."""
    user = make_user()
    connection = connect(user, user)
    admin.change_password(user, "another")
    connection.channel().declare(exclusive=True)
    connect(user, "another")
    late = connect(user, user, client_properties=TELLS_OF_FAILURE, open=False)
    late.start()
    late.send_start_ok()
    assert late.expect(ConnectionClose).reply_code == 403


def test_permissions_cleared(connect: Connect, make_user: MakeUser, admin: Admin, name: Name) -> None:
    """§1.8 row permissions cleared: the connection stays, the next operation gets 403."""
    user = make_user()
    channel = connect(user, user).channel()
    admin.clear_permissions(user, "/")
    queue = name("q")
    channel.send(QueueDeclare, queue=queue, exclusive=True)
    text = f"ACCESS_REFUSED - access to queue '{queue}' in vhost '/' refused for user '{user}'"
    channel.expect_close(403, text, QueueDeclare)
    channel.connection.channel(2).sync()


@pytest.mark.slow
def test_node_stop(connect: Connect) -> None:
    """§1.8 row node stop: 320 `shutdown`, then the end at once; no new connection after it."""
    server: Server = start_server()
    try:
        connection = connect(to=server)
    finally:
        server.stop()
    text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
    connection.expect_connection_close(320, text, None, answer=False)
    connection.expect_end()
    with pytest.raises(OSError, match="refused"):
        Connection(server)


# §1.9 update-secret


def test_update_secret(connect: Connect) -> None:
    """§1.9: always ok for the internal backend."""
    connection = connect()
    connection.send(ConnectionUpdateSecret, new_secret=b"new", reason="rotation")
    assert connection.expect(ConnectionUpdateSecretOk) == ConnectionUpdateSecretOk()
    connection.channel()
