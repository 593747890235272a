"""The files of a new plug-in, for `fluffle plugins new`. docs/plugins.md and examples/plugin show what it makes.

The plug-in works as it is: an exchange type that sends each message to the destination that was bound first.
"""

import re
from typing import Final

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,49}")

_PYPROJECT: Final = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{package}"
version = "1.0"
description = "A plug-in for Fluffle: the exchange type {type}"
requires-python = ">=3.11"

[project.entry-points."fluffle.plugins"]
{name} = "{name}:PLUGIN"

[tool.setuptools]
py-modules = ["{name}"]
"""

_MODULE: Final = '''\
"""A plug-in for Fluffle: the exchange type {type} sends each message to the destination that was bound first."""

from collections.abc import Iterable

from node.plugins import (
    Binding,
    Destination,
    ExchangeIndex,
    ExchangeType,
    Message,
    Plugin,
    Surroundings,
    Table,
    destination_of,
)


class {cls}Index:
    """The bindings from one exchange."""

    varies = False  # the same routing keys always lead to the same destinations until a binding changes

    def __init__(self) -> None:
        self.bindings: list[Binding] = []

    def bind(self, binding: Binding) -> None:
        """Take in a new binding."""
        self.bindings.append(binding)

    def unbind(self, binding: Binding) -> None:
        """Forget a binding."""
        self.bindings.remove(binding)

    def route(self, message: Message) -> Iterable[Destination]:
        """Return the destinations of a message."""
        return [destination_of(binding) for binding in self.bindings[:1]]


class {cls}(ExchangeType):
    """The exchange type {type}."""

    name = "{type}"
    description = "To the destination that was bound first"

    def index(self, arguments: Table, surroundings: Surroundings) -> ExchangeIndex:
        """Return the index of an exchange without bindings."""
        return {cls}Index()


PLUGIN = Plugin("{name}", "1.0", "exchange type {type}", ({cls}(),))
'''

_TEST: Final = '''\
"""The exchange type {type}, without a node. Run it with pytest in this folder."""

from {name} import PLUGIN

from node.plugins import Binding, Destination, Message, Surroundings


def to_queue(name: str) -> Binding:
    return Binding("/", "e", "queue", name, "")


def test_messages_go_to_the_destination_that_was_bound_first() -> None:
    surroundings = Surroundings(lambda bound: 0, lambda queue: True, lambda queue: True)
    index = PLUGIN.exchange_types[0].index({{}}, surroundings)
    assert list(index.route(Message(["key"]))) == []
    index.bind(to_queue("a"))
    index.bind(to_queue("b"))
    assert list(index.route(Message(["key"]))) == [Destination("queue", "a")]
    index.unbind(to_queue("a"))
    assert list(index.route(Message(["key"]))) == [Destination("queue", "b")]
'''


def new_plugin(name: str) -> dict[str, str]:
    """Return the files of a new plug-in by name. Raises: ValueError for a name that no plug-in can have."""
    if _NAME.fullmatch(name) is None or name.startswith("rabbitmq_") or name == "node":
        raise ValueError(
            f"'{name}' cannot be the name of a plug-in: it needs a letter, then letters, digits and _, at most 50 "
            "in all, and must not be 'node' or begin with 'rabbitmq_'"
        )
    words = name.split("_")
    values = {
        "name": name,
        "package": name.replace("_", "-"),
        "type": f"x-{name.replace('_', '-')}",
        "cls": "".join(word.capitalize() for word in words),
    }
    return {
        "pyproject.toml": _PYPROJECT.format(**values),
        f"{name}.py": _MODULE.format(**values),
        f"test_{name}.py": _TEST.format(**values),
    }
