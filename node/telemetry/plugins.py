"""The columns that enabled plug-ins add to the row of a node. A plug-in that raises has none in that row.

The objects are made when they are first asked for, and forgotten with their plug-in.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from node.broker.broker import Broker
from node.extension.setting import read_settings
from node.extension.telemetry import TelemetryColumns
from node.routing.plugins import Plugin

_LIMIT: Final = 1 << 63
"""Values have 64 bits with a sign."""


class PluginColumns:
    """The columns of one broker's plug-ins.   settings: all plug-ins' texts of the configuration."""

    def __init__(self, broker: Broker, settings: Mapping[str, str]) -> None:
        self._types = broker.exchange_types
        self._settings = settings
        self._made: dict[str, tuple[Plugin, TelemetryColumns | None]] = {}

    def fields(self) -> dict[str, int] | None:
        """Return the present values by `PLUGIN.COLUMN`; None if no plug-in has any."""
        return dict(self._values()) or None

    def _values(self) -> Iterator[tuple[str, int]]:
        before, self._made = self._made, {}
        for name, plugin in self._types.plugins:
            if plugin is None or plugin.telemetry is None:
                continue
            known = before.get(name)
            if known is None or known[0] is not plugin:
                known = plugin, self._make(name, plugin, plugin.telemetry)
            self._made[name] = known
            if known[1] is not None:
                yield from self._sample(name, known[1])

    def _make(self, name: str, plugin: Plugin, kind: type[TelemetryColumns]) -> TelemetryColumns | None:
        try:
            return kind(read_settings(plugin.settings_prefix, plugin.all_settings, self._settings))
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._types.failed(name, "make its columns of telemetry", error)
            return None

    def _sample(self, name: str, columns: TelemetryColumns) -> list[tuple[str, int]]:
        try:
            found = dict(columns.sample())
            unknown = sorted(found.keys() - set(columns.names))
            assert not unknown, f"columns without a declaration: {', '.join(unknown)}"
            for value in found.values():
                assert type(value) is int, "a value is an int"
                assert -_LIMIT <= value < _LIMIT, "a value has 64 bits"
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._types.failed(name, "sample its columns of telemetry", error)
            return []
        return [(f"{name}.{column}", value) for column, value in found.items()]
