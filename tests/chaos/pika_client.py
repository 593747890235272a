"""pika on the loop of the workload: a client that is not ours says what the nodes told."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel

from tests.kit.cluster_client import Stuck
from tests.kit.load_client import Lost
from tests.kit.patience import patience

CONNECT_S: Final = 15.0
CALL_S: Final = 75.0
"""An answer may take this long: questions wait up to 60 s for a queue that has no master."""
WRITTEN_MAX_BYTES: Final = 4 * 1024 * 1024

# It tells of each connection that ends, with a stack; the workload says which should not have.
logging.getLogger("pika").setLevel(logging.CRITICAL)


def _text(reason: BaseException) -> str:
    """As `code_of` reads it: the reply code first, if there is one."""
    code = getattr(reason, "reply_code", 0)
    return f"{code} {getattr(reason, 'reply_text', '')}" if code > 0 else f"{type(reason).__name__} {reason}"


class PikaClient:
    """A connection to one node.   node: its index.   lost: why it ended, once it has."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.lost: Lost | None = None
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closed = asyncio.Event()
        self._connection: Any = None
        self._channels: list[PikaChannel] = []

    @classmethod
    async def connect(cls, host: str, port: int, node: int) -> "PikaClient":
        """Connect as guest. Raises: Lost; Stuck."""
        client = cls(node)
        parameters = pika.ConnectionParameters(host, port, heartbeat=0, socket_timeout=5, stack_timeout=30)
        client._connection = AsyncioConnection(
            parameters,
            on_open_callback=lambda connection: client._settle(None),
            on_open_error_callback=lambda connection, error: client._settle(Lost(f"not opened: {error!r}")),
            on_close_callback=lambda connection, reason: client._ended(Lost(_text(reason))),
            custom_ioloop=client._loop,
        )
        limit_s = CONNECT_S * patience()
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.shield(client._opened)
        except TimeoutError:
            client._opened.cancel()
            client.abort()
            raise Stuck(f"no connection to n{node + 1} within {limit_s:.0f} s") from None
        return client

    def _settle(self, lost: Lost | None) -> None:
        if self._opened.done():
            return
        if lost is None:
            self._opened.set_result(None)
        else:
            self.lost = lost
            self._closed.set()
            self._opened.set_exception(lost)

    def _ended(self, lost: Lost) -> None:
        self.lost = self.lost or lost
        for channel in self._channels:
            channel.ended(self.lost)
        self._closed.set()

    async def channel(self) -> "PikaChannel":
        """Open a channel. Raises: Lost; Stuck."""
        channel = PikaChannel(self)
        self._channels.append(channel)
        await channel.call("channel.open", lambda done: channel.open(self._connection, done))
        return channel

    @property
    def written_bytes(self) -> int:
        """Return how many bytes the node has not read yet."""
        transport = self._connection._transport
        return 0 if transport is None else int(transport.get_write_buffer_size())

    async def leave(self) -> None:
        """Close as a well-behaved client does. Raises: Stuck, after it was ended the other way."""
        if self.lost is not None or not self._connection.is_open:
            self.abort()
            return
        self._connection.close()
        try:
            async with asyncio.timeout(CONNECT_S * patience()):
                await self._closed.wait()
        except TimeoutError:
            raise Stuck(f"n{self.node + 1} gave no close-ok") from None
        finally:
            self.abort()

    def abort(self) -> None:
        """Just end it."""
        if not self._closed.is_set() and not self._connection.is_closed:
            # pika has no public way; `close` waits for an answer.
            self._connection._terminate_stream(pika.exceptions.StreamLostError("given up"))


class PikaChannel:
    """One channel. Its callbacks are to be set before what may cause them.

    on_delivery, on_return: (method, properties, body).   on_confirm: (tag, multiple, is_ack).   on_cancel: (tag).
    """

    def __init__(self, client: PikaClient) -> None:
        self.client = client
        self.lost: Lost | None = None
        self.on_delivery: Callable[[Any, Any, bytes], None] = lambda *delivery: None
        self.on_return: Callable[[Any, Any, bytes], None] = lambda *returned: None
        self.on_confirm: Callable[[int, bool, bool], None] = lambda *confirm: None
        self.on_cancel: Callable[[str], None] = lambda tag: None
        self._on_empty: Callable[[None], None] = lambda nothing: None
        self._channel: Channel | None = None
        self._waiting: list[asyncio.Future[Any]] = []

    def open(self, connection: Any, done: Callable[[Any], None]) -> None:
        """Send channel.open."""
        channel = connection.channel(on_open_callback=done)
        channel.add_on_close_callback(lambda _, reason: self.ended(Lost(_text(reason))))
        channel.add_on_return_callback(lambda _, *returned: self.on_return(*returned))
        channel.add_on_cancel_callback(lambda frame: self.on_cancel(frame.method.consumer_tag))
        channel.add_callback(lambda frame: self._on_empty(None), [pika.spec.Basic.GetEmpty], one_shot=False)
        self._channel = channel

    def ended(self, lost: Lost) -> None:
        """Fail all waiting calls, as the connection is gone and no answer comes any more."""
        self.lost = self.lost or lost
        for future in self._waiting:
            if not future.done():
                future.set_exception(self.lost)
        self._waiting.clear()

    @property
    def raw(self) -> Channel:
        """pika's own channel. Raises: Lost."""
        lost = self.lost or self.client.lost
        if lost is not None:
            raise lost
        assert self._channel is not None
        return self._channel

    async def call(
        self, name: str, send: Callable[[Callable[..., None]], object], *, limit_s: float = CALL_S
    ) -> Any:
        """Send something and wait for its answer.

        send: is given what takes the answer. Returns: its last argument. Raises: Lost; Stuck.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        limit_s *= patience()
        try:
            send(lambda *answer: future.done() or future.set_result(answer[-1]))
            async with asyncio.timeout(limit_s):
                return await future
        except pika.exceptions.AMQPError as error:
            raise self.lost or self.client.lost or Lost(_text(error)) from error
        except TimeoutError:
            raise Stuck(f"{name} had no answer from n{self.client.node + 1} within {limit_s:.0f} s") from None
        finally:
            if future in self._waiting:
                self._waiting.remove(future)

    async def declare(self, queue: str, **how: Any) -> int:
        """Returns: how many messages it has. Raises: Lost; Stuck."""
        name = f"queue.declare {queue}"
        frame = await self.call(name, lambda done: self.raw.queue_declare(queue, callback=done, **how))
        return int(frame.method.message_count)

    async def confirm(self) -> None:
        """Confirm mode. Raises: Lost; Stuck."""
        await self.call("confirm.select", lambda done: self.raw.confirm_delivery(self._confirmed, done))

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        self.on_confirm(method.delivery_tag, method.multiple, isinstance(method, pika.spec.Basic.Ack))

    async def consume(self, queue: str, prefetch: int, arguments: dict[str, Any] | None = None) -> str:
        """Returns: the tag. Raises: Lost; Stuck."""
        await self.call("basic.qos", lambda done: self.raw.basic_qos(prefetch_count=prefetch, callback=done))
        frame = await self.call(
            f"basic.consume {queue}",
            lambda done: self.raw.basic_consume(queue, self._delivered, arguments=arguments, callback=done),
        )
        return str(frame.method.consumer_tag)

    def _delivered(self, channel: Channel, method: Any, properties: Any, body: bytes) -> None:
        self.on_delivery(method, properties, body)

    async def get(self, queue: str, *, limit_s: float = CALL_S) -> tuple[Any, Any, bytes] | None:
        """Take one; None: there is none. Raises: Lost; Stuck."""

        def send(done: Callable[..., None]) -> None:
            self._on_empty = done
            self.raw.basic_get(queue, lambda _, *delivery: done(delivery))

        found: tuple[Any, Any, bytes] | None = await self.call(f"basic.get {queue}", send, limit_s=limit_s)
        return found

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Raises: Lost."""
        self.raw.basic_ack(tag, multiple)

    def requeue(self, tag: int) -> None:
        """Raises: Lost."""
        self.raw.basic_nack(tag, requeue=True)

    def reject(self, tag: int) -> None:
        """Reject a message for good. Raises: Lost."""
        self.raw.basic_reject(tag, requeue=False)
