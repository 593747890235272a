"""The routing keys that a pattern matches are those that a topic exchange would route."""

import random

from node.catalogue.records import Binding
from node.queue.key_pattern import KeyPattern
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
        assert KeyPattern(pattern).matches(key) is expected, (pattern, key)
        assert expected or KeyPattern(pattern).key != key
        hits += expected
    assert 1_000 < hits < 19_000


def test_a_pattern_without_wildcards_matches_one_key() -> None:
    assert [KeyPattern(each).key for each in ("", "a", "a.b*", "a.*", "#", "a.#.b")] == [
        "",
        "a",
        "a.b*",
        None,
        None,
        None,
    ]
