"""The metrics of the shovels and federation links of one node. Nothing is asked or written while their plug-in is off.

The numbers of states have the names of RabbitMQ 4's plug-ins `rabbitmq_shovel_prometheus` and
`rabbitmq_federation_prometheus`; `fluffle_…` are our own.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from node.io.plugin_services import PluginServices
from node.io.turns import Turns
from node.management.exposition import Exposition, Metric, labelled

SHOVEL_FAMILY: Final = "shovel_metrics"
FEDERATION_FAMILY: Final = "federation_metrics"
"""Our own families of `/metrics/detailed`."""

OWN: Final = "fluffle_"

_GAUGE: Final = "gauge"
_COUNTER: Final = "counter"

SHOVELS: Final = {
    "dynamic": Metric("shovel_dynamic", _GAUGE, "Dynamic shovels that this node runs"),
    "static": Metric("shovel_static", _GAUGE, "Static shovels that this node runs"),
}
LINKS: Final = Metric("federation_links", _GAUGE, "Federation links that this node runs")


class OfObjects(NamedTuple):
    """The metrics of one kind of objects.

    counters: by the name of the counter.   is_running, left_out: only with a row for each object.
    """

    counters: Mapping[str, Metric]
    is_running: Metric
    left_out: Metric


OF_SHOVELS: Final = OfObjects(
    {
        "forwarded": Metric("shovel_messages_forwarded_total", _COUNTER, "Messages that shovels forwarded"),
        "confirmed": Metric(
            "shovel_messages_confirmed_total", _COUNTER, "Messages that destinations of shovels confirmed"
        ),
        "refused": Metric(
            "shovel_messages_refused_total", _COUNTER, "Messages that destinations of shovels refused"
        ),
        "failures": Metric("shovel_failures_total", _COUNTER, "Attempts of shovels that failed or ended"),
    },
    Metric("shovel_running", _GAUGE, "1 while the shovel runs"),
    Metric("shovel_rows_left_out", _GAUGE, "Shovels of this node without rows here"),
)
OF_LINKS: Final = OfObjects(
    {
        "taken": Metric(
            "federation_messages_taken_total", _COUNTER, "Messages that links took from upstreams"
        ),
        "dropped": Metric(
            "federation_messages_dropped_total",
            _COUNTER,
            "Messages that links dropped: they had come too far",
        ),
        "refused": Metric(
            "federation_messages_refused_total", _COUNTER, "Messages of links that queues here refused"
        ),
        "failures": Metric("federation_failures_total", _COUNTER, "Attempts of links that failed or ended"),
    },
    Metric("federation_link_running", _GAUGE, "1 while the link runs"),
    Metric("federation_rows_left_out", _GAUGE, "Federation links of this node without rows here"),
)


class Wanted(Protocol):
    """The options of a scrape, as this module reads them."""

    @property
    def is_per_object(self) -> bool:
        """True for a row for each object in place of totals."""

    def wants(self, family: str) -> bool:
        """Return True if a family is asked for."""

    def sees(self, vhost: str) -> bool:
        """True if the scrape has objects of this vhost."""


class LinkMetrics:
    """The metrics of one scrape.   prefix: of the names that RabbitMQ has."""

    def __init__(self, out: Exposition, prefix: str, turns: Turns, wanted: Wanted) -> None:
        self._out = out
        self._prefix = prefix
        self._turns = turns
        self._wanted = wanted

    async def add(self, services: PluginServices | None) -> None:
        """Add the families that are asked for, of enabled plug-ins.   services: None until the node serves clients."""
        if services is None:
            return
        found = self._ask(services, "rabbitmq_shovel", SHOVEL_FAMILY)
        if found is not None:
            for type_, metric in SHOVELS.items():
                self._add_states(metric, found["states"][type_])
            await self._add_objects(OF_SHOVELS, found, _shovel_labels)
        found = self._ask(services, "rabbitmq_federation", FEDERATION_FAMILY)
        if found is not None:
            self._add_states(LINKS, found["states"])
            await self._add_objects(OF_LINKS, found, _link_labels)

    def _ask(self, services: PluginServices, plugin: str, family: str) -> dict[str, Any] | None:
        service = services.find(plugin) if self._wanted.wants(family) else None
        if service is None:
            return None
        answer: dict[str, Any] = service.answer("metrics", {"has_rows": self._wanted.is_per_object})
        return answer

    def _add_states(self, metric: Metric, counts: Mapping[str, int]) -> None:
        for status, count in counts.items():
            self._out.add(metric, self._prefix, count, labelled({"status": status}))

    async def _add_objects(
        self,
        metrics: OfObjects,
        found: Mapping[str, Any],
        labels_of: Callable[[Mapping[str, Any]], Mapping[str, str]],
    ) -> None:
        out = self._out
        if not self._wanted.is_per_object:
            for name, metric in metrics.counters.items():
                out.add(metric, OWN, found["totals"][name])
            return
        for metric in (*metrics.counters.values(), metrics.is_running):
            out.begin(metric, OWN)
        for row in found["rows"]:
            if self._wanted.sees(row["vhost"]):
                labels = labelled(labels_of(row))
                for name, metric in metrics.counters.items():
                    out.add(metric, OWN, row[name], labels)
                out.add(metrics.is_running, OWN, row["is_running"], labels)
                await self._turns.give()
        out.add(metrics.left_out, OWN, found["left_out"])


def _shovel_labels(row: Mapping[str, Any]) -> Mapping[str, str]:
    return {"vhost": row["vhost"], "shovel": row["name"]}


def _link_labels(row: Mapping[str, Any]) -> Mapping[str, str]:
    return {
        "vhost": row["vhost"],
        row["kind"]: row["name"],
        "upstream": row["upstream"],
        f"upstream_{row['kind']}": row["upstream_name"],
    }
