"""The names of the queues and exchanges of MQTT sessions.

    mqtt-subscription-<client id>qos0 | qos1      as RabbitMQ's plug-in names them
    mqtt-subscription-<client id>qos2             what has been subscribed to with QoS 2
    mqtt-subscription-<client id>state            the state of QoS 2, one message
    mqtt-subscription-<client id>will0 | will1    a will, while the client is connected
    mqtt-subscription-<client id>delayed          a will that is delayed
    mqtt-subscription-$share/<group>/<filter>     a shared subscription

So one pattern of permissions or policies has all of them. Source: RabbitMQ 3.10.8, rabbit_mqtt_util.
"""

from typing import Final

PREFIX: Final = "mqtt-subscription-"

QUEUE_NAME_MAX_BYTES: Final = 255
ROUTING_KEY_MAX_BYTES: Final = 255

CLIENT_ID_MAX_BYTES: Final = QUEUE_NAME_MAX_BYTES - len(PREFIX) - len("delayed")
"""A longer client id has no room in the name of its queues, and is refused."""

RETAINED_EXCHANGE: Final = "amq.mqtt.retained"
"""Keeps the last retained message of each topic, and gives it to new bindings."""

QOS_2_EXCHANGE: Final = "amq.mqtt.qos2"
"""Lets each message with QoS 2 of a persistent session pass once, to the exchange of the subscriptions."""

WILLS_EXCHANGE: Final = "amq.mqtt.wills"
"""Takes wills that are to be retained, to the exchange of the subscriptions and to that of retained messages."""


def subscription_queue(client_id: str, qos: int) -> str:
    """Return the name of the queue of a session's subscriptions of a QoS."""
    return f"{PREFIX}{client_id}qos{qos}"


def state_queue(client_id: str) -> str:
    """Return the name of the queue with a session's state."""
    return f"{PREFIX}{client_id}state"


def will_queues(client_id: str) -> tuple[str, str]:
    """Return the names of the queues for wills: that of a connection, and the other one that the next may need."""
    return f"{PREFIX}{client_id}will0", f"{PREFIX}{client_id}will1"


def delayed_will_queue(client_id: str) -> str:
    """Return the name of the queue in which a will waits for its delay."""
    return f"{PREFIX}{client_id}delayed"


def shared_queue(share_name: str, filter_: str) -> str:
    """Return the name of the queue of a shared subscription."""
    return f"{PREFIX}$share/{share_name}/{filter_}"


def fits(name: str, limit: int = QUEUE_NAME_MAX_BYTES) -> bool:
    """True if a name, or a routing key, is not too long for AMQP."""
    return len(name) <= limit // 4 or len(name.encode()) <= limit
