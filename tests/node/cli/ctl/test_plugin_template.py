"""The files of a new plug-in."""

import tomllib
from pathlib import Path

import pytest

from node.cli.ctl.plugin_template import new_plugin
from node.plugins import Binding, Destination, Message, Plugin, Surroundings

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "plugin"


def test_the_example_is_what_is_made() -> None:
    assert new_plugin("first_bound") == {
        path.name: path.read_text() for path in EXAMPLE.iterdir() if path.is_file()
    }


def test_a_new_plugin_works_as_it_is() -> None:
    files = new_plugin("my_own_2")
    names: dict[str, object] = {}
    exec(files["my_own_2.py"], names)
    plugin = names["PLUGIN"]
    assert isinstance(plugin, Plugin)
    assert plugin.name == "my_own_2"
    (type_,) = plugin.exchange_types
    assert (type_.name, type(type_).__name__) == ("x-my-own-2", "MyOwn2")
    index = type_.index({}, Surroundings(lambda bound: 0, lambda name: True, lambda name: True))
    index.bind(Binding("/", "e", "queue", "q", ""))
    assert list(index.route(Message(["k"]))) == [Destination("queue", "q")]
    project = tomllib.loads(files["pyproject.toml"])
    assert project["project"]["entry-points"]["fluffle.plugins"] == {"my_own_2": "my_own_2:PLUGIN"}


@pytest.mark.parametrize(
    "name", ["", "A", "2a", "a-b", "a b", "../a", "node", "rabbitmq_mine", "a" * 51, "é"]
)
def test_names_are_those_of_modules(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a plug-in"):
        new_plugin(name)
