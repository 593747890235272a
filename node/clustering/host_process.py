"""The part of a node in the cluster needs these interfaces of the process that it runs in.

`Cluster` outlives brokers: it says when one may run, and must not know the class that runs it.
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
    """The control over the process's broker: whether it is to run (`node.process.supervisor`)."""

    is_wanted: bool
    """True if the operator wants the broker to run."""

    @property
    def is_over(self) -> bool:
        """True if the broker that runs, or is stopping, will not be continued."""

    @property
    def is_giving_up(self) -> asyncio.Event:
        """An event that is set when a start is to end early."""

    def hold(self) -> None:
        """Stop the broker until `release`."""

    def release(self) -> None:
        """Let the broker run again."""

    def restart(self) -> None:
        """Stop the broker and start another one."""


class HostProcess(Protocol):
    """The process that a node runs in (`node.process.agent`)."""

    is_draining: bool
    """True if the node is in maintenance mode."""

    @property
    def config(self) -> Config: ...
    @property
    def logger(self) -> "logging.Logger | logging.LoggerAdapter[logging.Logger]": ...
    @property
    def lag(self) -> LoopLag:
        """The meter that is told how long the event loop was held."""

    @property
    def broker_supervisor(self) -> BrokerControl: ...
    @property
    def node(self) -> Node | None:
        """The broker that runs; None if none does."""

    @property
    def has_failed(self) -> bool:
        """True if the process ends because something has failed."""

    @property
    def answers(self) -> Mapping[str, Callable[[str, Body], Awaitable[Any]]]:
        """The process's handlers of other nodes' requests, by the name of the request."""

    def make_node(self, cluster: ClusterSide | None) -> Node:
        """Return a broker that is not started."""

    def own_status(self) -> dict[str, Any]:
        """Return the status of this node that other nodes are told."""

    def wait_is(self, waits_for: str) -> None:
        """Record which event of other nodes a start is waiting for."""

    def ask_to_stop(self) -> None:
        """End the process, as something has failed."""
