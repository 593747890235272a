"""Plug-ins in the catalogue: which are enabled, and which exchange types may be declared because of them."""

import pytest

from node.amqp.constants import ReplyCode
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    Command,
    DeclareExchange,
    DeleteExchange,
    DisablePlugin,
    EnablePlugin,
    ExchangeDeclared,
    PutVhost,
    Refused,
)
from node.catalogue.durable_part import durable_changes
from node.catalogue.events import Event, PluginDisabled, PluginEnabled
from node.catalogue.plugins import PLUGINS_MAX
from node.catalogue.snapshot import everything, snapshot

ENABLE = EnablePlugin("hash", ("x-hash", "x-mod"))
DECLARE = DeclareExchange("/", "e", "x-hash", durable=True)


@pytest.fixture
def catalogue() -> Catalogue:
    catalogue = Catalogue()
    catalogue.apply(PutVhost("/"))
    catalogue.take_events()
    return catalogue


def changes_of(catalogue: Catalogue, command: Command[object]) -> list[Event]:
    catalogue.apply(command)
    return catalogue.take_events()


def refused(text: str) -> Refused:
    return Refused(ReplyCode.PRECONDITION_FAILED, text)


def test_a_type_exists_while_its_plugin_is_enabled(catalogue: Catalogue) -> None:
    unknown = Refused(ReplyCode.COMMAND_INVALID, "unknown exchange type 'x-hash'")
    assert catalogue.apply(DECLARE) == unknown
    assert catalogue.apply(ENABLE) is True
    assert catalogue.plugins.plugin_of("x-hash") == "hash"
    assert catalogue.plugins.plugin_of("direct") is None
    declared = catalogue.apply(DECLARE)
    assert isinstance(declared, ExchangeDeclared)
    assert declared.created
    catalogue.apply(DeleteExchange("/", "e"))
    assert catalogue.apply(DisablePlugin("hash")) is True
    assert catalogue.apply(DECLARE) == unknown


def test_vhosts_from_before_and_after_know_the_type(catalogue: Catalogue) -> None:
    catalogue.apply(ENABLE)
    catalogue.apply(PutVhost("later"))
    for vhost in ("/", "later"):
        assert isinstance(catalogue.apply(DeclareExchange(vhost, "e", "x-mod")), ExchangeDeclared)


def test_changes_are_reported_once(catalogue: Catalogue) -> None:
    assert changes_of(catalogue, ENABLE) == [PluginEnabled("hash", ("x-hash", "x-mod"))]
    assert catalogue.apply(ENABLE) is False
    assert changes_of(catalogue, ENABLE) == []
    assert changes_of(catalogue, DisablePlugin("hash")) == [PluginDisabled("hash")]
    assert catalogue.apply(DisablePlugin("hash")) is False
    assert catalogue.take_events() == []


def test_types_in_use_cannot_go(catalogue: Catalogue) -> None:
    """The other types may, and more may come."""
    catalogue.apply(ENABLE)
    catalogue.apply(DECLARE)
    in_use = refused("cannot disable plug-in 'hash': exchange 'e' in vhost '/' is of type 'x-hash'")
    assert catalogue.apply(DisablePlugin("hash")) == in_use
    assert catalogue.apply(EnablePlugin("hash", ("x-mod",))) == in_use
    assert catalogue.plugins.by_name == {"hash": ("x-hash", "x-mod")}
    assert catalogue.apply(EnablePlugin("hash", ("x-hash", "x-more"))) is True
    assert catalogue.plugins.exchange_types.intersection({"x-mod", "x-more"}) == {"x-more"}


def test_a_type_belongs_to_one_plugin(catalogue: Catalogue) -> None:
    catalogue.apply(ENABLE)
    for types, taken in (("x-mod",), "x-mod"), (("direct",), "direct"):
        text = f"cannot enable plug-in 'other': exchange type '{taken}' exists"
        assert catalogue.apply(EnablePlugin("other", types)) == refused(text)
    assert list(catalogue.plugins.by_name) == ["hash"]


def test_their_number_is_bounded(catalogue: Catalogue) -> None:
    for number in range(PLUGINS_MAX):
        assert catalogue.apply(EnablePlugin(f"p{number}")) is True
    assert isinstance(catalogue.apply(EnablePlugin("one more")), Refused)
    assert catalogue.apply(EnablePlugin("p1", ("x-hash",))) is True


def test_a_refused_change_and_one_of_nothing_are_not_logged(catalogue: Catalogue) -> None:
    def logged(command: Command[object]) -> list[Command[object]]:
        result = catalogue.apply(command)
        return durable_changes(command, result, catalogue.take_events(), catalogue)

    assert logged(ENABLE) == [ENABLE]
    assert logged(ENABLE) == []
    assert logged(EnablePlugin("other", ("x-hash",))) == []
    assert logged(DisablePlugin("hash")) == [DisablePlugin("hash")]
    assert logged(DisablePlugin("hash")) == []


def test_a_snapshot_enables_them_before_it_declares_exchanges(catalogue: Catalogue) -> None:
    catalogue.apply(ENABLE)
    catalogue.apply(DECLARE)
    for whole in (False, True):
        copy = Catalogue()
        for command in snapshot(catalogue, whole=whole):
            assert not isinstance(copy.apply(command), Refused)
        assert copy.exchange("/", "e") == catalogue.exchange("/", "e")
        assert copy.plugins.by_name == catalogue.plugins.by_name


def test_a_broker_that_follows_late_hears_of_them_first(catalogue: Catalogue) -> None:
    catalogue.apply(ENABLE)
    assert next(everything(catalogue)) == PluginEnabled("hash", ("x-hash", "x-mod"))
