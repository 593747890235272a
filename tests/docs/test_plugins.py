"""The plug-in that docs/plugins.md shows works as it stands there."""

import tomllib

from node.catalogue.records import Exchange
from node.plugins import Binding, Destination, Message, Plugin
from node.routing.exchange_types import ExchangeTypes
from tests.docs.pages import Page


def test_the_plugin_that_is_shown() -> None:
    page = Page("plugins", {"first_bound:PLUGIN": "first_bound:PLUGIN"})
    names: dict[str, object] = {}
    exec(page.block("python", "## Write a plug-in"), names)
    plugin = names["PLUGIN"]
    assert isinstance(plugin, Plugin)
    entry = tomllib.loads(page.block("toml", "## Write a plug-in"))
    assert entry["project"]["entry-points"]["fluffle.plugins"] == {plugin.name: "first_bound:PLUGIN"}
    types = ExchangeTypes(lambda name: plugin)
    types.enable(plugin.name, ("x-first-bound",))
    index = types.index(Exchange("/", "e", "x-first-bound"), lambda name: True, lambda name: True)
    assert not index.varies
    bindings = [Binding("/", "e", "queue", name, "") for name in "ab"]
    for binding in bindings:
        index.bind(binding)
    assert index.route(Message(["k"])) == [Destination("queue", "a")]
    index.unbind(bindings[0])
    assert index.route(Message(["k"])) == [Destination("queue", "b")]
