"""STOMP clients in a `World`: frames in, frames out, without sockets."""

from collections.abc import Mapping
from typing import Any

from node.client.endpoint import ClientEndpoint
from node.client.session import SessionConnection
from node.extension.setting import read_settings
from node.stomp.decoder import Decoder, Limits
from node.stomp.frame import Frame, encode
from node.stomp.plugin import PLUGIN, StompListener
from node.stomp.versions import V1_2
from tests.kit.world import World

LIMITS = Limits(1 << 20, 1000, 1 << 24)


class StompTestClient:
    """A client's socket.   written: what the node has sent and no test has read.   is_reset: the node has closed it."""

    def __init__(
        self,
        world: World,
        settings: Mapping[str, str] | None = None,
        peer: ClientEndpoint | None = None,
        version: str = V1_2,
    ) -> None:
        self.world = world
        self.version = version
        given = {f"stomp.{key}": value for key, value in (settings or {}).items()}
        listener = StompListener(read_settings(PLUGIN.settings_prefix, PLUGIN.all_settings, given))
        self.connection = SessionConnection(
            world.broker,
            peer or ClientEndpoint(),
            plugin=PLUGIN.name,
            listener=listener,
            now=world.now,
            on_change=lambda: None,
        )
        world.clients[self.connection] = self  # type: ignore[assignment]
        self.written = b""
        self.is_reset = False
        self._decoder = Decoder(LIMITS, version)

    # --- what the world calls ---

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

    # --- what tests call ---

    def send(self, command: str, body: bytes = b"", **headers: object) -> None:
        """Send a frame; `_` in the name of a header is a hyphen."""
        pairs = [(name.replace("_", "-"), str(value)) for name, value in headers.items()]
        self.feed(encode(command, pairs, body, self.version))

    def frames(self) -> list[Frame]:
        """Let the node work, and return the frames that it has sent."""
        self.world.settle()
        data, self.written = self.written, b""
        self._decoder.feed(data)
        return list(iter(self._decoder.next, None))

    def ask(self, command: str, body: bytes = b"", **headers: object) -> Frame:
        """Send a frame, and return the one that answers it."""
        self.send(command, body, **headers)
        (answer,) = self.frames()
        return answer

    def done(self, command: str, body: bytes = b"", **headers: object) -> None:
        """Send a frame with a receipt, and expect that alone."""
        answer = self.ask(command, body, receipt="r", **headers)
        assert (answer.head.command, answer.head.headers) == ("RECEIPT", {"receipt-id": "r"}), answer

    def connect(self, **headers: object) -> Frame:
        """Log in as guest."""
        headers = {"accept_version": self.version, "login": "guest", "passcode": "guest", **headers}
        return self.ask("CONNECT", **headers)


def connected(world: World | None = None, version: str = V1_2, **settings: Any) -> StompTestClient:
    """Return a client that is logged in."""
    given = {name.replace("__", "."): str(value) for name, value in settings.items()}
    client = StompTestClient(world or World(), given, version=version)
    assert client.connect().head.command == "CONNECTED"
    return client


def error(frame: Frame) -> tuple[str, str]:
    """Return the two texts of an ERROR frame."""
    assert frame.head.command == "ERROR", frame
    return frame.head.headers["message"], frame.body.decode()
