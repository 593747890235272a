"""The direct exchange: amqp-behaviour §3.15."""

import pytest

from node.amqp.field_table import longstr
from node.catalogue.records import Binding
from node.routing.exchanges import Destination
from node.routing.exchanges.direct import DirectIndex


def to_queue(name: str, key: str, **arguments: str) -> Binding:
    table = {name: longstr(value) for name, value in arguments.items()}
    return Binding("/", "amq.direct", "queue", name, key, table)


def test_key_matches_byte_for_byte() -> None:
    """§3.15: exact byte match."""
    index = DirectIndex()
    index.bind(to_queue("q", "Key"))
    assert list(index.match("Key")) == [Destination("queue", "q")]
    for other in ("key", "Key ", "Ke", "", "#", "*"):
        assert not list(index.match(other))


def test_wildcards_are_plain_text() -> None:
    index = DirectIndex()
    index.bind(to_queue("q", "a.#"))
    assert not list(index.match("a.b"))
    assert list(index.match("a.#"))


def test_empty_key_is_a_key() -> None:
    index = DirectIndex()
    index.bind(to_queue("q", ""))
    assert list(index.match("")) == [Destination("queue", "q")]


def test_key_leads_to_several_queues_and_exchanges() -> None:
    index = DirectIndex()
    index.bind(to_queue("q1", "k"))
    index.bind(to_queue("q2", "k"))
    index.bind(Binding("/", "amq.direct", "exchange", "q1", "k"))
    assert set(index.match("k")) == {
        Destination("queue", "q1"),
        Destination("queue", "q2"),
        Destination("exchange", "q1"),
    }


def test_unbinding_one_key_leaves_the_other() -> None:
    index = DirectIndex()
    index.bind(to_queue("q", "k1"))
    index.bind(to_queue("q", "k2"))
    index.unbind(to_queue("q", "k1"))
    assert not list(index.match("k1"))
    assert list(index.match("k2")) == [Destination("queue", "q")]


def test_same_key_with_other_arguments_is_another_binding() -> None:
    """§3.14: still one copy per queue, until both bindings are gone."""
    index = DirectIndex()
    index.bind(to_queue("q", "k"))
    index.bind(to_queue("q", "k", x="1"))
    assert list(index.match("k")) == [Destination("queue", "q")]
    index.unbind(to_queue("q", "k"))
    assert list(index.match("k")) == [Destination("queue", "q")]
    index.unbind(to_queue("q", "k", x="1"))
    assert not list(index.match("k"))


def test_unbinding_what_is_not_bound_is_our_own_mistake() -> None:
    index = DirectIndex()
    index.bind(to_queue("q", "k"))
    with pytest.raises(KeyError):
        index.unbind(to_queue("q", "other"))
    with pytest.raises(KeyError):
        index.unbind(to_queue("other", "k"))
