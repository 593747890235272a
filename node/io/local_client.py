"""A connection to this node without a socket, for links that publish here: a `ClientConnection` joined to the broker.

    core.take_output ─► Connection.receive_data            Connection.take_output ─► core.receive_data

It may publish to every exchange and queue of one vhost, and is held back as any publisher is: by alarms, by the disk
and by mirrors that don't keep up. Its owner must then give it no more, see `is_reading`.
Source: RabbitMQ 3.10.8, `amqp_params_direct` without a user.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from node.amqp.connection_state import ConnectionState
from node.amqp.frames import method_frame
from node.amqp.method_codec import decode_method
from node.amqp.methods import BasicPublish, ConnectionOpenOk, ConnectionStart, ConnectionTune
from node.amqp_client.connection import ClientConnection
from node.amqp_client.events import Closed, Event
from node.amqp_client.settings import ClientSettings, client_properties
from node.catalogue.records import User
from node.client.connection import Connection
from node.client.endpoint import ClientEndpoint
from node.client.publishing import Route
from node.override import override

if TYPE_CHECKING:
    from node.broker.broker import Broker

USER: Final = "none"
"""The user's name, as RabbitMQ has it."""

_FRAME_MAX_BYTES: Final = 0x7FFFFFFF
_CHANNEL_MAX: Final = 2
_IMPERSONATOR: Final = "impersonator"


class LocalClient:
    """A connection to this node.

    name: as its client properties tell it.   on_events: called with what happened, in order.
    on_flow: called with False when the owner must stop publishing, with True when it may go on.
    """

    def __init__(
        self,
        broker: "Broker",
        vhost: str,
        name: str,
        *,
        loop: asyncio.AbstractEventLoop,
        on_events: Callable[[Sequence[Event]], None],
        on_flow: Callable[[bool], None],
    ) -> None:
        self._broker = broker
        self._vhost = vhost
        self._loop = loop
        self._on_events = on_events
        self._on_flow = on_flow
        self._label = name
        self._connection: _LocalConnection | None = None
        self._is_over = False
        self._is_flush_due = False
        self.is_reading = True
        """True if the broker takes what is published."""
        settings = ClientSettings(
            vhost=vhost, frame_max_bytes=_FRAME_MAX_BYTES, channel_max=_CHANNEL_MAX, heartbeat_s=0
        )
        self.core = ClientConnection(settings, on_output=self._output_waits)

    @property
    def name(self) -> str:
        """The name of the connection, as lists of connections show it."""
        return "" if self._connection is None else self._connection.name

    def start(self) -> None:
        """Connect soon; `Opened` or `Closed` follows."""
        self._loop.call_soon(self._open)

    def close(self) -> None:
        """Close the connection at once. No event follows."""
        self._is_over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.leave(self._loop.time())

    def pause_reading(self) -> None:
        """Do nothing: this connection gets no deliveries."""

    def resume_reading(self) -> None:
        """Do nothing: this connection gets no deliveries."""

    def _open(self) -> None:
        if self._is_over:
            return
        if self._broker.catalogue.vhost(self._vhost) is None:
            self._is_over = True
            self._on_events([Closed(0, f"vhost '{self._vhost}' is gone")])
            return
        now = self._loop.time()
        self._connection = _LocalConnection(
            self._broker,
            self._vhost,
            self._label,
            now,
            on_output=self._take_output,
            on_change=self._flow_changed,
        )
        tune = ConnectionTune(channel_max=_CHANNEL_MAX, frame_max=_FRAME_MAX_BYTES, heartbeat=0)
        handshake = (ConnectionStart(mechanisms=b"PLAIN", locales=b"en_US"), tune, ConnectionOpenOk())
        self.core.receive_data(b"".join(method_frame(0, each) for each in handshake), now)
        self.core.take_output()  # the client's half of the handshake
        self._look()
        self._flow_changed()

    def _output_waits(self) -> None:
        if not self._is_flush_due and not self._is_over:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        connection = self._connection
        data = b"".join(self.core.take_output())
        if connection is not None and data:
            connection.receive_data(data, self._loop.time())
            self._flow_changed()

    def _take_output(self) -> None:
        """Take the connection's output, at the end of a turn."""
        connection = self._connection
        if connection is None:
            return
        data = b"".join(connection.take_output())
        connection.flushed()
        if data:
            self.core.receive_data(data, self._loop.time())
            self._look()
        if connection.is_finished and self._connection is connection:
            self.close()

    def _look(self) -> None:
        taken = self.core.take_events()
        if taken and not self._is_over:
            self._on_events(taken)

    def _flow_changed(self) -> None:
        is_reading = self._connection is None or self._connection.is_reading
        if is_reading is not self.is_reading and not self._is_over:
            self.is_reading = is_reading
            self._on_flow(is_reading)


class _LocalConnection(Connection):
    """A connection that is open from the start, and publishes with the node's rights."""

    def __init__(
        self,
        broker: "Broker",
        vhost: str,
        label: str,
        now: float,
        *,
        on_output: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(broker, ClientEndpoint(address="", local=""), now=now, on_change=on_change)
        self._stop_timer()
        self._handshake = None
        self.user = User(USER, "", "", (_IMPERSONATOR,))
        self.vhost = vhost
        self.client_properties = client_properties(label)
        self.tune(channel_max=_CHANNEL_MAX, frame_max_bytes=_FRAME_MAX_BYTES, heartbeat_s=0)
        self.state = ConnectionState.OPEN
        broker.direct_clients[self] = on_output

    @property
    def name(self) -> str:
        """The name that RabbitMQ gives such connections, by their process."""
        return f"<{self.id}>"

    @override
    def _new_route(self, number: int, method_frame: bytes) -> Route | None:
        publish = decode_method(method_frame[7:-1])
        if isinstance(publish, BasicPublish) and number in self.channels:
            self._routes.allow(self.channels[number], publish.exchange)
        return super()._new_route(number, method_frame)

    def leave(self, now: float) -> None:
        """Release all that the client had, and forget the connection."""
        self.broker.now = now
        if self.state is ConnectionState.OPEN:
            self._release()
        self.state = ConnectionState.CLOSED
        self._let_go()
        self.vhost = ""  # it was never counted among its connections
        self.broker.forget(self)
