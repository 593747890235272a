"""The faults of an MQTT peer, as one exception.

Everything else that goes wrong is either our own bug (an assertion) or the world's fault (an `OSError` in a shell).
"""

from node.mqtt.reason_codes import ReasonCode


class MqttError(Exception):
    """A peer's fault, after which nothing more can be read of it.

    code: what a CONNACK or DISCONNECT of MQTT 5.0 says.   text: the cause, for its reason string and for the log.
    Source: MQTT 5.0 §4.13.
    """

    def __init__(self, code: ReasonCode, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


def malformed(text: str) -> MqttError:
    """Return the error of a packet that cannot be read."""
    return MqttError(ReasonCode.MALFORMED_PACKET, text)


def protocol_error(text: str) -> MqttError:
    """Return the error of a packet that can be read and is not allowed."""
    return MqttError(ReasonCode.PROTOCOL_ERROR, text)
