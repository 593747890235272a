"""A client core (`node.amqp_client`) whose broker is a `World`, without sockets.

wire = Wire(world)      wire.core.open_channel(1)      wire.settle() == [Answered(1, ChannelOpen(), ChannelOpenOk())]
"""

from typing import TypeVar

from node.amqp_client.connection import ClientConnection
from node.amqp_client.events import Event, Opened
from node.amqp_client.settings import ClientSettings
from tests.kit.world import World

E = TypeVar("E")


class Wire:
    """The bytes between a client core and the broker of a world.   step: the bytes of one read; None: all."""

    def __init__(
        self, world: World, settings: ClientSettings | None = None, *, step: int | None = None
    ) -> None:
        self.world = world
        self.step = step
        self.core = ClientConnection(settings or ClientSettings())
        self.peer = world.connect()

    def settle(self) -> list[Event]:
        """Carry bytes until none are left, and return what the client was told."""
        events: list[Event] = []
        while True:
            sent = b"".join(self.core.take_output())
            if sent:
                self.peer.feed(sent)
            received = self.peer.take_raw()
            step = self.step or len(received)
            for at in range(0, len(received), step or 1):
                self.core.receive_data(received[at : at + step], self.world.now)
            events += self.core.take_events()
            if self.peer.is_reset and not self.core.is_finished:
                self.core.lost("socket_closed_unexpectedly")
                events += self.core.take_events()
            if not sent and not received:
                if self.core.is_finished:
                    self.peer.lose()
                return events

    def only(self, kind: type[E]) -> E:
        """Settle, and return the one event that came, which is of this kind."""
        (event,) = self.settle()
        assert isinstance(event, kind), event
        return event


def open_wire(
    world: World, *channels: int, settings: ClientSettings | None = None, step: int | None = None
) -> Wire:
    """Return a client that is logged in, with these channels open (default: 1)."""
    wire = Wire(world, settings, step=step)
    wire.only(Opened)
    for channel in channels or (1,):
        wire.core.open_channel(channel)
    wire.settle()
    return wire
