"""The client of the durability tests, as clients of a cluster are: it is told of cancelled consumers, and every
call has a limit, so that what hangs is seen.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from node.amqp import methods
from node.amqp.field_table import boolean, table
from tests.kit.load_client import Channel, Client, Delivery, Lost
from tests.kit.patience import patience

CALL_S: Final = 15.0
"""A declare or anything else that is answered may take this long. Else the run is *stuck*: docs/reliability.md,
"What is counted"."""


class Stuck(Lost):
    """No answer arrived within the limit."""


class ClusterChannel(Channel):
    """A channel whose consumers the node may cancel.   on_cancel: called with the tag of such a consumer."""

    def __init__(self, client: "ClusterClient", number: int) -> None:
        super().__init__(client, number)
        self.on_cancel: Callable[[str], None] = lambda tag: None

    async def ask(self, method: methods.Method, limit_s: float = CALL_S) -> Any:
        """Send a method and wait for its answer. Raises: Lost; Stuck."""
        limit_s *= patience()
        try:
            async with asyncio.timeout(limit_s):
                return await self.call(method)
        except TimeoutError:
            name = type(method).__name__
            raise Stuck(f"{name} had no answer within {limit_s:.0f} s: {method}") from None

    def _deliver_if_whole(self) -> None:
        if isinstance(self._method, methods.BasicGetOk) and self._missing_bytes == 0:
            # It is the answer to a call.
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_result(cast(Any, Delivery(self._method, self._header, b"".join(self._parts))))
        else:
            super()._deliver_if_whole()

    def _method_received(self, method: methods.Method) -> None:
        if isinstance(method, methods.BasicCancel):
            self.on_cancel(method.consumer_tag)
        else:
            super()._method_received(method)


class ClusterClient(Client):
    """A connection to one node.   node: the index of the node."""

    node: int = -1

    @classmethod
    async def connect(cls, host: str, port: int, limit_s: float = CALL_S) -> "ClusterClient":
        """Connect, log in as guest. Raises: Lost; Stuck."""
        limit_s *= patience()
        client: ClusterClient | None = None
        try:
            async with asyncio.timeout(limit_s):
                _, client = await asyncio.get_running_loop().create_connection(cls, host, port)
                client._opened.add_done_callback(lambda opened: opened.cancelled() or opened.exception())
                await asyncio.shield(client._opened)
        except TimeoutError:
            if client is not None:
                client.abort()
            raise Stuck(f"no connection to {host}:{port} within {limit_s:.0f} s") from None
        except OSError as error:
            raise Lost(str(error)) from error
        return client

    async def channel(self, number: int = 1) -> ClusterChannel:
        """Open a channel. Raises: Lost; Stuck."""
        if self.lost is not None:
            raise self.lost
        opened = ClusterChannel(self, number)
        self._channels[number] = opened
        await opened.ask(methods.ChannelOpen())
        return opened

    async def leave(self) -> None:
        """Close as a well-behaved client does, or end it if that takes too long."""
        try:
            async with asyncio.timeout(CALL_S * patience()):
                await self.close()
        except TimeoutError:
            raise Stuck("no close-ok") from None
        finally:
            self.abort()

    def _connection_method(self, method: methods.Method) -> None:
        if not isinstance(method, methods.ConnectionStart):
            super()._connection_method(method)
            return
        names = ("connection.blocked", "basic.nack", "consumer_cancel_notify", "publisher_confirms")
        capabilities = table({name: boolean(True) for name in names})
        self._channels[0].send(
            methods.ConnectionStartOk(
                client_properties={"capabilities": capabilities},
                mechanism="PLAIN",
                response=b"\0guest\0guest",
                locale="en_US",
            )
        )


def code_of(lost: Lost) -> int:
    """Return the reply code that the node gave; 0 if the connection ended without one."""
    start = str(lost)[:3]
    return int(start) if start.isdigit() else 0
