"""This module has what the services of links to other brokers share: the node's name, time, chance and timers.

Shovels and federation links are such services: pure state machines decide, and use the node through this.
"""

import random
import time
from collections.abc import Callable

from node.io.plugin_service import ServiceHost
from node.log.log import category_logger


class LinkService:
    """The node, as links to other brokers use it.   category: of the lines that they log."""

    def __init__(self, host: ServiceHost, category: str) -> None:
        self._broker = host.broker
        self._loop = host.loop
        self._logger = category_logger(category)

    @property
    def node(self) -> str:
        """The name of this node."""
        return self._broker.settings.node_name

    @property
    def now(self) -> float:
        """The time in seconds, monotonic, by the loop's clock."""
        return self._loop.time()

    @property
    def wall_s(self) -> float:
        """The time of day in seconds since 1970."""
        return time.time()

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        name = self._broker.catalogue.global_parameter("cluster_name")
        return name if isinstance(name, str) else self.node

    def random(self) -> float:
        """Return a random number from 0 to below 1."""
        return random.random()

    def after(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back in so many seconds. Returns: a function that cancels it."""
        return self._loop.call_later(seconds, callback).cancel
