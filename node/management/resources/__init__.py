"""The resources of the HTTP API, one file a noun. Each has its `ROUTES`."""

from importlib import import_module
from typing import Final

from node.config.config import PrometheusConfig
from node.management.routes import Access, Route

_NOUNS: Final = (
    "overview",
    "nodes",
    "health",
    "misc",
    "mirroring",
    "planning",
    "queues",
    "dead_letters",
    "exchanges",
    "delayed",
    "bindings",
    "connections",
    "channels",
    "consumers",
    "vhosts",
    "users",
    "permissions",
    "policies",
    "parameters",
    "shovels",
    "federation",
    "limits",
    "feature_flags",
    "definitions",
    "pages",
)


def all_routes() -> list[Route]:
    """Return all routes below `/api`, and those beside it; each call has resources of plug-ins of its own."""
    from node.management.resources import plugins

    found = [route for noun in _NOUNS for route in import_module(f"{__name__}.{noun}").ROUTES]
    return [*found, *plugins.routes()]


def metrics_routes(config: PrometheusConfig, access: Access) -> list[Route]:
    """The metrics for Prometheus.   access: who may see them."""
    from node.management.resources.metrics import routes

    return routes(config, access)
