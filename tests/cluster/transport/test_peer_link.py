"""When a link writes what is to be sent."""

import asyncio
from typing import cast

from cluster.transport.interface import Topic
from cluster.transport.link_stream import LinkStream
from cluster.transport.peer_link import _Outlet
from cluster.transport.stream import Receiver, Sender


class Stream:
    """A stream that keeps the frames of each write."""

    has_room = True
    is_ended = False

    def __init__(self) -> None:
        self.writes: list[list[bytes]] = []
        self._receiver = Receiver(1, 2)

    def on_room(self) -> None:
        """Stand for the callback that the outlet sets."""

    def send(self, message: bytes) -> None:
        self.writes.append([frame for _, frame in self._receiver.receive(message)])


def test_the_first_frame_of_a_turn_goes_at_once_and_the_others_together() -> None:
    async def main() -> list[list[bytes]]:
        stream, sender = Stream(), Sender(1, 2, 1 << 20)
        outlet = _Outlet(lambda count: None)
        outlet.begin(cast(LinkStream, stream), sender)
        for turn in (b"a", b"b"):
            for frame in (turn + b"1", turn + b"2", turn + b"3"):
                sender.push(Topic(1), frame)
                outlet.soon()
            assert stream.writes[-1] == [turn + b"1"]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return stream.writes

    assert asyncio.run(main()) == [[b"a1"], [b"a2", b"a3"], [b"b1"], [b"b2", b"b3"]]


def test_nothing_goes_where_there_is_no_room_until_there_is() -> None:
    async def main() -> list[list[bytes]]:
        stream, sender = Stream(), Sender(1, 2, 1 << 20)
        outlet = _Outlet(lambda count: None)
        outlet.begin(cast(LinkStream, stream), sender)
        stream.has_room = False
        for frame in (b"1", b"2"):
            sender.push(Topic(1), frame)
            outlet.soon()
        await asyncio.sleep(0)
        assert not stream.writes
        stream.has_room = True
        stream.on_room()
        return stream.writes

    assert asyncio.run(main()) == [[b"1", b"2"]]
