"""Recent-history exchanges: type `x-recent-history`, which gives the last messages to each new binding.

The exchange routes like a fanout. It keeps the last `x-recent-history-length` messages, 20 by default, without those
that have the header `x-recent-history-no-store`, and publishes them to the destination of each new binding.
Source: RabbitMQ's plug-in rabbitmq_recent_history_exchange, code and live; docs/recent_history.md.
"""

from typing import Final

from node.catalogue.kept_length import KeptLength

HISTORY_TYPE: Final = "x-recent-history"

NO_STORE: Final = "x-recent-history-no-store"
"""The header of a message that is not to be kept: a boolean, true."""

DEFAULT_LENGTH: Final = 20

KEPT: Final = KeptLength("x-recent-history-length", DEFAULT_LENGTH)
"""How many messages are kept."""
