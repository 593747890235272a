"""A connection of a client core to this node itself, without a socket: for URIs without a host.

    AmqpClient ─► LocalTransport.write ─► Connection.receive_data ─► the broker
    AmqpClient.data_received ◄─ LocalTransport ◄─ Connection.take_output, at the end of a turn

A URI without a user has all rights in its vhost; one with a user has that user's, and needs no password. Frames may be
as large as the client asks. Alarms and flow hold the client back as any other.
Source: RabbitMQ 3.10.8, `amqp_params_direct` and `rabbit_direct`.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from node.amqp.constants import FRAME_MIN_SIZE_BYTES, ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.frames import method_frame
from node.amqp.methods import ConnectionOpenOk, ConnectionStart, ConnectionTune
from node.broker.local_connection import LocalConnection
from node.catalogue.access import LoginRefused, check_login, check_vhost_access
from node.catalogue.records import User
from node.client.node_rights import NODE, NodeRights
from node.client.rights import Rights
from node.client.server_properties import server_properties
from node.io.amqp_client import LOCAL_CONNECTION, AmqpClient
from node.override import override

if TYPE_CHECKING:
    from node.broker.broker import Broker

_CHANNEL_MAX: Final = 2047


class LocalTransport(asyncio.Transport):
    """The bytes between a client and its connection in the broker of the same process."""

    def __init__(
        self,
        broker: "Broker",
        client: AmqpClient,
        user: User,
        rights: Rights | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__()
        self._client = client
        self._loop = loop
        self._is_closing = self._is_drain_due = self._is_paused = self._is_full = False
        self.connection = LocalConnection(
            broker,
            user,
            client.uri.vhost,
            loop.time(),
            rights=rights,
            channel_max=_CHANNEL_MAX,
            frame_max_bytes=max(client.core.frame_max_bytes, FRAME_MIN_SIZE_BYTES),
            on_output=self._output_waits,
            on_change=self._follow,
        )
        self.connection.client_properties = client.core.client_properties

    # --- asyncio.Transport ---

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self.connection.receive_data(bytes(data), self._loop.time())
            self._follow()

    @override
    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.connection.name if name == LOCAL_CONNECTION else default

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the connection has its own limits."""

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @override
    def is_closing(self) -> bool:
        return self._is_closing

    @override
    def pause_reading(self) -> None:
        self._is_paused = True
        self.connection.is_writable = False

    @override
    def resume_reading(self) -> None:
        self._is_paused = False
        self.connection.is_writable = True
        self._output_waits()

    @override
    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.connection.leave(self._loop.time())
            self._loop.call_soon(self._client.connection_lost, None)

    @override
    def abort(self) -> None:
        self.close()

    # --- the broker's side ---

    def _output_waits(self) -> None:
        """Pass the output on after the turn: what the client does then must not be part of it."""
        if not self._is_drain_due and not self._is_paused:
            self._is_drain_due = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._is_drain_due = False
        if self._is_closing or self._is_paused:
            return
        connection = self.connection
        data = b"".join(connection.take_output())
        connection.flushed()
        if data:
            self._client.data_received(data)
        if connection.is_finished:
            self.close()

    def _follow(self) -> None:
        """Hold the client back while the broker reads nothing from it."""
        is_full = not self._is_closing and not self.connection.is_reading
        if is_full is not self._is_full:
            self._is_full = is_full
            (self._client.pause_writing if is_full else self._client.resume_writing)()


def dial_local(broker: "Broker", client: AmqpClient, loop: asyncio.AbstractEventLoop) -> None:
    """Connect a client to the broker of this process, soon. What goes wrong is its `Closed` event."""
    loop.call_soon(_dial, broker, client, loop)


def _dial(broker: "Broker", client: AmqpClient, loop: asyncio.AbstractEventLoop) -> None:
    uri = client.uri
    try:
        user, rights = _claims(broker, client)
    except ProtocolError as error:
        client.refused(int(error.code), error.reply_text)
        return
    if broker.catalogue.vhost(uri.vhost) is None:
        client.refused(530, f"NOT_ALLOWED - vhost {uri.vhost} not found")
        return
    transport = LocalTransport(broker, client, user, rights, loop)
    start = ConnectionStart(
        server_properties=server_properties(broker), mechanisms=" ".join(uri.mechanisms).encode()
    )
    tune = ConnectionTune(_CHANNEL_MAX, transport.connection.frame_max_bytes, heartbeat=0)
    handshake = (start, tune, ConnectionOpenOk())
    client.join(transport, b"".join(method_frame(0, each) for each in handshake))


def _claims(broker: "Broker", client: AmqpClient) -> tuple[User, Rights | None]:
    """Return the user that the URI names, or the node itself with its rights.   Raises: ProtocolError."""
    uri, catalogue = client.uri, broker.catalogue
    if uri.user is None:
        return NODE, NodeRights(uri.vhost)
    if uri.password is None:
        known = catalogue.user(uri.user)
        found: User | LoginRefused = known or LoginRefused(f"user '{uri.user}' - invalid credentials")
    else:
        found = check_login(catalogue, uri.user, uri.password.encode(), is_loopback=True)
    if isinstance(found, LoginRefused):
        raise ProtocolError(
            ReplyCode.ACCESS_REFUSED,
            "Login was refused using authentication mechanism PLAIN. For details see the broker logfile.",
        )
    check_vhost_access(catalogue, found.name, uri.vhost)
    return found, None
