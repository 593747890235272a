"""Plug-ins of packages: found by their entry points, imported when they are asked for by name."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from node.catalogue.commands import EnablePlugin
from node.config.plugins import EXCHANGES
from node.io.plugin_packages import NoPlugin, PackagedPlugin, enabling, installed_plugins, load_plugin
from node.plugins import VERSION
from node.plugins.built_in import BUILT_IN, built_in

Install = Callable[[str, str], None]

GOOD = """
from node.plugins import ExchangeType, Plugin

class Mine(ExchangeType):
    name = "x-mine"
    description = "mine"

    def index(self, arguments, surroundings):
        raise AssertionError("there is no exchange")

PLUGIN = Plugin("mine", "1.2", "a plug-in", (Mine(),))
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package with one module and one entry point, as pip does."""

    def put(name: str, source: str) -> None:
        module = f"plugin_for_a_test_{name}"
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-3.4.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {module}\nVersion: 3.4\nSummary: its summary\n"
        (info / "METADATA").write_text(metadata)
        (info / "entry_points.txt").write_text(f"[fluffle.plugins]\n{name} = {module}:PLUGIN\n")
        monkeypatch.delitem(sys.modules, module, raising=False)

    monkeypatch.syspath_prepend(str(tmp_path))
    return put


def test_a_package_is_found_by_the_name_of_its_entry_point(install: Install) -> None:
    install("mine", GOOD)
    plugin = load_plugin("mine")
    assert plugin is not None
    assert plugin.exchange_types[0].name == "x-mine"
    assert enabling("mine") == EnablePlugin("mine", ("x-mine",))
    assert load_plugin("other") is None
    assert enabling("other") is None


def test_a_list_imports_nothing(install: Install) -> None:
    install("mine", "raise RuntimeError('imported')")
    assert installed_plugins() == {"mine": PackagedPlugin("mine", "3.4", "its summary")}


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("PLUGIN = 5", "is no Plugin"),
        (GOOD.replace('"mine", "1.2"', '"other", "1.2"'), "calls itself 'other', not 'mine'"),
    ],
)
def test_an_entry_point_leads_to_a_plugin_of_its_name(install: Install, source: str, problem: str) -> None:
    install("mine", source)
    with pytest.raises(NoPlugin, match=problem):
        load_plugin("mine")


def test_what_an_import_raises_is_passed_on(install: Install) -> None:
    install("mine", "1 / 0")
    with pytest.raises(ZeroDivisionError):
        enabling("mine")


def test_a_package_does_not_replace_a_built_in_plugin(install: Install) -> None:
    install("rabbitmq_sharding", GOOD)
    command = enabling("rabbitmq_sharding")
    assert command == EnablePlugin("rabbitmq_sharding", ("x-modulus-hash",))
    assert installed_plugins() == {}


def test_the_configuration_knows_the_built_in_plugins() -> None:
    """The list of names in the configuration, which may not import plug-ins, is that of the plug-ins."""
    assert tuple(sorted(EXCHANGES)) == tuple(sorted(BUILT_IN))
    for name in BUILT_IN:
        plugin = built_in(name)
        assert plugin is not None
        assert (plugin.name, plugin.version) == (name, VERSION)
        assert plugin.exchange_types
    assert built_in("rabbitmq_shovel") is None
