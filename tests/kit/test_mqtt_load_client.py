"""The asynchronous MQTT client, on a socket, against a server that is written out here."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from node.mqtt.constants import PacketType, Version
from node.mqtt.decoder import Decoder
from node.mqtt.encoder import encode
from node.mqtt.packets import (
    PINGRESP,
    Acks,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publishes,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from node.mqtt.reason_codes import ReasonCode
from tests.kit.mqtt_load_client import Lost, MqttLoadClient, Refused
from tests.kit.mqtt_session import Confirmed, Message, MqttSession
from tests.kit.patience import LIMIT_S, patience

pytestmark = pytest.mark.real

V5 = Version.MQTT_5
CONNECT = Connect(V5, "c", clean_start=False)

Answer = Callable[[Packet], list[Packet]]


def good(packet: Packet) -> list[Packet]:
    """Return what a server answers that confirms all and sends each message back."""
    match packet:
        case Connect():
            return [Connack()]
        case Publishes(qos=0):
            return [packet]
        case Publishes(qos=1):
            return [Acks(PacketType.PUBACK, packet.packet_ids)]
        case Publishes():
            return [Acks(PacketType.PUBREC, packet.packet_ids)]
        case Acks(PacketType.PUBREL, packet_ids):
            return [Acks(PacketType.PUBCOMP, packet_ids)]
        case Subscribe(packet_id, subscriptions):
            return [Suback(packet_id, tuple(each.qos for each in subscriptions))]
        case Unsubscribe(packet_id, filters):
            return [Unsuback(packet_id, (0,) * len(filters))]
        case Pingreq():
            return [PINGRESP]
    return []


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[int]:
    """Serve on a port until the end.   answer: what to send for a packet; a DISCONNECT also closes the socket."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder(is_server=True)
        while data := await reader.read(65_536):
            for packet in decoder.feed(data):
                answers = answer(packet)
                writer.write(b"".join(encode(V5, each) for each in answers))
                if any(isinstance(each, Disconnect) for each in answers) or isinstance(packet, Disconnect):
                    writer.close()
                    return
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


def play(story: Callable[[int], Awaitable[None]], answer: Answer = good) -> None:
    """Run a story with the port of a server."""

    async def run() -> None:
        async with asyncio.timeout(LIMIT_S * patience()), server(answer) as port:
            await story(port)

    asyncio.run(run())


def test_publishes_are_confirmed() -> None:
    async def story(port: int) -> None:
        confirmed: list[Confirmed] = []
        client = await MqttLoadClient.open(
            "127.0.0.1", port, MqttSession(CONNECT), on_confirmed=confirmed.append
        )
        assert await client.publish("t", b"x", 1) == 0
        assert await client.publish("t", b"x", 2) == 0
        assert confirmed == [Confirmed(1, 0), Confirmed(2, 0)]
        await client.disconnect()
        with pytest.raises(Lost):
            await client.publish("t", b"x", 1)

    play(story)


def test_messages_and_requests() -> None:
    async def story(port: int) -> None:
        messages: asyncio.Queue[Message] = asyncio.Queue()
        client = await MqttLoadClient.open(
            "127.0.0.1", port, MqttSession(CONNECT), on_message=messages.put_nowait
        )
        assert (await client.subscribe(Subscription("t", 2))).codes == (2,)
        assert (await client.unsubscribe("t", "u")).codes == (0, 0)
        await client.ping()
        await client.publish("t", b"hi")
        assert (await messages.get()).payload == b"hi"
        await client.disconnect()

    play(story)


def test_a_refusal_has_its_code() -> None:
    async def story(port: int) -> None:
        with pytest.raises(Refused) as caught:
            await MqttLoadClient.open("127.0.0.1", port, MqttSession(CONNECT))
        assert caught.value.connack.code == ReasonCode.NOT_AUTHORIZED

    play(story, lambda packet: [Connack(False, ReasonCode.NOT_AUTHORIZED)])


def test_a_servers_disconnect_ends_all_waits() -> None:
    async def story(port: int) -> None:
        session = MqttSession(CONNECT)
        client = await MqttLoadClient.open("127.0.0.1", port, session)
        with pytest.raises(Lost, match="0x8e"):
            await client.publish("t", b"x", 1)
        await client.ended.wait()
        assert session.unconfirmed == 1

    def answer(packet: Packet) -> list[Packet]:
        taken_over = Disconnect(ReasonCode.SESSION_TAKEN_OVER)
        return good(packet) if isinstance(packet, Connect) else [taken_over]

    play(story, answer)


def test_a_session_goes_on_with_another_client() -> None:
    async def story(port: int) -> None:
        session = MqttSession(CONNECT)
        first = await MqttLoadClient.open("127.0.0.1", port, session)
        first.publish_soon("t", b"x", 1)
        first.abort()
        await first.ended.wait()
        done = asyncio.Event()
        second = await MqttLoadClient.open(
            "127.0.0.1", port, session, on_confirmed=lambda confirmed: done.set()
        )
        await done.wait()
        assert session.unconfirmed == 0
        await second.disconnect()

    play(story)


def test_the_end_of_a_former_connection_changes_nothing() -> None:
    """A client may connect again before it has seen the end of its old socket."""

    async def story(port: int) -> None:
        session = MqttSession(CONNECT)
        first = await MqttLoadClient.open("127.0.0.1", port, session)
        second = await MqttLoadClient.open("127.0.0.1", port, session)
        first.abort()
        await first.ended.wait()
        assert session.is_connected
        assert await second.publish("t", b"x", 1) == 0
        await second.disconnect()

    play(story)


def test_a_server_that_breaks_the_standard_is_lost() -> None:
    async def story(port: int) -> None:
        client = await MqttLoadClient.open("127.0.0.1", port, MqttSession(CONNECT))
        with pytest.raises(Lost, match="broke the standard"):
            await client.ping()

    play(story, lambda packet: good(packet) if isinstance(packet, Connect) else [Connack()])


def test_no_server() -> None:
    async def story(port: int) -> None:
        async with server(good) as other:
            pass
        with pytest.raises(Lost):
            await MqttLoadClient.open("127.0.0.1", other, MqttSession(CONNECT))

    play(story)
