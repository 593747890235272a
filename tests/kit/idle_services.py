"""The services of shovels and federation of a node that runs none, without a loop, for scrapes."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from node.broker.broker import Broker
from node.federation.links import Links
from node.federation.metrics import link_metrics
from node.shovels.metrics import shovel_metrics
from node.shovels.shovels import Shovels


class _Service:
    """A service that answers `metrics`."""

    def __init__(self, metrics: Any, lives: Any) -> None:
        self._metrics = metrics
        self._lives = lives

    def answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        """Return the numbers. Raises: LookupError."""
        if question != "metrics":
            raise LookupError(question)
        return self._metrics(self._lives, has_rows=arguments["has_rows"])


def idle_services(broker: Broker) -> Any:
    """Return what stands for `PluginServices` of a node whose plug-ins for links are enabled."""
    nobody: Any = None
    found = {
        "rabbitmq_shovel": _Service(shovel_metrics, Shovels(broker.catalogue, nobody)),
        "rabbitmq_federation": _Service(link_metrics, Links(broker.catalogue, nobody)),
    }
    return SimpleNamespace(find=found.get)
