"""Transports for tests: listeners that write down what they hear, and a proxy that breaks connections."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Self

import uvloop

from cluster.transport.interface import Hello, Identity, LinkOptions, Topic
from cluster.transport.security import Security
from cluster.transport.transport import Transport

PATIENCE_S = 20.0
"""A busy machine may take this long for something that is immediate."""


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a test on the loop that nodes use."""

    async def limited() -> None:
        async with asyncio.timeout(3 * PATIENCE_S):
            await coroutine

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(limited())


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that will be so."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


class Node(logging.Handler):
    """A transport and what it has told."""

    def __init__(
        self,
        name: str,
        security: Security | None = None,
        options: LinkOptions | None = None,
        *,
        identity: Identity | None = None,
    ) -> None:
        super().__init__()
        logger = logging.Logger(name)
        logger.addHandler(self)
        self.name_ = name
        self.transport = Transport(
            identity or Identity(name, f"id of {name}", "cluster", 1),
            security or Security(),
            self,
            options,
            logger=logger,
        )
        self.port = 0
        self.refusal: str | None = None
        self.hellos: list[Hello] = []
        self.links: list[tuple[Any, ...]] = []
        self.messages: list[tuple[str, Topic, bytes]] = []
        self.frames: list[tuple[str, Topic, bytes]] = []
        self.relief: list[str] = []
        self.turns = 0
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    async def __aenter__(self) -> Self:
        self.port = await self.transport.listen("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.transport.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def is_up(self, other: "Node") -> bool:
        links = [link for link in self.links if link[1] == other.name_]
        return bool(links) and links[-1][0] == "up"

    # --- Listener ---

    def admit(self, hello: Hello) -> str | None:
        self.hellos.append(hello)
        return self.refusal

    def link_up(self, name: str, incarnation: int) -> None:
        self.links.append(("up", name, incarnation))

    def link_down(self, name: str, *, is_gone: bool, reason: str) -> None:
        assert reason
        self.links.append(("down", name, is_gone))

    def control(self, name: str, topic: Topic, messages: list[bytes]) -> None:
        self.messages += [(name, topic, message) for message in messages]

    def data(self, name: str, frames: list[tuple[Topic, bytes]]) -> None:
        self.frames += [(name, topic, frame) for topic, frame in frames]

    def received(self) -> None:
        self.turns += 1

    def relieved(self, name: str) -> None:
        self.relief.append(name)

    async def call(self, name: str, body: bytes) -> bytes:
        if body == b"wait":
            await asyncio.sleep(3600)
        return b"big" * 500_000 if body == b"big" else b"%s asks %s" % (name.encode(), body)


async def link(*nodes: Node) -> None:
    """Connect each with each, and wait until they are."""
    for one in nodes:
        for other in nodes:
            if one is not other:
                one.transport.connect(other.name_, other.address)
    await until(lambda: all(one.is_up(other) for one in nodes for other in nodes if one is not other))


class Proxy:
    """A port in front of another one, whose connections can be cut or held up."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await until(lambda: not self._writers)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Reset all connections."""
        for writer in self._writers:
            writer.transport.abort()

    def hold_up(self) -> None:
        """Let nothing through, as a host that froze; nothing is reset."""
        self._flows.clear()

    def let_go(self) -> None:
        """Let everything through again."""
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        self._writers -= {writer, back}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
