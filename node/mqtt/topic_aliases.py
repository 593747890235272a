"""Topic aliases of MQTT 5.0: small numbers that stand for topics on one connection, one table for each direction.

Source: MQTT 5.0 §3.3.2.3.4.
"""

from node.mqtt.errors import MqttError, protocol_error
from node.mqtt.packets import Publishes
from node.mqtt.reason_codes import ReasonCode


class InboundAliases:
    """The aliases that the peer has set.   maximum: the highest that it may set; 0: none."""

    __slots__ = ("_topics", "maximum")

    def __init__(self, maximum: int = 0) -> None:
        self.maximum = maximum
        self._topics: dict[int, str] = {}

    def resolve(self, publishes: Publishes) -> Publishes:
        """Return the publishes with their topic and without the alias.

        Raises: MqttError for an alias beyond the maximum [MQTT-3.3.2-9], and for one that was not set.
        """
        alias = publishes.properties.topic_alias
        if alias is None:
            return publishes
        if alias > self.maximum:
            raise MqttError(ReasonCode.TOPIC_ALIAS_INVALID, f"topic alias {alias} is above {self.maximum}")
        topic = publishes.topic
        if topic:
            self._topics[alias] = topic
        else:
            known = self._topics.get(alias)
            if known is None:
                raise protocol_error(f"topic alias {alias} is not set")
            topic = known
        return publishes._replace(topic=topic, properties=publishes.properties._replace(topic_alias=None))


class OutboundAliases:
    """The aliases that were set for the peer.   maximum: the highest that the peer takes; 0: none.

    The first topics get one and keep it: the standard lets a sender choose, and a change would cost the topic again.
    """

    __slots__ = ("_aliases", "maximum")

    def __init__(self, maximum: int = 0) -> None:
        self.maximum = maximum
        self._aliases: dict[str, int] = {}

    def assign(self, topic: str) -> tuple[str, int | None]:
        """Return what to send for a topic: the topic, empty if the peer knows it by its alias, and the alias.

        It must be sent, as the peer learns the alias by it.
        """
        alias = self._aliases.get(topic)
        if alias is not None:
            return "", alias
        if len(self._aliases) >= self.maximum:
            return topic, None
        alias = self._aliases[topic] = len(self._aliases) + 1
        return topic, alias
