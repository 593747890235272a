"""Retaining exchanges: type `x-retained`, which keeps the last message of each routing key.

A new binding from the exchange gets the messages that it keeps and whose routing keys match the binding's, as a topic
exchange matches; an empty message ends what is kept for its key. The exchange routes nothing: MQTT's retained messages
are published to it beside the exchange of the subscriptions. The plug-in for MQTT declares it.
Source: MQTT 5.0, chapter 3.3.1.3; docs/mqtt.md.
"""

from typing import Final

from node.catalogue.kept_length import KeptLength

RETAINED_TYPE: Final = "x-retained"

DEFAULT_LENGTH: Final = 1_000_000

KEPT: Final = KeptLength("x-max-length", DEFAULT_LENGTH)
"""For how many routing keys a message is kept."""
