"""Columns of plug-ins in the row of a node: their names, and faults that cost nothing but them."""

import json
from collections.abc import Mapping

import pytest

from node.catalogue.commands import DisablePlugin, EnablePlugin
from node.extension.setting import Setting, Settings
from node.extension.telemetry import COLUMNS_MAX, TelemetryColumns
from node.plugins import Plugin
from node.telemetry.plugins import PluginColumns
from node.telemetry.rows import Rows
from tests.kit.world import World
from tests.node.telemetry.schema_check import parse

MADE: list[Settings] = []


class Tides(TelemetryColumns):
    """The height of the tide, which the setting says; `bug` and `text` are faults."""

    names = ("height", "floods_total")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        MADE.append(settings)
        if settings["height"] == "none":
            raise KeyError("a bug")

    def sample(self) -> Mapping[str, int]:
        match self.settings["height"]:
            case "bug":
                raise KeyError("a bug")
            case "text":
                return {"height": "high"}  # type: ignore[dict-item]
            case "huge":
                return {"height": 1 << 63}
            case "unknown":
                return {"depth": 1}
        return {"height": int(str(self.settings["height"]))}


class Ships(TelemetryColumns):
    names = ("in_port",)

    def sample(self) -> Mapping[str, int]:
        return {"in_port": 3}


TIDES = Plugin("tides", "1", "", settings=(Setting("height", "-2"),), telemetry=Tides)
SHIPS = Plugin("ships", "1", "", telemetry=Ships)


def columns(height: str = "-2") -> tuple[World, PluginColumns]:
    """Return a broker with both plug-ins, and their columns."""
    MADE.clear()
    world = World()
    world.broker.exchange_types._load = lambda name: {"tides": TIDES, "ships": SHIPS}.get(name)
    found = PluginColumns(world.broker, {"plugin.tides.height": height})
    assert found.fields() is None
    world.submit(EnablePlugin("tides", ()))
    world.submit(EnablePlugin("ships", ()))
    return world, found


def test_columns_have_the_name_of_their_plugin() -> None:
    _world, found = columns()
    assert found.fields() == {"tides.height": -2, "ships.in_port": 3}
    assert found.fields() == {"tides.height": -2, "ships.in_port": 3}
    assert len(MADE) == 1


def test_columns_go_with_their_plugin() -> None:
    world, found = columns()
    world.submit(DisablePlugin("tides"))
    assert found.fields() == {"ships.in_port": 3}
    world.submit(EnablePlugin("tides", ()))
    assert found.fields() == {"tides.height": -2, "ships.in_port": 3}


@pytest.mark.parametrize("height", ["none", "bug", "text", "huge", "unknown"])
def test_a_plugin_that_fails_has_no_columns(height: str) -> None:
    world, found = columns(height)
    assert found.fields() == {"ships.in_port": 3}
    assert world.broker.exchange_types.failures["tides"] == 1
    found.fields()
    assert len(MADE) == 1


def test_the_row_is_one_that_readers_know() -> None:
    _world, found = columns()
    rows = Rows("c", "n", "0" * 32, wall=lambda: 1.0, monotonic=lambda: 1.0)
    line = rows.line("node", {"plugins": found.fields()}, rows.now())
    (row,) = parse([line])
    assert row["plugins"] == {"tides.height": -2, "ships.in_port": 3}
    assert "plugins" not in json.loads(rows.line("node", {"plugins": None}, rows.now()))


def test_names_of_columns_are_checked() -> None:
    for names in (("Upper",), ("a.b",), ("",), tuple(f"c{number}" for number in range(COLUMNS_MAX + 1))):
        with pytest.raises(AssertionError):
            type("Wrong", (TelemetryColumns,), {"names": names})
