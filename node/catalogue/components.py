"""The components of built-in plug-ins: which runtime parameters and policy keys each brings, and how they are checked.

A parameter outlives the use of its plug-in, and all nodes must judge a command alike. So the catalogue takes what any
component here allows; whether the plug-in is enabled is asked when an operator sets something.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from node.amqp_client.uri import without_password
from node.catalogue import federation_parameters as federation
from node.catalogue import shovel_parameters as shovels
from node.catalogue.records import Json


class Component(NamedTuple):
    """A component of a plug-in.

    plugin: its name.   validate: returns the problems with a parameter, by its name and value.
    """

    plugin: str
    validate: Callable[[str, Json], list[str]]


COMPONENTS: Final[Mapping[str, Component]] = {
    name: Component(plugin, check)
    for plugin, validators in (
        (federation.PLUGIN, federation.VALIDATORS),
        (shovels.PLUGIN, shovels.VALIDATORS),
    )
    for name, check in validators.items()
}
"""The components by name."""

PLUGIN_POLICY_KEYS: Final[Mapping[str, str]] = dict.fromkeys(federation.POLICY_KEYS, federation.PLUGIN)
"""The plug-ins by the keys of policies that they bring."""


def find_component(name: str, plugins: Collection[str] | None) -> Component | None:
    """Return a component; None: there is none, or its plug-in is not enabled.   plugins: None: all are."""
    found = COMPONENTS.get(name)
    return found if found is None or plugins is None or found.plugin in plugins else None


def without_passwords(component: str, value: Json) -> Json:
    """Return the value of a parameter without the passwords in its URIs, for those who need not know them."""
    if component not in COMPONENTS:
        return value
    if isinstance(value, str):
        return without_password(value) if "://" in value else value
    if isinstance(value, list):
        return [without_passwords(component, each) for each in value]
    if isinstance(value, dict):
        return {key: without_passwords(component, each) for key, each in value.items()}
    return value


def policy_keys(plugins: Collection[str] | None) -> list[str]:
    """Return the keys of policies that enabled plug-ins bring.   plugins: None: all of them."""
    return [key for key, plugin in PLUGIN_POLICY_KEYS.items() if plugins is None or plugin in plugins]


def policy_problem(definition: Mapping[str, Json]) -> str | None:
    """Return the problem with the keys of plug-ins in a policy's definition; None: there is none."""
    return federation.policy_problem(definition)
