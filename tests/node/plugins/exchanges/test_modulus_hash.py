"""The index of x-modulus-hash. tests/conformance/test_exchange_types.py compares it with RabbitMQ."""

import random

from node.plugins import Message
from node.plugins.exchanges.modulus_hash import ModulusHash
from tests.node.plugins.exchanges.indexes import names, surroundings, to_exchange, to_queue

MESSAGES = [Message([f"k{number}"]) for number in range(40)]


def test_the_order_of_bindings_does_not_matter() -> None:
    """A hash leads to the same queue on all nodes, and after a restart."""
    bindings = [to_queue(name, key) for name in "abc" for key in ("", "k")] + [to_exchange("a", "k")]
    found = []
    for seed in range(5):
        random.Random(seed).shuffle(bindings)
        index = ModulusHash().index({}, surroundings())
        for binding in bindings:
            index.bind(binding)
        index.unbind(to_queue("b", "k"))
        found.append([names(index, message) for message in MESSAGES])
    assert found == found[:1] * 5
    assert {name for (name,) in found[0]} == {"a", "b", "c"}


def test_no_bindings_lead_nowhere() -> None:
    index = ModulusHash().index({}, surroundings())
    assert names(index, MESSAGES[0]) == []
    index.bind(to_queue("a"))
    assert names(index, MESSAGES[0]) == ["a"]
    index.unbind(to_queue("a"))
    assert names(index, MESSAGES[0]) == []
    assert not index.varies
