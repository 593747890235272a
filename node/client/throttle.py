"""The reasons why a publisher isn't read from for now: an alarm is on, or the disk doesn't keep up.

    an alarm is on ─► a content frame ─► blocked ─► the last alarm is cleared ─┐
    a publish ─► the storage is congested ─► in flow ◄─────────────────────────┘
                                               └► the broker reads from it again, in turn with the others

Nothing at all is read from a publisher that is held, so that its methods are taken in order later. Deliveries and
heartbeats are still sent to it.

A publisher to a queue on another node, or with copies on others, waits for the way there too.
Source: amqp-behaviour §7.1, §7.2; docs/internals/message.md, "Bounds".
"""

from typing import TYPE_CHECKING, Final, Literal

from node.amqp.connection_state import ConnectionState
from node.amqp.methods import ConnectionBlocked, ConnectionUnblocked
from node.amqp.reader import FrameReader
from node.queue.intake import Targets
from node.queue.live_queue import Way

if TYPE_CHECKING:
    from node.client.base_connection import BaseConnection

FLOW_SHOWN_S: Final = 5.0
"""For how many seconds flow is shown after it ended: it comes and goes too quickly to be seen otherwise."""

FlowState = Literal["running", "flow", "blocking", "blocked"]


class Throttle:
    """Holds and releases one open connection.

    is_blocked: by an alarm; the client was told, if it wants to know.
    """

    def __init__(self, connection: "BaseConnection", reader: FrameReader) -> None:
        self._connection: BaseConnection | None = connection
        """None once it closes."""
        self._broker = connection.broker
        self._reader = reader  # watches contents while an alarm is on
        self._flow_ended_s: float | None = None
        self._waits_for_peer = False
        self.is_blocked = False

    @property
    def holds(self) -> bool:
        """True if nothing may be read now."""
        return self.is_blocked or self._waits_for_peer or self._connection in self._broker.in_flow

    @property
    def state(self) -> FlowState:
        """The state that management shows; blocking is a connection that would be blocked if it published."""
        if self._reader.watches_contents:
            return "blocked" if self.is_blocked else "blocking"
        ended_s = self._flow_ended_s
        if self._waits_for_peer or self._connection in self._broker.in_flow:
            return "flow"
        return "flow" if ended_s is not None and self._broker.now - ended_s < FLOW_SHOWN_S else "running"

    # --- alarms ---

    def alarm_began(self) -> None:
        """Watch for publishes, as an alarm is on. Block at once if publishes are left from before."""
        self._reader.watch_contents()
        if self._connection is not None and self._connection.has_unpublished:
            self.content_came()

    def content_came(self) -> None:
        """Block the client, which publishes during an alarm."""
        connection = self._connection
        if connection is None or connection.state is not ConnectionState.OPEN:
            return
        self.is_blocked = self._reader.paused = True
        connection.shrink()
        if connection.has_capability("connection.blocked"):
            connection.send_method(ConnectionBlocked(self._broker.alarms.reason))

    def alarm_ended(self) -> None:
        """Unblock the client, as no alarm is left. It is read from again in turn with the others."""
        self._reader.watches_contents = False
        connection = self._connection
        if connection is None or not self.is_blocked:
            return
        self.is_blocked = False
        self._broker.in_flow[connection] = None
        if connection.has_capability("connection.blocked"):
            connection.send_method(ConnectionUnblocked())

    # --- flow ---

    def hold(self) -> None:
        """Read nothing from this client for now, as too much waits for the disk."""
        if self._connection is not None:
            self._reader.paused = True
            self._broker.in_flow[self._connection] = None

    def hold_for_peer(self, way: Way) -> None:
        """Read nothing from this client for now, as too much is on its way to a queue's node or mirrors. Does nothing
        if the connection is closing: its publishes are still spread.
        """
        if self._connection is None:
            return
        self._reader.paused = True
        if not self._waits_for_peer:
            self._waits_for_peer = True
            way.await_relief(self)

    def hold_for(self, targets: Targets) -> None:
        """Read nothing from this client for now if any of these queues is congested."""
        for queue in targets.congested():
            self.hold_for_peer(queue)

    def peer_relieved(self) -> None:
        """Have the client read from again, in turn with the others: the way is free again, or gone. Does nothing if
        the connection is closing.
        """
        if self._waits_for_peer and self._connection is not None:
            self._waits_for_peer = False
            self._broker.in_flow[self._connection] = None
            self._broker.wake()

    def flow_ended(self) -> None:
        """Read from the client again, as the broker allows it."""
        self._flow_ended_s = self._broker.now
        if self._connection is not None:
            self._connection.read_on()

    # --- the end ---

    def release(self) -> None:
        """Hold no more, as the connection closes, so that the client's answer is read."""
        self.is_blocked = self._waits_for_peer = False
        if self._connection is not None:
            self._broker.in_flow.pop(self._connection, None)
            self._connection = None
