"""The connection of a federation link to its own node, where it publishes: a client without a socket.

It has the node's rights in one vhost, and is held back as any publisher is: by alarms, by the disk and by mirrors that
don't keep up.
Source: RabbitMQ 3.10.8, `amqp_params_direct` without a user.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from node.amqp_client.events import Event
from node.amqp_client.settings import client_properties, settings_of
from node.amqp_client.uri import AmqpUri
from node.io.amqp_client import AmqpClient
from node.io.local_dial import dial_local
from node.override import override

if TYPE_CHECKING:
    from node.broker.broker import Broker

FRAME_MAX_BYTES: Final = 0x7FFFFFFF
"""The largest frame: contents are published in the frames in which they came from upstream."""


class LocalLinkClient(AmqpClient):
    """One such connection.   name: as its client properties tell it.

    on_flow: called with False when the owner must stop publishing, with True when it may go on.
    """

    def __init__(
        self,
        broker: "Broker",
        vhost: str,
        name: str,
        *,
        loop: asyncio.AbstractEventLoop,
        on_events: Callable[[Sequence[Event]], None],
        on_flow: Callable[[bool], None],
    ) -> None:
        uri = AmqpUri("amqp://", vhost=vhost, frame_max_bytes=FRAME_MAX_BYTES)
        super().__init__(
            uri,
            settings_of(uri, client_properties(name)),
            loop=loop,
            on_events=on_events,
            on_writable=partial(on_flow, True),
            dial=lambda client: dial_local(broker, client, loop),
        )
        self._on_flow = on_flow

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        if not self._is_over:  # what is flushed after `close` may be held back, too
            self._on_flow(False)

    @override
    def close(self) -> None:
        """Close without the protocol: no event follows. What was published in this turn is with the broker first.

        Else a message would be lost that was acknowledged upstream when it was published here.
        """
        if not self._is_flush_due:
            self.abort()
            return
        self._is_over = True
        self._stop()
        self._loop.call_soon(self.abort)  # after the flush, which was called earlier
