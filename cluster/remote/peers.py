"""The other nodes of the cluster, as one broker deals with them: the `Peers` of `node.queue.live_queue`.

    channels ─► RemoteQueue ─► HomeLink ─ frames ─► FrontEnd ─► Proxy ─► Queue of the other broker
                                  ▲                              │
                                  └──────── frames ──────────────┘

Between two nodes each is a front end for the other's queues. Frames come in order and exactly once between two
incarnations; when one of them ends, everything between them does.

Source: amqp-behaviour §9.1; docs/internals/remote-queues.md.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from cluster.errors import Malformed
from cluster.remote.front_end import FrontEnd
from cluster.remote.home_link import HomeLink
from cluster.remote.masterless_queue import MasterlessQueue
from cluster.remote.outgoing_frames import Outbox
from cluster.remote.remote_pb2 import Frame
from cluster.remote.remote_queue import RemoteQueue
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.live_queue import Asked, at_once
from node.queue.run import Envelope, Run

if TYPE_CHECKING:
    from node.broker.broker import Broker
    from node.queue.queue import Queue


class Peers:
    """All other nodes.

    send: hands a frame for a node to the transport.   is_congested: whether too much is on its way to a node.
    on_fault: called with a node and text when that node sent a malformed frame. Nothing more is taken from it until
    it is down: its data stream is to be dropped, and the node to be declared down.
    """

    def __init__(
        self,
        broker: "Broker",
        send: Callable[[str, bytes], None],
        is_congested: Callable[[str], bool],
        on_fault: Callable[[str, str], None] = lambda node, text: None,
    ) -> None:
        self._broker = broker
        self._send = send
        self._way_is_congested = is_congested
        self._on_fault = on_fault
        self._nodes: dict[str, _Node] = {}
        self._has_moved = False  # so that channels count what is awaited no more
        self._is_closed = False
        self.is_entered = True
        """True if this node counts as up: until then no frames go to the others, and dead letters wait."""

    @property
    def is_congested(self) -> bool:
        """True if dead letters should wait: a node or window is full, or this node is not up yet, or stops."""
        return (
            self._is_closed
            or not self.is_entered
            or any(node.link.congested or node.link.is_congested for node in self._nodes.values())
        )

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do."""
        return self._has_moved or any(node.has_work for node in self._nodes.values())

    @property
    def is_idle(self) -> bool:
        """True if nothing is kept for other nodes: no consumer, no request, no proxy."""
        return all(node.link.is_idle and node.front_end.is_idle for node in self._nodes.values())

    def open(self, record: QueueRecord, settings: QueueSettings) -> RemoteQueue | MasterlessQueue:
        """Open the near end of a queue on another node; a mirrored queue without a ready master is a
        `MasterlessQueue`.
        """
        view = record.view
        if view is not None and (view.state != "live" or view.master_node == self._broker.settings.node_name):
            return MasterlessQueue(record, settings, self._broker)
        queue = self._node(record.home).link.open(record, settings)
        if self._is_closed:
            queue.lose()
        return queue

    def node_up(self, name: str) -> None:
        """Prepare the state of a node that has started."""
        self._node(name)

    def node_down(self, name: str) -> None:
        """End all queues, requests and consumers of a node that is gone."""
        node = self._nodes.pop(name, None)
        if node is not None:
            node.link.lose()
            node.front_end.lose()

    def reply(self, node: str, name: str, envelope: Envelope, content: bytes) -> None:
        """Send a direct reply to a requester on another node; it is dropped where the stream there is congested."""
        if not self._is_closed:
            self._node(node).link.reply(name, envelope, content)

    def has_requester(self, node: str, name: str) -> Asked[bool]:
        """Ask a node for a requester of direct replies. If the node goes down meanwhile there is none."""
        return at_once(False) if self._is_closed else self._node(node).link.has_requester(name)

    def relieved(self, name: str) -> None:
        """Send again to a node whose data stream is not congested any more."""
        node = self._nodes.get(name)
        if node is not None:
            node.link.relieved()
            node.front_end.relieved()
            self._broker.wake()

    def receive(self, name: str, frames: Sequence[bytes]) -> None:
        """Take a node's frames; a turn has to follow. `Broker.now` must be up to date."""
        member = self._broker.catalogue.member(name)
        if member is None or not member.is_up or self._is_closed:
            return
        node = self._node(name)
        for raw in frames:
            if node.is_faulty:
                return
            try:
                node.receive(Frame.FromString(raw))
            except (DecodeError, Malformed) as error:
                self._fault(name, node, str(error))

    def unsettled(self, queue: "Queue", *, take: bool) -> list[Run]:
        """Return the runs of a queue that all other nodes hold.   take: they belong to its successor from now on."""
        if take:
            self._moved()
        return [run for node in self._nodes.values() for run in node.front_end.unsettled(queue, take=take)]

    def turn(self, now: float) -> None:
        """End a turn: send what has gathered for each node."""
        if self._has_moved:
            self._has_moved = False
            for channel in self._broker.channels:
                channel.disown()
        for name, node in list(self._nodes.items()):
            try:
                node.turn()
            except Malformed as error:
                self._fault(name, node, str(error))

    def close(self) -> None:
        """Stop: end all links, and take back the messages that other nodes hold."""
        self._is_closed = True
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            node.link.lose()
            node.front_end.lose(is_stopping=True)

    def _fault(self, name: str, node: "_Node", text: str) -> None:
        node.is_faulty = True
        self._on_fault(name, text)

    def _node(self, name: str) -> "_Node":
        node = self._nodes.get(name)
        if node is None:
            is_congested = partial(self._way_is_congested, name)
            outbox = Outbox(partial(self._send, name), self._wake)
            link = HomeLink(name, self._broker, outbox, is_congested, self._moved)
            front_end = FrontEnd(name, self._broker, outbox, is_congested)
            node = self._nodes[name] = _Node(link, front_end, outbox)
        return node

    def _wake(self) -> None:
        self._broker.wake()

    def _moved(self) -> None:
        self._has_moved = True
        self._broker.wake()


class _Node:
    """One other node, as a home and as a front end."""

    def __init__(self, link: HomeLink, front_end: FrontEnd, outbox: Outbox) -> None:
        self.link = link
        self.front_end = front_end
        self.outbox = outbox
        self.is_faulty = False

    @property
    def has_work(self) -> bool:
        return bool(self.outbox or self.link.has_work or self.front_end.has_work)

    def receive(self, frame: Frame) -> None:
        if frame.is_for_front_end:
            self.link.receive(frame)
        else:
            self.front_end.receive(frame)

    def turn(self) -> None:
        self.link.turn()
        self.front_end.turn()
        if self.outbox:
            self.outbox.flush()
