"""A connection of a client in the node's own process, which has no socket and no handshake.

    client ─► LocalConnection.receive_data ─► the broker
    client ◄─ take_output ◄─ on_output, at the end of a turn

The rules, error texts and permissions are those of all connections. It is open from the start, counts against no limit
of connections, and no observer is told of its beginning and end. RabbitMQ calls such connections direct.
Source: RabbitMQ 3.10.8, `rabbit_direct`; management §1.6 (type "direct").
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from node.amqp.connection_state import ConnectionState
from node.catalogue.records import User
from node.client.connection import Connection
from node.client.endpoint import ClientEndpoint
from node.client.rights import Rights
from node.override import override

if TYPE_CHECKING:
    from node.broker.broker import Broker


def _follow_nothing() -> None:
    """Do nothing: the client publishes whatever the broker reads."""


class LocalConnection(Connection):
    """A connection to one vhost, as a user whose rights to it were checked.   rights: as `BaseConnection.rights`.

    on_output: called at the end of a turn if there is output. The client then calls `take_output` and `flushed`, at
    once or later.   on_change: called when `is_reading` may have changed outside of `receive_data`.
    channel_max, frame_max_bytes: 0 for no limit.
    """

    def __init__(
        self,
        broker: "Broker",
        user: User,
        vhost: str,
        now: float,
        *,
        rights: Rights | None = None,
        channel_max: int,
        frame_max_bytes: int,
        on_output: Callable[[], None],
        on_change: Callable[[], None] = _follow_nothing,
    ) -> None:
        super().__init__(broker, ClientEndpoint(address="", local=""), now=now, on_change=on_change)
        self._stop_timer()
        self._handshake = None
        self.user = user
        self.vhost = vhost
        self.rights = rights
        self.tune(channel_max=channel_max, frame_max_bytes=frame_max_bytes, heartbeat_s=0)
        self.state = ConnectionState.OPEN
        broker.direct_clients[self] = on_output

    @property
    @override
    def name(self) -> str:
        """The name that RabbitMQ gives such connections, by their process."""
        return f"<{self.id}>"

    def leave(self, now: float) -> None:
        """Release all that the client had, and forget the connection."""
        self.broker.now = now
        if self.state is ConnectionState.OPEN:
            self._release()
        self.state = ConnectionState.CLOSED
        self._let_go()
        self.vhost = ""  # it was never counted among its connections
        self.broker.forget(self)
