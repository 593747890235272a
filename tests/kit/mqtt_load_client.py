"""An asynchronous MQTT client that carries the bytes of an `MqttSession`, for loads and conformance.

A session goes on over connections: open another client with it. When the connection ends, for whatever reason,
everybody who waits gets `Lost`; a publish that was not confirmed is the session's, which sends it again.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Final

from node.mqtt.errors import MqttError
from node.mqtt.packets import Connack, Disconnect, Pingresp, Suback, Subscription, Unsuback
from node.mqtt.properties import NO_PUBLISH, NO_SUBSCRIBE, PublishProperties, SubscribeProperties
from tests.kit.mqtt_session import Confirmed, Message, MqttSession

TIMEOUT_S: Final = 30.0
"""A connection may take this long, since the machine may be busy."""


class Lost(Exception):
    """The connection has ended; the text has the server's reason, if it gave one."""


class Refused(Lost):
    """The server has refused the CONNECT.   connack: its answer."""

    def __init__(self, connack: Connack) -> None:
        super().__init__(f"refused with code {connack.code}: {connack.properties.reason_string}")
        self.connack = connack


class MqttLoadClient(asyncio.Protocol):
    """A connection.

    on_message: called for each message.   on_confirmed: called for each publish that has come to its end, also those of
    earlier connections.   disconnect: the server's DISCONNECT.   lost: why the connection ended.
    """

    def __init__(self, session: MqttSession) -> None:
        self.session = session
        self.on_message: Callable[[Message], None] = lambda message: None
        self.on_confirmed: Callable[[Confirmed], None] = lambda confirmed: None
        self.connack: Connack | None = None
        self.disconnect_packet: Disconnect | None = None
        self.lost: Lost | None = None
        self.ended = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._opened: asyncio.Future[Connack] = asyncio.get_running_loop().create_future()
        self._publishes: dict[int, asyncio.Future[int]] = {}
        self._requests: dict[int, asyncio.Future[Suback | Unsuback]] = {}
        self._pings: list[asyncio.Future[None]] = []

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        session: MqttSession,
        *,
        on_message: Callable[[Message], None] | None = None,
        on_confirmed: Callable[[Confirmed], None] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> "MqttLoadClient":
        """Connect, and wait for CONNACK. Callbacks are set before messages may come.

        Raises: Refused; Lost, also if there is no server; TimeoutError.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            try:
                _, client = await loop.create_connection(lambda: cls(session), host, port, ssl=tls)
            except OSError as error:
                raise Lost(str(error)) from error
            client.on_message = on_message or client.on_message
            client.on_confirmed = on_confirmed or client.on_confirmed
            try:
                await client._opened
            except BaseException:
                client.abort()
                raise
        return client

    # --- what a client does ---

    async def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: PublishProperties = NO_PUBLISH,
    ) -> int:
        """Publish, and with QoS 1 and 2 wait for the confirm.   Returns: its reason code. Raises: Lost."""
        packet_id = self.publish_soon(topic, payload, qos, retain, properties)
        if not packet_id:
            await self.drain()
            return 0
        confirmed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._publishes[packet_id] = confirmed
        return await confirmed

    def publish_soon(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: PublishProperties = NO_PUBLISH,
    ) -> int:
        """Publish without waiting.   Returns: the packet identifier, which `on_confirmed` is told. Raises: Lost."""
        self._check()
        packet_id = self.session.publish(topic, payload, qos, retain, properties)
        self._write()
        return packet_id

    async def drain(self) -> None:
        """Wait until the socket takes more. Raises: Lost."""
        await self._can_write.wait()
        self._check()

    async def subscribe(
        self, *subscriptions: Subscription, properties: SubscribeProperties = NO_SUBSCRIBE
    ) -> Suback:
        """Subscribe, and wait for the SUBACK. Raises: Lost."""
        self._check()
        answer = await self._asked(self.session.subscribe(*subscriptions, properties=properties))
        assert isinstance(answer, Suback)
        return answer

    async def unsubscribe(self, *filters: str) -> Unsuback:
        """Unsubscribe, and wait for the UNSUBACK. Raises: Lost."""
        self._check()
        answer = await self._asked(self.session.unsubscribe(*filters))
        assert isinstance(answer, Unsuback)
        return answer

    async def ping(self) -> None:
        """Send PINGREQ, and wait for PINGRESP. Raises: Lost."""
        self._check()
        self.session.ping()
        self._write()
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pings.append(answer)
        await answer

    def acknowledge(self, message: Message, code: int = 0) -> None:
        """Acknowledge a message, if the session wants it done by hand. Raises: Lost."""
        self._check()
        self.session.acknowledge(message, code)
        self._write()

    async def disconnect(self, code: int = 0, session_expiry_s: int | None = None) -> None:
        """Send DISCONNECT, and wait until the connection is closed. Nothing happens if it is."""
        if self.lost is None:
            self.session.disconnect(code, session_expiry_s)
            self._write()
            assert self._transport is not None
            self._transport.close()
        await self.ended.wait()

    def abort(self) -> None:
        """End the connection without a word: the server sees a lost client."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Be a slow client: read nothing until `resume_reading`."""
        assert self._transport is not None
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        assert self._transport is not None
        self._transport.resume_reading()

    # --- what happens to the socket ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send CONNECT."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.session.connect()
        self._number = self.session.connections
        self._write()

    def data_received(self, data: bytes) -> None:
        """Handle what the server sent, and answer it."""
        try:
            events = self.session.received(data)
        except MqttError as error:
            self._lose(Lost(f"the server broke the standard: {error.text}"))
            self.abort()
            return
        for event in events:
            match event:
                case Message():
                    self.on_message(event)
                case Confirmed(packet_id, code):
                    self._answer(self._publishes.pop(packet_id, None), code)
                    self.on_confirmed(event)
                case Suback(packet_id) | Unsuback(packet_id):
                    self._answer(self._requests.pop(packet_id, None), event)
                case Pingresp():
                    self._answer(self._pings.pop(0) if self._pings else None, None)
                case Connack():
                    self._connected(event)
                case Disconnect():
                    self.disconnect_packet = event
        self._write()

    def _connected(self, connack: Connack) -> None:
        self.connack = connack
        if connack.code:
            self._lose(Refused(connack))
        else:
            self._answer(self._opened, connack)

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waits."""
        code = self.disconnect_packet.code if self.disconnect_packet is not None else None
        self._lose(Lost(f"DISCONNECT with code {code:#x}" if code is not None else str(exc or "closed")))
        if self._number == self.session.connections:  # else the session has gone on over another one
            self.session.disconnected()
        self.ended.set()

    def pause_writing(self) -> None:
        """Hold back `drain`."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Let `drain` go on."""
        self._can_write.set()

    def _lose(self, why: Lost) -> None:
        self.lost = self.lost or why
        waiting: list[asyncio.Future[Any]] = [
            self._opened,
            *self._publishes.values(),
            *self._requests.values(),
            *self._pings,
        ]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(self.lost)
        with contextlib.suppress(asyncio.CancelledError, Lost):
            self._opened.exception()  # nobody may be waiting for it, which is no error
        self._publishes.clear()
        self._requests.clear()
        self._pings.clear()
        self._can_write.set()

    def _write(self) -> None:
        data = self.session.take()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def _asked(self, packet_id: int) -> Suback | Unsuback:
        self._write()
        answer: asyncio.Future[Suback | Unsuback] = asyncio.get_running_loop().create_future()
        self._requests[packet_id] = answer
        return await answer

    @staticmethod
    def _answer(waiting: asyncio.Future[Any] | None, value: object) -> None:
        if waiting is not None and not waiting.done():
            waiting.set_result(value)

    def _check(self) -> None:
        if self.lost is not None:
            raise self.lost
