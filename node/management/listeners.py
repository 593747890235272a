"""The HTTP listeners: the API with the UI and the metrics on one port, the metrics alone on another.

Source: management §1.0 "Base", §5, §6.1.
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from node.config.config import ManagementConfig, PrometheusConfig, TlsOptions
from node.config.values import Address
from node.log import phrases
from node.management.access_log import AccessLog
from node.management.dispatcher import Dispatcher
from node.management.resources import all_routes, metrics_routes
from node.management.routes import Access
from node.management.server import HttpServer
from node.management.static_files import StaticFiles

if TYPE_CHECKING:
    from node.management.site import Site


class Listeners:
    """The HTTP listeners of one process. `await start()`, then `await close()`.

    places: protocol, host and port of each.
    """

    def __init__(
        self, site: "Site", logger: "logging.Logger | logging.LoggerAdapter[logging.Logger]"
    ) -> None:
        self._site = site
        self._logger = logger
        self._servers: list[HttpServer] = []
        self.places: list[tuple[str, str, int]] = []

    async def start(self) -> None:
        """Accept requests. Raises: OSError for a configured address that is not available."""
        config = self._site.config
        management, prometheus = config.management, config.prometheus
        if management.is_on:
            routes = [*all_routes(), *metrics_routes(prometheus, Access.MONITORING)]
            dispatcher = Dispatcher(self._site, management, routes, StaticFiles())
            await self._serve("http", dispatcher, management)
        if prometheus.is_on:
            bare = ManagementConfig()
            dispatcher = Dispatcher(self._site, bare, metrics_routes(prometheus, Access.PUBLIC))
            await self._serve("http/prometheus", dispatcher, prometheus)

    async def close(self) -> None:
        """Accept no more."""
        self.places = []
        for server in self._servers:
            await server.close()

    async def _serve(
        self, protocol: str, dispatcher: Dispatcher, config: ManagementConfig | PrometheusConfig
    ) -> None:
        limits = self._site.config.management
        server = HttpServer(
            dispatcher,
            self._logger,
            body_max_bytes=limits.max_body_bytes,
            idle_s=limits.idle_timeout_s,
            compress=limits.compress,
            access_log=None if limits.http_log_dir is None else AccessLog(limits.http_log_dir),
        )
        self._servers.append(server)
        for address, tls in _addresses(config):
            name = protocol if tls is None else protocol.replace("http", "https", 1)
            try:
                await server.start(address, tls)
            except OSError as error:
                if config.is_configured:
                    raise
                self._logger.warning("There is no %s listener on %s: %s", name, address, error.strerror)
                continue
            host, port = server.listeners[-1]
            self.places.append((name, host, port))
            self._logger.info(phrases.http_listener_started(name, port))


def _addresses(
    config: ManagementConfig | PrometheusConfig,
) -> Iterable[tuple[Address, TlsOptions | None]]:
    if config.listen is not None:
        yield config.listen, None
    if config.tls_listen is not None:
        yield config.tls_listen, config.tls
