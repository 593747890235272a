"""The plug-in `rabbitmq_web_mqtt`: MQTT over WebSocket, on port 15675, with its settings `web_mqtt.NAME`.

Users, vhosts and all that MQTT itself needs are set as for RabbitMQ's plug-in: by the settings `mqtt.NAME`.
Source: RabbitMQ 3.10.8, `rabbit_web_mqtt_handler`; MQTT 3.1.1 and 5.0, chapter 6.
"""

from typing import ClassVar, Final

from node.mqtt.connection import MqttConnection
from node.mqtt.message_mapping import ID_HEADER
from node.mqtt.plugin import PLUGIN as MQTT_PLUGIN
from node.mqtt.plugin import MqttListener
from node.mqtt.settings import PREFIX as MQTT_PREFIX
from node.mqtt.settings import SETTINGS as MQTT_SETTINGS
from node.mqtt.settings import mqtt_settings
from node.override import override
from node.plugins import VERSION, Plugin, ProtocolConnection, Session, Settings
from node.websocket.connection import BINARY, WebSocketListener
from node.websocket.handshake import Request
from node.websocket.settings import WEB_SETTINGS

LABEL: Final = "Web MQTT"


class WebMqttListener(WebSocketListener):
    """The listener for MQTT over WebSocket."""

    name = "http/web-mqtt"
    protocol = LABEL
    default_port = 15675
    subprotocols = ("mqtt", "mqttv3.1")
    takes_text: ClassVar[bool] = False
    namespace: ClassVar[str] = MQTT_PLUGIN.name  # a session is the same, however its client comes
    has_consumer_timeout: ClassVar[bool] = False
    varying_header: ClassVar[str] = ID_HEADER

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, BINARY)
        self._mqtt = mqtt_settings(settings, f"{MQTT_PREFIX}.")

    @override
    def connection_within(self, session: Session, request: Request) -> ProtocolConnection:
        return MqttConnection(session, self._mqtt, LABEL)


PLUGIN: Final = Plugin(
    "rabbitmq_web_mqtt",
    VERSION,
    "MQTT over WebSocket",
    settings=WEB_SETTINGS,
    prefix="web_mqtt",
    listeners=(WebMqttListener,),
    borrowed=(MQTT_PREFIX, MQTT_SETTINGS + MqttListener.port_settings()),
)
