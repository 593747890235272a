"""The fanout exchange: amqp-behaviour §3.15."""

import pytest

from node.catalogue.records import Binding
from node.routing.exchanges import Destination
from node.routing.exchanges.fanout import FanoutIndex


def to_queue(name: str, key: str = "") -> Binding:
    return Binding("/", "amq.fanout", "queue", name, key)


def test_every_message_goes_to_every_destination() -> None:
    """§3.15: ignores keys."""
    index = FanoutIndex()
    index.bind(to_queue("q1", "some key"))
    index.bind(to_queue("q2"))
    index.bind(Binding("/", "amq.fanout", "exchange", "x", ""))
    expected = {Destination("queue", "q1"), Destination("queue", "q2"), Destination("exchange", "x")}
    assert set(index.match("")) == set(index.match("another key")) == expected


def test_nothing_bound() -> None:
    assert not list(FanoutIndex().match("k"))


def test_unbinding_one_key_leaves_the_other() -> None:
    index = FanoutIndex()
    index.bind(to_queue("q", "k1"))
    index.bind(to_queue("q", "k2"))
    index.unbind(to_queue("q", "k1"))
    assert list(index.match("")) == [Destination("queue", "q")]
    index.unbind(to_queue("q", "k2"))
    assert not list(index.match(""))


def test_unbinding_what_is_not_bound_is_our_own_mistake() -> None:
    with pytest.raises(KeyError):
        FanoutIndex().unbind(to_queue("q"))
