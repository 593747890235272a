"""Peer discovery by a plug-in: found, made and asked by a node that belongs to no cluster.

A fault of the plug-in is logged, and it is asked again: the node waits, and creates no cluster of its own meanwhile.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, TypeVar

from node.config.config import Config
from node.config.plugins import PLUGINS
from node.extension.peer_discovery import ClusterPeer, PeerDiscovery
from node.extension.setting import SettingError, read_settings
from node.io.plugin_packages import load_plugin
from node.log.log import escape
from node.routing.plugins import Plugin

ANSWER_S: Final = 10.0
"""The time in which a plug-in must answer, in seconds."""

PEERS_MAX: Final = 1000
"""The most nodes that are asked of what a plug-in finds; the others are left out."""

_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):([0-9]{1,5})")
_PORT_MAX: Final = 65535

AnswerT = TypeVar("AnswerT")
Logger = logging.Logger | logging.LoggerAdapter[logging.Logger]


def _loaded(config: Config, logger: Logger) -> Iterator[Plugin]:
    """Yield the configured plug-ins of packages; one that cannot be loaded is logged."""
    for name in config.enabled_plugins or ():
        if name in PLUGINS:
            continue
        try:
            plugin = load_plugin(name)
        except Exception:
            logger.exception("Plugin '%s' cannot be loaded", escape(name))
            continue
        if plugin is not None:
            yield plugin


class PluginDiscovery:
    """The peer discovery that the configuration chooses."""

    def __init__(self, plugin: str, discovery: PeerDiscovery, logger: Logger) -> None:
        self._plugin = plugin
        self._discovery = discovery
        self._logger = logger
        self._said = ""
        """The fault that was logged last: it may be the same at each try, twice a second."""

    @classmethod
    def of(cls, config: Config, logger: Logger) -> "PluginDiscovery":
        """Make the discovery that the configuration names.

        Raises: OSError if no configured plug-in brings it, or it cannot be made: a node that finds no others must not
        create a cluster.
        """
        wanted = config.cluster.formation_plugin
        for plugin in _loaded(config, logger):
            for kind in plugin.peer_discovery:
                if kind.name != wanted:
                    continue
                try:
                    settings = read_settings(
                        plugin.settings_prefix, plugin.all_settings, config.plugin_settings
                    )
                    return cls(plugin.name, kind(settings, config.node_name), logger)
                except SettingError as error:
                    raise OSError(str(error)) from None
                except Exception as error:
                    logger.exception("Plugin '%s' failed to make its peer discovery", plugin.name)
                    raise OSError(f"the peer discovery '{wanted}' cannot be made: {error!r}") from error
        raise OSError(
            f"no enabled plug-in of this node brings '{wanted}' of cluster_formation.peer_discovery_backend"
        )

    async def announce(self, address: str) -> None:
        """Have the plug-in tell others of this node."""
        await self._ask("announce this node", partial(self._discovery.announce, address))

    async def places(self) -> list[tuple[str, str]]:
        """Return the names, empty if unknown, and addresses of the nodes to ask; none after a fault of the plug-in."""
        found = await self._ask("find nodes", self._peers)
        return [] if found is None else found

    async def _peers(self) -> list[tuple[str, str]]:
        peers = list(await self._discovery.peers())[:PEERS_MAX]
        return [_checked(peer) for peer in peers]

    async def close(self) -> None:
        """Have the plug-in release what it holds."""
        await self._ask("close its peer discovery", self._discovery.close)

    async def _ask(self, action: str, call: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
        try:
            async with asyncio.timeout(ANSWER_S) as patience:
                answer = await call()
        except Exception as error:
            text = f"no answer within {ANSWER_S:g} s" if patience.expired() else repr(error)
            if text != self._said:
                self._logger.error(
                    "Plugin '%s' failed to %s: %s",
                    self._plugin,
                    action,
                    text,
                    exc_info=not patience.expired(),
                )
            self._said = text
            return None
        self._said = ""
        return answer


def _checked(peer: ClusterPeer) -> tuple[str, str]:
    """Return the name and the address of a node. Raises: ValueError."""
    match = _ADDRESS.fullmatch(peer.address)
    if match is None or not 0 < int(match[2]) <= _PORT_MAX:
        raise ValueError(f"{peer.address!r} is no HOST:PORT")
    if not isinstance(peer.name, str):
        raise ValueError(f"{peer.name!r} is no name")
    return peer.name, peer.address
