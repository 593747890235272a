"""What a node's place in the cluster asks of the process that it is in.

A cluster outlives brokers: it says when one may run, and must not know who runs it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from node.app import ClusterSide, Node
from node.clustering.requests import Body
from node.config.config import Config
from node.io.loop_lag import LoopLag


class BrokerControl(Protocol):
    """The broker as something that is to run or not (`node.process.supervisor`)."""

    is_wanted: bool
    """Whether the operator wants it to run."""

    @property
    def is_over(self) -> bool:
        """Whether what ran, or still stops, does not go on."""

    @property
    def is_giving_up(self) -> asyncio.Event:
        """Set when a start is to end early."""

    def hold(self) -> None:
        """Have it stopped for now."""

    def release(self) -> None:
        """Let it run again."""

    def restart(self) -> None:
        """Have it stopped, and another one started."""


class HostProcess(Protocol):
    """The process: `node.process.agent`."""

    is_draining: bool
    """Whether the node is in maintenance mode."""

    @property
    def config(self) -> Config: ...
    @property
    def logger(self) -> "logging.Logger | logging.LoggerAdapter[logging.Logger]": ...
    @property
    def lag(self) -> LoopLag:
        """Is told how long the loop was held."""

    @property
    def app(self) -> BrokerControl: ...
    @property
    def node(self) -> Node | None:
        """The broker, if it runs."""

    @property
    def has_failed(self) -> bool:
        """Whether the process ends because something has failed."""

    @property
    def answers(self) -> Mapping[str, Callable[[str, Body], Awaitable[Any]]]:
        """What the process answers other nodes, by what they ask for."""

    def make_node(self, cluster: ClusterSide | None) -> Node:
        """A broker, not started."""

    def own_status(self) -> dict[str, Any]:
        """What the other nodes are told of this one."""

    def wait_is(self, waits_for: str) -> None:
        """What a start waits for, of other nodes."""

    def ask_to_stop(self) -> None:
        """The process must end: something has failed."""
