"""A client of paho-mqtt, unmodified, in a thread of its own: what came is looked at by waiting for it."""

import threading
from collections.abc import Callable
from typing import Any, Literal

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.kit.patience import wait_until

V311, V5 = paho.MQTTv311, paho.MQTTv5


class PahoClient:
    """One client.   messages: those that came, in order.   connects, disconnects: the reason codes, in order.

    present: the last CONNACK's flag.   properties: its properties.
    """

    def __init__(
        self,
        port: int,
        client_id: str,
        version: int = V311,
        *,
        clean: bool = True,
        expiry_s: int | None = None,
        user: str | None = "guest",
        password: str | None = "guest",
        will: tuple[str, bytes, int, bool] | None = None,
        will_delay_s: int | None = None,
        keep_alive_s: int = 60,
        receive_maximum: int | None = None,
        transport: Literal["tcp", "websockets"] = "tcp",
    ) -> None:
        options: dict[str, Any] = {} if version == V5 else {"clean_session": clean}
        self.version = version
        self.messages: list[paho.MQTTMessage] = []
        self.connects: list[int] = []
        self.disconnects: list[int] = []
        self.present = False
        self.properties: Any = None
        self._grants: dict[int, list[int]] = {}
        self._lock = threading.Lock()
        self.paho = client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=version,
            reconnect_on_failure=False,
            transport=transport,
            **options,
        )
        if transport == "websockets":
            client.ws_set_options("/ws")
        client.max_inflight_messages = 100
        client.on_connect = self._connected
        client.on_disconnect = lambda *arguments: self.disconnects.append(arguments[3].value)
        client.on_message = lambda _, __, message: self.messages.append(message)
        client.on_subscribe = lambda _, __, mid, codes, ___: self._grants.update(
            {mid: [each.value for each in codes]}
        )
        client.on_unsubscribe = lambda _, __, mid, codes, ___: self._grants.update({mid: []})
        if user is not None:
            client.username_pw_set(user, password)
        if will is not None:
            given = Properties(PacketTypes.WILLMESSAGE) if will_delay_s is not None else None
            if given is not None:
                given.WillDelayInterval = will_delay_s
            client.will_set(*will, properties=given)
        connect: dict[str, Any] = {}
        if version == V5:
            properties = Properties(PacketTypes.CONNECT)
            if expiry_s is not None:
                properties.SessionExpiryInterval = expiry_s
            if receive_maximum is not None:
                properties.ReceiveMaximum = receive_maximum
            connect = {"clean_start": clean, "properties": properties}
        client.connect("127.0.0.1", port, keep_alive_s, **connect)
        client.loop_start()
        wait_until(lambda: self.connects or self.disconnects, f"{client_id} has an answer")

    def _connected(self, _: Any, __: Any, flags: Any, code: Any, properties: Any) -> None:
        self.present, self.properties = flags.session_present, properties
        self.connects.append(code.value)

    def subscribe(self, *wanted: tuple[str, int]) -> list[int]:
        """Subscribe; return the codes of the answer."""
        filters: Any = list(wanted)
        if self.version == V5:
            filters = [(filter_, paho.SubscribeOptions(qos)) for filter_, qos in wanted]
        _, mid = self.paho.subscribe(filters)
        assert mid is not None
        wait_until(lambda: mid in self._grants, "the subscription is answered")
        return self._grants[mid]

    def unsubscribe(self, filter_: str) -> None:
        """Unsubscribe, and wait for the answer."""
        _, mid = self.paho.unsubscribe(filter_)
        assert mid is not None
        wait_until(lambda: mid in self._grants, "the end of the subscription is answered")

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> None:
        """Publish a message, and wait for its acknowledgement."""
        info = self.paho.publish(topic, payload, qos, retain)
        if qos:
            wait_until(info.is_published, f"{topic} is acknowledged")

    def await_messages(self, count: int) -> list[tuple[str, bytes, int, bool]]:
        """Wait for so many messages; return topic, payload, QoS and flag `retain` of each, and forget them."""
        wait_until(lambda: len(self.messages) >= count, f"{count} messages, not {len(self.messages)}")
        found, self.messages = self.messages, []
        return [(each.topic, each.payload, each.qos, each.retain) for each in found]

    def await_end(self) -> None:
        """Wait until the server has closed the connection."""
        wait_until(lambda: self.disconnects, "the connection is closed")

    def disconnect(self) -> None:
        """Disconnect in good order, and wait for the end."""
        self.paho.disconnect()
        wait_until(lambda: self.disconnects, "the client is disconnected")
        self.paho.loop_stop()

    def cut(self) -> None:
        """Close the socket without a word."""
        self.paho.loop_stop()
        sock = self.paho.socket()
        if sock is not None:
            sock.close()


Connect = Callable[..., PahoClient]
