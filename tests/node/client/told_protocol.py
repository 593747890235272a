"""A protocol whose connections do what a test tells them, and note what they are told."""

from collections.abc import Callable, Sequence

from node.client.endpoint import ClientEndpoint
from node.client.session import SessionConnection
from node.extension.protocol import Delivery, ProtocolConnection, ProtocolListener, Refusal, Session
from tests.kit.world import World

REMOTE = ClientEndpoint(address="192.0.2.7:4321", is_loopback=False)


class Told(ProtocolConnection):
    """A connection.   log: what it was told, in its order.   on_read: what it does with bytes."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.log: list[object] = []
        self.deliveries: list[Delivery] = []
        self.on_read: Callable[[bytes], None] = lambda data: None
        self.dead_tags: Sequence[int] = ()
        self.flushes = 0

    def received(self, data: bytes) -> None:
        self.log.append(data)
        self.on_read(data)

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        self.log.append([each.body for each in deliveries])
        self.deliveries += deliveries

    def cancelled(self, consumer: str) -> None:
        self.log.append(f"cancelled {consumer}")

    def flush(self) -> None:
        self.flushes += 1

    def leaving(self) -> Sequence[int]:
        return self.dead_tags

    def replaced(self) -> None:
        self.log.append("replaced")
        self.session.write(b"replaced")

    def ended(self, reason: Refusal) -> None:
        self.log.append(reason)
        self.session.write(b"bye")

    def lost(self) -> None:
        self.log.append("lost")

    # What tests pass as callbacks.

    def done(self, refusal: Refusal | None) -> None:
        self.log.append(refusal or "done")

    def confirmed(self, is_safe: bool) -> None:
        self.log.append("confirmed" if is_safe else "refused")

    def told(self) -> list[object]:
        """Return the log since the last call."""
        log, self.log = self.log, []
        return log


class ToldListener(ProtocolListener):
    """Makes one `Told` for each client."""

    name = "told"
    protocol = "TOLD 1"
    default_port = 7777

    def __init__(self) -> None:
        super().__init__({})
        self.made: list[Told] = []

    def connection(self, session: Session) -> ProtocolConnection:
        self.made.append(Told(session))
        return self.made[-1]


class ToldClient:
    """The socket of a client in a `World`, and the plug-in's connection behind it.   written: bytes for the client."""

    def __init__(self, world: World, peer: ClientEndpoint | None = None) -> None:
        self.world = world
        listener = ToldListener()
        self.connection = SessionConnection(
            world.broker,
            peer or ClientEndpoint(),
            plugin="told",
            listener=listener,
            now=world.now,
            on_change=lambda: None,
        )
        world.clients[self.connection] = self  # type: ignore[assignment]
        self.plugged = listener.made[0]
        self.session = self.plugged.session
        self.written = b""
        self.is_reset = False

    @classmethod
    def opened(cls, world: World) -> "ToldClient":
        """Return a client that is logged in to `/`."""
        client = cls(world)
        client.session.log_in("guest", b"guest", client.plugged.done)
        client.session.open("/", client.plugged.done)
        assert client.told() == ["done", "done"]
        return client

    def feed(self, data: bytes) -> None:
        """Send bytes."""
        if not self.is_reset:
            self.connection.receive_data(data, self.world.now)

    def flush(self) -> None:
        """Flush the connection as the shell does after a turn."""
        self.written += b"".join(self.connection.take_output())
        if self.connection.is_finished:
            self.lose()
        elif self.connection.is_writable:
            self.connection.flushed()

    def lose(self) -> None:
        """Close the socket."""
        if not self.is_reset:
            self.is_reset = True
            del self.world.clients[self.connection]
            self.connection.lost(self.world.now)

    def told(self) -> list[object]:
        """Return what the plug-in was told since the last call."""
        self.world.settle()
        return self.plugged.told()
