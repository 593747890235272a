"""A service of a plug-in runs on a node by itself, such as links to other brokers."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from node.broker.broker import Broker
from node.catalogue.events import Event
from node.config.config import Config


class ServiceHost:
    """The node, as services use it."""

    def __init__(self, broker: Broker, config: Config) -> None:
        self.broker = broker
        self.config = config
        self.loop = asyncio.get_running_loop()


class PluginService(Protocol):
    """A service of a plug-in on one node."""

    def start(self) -> None:
        """Begin."""

    def changed(self, events: Sequence[Event]) -> None:
        """Follow changes of the catalogue, which has made them all."""

    def answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        """Return the answer to a question of operators, as JSON. Raises: LookupError."""

    @property
    def is_idle(self) -> bool:
        """True if nothing is under way, as it is some time after `stop`."""

    def stop(self, *, is_removed: bool) -> None:
        """End soon.   is_removed: the plug-in was disabled; else the node stops, and others go on with its work."""
