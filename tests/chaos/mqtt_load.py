"""The MQTT load of `make chaos --mqtt`: persistent sessions that publish and subscribe with QoS 1 and 2 on any node.

Their queues are mirrored. In the end each message that was confirmed must have come to each subscriber: with QoS 2
once, with QoS 1 at least once, for the first time in the order of its publisher, and no session may have been lost.
"""

import asyncio
import contextlib
import time
from random import Random
from typing import Final

from node.mqtt.constants import Version
from node.mqtt.packets import Connect, Subscription
from node.mqtt.properties import ConnectProperties
from node.mqtt.reason_codes import FIRST_ERROR
from tests.chaos.broker import Operator
from tests.chaos.cluster import ChaosNode
from tests.chaos.mirror_load import LATE_S, NODES, OUTCOME_S, Load
from tests.chaos.mqtt_ledger import MqttLedger
from tests.chaos.plugin_load import TICK_S, PluginLoad, RoamingClient
from tests.kit.mqtt_load_client import Lost, MqttLoadClient
from tests.kit.mqtt_session import Confirmed, Message, MqttSession
from tests.kit.patience import patience

PLUGIN: Final = "rabbitmq_mqtt"
POLICY: Final = ("mqtt", "^mqtt-subscription-", {"ha-mode": "all", "ha-sync-mode": "automatic"})

RATE: Final = 10.0
"""Messages a second of each publisher."""
WINDOW: Final = 50
"""Unconfirmed messages at which a publisher waits."""
PING_S: Final = 2.0
KEEP_ALIVE_S: Final = 20
EXPIRY_S: Final = 86_400

VERSIONS: Final = {1: Version.MQTT_3_1_1, 2: Version.MQTT_5}
"""The version that clients of a QoS speak, so that both are there."""


def _session(name: str, qos: int, *, clean_start: bool = False) -> MqttSession:
    version = VERSIONS[qos]
    properties = (
        ConnectProperties(session_expiry_s=EXPIRY_S) if version is Version.MQTT_5 else ConnectProperties()
    )
    if clean_start:
        properties = ConnectProperties()
    return MqttSession(Connect(version, name, clean_start, KEEP_ALIVE_S, None, "guest", b"guest", properties))


class MqttLoad(PluginLoad):
    """All clients of MQTT. RabbitMQ's plug-in has no QoS 2."""

    def __init__(self, load: Load, operator: Operator, random: Random) -> None:
        super().__init__(load, operator, random)
        self.ledgers = {qos: MqttLedger(qos) for qos in VERSIONS}
        self._names: list[tuple[str, int]] = []
        self._lost_sessions = 0

    # --- the whole ---

    async def begin(self) -> None:
        """Enable the plug-in, and start all clients; subscribers are subscribed before anybody publishes."""
        await self._enable(PLUGIN)
        await self._operator.set_policy(*POLICY)
        subscribers = [_Subscriber(self, qos, self._new_random()) for qos in VERSIONS]
        for subscriber in subscribers:
            self._names.append((subscriber.name, subscriber.qos))
            self.consume(subscriber.run())
        await asyncio.gather(*(subscriber.is_subscribed.wait() for subscriber in subscribers))
        for node in NODES:
            for qos in VERSIONS:
                publisher = _Publisher(self, f"mqtt-p{node + 1}-{qos}", qos, self._new_random())
                self._names.append((publisher.name, qos))
                self.produce(publisher.run())

    async def finish(self) -> None:
        """End all clients, and tell the load's ledger what is wrong. All nodes are up."""
        count = self.load.ledger.count
        await self._end_all(lambda: all(each.is_complete() for each in self.ledgers.values()))
        for ledger in self.ledgers.values():
            for name, text in ledger.problems():
                count.problem(name, text)
        if self._lost_sessions:
            count.problem("other", f"{self._lost_sessions} MQTT sessions were not present any more")
        for name, qos in self._names:
            await self._forget(name, qos)

    async def _forget(self, name: str, qos: int) -> None:
        """End a session, so that its queues go."""
        client = await self.open(_session(name, qos, clean_start=True))
        if client is not None:
            await client.disconnect()

    def summary(self) -> list[str]:
        """The figures in words."""
        return [ledger.summary() for ledger in self.ledgers.values()]

    # --- for the clients ---

    async def open(self, session: MqttSession, client_of: "_Client | None" = None) -> MqttLoadClient | None:
        """Connect a session to any node (`join_any`); None: there is none just now."""
        before = session.lost_sessions

        async def connect(node: ChaosNode) -> MqttLoadClient:
            return await MqttLoadClient.open(
                node.place.host,
                node.mqtt_port,
                session,
                on_message=None if client_of is None else client_of.on_message,
                on_confirmed=None if client_of is None else client_of.on_confirmed,
                timeout_s=LATE_S * patience(),
            )

        joined = await self.join_any(connect, Lost)
        if joined is None:
            return None
        self._lost_sessions += session.lost_sessions - before
        if client_of is not None:
            client_of.node = joined.node
        return joined.connection


class _Client(RoamingClient[MqttLoadClient]):
    """A session that goes from node to node."""

    def __init__(self, load: MqttLoad, name: str, qos: int, random: Random) -> None:
        super().__init__(random)
        self.name = name
        self.qos = qos
        self._load = load
        self._ledger = load.ledgers[qos]
        self._session = _session(name, qos)

    def on_message(self, message: Message) -> None:
        """Take a message."""

    def on_confirmed(self, confirmed: Confirmed) -> None:
        """Take a confirm."""

    async def _is_alive(self, client: MqttLoadClient) -> bool:
        """Return whether the node answers in the time that a client waits for it."""
        try:
            async with asyncio.timeout(self._load.load.waits_s(self.node)):
                await client.ping()
        except (Lost, TimeoutError):
            return False
        return True

    async def _say_goodbye(self, connection: MqttLoadClient) -> None:
        await connection.disconnect()


class _Subscriber(_Client):
    """A subscriber to all messages of a QoS."""

    def __init__(self, load: MqttLoad, qos: int, random: Random) -> None:
        super().__init__(load, f"mqtt-s-{qos}", qos, random)
        self.is_subscribed = asyncio.Event()
        self._ledger.subscribe(self.name)

    def on_message(self, message: Message) -> None:
        self._ledger.take(self.name, message.payload)

    async def run(self) -> None:
        """Take messages until the load ends."""
        while not self._load.are_consumers_stopping:
            client = await self._load.open(self._session, self)
            if client is None:
                continue
            if await self._subscribe(client):
                end = self._session_end()
                while time.monotonic() < end and not self._load.are_consumers_stopping:
                    if not await self._is_alive(client):
                        break
                    await asyncio.sleep(self._random.uniform(TICK_S, PING_S))
            await self._leave(client, Lost)

    async def _subscribe(self, client: MqttLoadClient) -> bool:
        """Subscribe, the first time only: the subscription is the session's.   Returns: whether that is done."""
        if self.is_subscribed.is_set():
            return True
        try:
            async with asyncio.timeout(OUTCOME_S * patience()):
                suback = await client.subscribe(Subscription(f"chaos/{self.qos}/#", self.qos))
        except (Lost, TimeoutError):
            return False
        assert suback.codes == (self.qos,), suback
        self.is_subscribed.set()
        return True


class _Publisher(_Client):
    """A publisher with messages of a QoS."""

    def __init__(self, load: MqttLoad, name: str, qos: int, random: Random) -> None:
        super().__init__(load, name, qos, random)
        self._numbers: dict[int, int] = {}  # of unconfirmed messages, by packet identifier
        self._count = 0
        self._confirmed_at = 0.0

    def on_confirmed(self, confirmed: Confirmed) -> None:
        self._confirmed_at = time.monotonic()
        number = self._numbers.pop(confirmed.packet_id)
        if confirmed.code < FIRST_ERROR:
            self._ledger.confirm(self.name, number)

    async def run(self) -> None:
        """Publish until the load ends, and then wait for all confirms."""
        while not self._load.is_stopping or self._session.unconfirmed:
            client = await self._load.open(self._session, self)
            if client is None:
                continue
            with contextlib.suppress(Lost):
                await self._publish(client)
            await self._leave(client, Lost)

    async def _publish(self, client: MqttLoadClient) -> None:
        """Publish over one connection. Raises: Lost."""
        end = self._session_end()
        self._confirmed_at = time.monotonic()
        pinged_at = 0.0
        while time.monotonic() < end:
            now = time.monotonic()
            if self._load.is_stopping and not self._session.unconfirmed:
                return
            waits_s = self._load.load.waits_s(self.node)
            if self._session.unconfirmed and now - self._confirmed_at > waits_s:
                return  # the node is frozen or cut off
            if not self._load.is_stopping and self._session.unconfirmed < WINDOW:
                self._send(client)
            elif now - pinged_at > PING_S:
                pinged_at = now
                if not await self._is_alive(client):
                    return
            await asyncio.sleep(self._random.uniform(0.5, 1.5) / RATE)

    def _send(self, client: MqttLoadClient) -> None:
        if client.lost is not None:
            raise client.lost
        if not self._session.unconfirmed:
            self._confirmed_at = time.monotonic()
        payload = self._ledger.send(self.name)
        self._count += 1
        packet_id = client.publish_soon(f"chaos/{self.qos}/{self.name}", payload, self.qos)
        self._numbers[packet_id] = self._count
