"""The indexes of x-random and x-local-random."""

from node.plugins import Binding, ExchangeType, Message, Surroundings
from node.plugins.exchanges.random_choice import LocalRandom, Random
from tests.node.plugins.exchanges.indexes import names, surroundings, to_exchange, to_queue

MESSAGE = Message(["k"])


def routed(type_: ExchangeType, around: Surroundings, *bindings: Binding) -> list[str]:
    index = type_.index({}, around)
    for binding in bindings:
        index.bind(binding)
    assert index.varies
    return names(index, MESSAGE)


def test_one_binding_is_drawn() -> None:
    bindings = [to_queue(name) for name in "abc"]
    for number, name in enumerate("abc"):
        assert routed(Random(), surroundings([number], "abc"), *bindings) == [name]
    assert routed(Random(), surroundings()) == []


def test_queues_out_of_reach_are_left_out() -> None:
    """After a few draws all are looked at, so that one that can be reached is found for sure."""
    bindings = [to_queue(name) for name in "abcd"]
    assert routed(Random(), surroundings([0, 1], "b"), *bindings) == ["b"]
    assert routed(Random(), surroundings([0] * 5, "d"), *bindings) == ["d"]
    assert routed(Random(), surroundings([0] * 5, ""), *bindings) == []


def test_exchanges_are_always_within_reach() -> None:
    assert routed(Random(), surroundings([0], ""), to_exchange("x")) == ["x"]


def test_a_local_queue_is_drawn() -> None:
    bindings = [to_queue(name) for name in "abcd"]
    around = surroundings([0] * 4 + [1], "abcd", local="bd")
    assert routed(LocalRandom(), around, *bindings) == ["d"]
    assert routed(LocalRandom(), surroundings([0] * 5, "abcd"), *bindings) == []


def test_local_bindings_have_no_key() -> None:
    assert LocalRandom().check_binding("", {}) is None
    assert LocalRandom().check_binding("k", {}) == "Non-empty binding key 'k' not permitted"


def test_unbound_queues_are_not_drawn() -> None:
    index = Random().index({}, surroundings([0, 0], "ab"))
    index.bind(to_queue("a", "1"))
    index.bind(to_queue("a", "2"))
    index.bind(to_queue("b", "3"))
    index.unbind(to_queue("a", "1"))
    index.unbind(to_queue("a", "2"))
    assert names(index, MESSAGE) == ["b"]
    index.unbind(to_queue("b", "3"))
    assert names(index, MESSAGE) == []
