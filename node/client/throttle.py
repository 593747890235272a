"""Why a publisher isn't read from for now: an alarm is on, or the disk doesn't keep up.

    an alarm is on ─► a content frame ─► blocked ─► the last alarm is cleared ─┐
    a publish ─► the storage is congested ─► in flow ◄─────────────────────────┘
                                               └► the broker lets it go on, in turn with the others

Nothing at all is read from a publisher that is held, so that whatever it sent is taken in order later. What it
consumes, and our heartbeats, go out to it all the time.

A publisher to a queue on another node, or with copies on others, waits for the way there too.
Source: amqp-behaviour §7.1, §7.2; architecture §2.3.
"""

from typing import TYPE_CHECKING, Final, Literal

from node.amqp.connection_state import ConnectionState
from node.amqp.methods import ConnectionBlocked, ConnectionUnblocked
from node.amqp.reader import FrameReader
from node.queue.intake import Targets
from node.queue.live_queue import Way

if TYPE_CHECKING:
    from node.client.connection import Connection

FLOW_SHOWN_S: Final = 5.0
"""How long flow is shown after it ended: it comes and goes too quickly to be seen otherwise."""

FlowState = Literal["running", "flow", "blocking", "blocked"]


class Throttle:
    """Holds and releases one open connection.

    is_blocked: by an alarm; the client was told, if it wants to know.
    """

    def __init__(self, connection: "Connection", reader: FrameReader) -> None:
        self._connection: Connection | None = connection
        """None once it closes."""
        self._broker = connection.broker
        self._reader = reader  # watches contents while an alarm is on
        self._flow_ended_s: float | None = None
        self._waits_for_peer = False
        self.is_blocked = False
        if self._broker.alarms.is_on:
            self.alarm_began()

    @property
    def holds(self) -> bool:
        """Whether nothing may be read now."""
        return self.is_blocked or self._waits_for_peer or self._connection in self._broker.in_flow

    @property
    def state(self) -> FlowState:
        """What management shows: blocking is a connection that would be blocked if it published."""
        if self._reader.watches_contents:
            return "blocked" if self.is_blocked else "blocking"
        ended_s = self._flow_ended_s
        if self._waits_for_peer or self._connection in self._broker.in_flow:
            return "flow"
        return "flow" if ended_s is not None and self._broker.now - ended_s < FLOW_SHOWN_S else "running"

    # --- alarms ---

    def alarm_began(self) -> None:
        """There is an alarm now: who publishes is blocked, and at once who has publishes left from before."""
        self._reader.watch_contents()
        if self._connection is not None and self._connection.has_unpublished:
            self.content_came()

    def content_came(self) -> None:
        """The client publishes while there is an alarm."""
        connection = self._connection
        if connection is None or connection.state is not ConnectionState.OPEN:
            return
        self.is_blocked = self._reader.paused = True
        connection.shrink()
        if connection.has_capability("connection.blocked"):
            connection.send_method(ConnectionBlocked(self._broker.alarms.reason))

    def alarm_ended(self) -> None:
        """There is no alarm any more. Those who were blocked queue up to go on."""
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
        """The disk has more to write than it should: nothing more from this client for now."""
        if self._connection is not None:
            self._reader.paused = True
            self._broker.in_flow[self._connection] = None

    def hold_for_peer(self, way: Way) -> None:
        """The way to a queue's node, or to its mirrors, has more on it than it should: nothing more from this client
        for now. Nothing if the connection is closing: what it has published spreads on.
        """
        if self._connection is None:
            return
        self._reader.paused = True
        if not self._waits_for_peer:
            self._waits_for_peer = True
            way.await_relief(self)

    def hold_for(self, targets: Targets) -> None:
        """The same for those of these queues that are congested."""
        for queue in targets.congested():
            self.hold_for_peer(queue)

    def peer_relieved(self) -> None:
        """The way is free again, or gone: go on, in turn with the others. Nothing if the connection is closing."""
        if self._waits_for_peer and self._connection is not None:
            self._waits_for_peer = False
            self._broker.in_flow[self._connection] = None
            self._broker.wake()

    def flow_ended(self) -> None:
        """The broker lets the connection go on."""
        self._flow_ended_s = self._broker.now
        if self._connection is not None:
            self._connection.read_on()

    # --- the end ---

    def release(self) -> None:
        """The connection closes: it is held no more, from now on, so that the client's answer is heard."""
        self.is_blocked = self._waits_for_peer = False
        if self._connection is not None:
            self._broker.in_flow.pop(self._connection, None)
            self._connection = None
