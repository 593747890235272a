"""Plug-ins are enabled and disabled by operators."""

from collections.abc import Mapping

import pytest

from node.admin import plugins
from node.catalogue.commands import DeclareExchange, EnablePlugin
from tests.kit.office import Office

RANDOM = "rabbitmq_random_exchange"


def test_a_plugin_is_enabled_and_disabled_on_all_nodes() -> None:
    office = Office()
    for _ in range(2):
        office.do(plugins.enable_plugin(office.admin, RANDOM))
    assert office.catalogue.plugins.by_name == {RANDOM: ("x-random", "x-local-random")}
    for _ in range(2):
        office.do(plugins.disable_plugin(office.admin, RANDOM))
    assert office.catalogue.plugins.by_name == {}


def test_one_that_is_in_use_stays() -> None:
    office = Office()
    office.do(plugins.enable_plugin(office.admin, RANDOM))
    office.do(office.admin.submit(DeclareExchange("/", "e", "x-random")))
    text = f"cannot disable plug-in '{RANDOM}': exchange 'e' in vhost '/' is of type 'x-random'"
    assert office.fails(plugins.disable_plugin(office.admin, RANDOM)) == ("invalid", text)


def test_one_that_is_missing_or_broken_is_not_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office()
    text = "plug-in 'absent' is not installed on this node"
    assert office.fails(plugins.enable_plugin(office.admin, "absent")) == ("not_found", text)

    def enabling(name: str, settings: Mapping[str, str]) -> EnablePlugin:
        raise SyntaxError("no code")

    monkeypatch.setattr(plugins, "enabling", enabling)
    text = "plug-in 'absent' cannot be loaded: SyntaxError('no code')"
    assert office.fails(plugins.enable_plugin(office.admin, "absent")) == ("invalid", text)
    assert office.catalogue.plugins.by_name == {}
