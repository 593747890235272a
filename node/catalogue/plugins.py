"""The plug-ins that are enabled in the whole cluster, and the exchange types that each of them brings.

The catalogue knows names only. A node without the package of a plug-in therefore applies every command as all other
nodes do: which types may be declared depends on the commands so far, never on what is installed somewhere.
"""

from collections.abc import Collection, Mapping
from typing import Final

from node.amqp.constants import ReplyCode
from node.catalogue.commands import DisablePlugin, EnablePlugin, Refused
from node.catalogue.events import Event, PluginDisabled, PluginEnabled
from node.catalogue.names import resource
from node.catalogue.records import EXCHANGE_TYPES, Exchange

PLUGINS_MAX: Final = 100
"""The most plug-ins that are enabled at a time."""


class EnabledPlugins:
    """The enabled plug-ins, with the handlers of the commands that change them.

    events: the catalogue's list of events, to which each change is appended.
    """

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._by_name: dict[str, tuple[str, ...]] = {}
        self.exchange_types: set[str] = set(EXCHANGE_TYPES)
        """All types of which an exchange may be declared; the set stays the same object."""

    @property
    def by_name(self) -> Mapping[str, tuple[str, ...]]:
        """The exchange types of each plug-in, in the order in which the plug-ins were enabled."""
        return self._by_name

    def plugin_of(self, exchange_type: str) -> str | None:
        """Return the plug-in that brings an exchange type; None: the type is built in or unknown."""
        return next((name for name, types in self._by_name.items() if exchange_type in types), None)

    def enable(self, command: EnablePlugin, used: Mapping[str, Exchange]) -> bool | Refused:
        """Enable a plug-in, or change its types. Gives False if nothing changes.   used: an exchange of each used type.

        Refused (406): another plug-in has one of the types, or one that it had is in use and no longer among them.
        """
        types = tuple(dict.fromkeys(command.exchange_types))
        before = self._by_name.get(command.name)
        if before == types:
            return False
        if before is None and len(self._by_name) >= PLUGINS_MAX:
            return _refused(f"cannot enable plug-in '{command.name}': {PLUGINS_MAX} plug-ins are enabled")
        taken = self.exchange_types.difference(before or ()).intersection(types)
        if taken:
            return _refused(f"cannot enable plug-in '{command.name}': exchange type '{min(taken)}' exists")
        lost = set(before or ()).difference(types)
        if (refusal := _in_use(command.name, lost, used)) is not None:
            return refusal
        self.exchange_types -= lost
        self.exchange_types.update(types)
        self._by_name[command.name] = types
        self._events.append(PluginEnabled(command.name, types))
        return True

    def disable(self, command: DisablePlugin, used: Mapping[str, Exchange]) -> bool | Refused:
        """Disable a plug-in; give False if it is not enabled.   used: as for `enable`.

        Refused (406) while there is an exchange of one of its types.
        """
        types = self._by_name.get(command.name)
        if types is None:
            return False
        if (refusal := _in_use(command.name, types, used)) is not None:
            return refusal
        del self._by_name[command.name]
        self.exchange_types.difference_update(types)
        self._events.append(PluginDisabled(command.name))
        return True


def _in_use(name: str, types: Collection[str], used: Mapping[str, Exchange]) -> Refused | None:
    """Return the refusal to take exchange types away, if there is an exchange of one of them."""
    exchange = next((used[each] for each in sorted(types) if each in used), None)
    if exchange is None:
        return None
    where = resource("exchange", exchange.name, exchange.vhost)
    return _refused(f"cannot disable plug-in '{name}': {where} is of type '{exchange.type}'")


def _refused(text: str) -> Refused:
    return Refused(ReplyCode.PRECONDITION_FAILED, text)
