"""An asynchronous STOMP client for loads: frames go out without waiting, and a function is called with what comes."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from node.stomp.decoder import Decoder, Limits
from node.stomp.errors import FramingError
from node.stomp.frame import Frame, encode
from node.stomp.versions import V1_2

READ_BYTES: Final = 65536
LIMITS: Final = Limits(head_max_bytes=65536, headers_max=1000, body_max_bytes=1 << 24)


class Lost(Exception):
    """The connection has ended, or was refused."""


class StompLoadClient:
    """A connection that is logged in as guest.   lost: why it has ended; None while it has not.

    on_frame: called with each frame but RECEIPT frames that `done` waits for.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_frame: Callable[[Frame], None] | None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_frame = on_frame
        self._decoder = Decoder(LIMITS, V1_2)
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._asked = 0
        self.lost: Lost | None = None
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(
        cls, host: str, port: int, *, timeout_s: float, on_frame: Callable[[Frame], None] | None = None
    ) -> "StompLoadClient":
        """Connect and log in. Raises: Lost, TimeoutError."""
        async with asyncio.timeout(timeout_s):
            try:
                reader, writer = await asyncio.open_connection(host, port)
            except OSError as error:
                raise Lost(str(error)) from error
            client = cls(reader, writer, on_frame)
            try:
                client.send("CONNECT", accept_version=V1_2, host="/", login="guest", passcode="guest")
                await client._connected
            except BaseException:
                client.abort()
                raise
        return client

    def send(self, command: str, body: bytes = b"", **headers: object) -> None:
        """Send a frame; `_` in the name of a header is a hyphen. Raises: Lost."""
        if self.lost is not None:
            raise self.lost
        pairs = [(name.replace("_", "-"), str(value)) for name, value in headers.items()]
        self._writer.write(encode(command, pairs, body))

    async def done(self, command: str, **headers: object) -> None:
        """Send a frame, and wait until it is carried out. Raises: Lost."""
        self._asked += 1
        receipt = f"done-{self._asked}"
        self._waiting[receipt] = waiting = asyncio.get_running_loop().create_future()
        self.send(command, receipt=receipt, **headers)
        try:
            await waiting
        finally:
            self._waiting.pop(receipt, None)

    def abort(self) -> None:
        """Close the socket without a word."""
        self._end(Lost("closed by the client"))
        self._task.cancel()
        with contextlib.suppress(OSError):
            self._writer.transport.abort()

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(READ_BYTES):
                self._decoder.feed(data)
                while (frame := self._decoder.next()) is not None:
                    self._take(frame)
            self._end(Lost("closed by the node"))
        except (OSError, FramingError) as error:
            self._end(Lost(str(error)))

    def _take(self, frame: Frame) -> None:
        command, headers = frame.head.command, frame.head.headers
        if command == "CONNECTED":
            self._connected.set_result(None)
        elif command == "ERROR":
            self._end(Lost(f"{headers.get('message')}: {frame.body!r}"))
        elif command == "RECEIPT" and headers["receipt-id"] in self._waiting:
            waiting = self._waiting[headers["receipt-id"]]
            if not waiting.done():
                waiting.set_result(None)
        elif self._on_frame is not None:
            self._on_frame(frame)

    def _end(self, reason: Lost) -> None:
        if self.lost is None:
            self.lost = reason
        for waiting in (self._connected, *self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(self.lost)
                waiting.exception()  # it is known; else asyncio logs what nobody awaits
