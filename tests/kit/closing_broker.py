"""A broker that stops while a client connects: it closes the connection with the same bytes with which it opens it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from node.amqp import methods as m
from node.amqp.frames import method_frame
from tests.kit.world import Client, World

TEXT = "CONNECTION_FORCED - shutdown"


@contextmanager
def closes_when_it_opens(world: World) -> Iterator[None]:
    """Have a broker send `connection.close` right behind each `connection.open-ok`, for as long as the block runs."""
    connect = world.connect
    close = method_frame(0, m.ConnectionClose(reply_code=320, reply_text=TEXT))

    with pytest.MonkeyPatch.context() as patch:

        def connect_and_close() -> Client:
            peer = connect()
            take = peer.take_raw

            def take_raw() -> bytes:
                raw = take()
                return raw + close if method_frame(0, m.ConnectionOpenOk()) in raw else raw

            patch.setattr(peer, "take_raw", take_raw)
            return peer

        patch.setattr(world, "connect", connect_and_close)
        yield
