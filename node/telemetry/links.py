"""The columns of shovels and federation links in the row of a node: how many run, and what all of them have moved.

They stand in the map `plugins` beside the columns of other plug-ins, whose code has no service to ask. Nothing is asked
while the plug-ins are off.
"""

from typing import Final

from node.io.plugin_services import PluginServices

SHOVELS: Final = "rabbitmq_shovel"
FEDERATION: Final = "rabbitmq_federation"


def link_columns(services: PluginServices | None) -> dict[str, int]:
    """Return the present values by `PLUGIN.COLUMN`.   services: None until the node serves clients."""
    found: dict[str, int] = {}
    for plugin in (SHOVELS, FEDERATION):
        service = None if services is None else services.find(plugin)
        if service is None:
            continue
        numbers = service.answer("metrics", {"has_rows": False})
        kinds = numbers["states"].values() if plugin == SHOVELS else (numbers["states"],)
        running = sum(states["running"] for states in kinds)
        found[f"{plugin}.running"] = running
        found[f"{plugin}.not_running"] = sum(sum(states.values()) for states in kinds) - running
        for name, value in numbers["totals"].items():
            found[f"{plugin}.{name}_total"] = value
    return found
