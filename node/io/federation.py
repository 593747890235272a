"""The federation links of one node: the plug-in's service, with the loop, the sockets and the broker for its links.

catalogue ─► Links ─► LinkLife ─┬─► AmqpClient ─► the upstream
                                └─► LocalLinkClient ─► the broker here
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from node.amqp_client.settings import client_properties, settings_of
from node.amqp_client.uri import AmqpUri
from node.catalogue.events import Event
from node.catalogue.records import Binding
from node.federation.life import Client, OnEvents
from node.federation.links import Links
from node.federation.metrics import link_metrics
from node.federation.plan import Federated
from node.federation.rows import link_row
from node.io.amqp_client import AmqpClient
from node.io.link_service import LinkService
from node.io.local_dial import dial_local
from node.io.local_link_client import LocalLinkClient
from node.io.plugin_service import ServiceHost
from node.log.log import escape
from node.queue.queue import Queue


class FederationService(LinkService):
    """The links of one node."""

    def __init__(self, host: ServiceHost) -> None:
        super().__init__(host, "federation")
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
        """Return the links of this node as rows (`links`) or numbers (`metrics`), or restart one by its id (`restart`).

        Returns for `restart`: whether the link runs here. Raises: LookupError.
        """
        if question == "links":
            return [link_row(life, self.node, datetime.fromtimestamp) for life in self.links]
        if question == "metrics":
            return link_metrics(self.links, has_rows=arguments.get("has_rows") is True)
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

    def dial_local(
        self, vhost: str, name: str, on_events: OnEvents, on_flow: Callable[[bool], None]
    ) -> Client:
        """Return a connection to this node."""
        return LocalLinkClient(
            self._broker, vhost, name, loop=self._loop, on_events=on_events, on_flow=on_flow
        )

    def dial(self, uri: AmqpUri, name: str, on_events: OnEvents) -> Client:
        """Return a connection to another broker, or to this one for a URI without a host."""
        return AmqpClient(
            uri,
            settings_of(uri, client_properties(name)),
            loop=self._loop,
            on_events=on_events,
            dial=lambda client: dial_local(self._broker, client, self._loop),
        )

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
