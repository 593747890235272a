"""The keys that a binding of a retaining exchange brings are those that a topic exchange would route."""

import random

import pytest

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, longstr
from node.catalogue.records import Binding
from node.catalogue.retained import DEFAULT_LENGTH, KEPT, matches, words_of
from node.routing.exchanges.topic import TopicIndex


def test_keys_match_as_in_topic_exchanges() -> None:
    """Compare random patterns and keys with the topic exchange's own index."""
    choose = random.Random(7)
    hits = 0
    for _ in range(20_000):
        pattern = ".".join(choose.choice(("a", "b", "*", "#", "")) for _ in range(choose.randint(1, 5)))
        key = ".".join(choose.choice(("a", "b", "")) for _ in range(choose.randint(1, 5)))
        index = TopicIndex()
        index.bind(Binding("/", "x", "queue", "q", pattern))
        expected = bool(list(index.match(key)))
        assert matches(words_of(pattern), words_of(key)) is expected, (pattern, key)
        hits += expected
    assert 1_000 < hits < 19_000


@pytest.mark.parametrize("field", [longstr("5"), Field("l", 0), Field("l", -1), Field("t", True)])
def test_a_length_is_a_positive_integer(field: Field) -> None:
    with pytest.raises(ProtocolError):
        KEPT.check({"x-max-length": field})


def test_the_length() -> None:
    KEPT.check({})
    KEPT.check({"x-max-length": Field("I", 5)})
    assert KEPT.of({"x-max-length": Field("I", 5)}) == 5
    assert KEPT.of({}) == DEFAULT_LENGTH
