"""The built-in plug-ins by name. None is imported before it is enabled.

They are not entry points, so that they work in a plain checkout, too.
"""

from typing import Final

from node.plugins import Plugin

BUILT_IN: Final = ("rabbitmq_consistent_hash_exchange", "rabbitmq_random_exchange", "rabbitmq_sharding")
"""The names of the built-in plug-ins."""


def built_in(name: str) -> Plugin | None:
    """Return the built-in plug-in of that name, and import it; None if there is none."""
    match name:
        case "rabbitmq_consistent_hash_exchange":
            from node.plugins.exchanges.consistent_hash import PLUGIN
        case "rabbitmq_random_exchange":
            from node.plugins.exchanges.random_choice import PLUGIN
        case "rabbitmq_sharding":
            from node.plugins.exchanges.modulus_hash import PLUGIN
        case _:
            return None
    return PLUGIN
