"""The plug-in `rabbitmq_mqtt`, or `mqtt`: a listener for clients of MQTT 3.1, 3.1.1 and 5.0."""

from typing import ClassVar

from node.mqtt.connection import MqttConnection
from node.mqtt.message_mapping import ID_HEADER
from node.mqtt.settings import PREFIX, SETTINGS, mqtt_settings
from node.override import override
from node.plugins import VERSION, Plugin, ProtocolConnection, ProtocolListener, Session, Settings


class MqttListener(ProtocolListener):
    """The listener of one node."""

    name: ClassVar[str] = "mqtt"
    protocol: ClassVar[str] = "MQTT"
    default_port: ClassVar[int] = 1883
    has_consumer_timeout: ClassVar[bool] = (
        False  # a client may be silent for as long as its keep-alive allows
    )
    varying_header: ClassVar[str] = ID_HEADER

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._settings = mqtt_settings(settings)

    @override
    def connection(self, session: Session) -> ProtocolConnection:
        return MqttConnection(session, self._settings)


PLUGIN = Plugin(
    "rabbitmq_mqtt",
    VERSION,
    "MQTT 3.1, 3.1.1 and 5.0",
    settings=SETTINGS,
    prefix=PREFIX,
    listeners=(MqttListener,),
)
