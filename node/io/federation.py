"""The federation links of one node: the plug-in's service, with the loop, the sockets and the broker for its links.

catalogue ─► Links ─► LinkLife ─┬─► AmqpClient ─► the upstream
                                └─► LocalClient ─► the broker here
"""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from node.amqp_client.settings import client_properties, settings_of
from node.amqp_client.uri import AmqpUri
from node.catalogue.events import Event
from node.catalogue.records import Binding
from node.federation.life import Client, OnEvents
from node.federation.links import CLUSTER_NAME, Links
from node.federation.plan import Federated
from node.federation.rows import link_row
from node.io.amqp_client import AmqpClient
from node.io.local_client import LocalClient
from node.io.plugin_service import ServiceHost
from node.log.log import category_logger, escape
from node.queue.queue import Queue


class FederationService:
    """The links of one node."""

    def __init__(self, host: ServiceHost) -> None:
        self._broker = host.broker
        self._loop = host.loop
        self._logger = category_logger("federation")
        self.links = Links(self._broker.catalogue, self)

    # --- PluginService ---

    def start(self) -> None:
        """Start the links that are to run here."""
        self.links.begin()

    def changed(self, events: Sequence[Event]) -> None:
        """Follow changes of the catalogue."""
        for event in events:
            self.links.changed(event)

    def answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        """Return the links of this node as rows (`links`), or restart one by its id (`restart`).

        Returns for `restart`: whether the link runs here. Raises: LookupError.
        """
        if question == "links":
            return [link_row(life, self.node, datetime.fromtimestamp) for life in self.links]
        if question == "restart":
            life = self.links.find(str(arguments.get("id")))
            if life is not None:
                life.restart()
            return life is not None
        raise LookupError(question)

    @property
    def is_idle(self) -> bool:
        """True if no link runs, and none is being removed."""
        return self.links.is_idle

    def stop(self, *, is_removed: bool) -> None:
        """End all links."""
        self.links.stop(is_removed=is_removed)

    # --- LinksHost ---

    @property
    def node(self) -> str:
        """The name of this node."""
        return self._broker.settings.node_name

    @property
    def now(self) -> float:
        """The loop's clock."""
        return self._loop.time()

    @property
    def wall_s(self) -> float:
        """The time of day in seconds since 1970."""
        return time.time()

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        name = self._broker.catalogue.global_parameter(CLUSTER_NAME)
        return name if isinstance(name, str) else self.node

    def random(self) -> float:
        """Return a random number from 0 to below 1."""
        return random.random()

    def dial_local(
        self, vhost: str, name: str, on_events: OnEvents, on_flow: Callable[[bool], None]
    ) -> Client:
        """Return a connection to this node."""
        return LocalClient(self._broker, vhost, name, loop=self._loop, on_events=on_events, on_flow=on_flow)

    def dial(self, uri: AmqpUri, name: str, on_events: OnEvents) -> Client:
        """Return a connection to another broker, or to this one for a URI without a host."""
        settings = settings_of(uri, client_properties(name))
        return _NamedClient(uri, settings, loop=self._loop, on_events=on_events)

    def after(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back in so many seconds."""
        return self._loop.call_later(seconds, callback).cancel

    def bindings(self, of: Federated) -> Collection[Binding]:
        """Return the bindings from an exchange."""
        return tuple(self._broker.catalogue.bindings_from(of.vhost, of.name))

    def is_hungry(self, of: Federated) -> bool:
        """True if consumers of a queue here could take more messages than it has."""
        queue = self._queue(of)
        if queue is None or queue.backlog.count:
            return False
        highest = queue.consumers.highest_waiting
        return highest is not None and highest >= 0

    def _queue(self, of: Federated) -> Queue | None:
        live = self._broker.vhosts.get(of.vhost)
        queue = None if live is None else live.queues.get(of.name)
        return queue if isinstance(queue, Queue) else None

    def watch(self, of: Federated, *, is_watched: bool) -> None:
        """Tell the links of a queue when its consumers or messages change."""
        key = of.vhost, of.name
        if is_watched:
            self._broker.queue_watches[key] = lambda: self.links.consumers_changed(of)
        else:
            self._broker.queue_watches.pop(key, None)

    def log(self, text: str, *, is_warning: bool) -> None:
        """Log a line of the category `federation`."""
        lines = "\n".join(map(escape, text.split("\n")))
        (self._logger.warning if is_warning else self._logger.info)("%s", lines)


class _NamedClient(AmqpClient):
    """A connection to another broker, which has no name here."""

    name = ""
