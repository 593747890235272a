"""`/metrics`, `/metrics/per-object`, `/metrics/detailed`: for Prometheus, without a user. Source: management §5."""

import time
from collections.abc import Callable

from node.config import PrometheusConfig
from node.management.call import Call
from node.management.exposition import CONTENT_TYPE
from node.management.prometheus import Scrape, Telemetry, Wanted
from node.management.reply import Reply, unavailable
from node.management.routes import Access, Handler, Route

PER_OBJECT = "per-object"
DETAILED = "detailed"


def routes(config: PrometheusConfig) -> list[Route]:
    """The pages below `prometheus.path`."""
    telemetry = Telemetry()
    path = config.path.rstrip("/")

    def sums(call: Call) -> Wanted:
        return Wanted("default", is_per_object=config.return_per_object_metrics)

    return [
        _route(path or "/", _page(telemetry, sums)),
        _route(f"{path}/{PER_OBJECT}", _page(telemetry, lambda call: Wanted(PER_OBJECT, is_per_object=True))),
        _route(f"{path}/{DETAILED}", _page(telemetry, detailed)),
        _route(f"{path}/{{registry}}", unknown),
    ]


def detailed(call: Call) -> Wanted:
    """`family=` and `vhost=` may come several times."""
    families = frozenset(value for name, value in call.parameters if name == "family")
    vhosts = frozenset(value for name, value in call.parameters if name == "vhost")
    return Wanted(DETAILED, is_per_object=True, families=families, vhosts=vhosts or None)


async def unknown(call: Call) -> Reply:
    """There is no such page."""
    return Reply(404, body=b"Unknown Registry", content_type="text/plain")


def _route(path: str, handler: Handler) -> Route:
    return Route("GET", path, handler, Access.PUBLIC, is_outside=True)


def _page(telemetry: Telemetry, wanted: Callable[[Call], Wanted]) -> Handler:
    async def scrape(call: Call) -> Reply:
        node = call.site.node
        if node is None:
            raise unavailable("the broker does not run on this node")
        asked, began = wanted(call), time.perf_counter()
        pieces = await Scrape(call.site, node, asked).pieces(telemetry)
        telemetry.note(asked.registry, sum(map(len, pieces)), time.perf_counter() - began)
        return Reply(200, body=pieces, content_type=CONTENT_TYPE)

    return scrape
