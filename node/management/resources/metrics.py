"""The pages `/metrics`, `/metrics/per-object`, `/metrics/detailed` for Prometheus.

On a port of their own they need no user; on the API's port only users that may monitor see them. Source: management
§5.
"""

import time
from collections.abc import Callable
from functools import partial

from node.config.config import PrometheusConfig
from node.management.call import Call
from node.management.exposition import CONTENT_TYPE
from node.management.expositions import Expositions
from node.management.prometheus import Scrape, Telemetry, Wanted
from node.management.reply import Reply, unavailable
from node.management.routes import Access, Handler, Route

PER_OBJECT = "per-object"
DETAILED = "detailed"


def routes(config: PrometheusConfig, access: Access = Access.PUBLIC) -> list[Route]:
    """Return the pages below `prometheus.path`.   access: who may see them."""
    telemetry, expositions = Telemetry(), Expositions()
    path, page = config.path.rstrip("/"), partial(_page, telemetry, expositions)

    def sums(call: Call) -> Wanted:
        return Wanted("default", is_per_object=config.return_per_object_metrics)

    return [
        Route("GET", at, handler, access, is_outside=True)
        for at, handler in (
            (path or "/", page(sums)),
            (f"{path}/{PER_OBJECT}", page(lambda call: Wanted(PER_OBJECT, is_per_object=True))),
            (f"{path}/{DETAILED}", page(detailed)),
            (f"{path}/{{registry}}", unknown),
        )
    ]


def detailed(call: Call) -> Wanted:
    """Return the wanted families and vhosts: `family=` and `vhost=` may come several times."""
    families = frozenset(value for name, value in call.parameters if name == "family")
    vhosts = frozenset(value for name, value in call.parameters if name == "vhost")
    return Wanted(DETAILED, is_per_object=True, families=families, vhosts=vhosts or None)


async def unknown(call: Call) -> Reply:
    """Answer 404: there is no such page."""
    return Reply(404, body=b"Unknown Registry", content_type="text/plain")


def _page(telemetry: Telemetry, expositions: Expositions, wanted: Callable[[Call], Wanted]) -> Handler:
    async def scrape(call: Call) -> Reply:
        node = call.site.node
        if node is None:
            raise unavailable("the broker does not run on this node")
        asked = wanted(call)

        async def make() -> list[bytes]:
            began = time.perf_counter()
            pieces = await Scrape(call.site, node, asked).pieces(telemetry)
            telemetry.note(asked.registry, sum(map(len, pieces)), time.perf_counter() - began)
            return pieces

        return Reply(200, body=await expositions.page(asked, make), content_type=CONTENT_TYPE)

    return scrape
