"""Plug-ins that are installed: the built-in ones, and entry points of the group `fluffle.plugins` of other packages.

The entry points of all installed packages are looked through once for each question, some 10 ms, which happens only
when a plug-in is enabled that is not built in, or an operator asks for a list. Nothing is imported for a list.
"""

from collections.abc import Mapping
from importlib import invalidate_caches
from typing import TYPE_CHECKING, Final, NamedTuple

from node.catalogue.commands import EnablePlugin
from node.extension.setting import read_settings
from node.plugins import Plugin
from node.plugins.built_in import BUILT_IN, built_in

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "fluffle.plugins"

OTHERS: Final = (
    "rabbitmq_auth_backend_http",
    "rabbitmq_federation",
    "rabbitmq_federation_management",
    "rabbitmq_mqtt",
    "rabbitmq_shovel",
    "rabbitmq_shovel_management",
    "rabbitmq_stomp",
    "rabbitmq_web_mqtt",
    "rabbitmq_web_stomp",
)
"""The built-in plug-ins that bring no exchange types: each has a folder of its own."""


class PackagedPlugin(NamedTuple):
    """A plug-in that is installed, as far as can be told without importing it."""

    name: str
    version: str
    description: str


class NoPlugin(Exception):
    """An entry point leads to something that is no plug-in, or one of another name."""


def load_plugin(name: str) -> Plugin | None:
    """Return an installed plug-in, and import it; None if there is none of that name.

    Raises: NoPlugin, or whatever its import raises.
    """
    plugin = built_in(name) or _other(name)
    if plugin is not None:
        return plugin
    from importlib.metadata import entry_points  # some 15 ms that a node without such plug-ins saves

    invalidate_caches()  # the package may have been installed after the node was started
    for entry in entry_points(group=GROUP, name=name):
        found = entry.load()
        if not isinstance(found, Plugin):
            raise NoPlugin(f"{entry.value} is no Plugin")
        if found.name != name:
            raise NoPlugin(f"{entry.value} calls itself '{found.name}', not '{name}'")
        return found
    return None


def _other(name: str) -> Plugin | None:
    """Return the plug-in of `OTHERS` with that name, and import it; None if there is none."""
    match name:
        case "rabbitmq_auth_backend_http":
            from node.backends.http import PLUGIN
        case "rabbitmq_federation":
            from node.federation.plugin import PLUGIN
        case "rabbitmq_federation_management":
            from node.federation.management_plugin import PLUGIN
        case "rabbitmq_mqtt":
            from node.mqtt.plugin import PLUGIN
        case "rabbitmq_shovel":
            from node.shovels.plugin import PLUGIN
        case "rabbitmq_shovel_management":
            from node.shovels.management_plugin import PLUGIN
        case "rabbitmq_stomp":
            from node.stomp.plugin import PLUGIN
        case "rabbitmq_web_mqtt":
            from node.mqtt.web_plugin import PLUGIN
        case "rabbitmq_web_stomp":
            from node.stomp.web_plugin import PLUGIN
        case _:
            return None
    return PLUGIN


def enabling(name: str, settings: Mapping[str, str] | None = None) -> EnablePlugin | None:
    """Return the command that enables an installed plug-in on all nodes; None if this node has none of that name.

    settings: the texts of all plug-ins' settings in the configuration file.
    Raises: SettingError if a text is not allowed; else as `load_plugin`.
    """
    plugin = load_plugin(name)
    if plugin is None:
        return None
    read_settings(plugin.settings_prefix, plugin.all_settings, settings or {})
    return EnablePlugin(name, tuple(each.name for each in plugin.exchange_types))


def installed_plugins() -> dict[str, PackagedPlugin]:
    """Return the installed plug-ins that are not built in, by name, without importing them."""
    from importlib.metadata import entry_points

    found: dict[str, PackagedPlugin] = {}
    for entry in entry_points(group=GROUP):
        if entry.name not in BUILT_IN and entry.name not in OTHERS:
            found.setdefault(entry.name, _packaged(entry))
    return found


def _packaged(entry: "EntryPoint") -> PackagedPlugin:
    package = entry.dist
    if package is None:
        return PackagedPlugin(entry.name, "", "")
    return PackagedPlugin(entry.name, package.version, str(package.metadata.json.get("summary", "")))
