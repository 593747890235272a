"""The STOMP load of `make chaos --stomp`: publishers that want receipts and subscribers that acknowledge, on any node.

Their queue is mirrored. In the end each message with a receipt must have come: a receipt is a confirm.
"""

import asyncio
import contextlib
import time
from random import Random
from typing import Final

from node.stomp.frame import Frame
from tests.chaos.broker import Operator
from tests.chaos.cluster import ChaosNode
from tests.chaos.mirror_load import LATE_S, NODES, Load
from tests.chaos.plugin_load import TICK_S, PluginLoad, RoamingClient
from tests.chaos.stomp_ledger import StompLedger
from tests.kit.patience import patience
from tests.kit.stomp_load_client import Lost, StompLoadClient

PLUGIN: Final = "rabbitmq_stomp"
QUEUE: Final = "chaos.stomp"
DESTINATION: Final = f"/queue/{QUEUE}"
POLICY: Final = ("stomp", f"^{QUEUE}$", {"ha-mode": "all", "ha-sync-mode": "automatic"})

RATE: Final = 20.0
"""Messages a second of each publisher."""
WINDOW: Final = 50
"""Messages without a receipt at which a publisher waits."""
PREFETCH: Final = 20
SUBSCRIBERS: Final = 2


class StompLoad(PluginLoad):
    """All clients of STOMP."""

    def __init__(self, load: Load, operator: Operator, random: Random) -> None:
        super().__init__(load, operator, random)
        self.ledger = StompLedger()

    async def begin(self) -> None:
        """Enable the plug-in, and start all clients."""
        await self._enable(PLUGIN)
        await self._operator.set_policy(*POLICY)
        for _ in range(SUBSCRIBERS):
            self.consume(_Subscriber(self, self._new_random()).run())
        for node in NODES:
            self.produce(_Publisher(self, f"stomp-p{node + 1}", self._new_random()).run())

    async def finish(self) -> None:
        """End all clients, and tell the load's ledger what is wrong. All nodes are up."""
        count = self.load.ledger.count
        await self._end_all(lambda: not self.ledger.missing)
        for name, text in self.ledger.problems():
            count.problem(name, text)

    def summary(self) -> str:
        """Return the figures in words."""
        return self.ledger.summary()

    async def open(self, client_of: "_Client") -> StompLoadClient | None:
        """Connect to any node (`join_any`); None: there is none just now."""

        async def connect(node: ChaosNode) -> StompLoadClient:
            return await StompLoadClient.open(
                node.place.host,
                node.stomp_port,
                timeout_s=LATE_S * patience(),
                on_frame=client_of.on_frame,
            )

        joined = await self.join_any(connect, Lost)
        if joined is None:
            return None
        client_of.node = joined.node
        return joined.connection


class _Client(RoamingClient[StompLoadClient]):
    """A client that goes from node to node."""

    def __init__(self, load: StompLoad, random: Random) -> None:
        super().__init__(random)
        self._load = load
        self._ledger = load.ledger
        self._client: StompLoadClient | None = None

    def on_frame(self, frame: Frame) -> None:
        """Take a frame."""

    async def _say_goodbye(self, connection: StompLoadClient) -> None:
        await connection.done("DISCONNECT")


class _Subscriber(_Client):
    """A subscriber that acknowledges what it has noted."""

    def on_frame(self, frame: Frame) -> None:
        assert frame.head.command == "MESSAGE", frame
        self._ledger.take(frame.body)
        if self._client is not None:
            with contextlib.suppress(Lost):
                self._client.send("ACK", id=frame.head.headers["ack"])

    async def run(self) -> None:
        """Take messages until the load ends."""
        while not self._load.are_consumers_stopping:
            client = self._client = await self._load.open(self)
            if client is None:
                continue
            with contextlib.suppress(Lost, TimeoutError):
                async with asyncio.timeout(self._load.load.waits_s(self.node)):
                    await client.done(
                        "SUBSCRIBE",
                        destination=DESTINATION,
                        id="1",
                        ack="client-individual",
                        prefetch_count=PREFETCH,
                    )
                await self._stay(client)
            await self._leave(client, Lost)

    async def _stay(self, client: StompLoadClient) -> None:
        """Stay for a while, unless the node does not answer. Raises: Lost, TimeoutError."""
        end = self._session_end()
        while time.monotonic() < end and not self._load.are_consumers_stopping:
            async with asyncio.timeout(self._load.load.waits_s(self.node)):
                await client.done("BEGIN", transaction="ping")
                await client.done("ABORT", transaction="ping")
            await asyncio.sleep(self._random.uniform(TICK_S, 1.0))


class _Publisher(_Client):
    """A publisher of persistent messages with receipts."""

    def __init__(self, load: StompLoad, name: str, random: Random) -> None:
        super().__init__(load, random)
        self._name = name
        self._waiting: dict[str, bytes] = {}  # bodies of messages without a receipt
        self._answered_at = 0.0

    def on_frame(self, frame: Frame) -> None:
        assert frame.head.command == "RECEIPT", frame
        self._answered_at = time.monotonic()
        body = self._waiting.pop(frame.head.headers["receipt-id"], None)
        if body is not None:  # else it is of an earlier connection
            self._ledger.confirm(body)

    async def run(self) -> None:
        """Publish until the load ends, and then wait for the receipts."""
        while not self._load.is_stopping:
            client = await self._load.open(self)
            if client is None:
                continue
            self._waiting.clear()  # what has no receipt may come or not
            with contextlib.suppress(Lost):
                await self._publish(client)
            await self._leave(client, Lost)

    async def _publish(self, client: StompLoadClient) -> None:
        """Publish over one connection. Raises: Lost."""
        end = self._session_end()
        self._answered_at = time.monotonic()
        is_over = False
        while not (is_over and not self._waiting):
            is_over = is_over or time.monotonic() > end or self._load.is_stopping
            if self._waiting and time.monotonic() - self._answered_at > self._load.load.waits_s(self.node):
                return  # the node is frozen or cut off
            if not is_over and len(self._waiting) < WINDOW:
                self._send(client)
            elif client.lost is not None:
                raise client.lost
            await asyncio.sleep(self._random.uniform(0.5, 1.5) / RATE)

    def _send(self, client: StompLoadClient) -> None:
        if not self._waiting:
            self._answered_at = time.monotonic()
        body = self._ledger.send(self._name)
        receipt = body.decode()
        self._waiting[receipt] = body
        client.send("SEND", body, destination=DESTINATION, persistent="true", receipt=receipt)
