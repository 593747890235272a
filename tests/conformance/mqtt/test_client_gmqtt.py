"""gmqtt, unmodified: an asyncio client of MQTT 3.1.1 and 5.0 with a codec of its own, on Fluffle and on RabbitMQ."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.conformance.mqtt.conftest import MqttServer
from tests.kit.gmqtt_package import gmqtt as found_gmqtt
from tests.kit.patience import LIMIT_S
from tests.kit.server_cluster import is_rabbitmq

gmqtt = found_gmqtt()

Name = Callable[[str], str]

VERSIONS = [4] if is_rabbitmq() else [4, 5]
QOS_MAX = 1 if is_rabbitmq() else 2


class Gmqtt:
    """A client, and the messages that came to it: topic, payload, QoS and properties of each."""

    def __init__(self, client_id: str, **options: Any) -> None:
        self.messages: asyncio.Queue[tuple[str, bytes, int, dict[str, Any]]] = asyncio.Queue()
        self._granted: asyncio.Queue[tuple[int, ...]] = asyncio.Queue()
        self.raw = gmqtt.Client(client_id, **options)
        self.raw.set_auth_credentials("guest", "guest")
        self.raw.on_message = self._came
        self.raw.on_subscribe = lambda client, mid, codes, properties: self._granted.put_nowait(tuple(codes))

    def _came(self, client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]) -> int:
        self.messages.put_nowait((topic, payload, qos, properties))
        return 0

    async def connect(self, port: int, version: int) -> None:
        await self.raw.connect("127.0.0.1", port, version=version)

    async def subscribe(self, filter_: str, qos: int, **options: Any) -> tuple[int, ...]:
        self.raw.subscribe(filter_, qos, **options)
        return await self._granted.get()

    async def next(self) -> tuple[str, bytes, int, dict[str, Any]]:
        return await self.messages.get()


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test that must end in time."""

    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test()

    asyncio.run(bounded())


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_each_qos(mqtt_server: MqttServer, name: Name, version: int) -> None:
    async def test() -> None:
        one, other = Gmqtt(name("a")), Gmqtt(name("b"))
        for client in (one, other):
            await client.connect(mqtt_server.mqtt_port, version)
        topic = name("t")
        assert await one.subscribe(f"{topic}/+", QOS_MAX) == (QOS_MAX,)
        for qos in range(3):
            other.raw.publish(f"{topic}/{qos}", b"m%d" % qos, qos=qos)
        found = [(await one.next())[:3] for _ in range(3)]
        assert found == [(f"{topic}/{qos}", b"m%d" % qos, min(qos, QOS_MAX)) for qos in range(3)]
        for client in (one, other):
            await client.raw.disconnect()

    run(test)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_waits_for_its_client(mqtt_server: MqttServer, name: Name, version: int) -> None:
    options: dict[str, Any] = {"session_expiry_interval": 100} if version == 5 else {}
    session, topic = name("s"), name("t")

    async def test() -> None:
        first = Gmqtt(session, clean_session=False, **options)
        await first.connect(mqtt_server.mqtt_port, version)
        assert await first.subscribe(topic, 1) == (1,)
        await first.raw.disconnect()
        other = Gmqtt(name("p"))
        await other.connect(mqtt_server.mqtt_port, version)
        again = Gmqtt(session, clean_session=False, **options)
        other.raw.publish(topic, b"while away", qos=1)
        await again.connect(mqtt_server.mqtt_port, version)
        assert (await again.next())[:3] == (topic, b"while away", 1)
        for client in (again, other):
            await client.raw.disconnect()

    run(test)


@pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ 3.10 has no MQTT 5.0")
def test_properties_of_5(mqtt_server: MqttServer, name: Name) -> None:
    async def test() -> None:
        client = Gmqtt(name("c"), receive_maximum=10, topic_alias_maximum=5)
        await client.connect(mqtt_server.mqtt_port, 5)
        topic = name("t")
        await client.subscribe(topic, 1, subscription_identifier=7)
        client.raw.publish(
            topic,
            b"m",
            qos=1,
            content_type="text/plain",
            response_topic="answers",
            correlation_data=b"\0\1",
            message_expiry_interval=60,
            user_property=[("a", "1"), ("a", "2")],
        )
        _, payload, _, properties = await client.next()
        assert payload == b"m"
        assert properties["content_type"] == ["text/plain"]
        assert properties["response_topic"] == ["answers"]
        assert properties["correlation_data"] == [b"\0\1"]
        assert 0 < properties["message_expiry_interval"][0] <= 60
        assert properties["user_property"] == [("a", "1"), ("a", "2")]
        assert properties["subscription_identifier"] == [7]
        await client.raw.disconnect()

    run(test)
