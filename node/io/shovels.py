"""The shovels of one node: the plug-in's service, with the loop, the sockets and the broker for its shovels.

catalogue ─► Shovels ─► ShovelLife ─► AmqpClient ─► a broker, or this one
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from node.amqp_client.settings import client_properties, settings_of
from node.amqp_client.uri import AmqpUri
from node.catalogue.commands import ClearParameter, Refused
from node.catalogue.events import Event
from node.catalogue.shovel_parameters import SHOVEL
from node.io.amqp_client import AmqpClient
from node.io.link_service import LinkService
from node.io.local_dial import dial_local
from node.io.plugin_service import ServiceHost
from node.log.log import escape
from node.shovels.definition import ShovelDefinition, ShovelKey, read_definition
from node.shovels.life import OnEvents
from node.shovels.metrics import shovel_metrics
from node.shovels.session import COUNTED, Link
from node.shovels.shovels import Shovels
from node.shovels.static import static_shovels
from node.shovels.status import status_row

RETRY_S: Final = 5.0
"""The wait until a shovel that is complete is deleted again, where the cluster could not do it."""


class ShovelService(LinkService):
    """The shovels of one node."""

    def __init__(self, host: ServiceHost) -> None:
        super().__init__(host, "shovel")
        static, problems = static_shovels(host.config.plugin_settings)
        for problem in problems:
            self._logger.error("%s", escape(problem))
        self.shovels = Shovels(self._broker.catalogue, self, static)

    # --- PluginService ---

    def start(self) -> None:
        """Start the shovels that are to run here."""
        self.shovels.begin()

    def changed(self, events: Sequence[Event]) -> None:
        """Follow changes of the catalogue."""
        for event in events:
            self.shovels.changed(event)

    def stop(self, *, is_removed: bool) -> None:
        """End all shovels."""
        self.shovels.stop()

    @property
    def is_idle(self) -> bool:
        """True if no shovel runs, and none is ending."""
        return self.shovels.is_idle

    def answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        """Return the answer to a question of operators: `shovels`, `metrics`, or `restart` of one.

        Raises: LookupError.
        """
        match question:
            case "shovels":
                return [
                    status_row(life.status, self.node, datetime.fromtimestamp)
                    | {"counters": {name: getattr(life.counters, name) for name in COUNTED}}
                    for life in self.shovels
                ]
            case "metrics":
                return shovel_metrics(self.shovels, has_rows=arguments.get("has_rows") is True)
            case "restart":
                key = ShovelKey(str(arguments.get("vhost", "")), str(arguments.get("name")))
                life = self.shovels.find(key)
                if life is not None:
                    life.restart()
                return life is not None
        raise LookupError(question)

    # --- ShovelsHost ---

    def dial(self, uri: AmqpUri, name: str, on_events: OnEvents, on_writable: Callable[[], None]) -> Link:
        """Return a connection to another broker, or to this one for a URI without a host."""
        return AmqpClient(
            uri,
            settings_of(uri, client_properties(name)),
            loop=self._loop,
            on_events=on_events,
            on_writable=on_writable,
            dial=lambda client: dial_local(self._broker, client, self._loop),
        )

    def log(self, level: str, text: str) -> None:
        """Log a line of the category `shovel`."""
        write = {"info": self._logger.info, "warning": self._logger.warning}.get(level, self._logger.error)
        write("%s", escape(text))

    def completed(self, definition: ShovelDefinition) -> None:
        """Delete the parameter of a shovel that has done its work, unless it was changed meanwhile."""
        key = definition.key
        value = self._broker.catalogue.parameter(key.vhost, SHOVEL, key.name) if key.vhost else None
        if value is not None and read_definition(key, value) == definition:
            answered = partial(self._cleared, definition)
            self._broker.log.submit(ClearParameter(key.vhost, SHOVEL, key.name), answered)

    def _cleared(self, definition: ShovelDefinition, result: bool | Refused) -> None:
        if isinstance(result, Refused):
            self._loop.call_later(RETRY_S, self.completed, definition)
