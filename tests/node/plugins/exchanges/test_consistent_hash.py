"""The index of x-consistent-hash. tests/conformance/test_exchange_types.py compares it with RabbitMQ."""

import random

from hypothesis import given
from hypothesis import strategies as st

from node.amqp.field_table import Table, longstr
from node.plugins import Binding, ExchangeIndex, Message, Properties
from node.plugins.exchanges import consistent_hash
from node.plugins.exchanges.consistent_hash import (
    REMEMBERED_MAX,
    WEIGHT_MAX,
    ConsistentHash,
    ConsistentHashIndex,
)
from tests.node.plugins.exchanges.indexes import names, surroundings, to_exchange, to_queue

KEYS = [f"k{number}" for number in range(40)]


def index(*bindings: Binding, arguments: Table | None = None) -> ExchangeIndex:
    made = ConsistentHash().index(arguments or {}, surroundings())
    for binding in bindings:
        made.bind(binding)
    return made


def routes(found: ExchangeIndex) -> list[str]:
    return [name for key in KEYS for name in names(found, Message([key]))]


def test_an_index_is_a_function_of_the_bindings_that_are_left() -> None:
    """A node that starts later, and reads only these, routes alike."""
    live = index(*(to_queue(name, "2") for name in "abcd"))
    live.unbind(to_queue("b", "2"))
    live.bind(to_queue("a", "9"))
    live.bind(to_queue("b", "1"))
    late = index(
        to_queue("a", "2"), to_queue("c", "2"), to_queue("d", "2"), to_queue("a", "9"), to_queue("b", "1")
    )
    assert routes(live) == routes(late)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 4)), max_size=30), st.randoms())
def test_routes_after_any_history_are_those_of_a_new_index(
    steps: list[tuple[str, int]], rolls: random.Random
) -> None:
    live, left = index(), list[Binding]()
    for name, weight in steps:
        binding = to_queue(name, str(weight))
        if binding in left:
            left.remove(binding)
            live.unbind(binding)
        else:
            left.append(binding)
            live.bind(binding)
        if rolls.random() < 0.5:  # an index that has routed meanwhile is as one that has not
            names(live, Message(["any"]))
    assert routes(live) == routes(index(*left))


def test_the_oldest_binding_of_a_destination_counts() -> None:
    """When it goes, the next one takes its place, so a destination with a binding always has buckets."""
    found = index(to_queue("a", "1"), to_queue("a", "50"), to_queue("b", "1"))
    assert routes(found) == routes(index(to_queue("a", "1"), to_queue("b", "1")))
    found.unbind(to_queue("a", "1"))
    assert routes(found) == routes(index(to_queue("a", "50"), to_queue("b", "1")))
    found.unbind(to_queue("a", "50"))
    assert set(routes(found)) == {"b"}
    found.unbind(to_queue("b", "1"))
    assert routes(found) == []


def test_bindings_that_differ_in_arguments_are_several() -> None:
    found = index(to_queue("a", "1"), to_queue("a", "1", {"x": longstr("1")}))
    found.unbind(to_queue("a", "1"))
    assert set(routes(found)) == {"a"}


def test_a_queue_and_an_exchange_of_one_name_are_two_destinations() -> None:
    found = index(to_queue("a", "1"), to_exchange("a", "1"))
    kinds = {destination.kind for key in KEYS for destination in found.route(Message([key]))}
    assert kinds == {"queue", "exchange"}


def test_the_largest_weights_cost_no_memory() -> None:
    found = index(*(to_queue(name, str(WEIGHT_MAX)) for name in "abc"))
    assert set(routes(found)) == {"a", "b", "c"}
    text = f"The binding key must be at most {WEIGHT_MAX}"
    assert ConsistentHash().check_binding(str(WEIGHT_MAX + 1), {}) == text
    assert ConsistentHash().check_binding(str(WEIGHT_MAX), {}) is None


def test_only_a_route_by_a_property_varies() -> None:
    """A header that is hashed is told beforehand."""
    type_ = ConsistentHash()
    header, property_ = {"hash-header": longstr("h")}, {"hash-property": longstr("message_id")}
    assert not index().varies
    assert not index(arguments=header).varies
    assert index(arguments=property_).varies
    assert [list(type_.headers_asked(arguments)) for arguments in ({}, header, property_)] == [[], ["h"], []]


def test_arguments_of_other_types_are_refused() -> None:
    """RabbitMQ closes the connection for these."""
    assert ConsistentHash().check_exchange({"hash-header": longstr("h")}) is None
    for name in ("hash-header", "hash-property"):
        field = longstr("h")._replace(tag="x")
        assert ConsistentHash().check_exchange({name: field}) == f"{name} must be a longstr"


def test_remembered_destinations_are_bounded() -> None:
    found = index(to_queue("a", "1"), to_queue("b", "1"))
    assert isinstance(found, ConsistentHashIndex)
    for number in range(REMEMBERED_MAX + 10):
        names(found, Message([str(number)]))
    assert len(found._remembered) == 10


def test_what_is_remembered_is_forgotten_with_the_bindings() -> None:
    properties = Properties(message_id="one")
    message = Message(["k"], b"content", lambda content: properties)
    found = index(to_queue("a", "1"), arguments={"hash-property": longstr("message_id")})
    assert names(found, message) == ["a"]
    found.bind(to_queue("b", "1000000"))
    assert names(found, message) == ["b"]
    found.unbind(to_queue("b", "1000000"))
    assert names(found, message) == ["a"]
    assert consistent_hash.PLUGIN.exchange_types[0].name == "x-consistent-hash"
