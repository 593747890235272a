"""Links between simulated nodes: what `cluster.transport` promises, with the product's data streams in them.

    control   messages in order while a session lasts; what is on its way when it ends is lost
    data      `Sender` and `Receiver` of `cluster.transport.stream`, session after session

A way between two nodes may be cut in one direction. What is sent on it waits, as in a socket, until the cut ends or
the session does: a session ends when pings went unanswered for some time, or with a process. Who refuses a connection
afterwards is gone. The times are those of `cluster.transport.interface.LinkOptions`; `PeerLink` and `Transport`, which
need sockets, are what this module stands for.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.transport.interface import LinkOptions, Topic
from cluster.transport.stream import Receiver, Sender

if TYPE_CHECKING:
    from tests.sim.world import World
    from tests.sim.world_node import WorldNode

LINKS: Final = LinkOptions()
WINDOW_BYTES: Final = 64 * 1024
"""So much may be on its way on one data stream."""

CONTROL, DATA, ACKS = range(3)


class Way:
    """One direction of a session: what was sent arrives in order, later."""

    def __init__(self, links: "Links", sender: str, receiver: str, arrive: Callable[[Any], None]) -> None:
        self._links = links
        self.sender, self.receiver = sender, receiver
        self._arrive = arrive
        self._items: deque[Any] = deque()
        self._is_coming = False
        self.is_over = False

    def send(self, item: Any) -> None:
        """Have it arrive."""
        if not self.is_over:
            self._items.append(item)
            self.go_on()

    def go_on(self) -> None:
        """Carry what waits, unless the way is cut."""
        links = self._links
        if not self._is_coming and self._items and (self.sender, self.receiver) not in links.cut:
            self._is_coming = True
            links.world.after(links.latency(self.sender, self.receiver), self._carry)

    def _carry(self) -> None:
        self._is_coming = False
        links = self._links
        node = links.world.nodes[self.receiver]
        if self.is_over or not node.is_alive or (self.sender, self.receiver) in links.cut:
            return  # whoever ends the cut comes back to it
        if node.frozen_until > links.world.now:
            self._is_coming = True
            links.world.at(node.frozen_until, self._carry)
            return
        for _ in range(len(self._items)):
            if self.is_over:
                return
            self._arrive(self._items.popleft())
        self.go_on()


class ControlSession:
    """Two ways between two processes.   up: the sides that believe in it."""

    def __init__(self, links: "Links", one: str, other: str) -> None:
        self.up = {one, other}
        self.ways = {
            sender: Way(links, sender, receiver, self._arrival(links, sender, receiver))
            for sender, receiver in ((one, other), (other, one))
        }

    def _arrival(self, links: "Links", sender: str, receiver: str) -> Callable[[Any], None]:
        def arrive(item: tuple[Topic, bytes]) -> None:
            if receiver in self.up:
                links.world.nodes[receiver].control(sender, *item)

        return arrive


class DataSession:
    """A session of the data stream from one incarnation to another."""

    def __init__(self, links: "Links", name: str, peer: str, sender: Sender, receiver: Receiver) -> None:
        self._links = links
        self.name, self.peer = name, peer
        self.sender, self.receiver = sender, receiver
        self._in_flight = 0
        self._is_ready = False
        self._is_acknowledging = False
        self.ways = Way(links, name, peer, self._arrived), Way(links, peer, name, self._acknowledged)
        self.ways[0].send(sender.opening())

    @property
    def is_over(self) -> bool:
        return self.ways[0].is_over

    def end(self) -> None:
        """Break the link; what is on its way is lost."""
        for way in self.ways:
            way.is_over = True

    def pump(self) -> None:
        """Send what waits and has room."""
        while self._is_ready and self._in_flight < WINDOW_BYTES:
            batch = self.sender.next_batch()
            if not batch:
                return
            self._in_flight += len(batch)
            self.ways[0].send(batch)

    def _arrived(self, message: bytes) -> None:
        if not self._is_ready:
            assert self.receiver.opens(message)
            self.ways[1].send(self.receiver.acknowledgement())
            return
        self._in_flight -= len(message)
        frames = self.receiver.receive(message)
        if not self._is_acknowledging:
            self._is_acknowledging = True
            self._links.world.after(LINKS.ack_after_s, self._acknowledge)
        if frames:
            self._links.world.nodes[self.peer].data(self.name, frames)
        self.pump()

    def _acknowledge(self) -> None:
        self._is_acknowledging = False
        self.ways[1].send(self.receiver.acknowledgement())

    def _acknowledged(self, message: bytes) -> None:
        if not self._is_ready:
            self.sender.resume(message)
            self._is_ready = True
        else:
            self.sender.acknowledge(message)
        if self.sender.take_relieved():
            self._links.world.nodes[self.name].relieved(self.peer)
        self.pump()


class Links:
    """All of them.

    cut: ways that carry nothing now.   slow: seconds that a message takes at most, where it is more than usual.
    """

    def __init__(self, world: "World") -> None:
        self.world = world
        self.cut: set[tuple[str, str]] = set()
        self.slow: dict[tuple[str, str], float] = {}
        self.latency_s = 0.002
        self._control: dict[frozenset[str], ControlSession] = {}
        self._stale: dict[tuple[str, str], ControlSession] = {}
        """By node and peer: sessions with a process that is dead, of which the node does not know it yet."""
        self._data: dict[tuple[str, str], DataSession] = {}
        self._cut_number: dict[tuple[str, str], int] = {}

    def latency(self, sender: str, receiver: str) -> float:
        """Return the latency of one message, in seconds."""
        return self.world.random.uniform(0.0001, self.slow.get((sender, receiver), self.latency_s))

    def can_talk(self, one: str, other: str) -> bool:
        """Whether both nodes run, answer and reach each other."""
        nodes = self.world.nodes
        return (
            all(nodes[name].is_alive and nodes[name].frozen_until <= self.world.now for name in (one, other))
            and (one, other) not in self.cut
            and (other, one) not in self.cut
        )

    # --- what a node asks for ---

    def send_control(self, sender: str, receiver: str, topic: Topic, message: bytes) -> bool:
        """Send on the control session and return True, if the sender has one."""
        session = self._control.get(frozenset((sender, receiver)))
        if session is None or sender not in session.up:
            return False
        session.ways[sender].send((topic, message))
        return True

    def pump(self, name: str, peer: str) -> None:
        """A frame was pushed."""
        session = self._data.get((name, peer))
        if session is not None:
            session.pump()

    def data_opened(self, name: str, peer: str) -> None:
        """A node has opened its end of the data streams to another."""
        self._connect_data(name, peer)

    def data_closed(self, name: str, peer: str) -> None:
        """A node has dropped its end of the data streams to another."""
        for pair in ((name, peer), (peer, name)):
            session = self._data.pop(pair, None)
            if session is not None:
                session.end()

    def _connect_data(self, one: str, other: str) -> None:
        """Have sessions of the data streams between two nodes where both ends are there."""
        for name, peer in ((one, other), (other, one)):
            self._connect_stream(name, peer)

    def _connect_stream(self, name: str, peer: str) -> None:
        sender, receiver = (
            self.world.nodes[name].senders.get(peer),
            self.world.nodes[peer].receivers.get(name),
        )
        former = self._data.get((name, peer))
        if sender is None or receiver is None or not self.can_talk(name, peer):
            return
        if (former is not None and not former.is_over) or not receiver.opens(sender.opening()):
            return
        self._data[name, peer] = DataSession(self, name, peer, sender, receiver)

    # --- processes ---

    def started(self, node: "WorldNode") -> None:
        """A process runs: links to it come up."""
        for other in self.world.names:
            if other != node.name:
                self._connect_soon(node.name, other)

    def ended(self, name: str, *, is_machine: bool) -> None:
        """A process is dead.   is_machine: so is its host, which refuses nothing."""
        world = self.world
        for other in world.names:
            stale = self._stale.pop((name, other), None)
            if stale is not None:
                stale.up.discard(name)  # what is on its way there must not come to the next process
        for other in world.names:
            if other == name:
                continue
            for pair in ((name, other), (other, name)):
                data = self._data.pop(pair, None)
                if data is not None:
                    data.end()
            session = self._control.pop(frozenset((name, other)), None)
            if session is None:
                continue
            session.up.discard(name)
            if other not in session.up:
                continue
            node: WorldNode = world.nodes[other]
            self._stale[other, name] = session
            is_silent = is_machine or (name, other) in self.cut
            delay = (
                self._silence_s() if is_silent else LINKS.probe_after_s + world.random.uniform(0.001, 0.02)
            )
            node.later(delay, lambda n=node, s=session, q=is_silent: self._lost(n, name, s, is_silent=q))  # type: ignore[misc]

    def _silence_s(self) -> float:
        """Return how long it takes until pings without an answer end a control session."""
        return LINKS.ping_timeout_s + self.world.random.uniform(0, LINKS.keepalive_s)

    def _lost(self, node: "WorldNode", name: str, session: ControlSession, *, is_silent: bool) -> None:
        """A node has found out that a session is over."""
        if node.name not in session.up:
            return
        session.up.discard(node.name)
        self._stale.pop((node.name, name), None)
        peer = self.world.nodes[name]
        is_reached = (name, node.name) not in self.cut and (node.name, name) not in self.cut
        node.link_down(name, is_gone=not is_silent and is_reached and not peer.is_alive)
        self._connect_soon(node.name, name)

    def _connect_soon(self, one: str, other: str) -> None:
        delay = self.world.random.uniform(LINKS.reconnect_min_s, LINKS.reconnect_max_s)
        self.world.after(delay, lambda: self._connect(one, other))

    def _connect(self, one: str, other: str) -> None:
        if not self.can_talk(one, other):
            until = max(self.world.nodes[name].frozen_until for name in (one, other))
            if until > self.world.now:
                self.world.at(until, lambda: self._connect_soon(one, other))
            return  # a start, or the end of a cut, comes back to it
        nodes = self.world.nodes[one], self.world.nodes[other]
        pair = frozenset((one, other))
        former = self._control.get(pair)
        if former is not None:
            if former.up:
                if len(former.up) == 1:
                    (name,) = former.up  # it hears by the new handshake that the old session is over
                    (peer,) = pair - former.up
                    self._lost(self.world.nodes[name], peer, former, is_silent=True)
                self._connect_data(one, other)
                return
            del self._control[pair]
        if any(a.refusal(b.hello) is not None for a, b in (nodes, nodes[::-1])):
            self.world.after(LINKS.refused_retry_s, lambda: self._connect(one, other))
            return
        for name, peer in ((one, other), (other, one)):
            stale = self._stale.get((name, peer))
            if stale is not None:
                self._lost(self.world.nodes[name], peer, stale, is_silent=True)
        self._control[pair] = ControlSession(self, one, other)
        for node, peer in (nodes, nodes[::-1]):
            node.link_up(peer.name, peer.incarnation)
        self._connect_data(one, other)

    # --- faults ---

    def set_cut(self, ways: Sequence[tuple[str, str]], *, is_cut: bool) -> None:
        """Cut ways, or let them carry again."""
        for way in ways:
            if is_cut == (way in self.cut):
                continue
            self._cut_number[way] = number = self._cut_number.get(way, 0) + 1
            if is_cut:
                self.cut.add(way)
                self._fall_silent(way, number)
            else:
                self.cut.discard(way)
                self._go_on(way)

    def _fall_silent(self, way: tuple[str, str], number: int) -> None:
        """Neither side hears answers to its pings any more."""
        world, pair = self.world, frozenset(way)
        session = self._control.get(pair)
        for name in way if session is not None else ():
            (peer,) = pair - {name}
            node: WorldNode = world.nodes[name]
            node.later(self._silence_s(), lambda n=node, p=peer: self._silent(n, p, session, way, number))  # type: ignore[misc]
        for ends in (way, way[::-1]):
            data = self._data.get(ends)
            delay = LINKS.data_keepalive_s * world.random.random() + LINKS.ping_timeout_s
            if data is not None:
                world.after(delay, lambda d=data, e=ends: self._data_silent(d, e, way, number))  # type: ignore[misc]

    def _is_still_cut(self, way: tuple[str, str], number: int) -> bool:
        return way in self.cut and self._cut_number[way] == number

    def _silent(
        self, node: "WorldNode", peer: str, session: ControlSession | None, way: tuple[str, str], number: int
    ) -> None:
        if session is not None and self._is_still_cut(way, number):
            self._lost(node, peer, session, is_silent=True)

    def _data_silent(
        self, session: DataSession, ends: tuple[str, str], way: tuple[str, str], number: int
    ) -> None:
        if self._is_still_cut(way, number):
            session.end()
            if self._data.get(ends) is session:
                del self._data[ends]

    def _go_on(self, way: tuple[str, str]) -> None:
        pair = frozenset(way)
        control = self._control.get(pair)
        if control is not None:
            for each in control.ways.values():
                each.go_on()
        for ends in (way, way[::-1]):
            data = self._data.get(ends)
            if data is not None:
                for each in data.ways:
                    each.go_on()
        self._connect_soon(*way)

    def froze(self, node: "WorldNode") -> None:
        """A process does nothing: who waits for its answers gives up by and by."""
        world, until = self.world, node.frozen_until
        for other in world.names:
            session = self._control.get(frozenset((node.name, other)))
            if other == node.name or session is None:
                continue
            silence_s = self._silence_s()
            if world.now + silence_s < until:
                peer: WorldNode = world.nodes[other]
                peer.later(silence_s, lambda p=peer, s=session: self._lost(p, node.name, s, is_silent=True))  # type: ignore[misc]
                world.at(until + 0.001, lambda s=session, o=other: self._thawed(node, o, s))  # type: ignore[misc]

    def _thawed(self, node: "WorldNode", other: str, session: ControlSession) -> None:
        """Have a thawed node read that the other side has reset the session."""
        is_current = self._control.get(frozenset((node.name, other))) is session
        if is_current and node.is_alive and node.frozen_until <= self.world.now and other not in session.up:
            self._lost(node, other, session, is_silent=True)

    @property
    def frames_under_way(self) -> bool:
        """Whether some data stream has something that was not acknowledged."""
        return any(
            sender.unacknowledged_bytes
            for node in self.world.nodes.values()
            if node.is_alive
            for sender in node.senders.values()
        )
