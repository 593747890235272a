"""Definitions carry upstreams, sets and policies of federation, once the plug-in is enabled."""

import pytest

from node.catalogue.commands import SetParameter, SetPolicy
from node.definitions.document import read
from node.definitions.reading import DefinitionsInvalid, Item

DOCUMENT: Item = {
    "rabbitmq_version": "3.10.8",
    "vhosts": [{"name": "/"}],
    "parameters": [
        {
            "vhost": "/",
            "component": "federation-upstream",
            "name": "u",
            "value": {"uri": "amqp://me:secret@up", "max-hops": 2},
        },
        {"vhost": "/", "component": "federation-upstream-set", "name": "s", "value": [{"upstream": "u"}]},
    ],
    "policies": [
        {
            "vhost": "/",
            "name": "p",
            "pattern": "^x$",
            "apply-to": "exchanges",
            "priority": 0,
            "definition": {"federation-upstream-set": "s"},
        }
    ],
}


def test_they_are_taken_while_the_plug_in_is_enabled() -> None:
    """A document of RabbitMQ's is taken as it is, with the URI's password."""
    found = read(DOCUMENT, plugins=("rabbitmq_federation",))
    assert found.parameters == [
        SetParameter("/", "federation-upstream", "u", {"uri": "amqp://me:secret@up", "max-hops": 2}),
        SetParameter("/", "federation-upstream-set", "s", [{"upstream": "u"}]),
    ]
    assert found.policies == [SetPolicy("/", "p", "^x$", {"federation-upstream-set": "s"}, 0, "exchanges")]


def test_they_are_refused_or_left_out_without_it() -> None:
    """Without the plug-in they are named as what this broker does not have."""
    with pytest.raises(DefinitionsInvalid):
        read(DOCUMENT)
    found = read(DOCUMENT, skips_unsupported=True)
    assert (found.parameters, found.policies) == ([], [])
    assert len(found.left_out) == 3
    assert "secret" not in " ".join(found.left_out)
