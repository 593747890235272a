"""The topic exchange: amqp-behaviour §3.16."""

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue.records import Binding
from node.routing.exchanges import STATES_MAX, Destination
from node.routing.exchanges.topic import TopicIndex


def to_queue(name: str, pattern: str) -> Binding:
    return Binding("/", "amq.topic", "queue", name, pattern)


def index_of(*patterns: str) -> TopicIndex:
    """Each pattern leads to a queue of the same name."""
    index = TopicIndex()
    for pattern in patterns:
        index.bind(to_queue(pattern, pattern))
    return index


def matched(index: TopicIndex, key: str) -> set[str]:
    return {destination.name for destination in index.match(key)}


# The rows of §3.16: pattern, keys that match, keys that do not.
ROWS: Sequence[tuple[str, Sequence[str], Sequence[str]]] = [
    ("", [""], ["a", ".", "#", "*", "a.b"]),
    ("#", ["", "a", ".", "a.b", "..", "#", "*", "a.b.c.d"], []),
    ("*", ["a", "#", "*"], ["", ".", "a.b"]),
    ("*.*", [".", "a.b", "a.", ".a"], ["", "a", "a..b"]),
    ("a.#", ["a", "a.b", "a.", "a..b"], ["", ".a", "b", "ab"]),
    ("#.a", ["a", ".a", "x.y.a", "a.a"], ["", "a.", "a.b"]),
    ("a.*", ["a.b", "a."], ["", "a", "a..b", "b.a"]),
    ("a.#.b", ["a.b", "a..b", "a.x.b", "a.x.y.b", "a.b.b"], ["a", "a.", "b", "a.b.c"]),
    ("#.*", ["a", ".", "a.b", "a.b.c"], [""]),
    ("*.#", ["a", ".", "a.b", "a.b.c"], [""]),
    ("#.#", ["", "a", ".", "a.b", "a.b.c"], []),
    ("*.#.*", [".", "a.b", "a.b.c"], ["", "a"]),
    (".#", [".", ".a", "..", ".a.b"], ["", "a", "a.b"]),
    ("a*", ["a*"], ["a", "ab", "a.b"]),
    ("##", ["##"], ["", "a", "#", "a.b"]),
    ("**", ["**"], ["", "a", "*", "ab"]),
]


@pytest.mark.parametrize(
    ("pattern", "key"), [(pattern, key) for pattern, matching, _ in ROWS for key in matching]
)
def test_row_matches(pattern: str, key: str) -> None:
    """§3.16: the column `matches` of the row of `pattern`."""
    assert matched(index_of(pattern), key) == {pattern}


@pytest.mark.parametrize(
    ("pattern", "key"), [(pattern, key) for pattern, _, others in ROWS for key in others]
)
def test_row_does_not_match(pattern: str, key: str) -> None:
    """§3.16: the column `does not` of the row of `pattern`."""
    assert matched(index_of(pattern), key) == set()


@pytest.mark.parametrize("key", sorted({key for _, matching, others in ROWS for key in (*matching, *others)}))
def test_rows_together(key: str) -> None:
    """§3.16: all patterns of the table in one trie do not disturb each other."""
    alone = {pattern for pattern, *_ in ROWS if matched(index_of(pattern), key)}
    assert matched(index_of(*(pattern for pattern, *_ in ROWS)), key) == alone


def test_wildcards_in_a_publish_key_are_plain_words() -> None:
    """§3.16: `#` and `*` in a publish key match literal words or wildcards only."""
    index = index_of("a.b", "a.*", "#.b")
    assert matched(index, "a.*") == {"a.*"}
    assert matched(index, "#") == set()
    assert matched(index, "*.b") == {"#.b"}


def test_destinations_of_one_pattern() -> None:
    index = TopicIndex()
    index.bind(to_queue("q1", "a.*"))
    index.bind(to_queue("q2", "a.*"))
    index.bind(Binding("/", "amq.topic", "exchange", "x", "a.*"))
    expected = {Destination("queue", "q1"), Destination("queue", "q2"), Destination("exchange", "x")}
    assert set(index.match("a.b")) == expected


def test_unbinding_one_pattern_leaves_the_other() -> None:
    index = TopicIndex()
    index.bind(to_queue("q", "a.#"))
    index.bind(to_queue("q", "*.b"))
    index.unbind(to_queue("q", "a.#"))
    assert matched(index, "a.b") == {"q"}
    assert matched(index, "a.c") == set()


def test_binding_with_other_arguments_is_counted() -> None:
    """§3.14: two bindings that differ in arguments alone are two."""
    index = TopicIndex()
    index.bind(to_queue("q", "a.#"))
    index.bind(to_queue("q", "a.#"))
    index.unbind(to_queue("q", "a.#"))
    assert matched(index, "a") == {"q"}
    index.unbind(to_queue("q", "a.#"))
    assert matched(index, "a") == set()


def test_unbinding_a_longer_pattern_leaves_its_beginning() -> None:
    index = index_of("a", "a.b", "a.b.c")
    index.unbind(to_queue("a.b.c", "a.b.c"))
    index.unbind(to_queue("a", "a"))
    assert matched(index, "a.b") == {"a.b"}
    assert matched(index, "a") == matched(index, "a.b.c") == set()


def test_unbinding_everything_leaves_an_empty_trie() -> None:
    patterns = [pattern for pattern, *_ in ROWS]
    index = index_of(*patterns)
    for pattern in patterns:
        index.unbind(to_queue(pattern, pattern))
    assert index._root.is_unused()


def test_unbinding_what_is_not_bound_is_our_own_mistake() -> None:
    index = index_of("a.b.*")
    for pattern in ("a.b", "a.b.*.#", "x", ""):
        with pytest.raises(KeyError):
            index.unbind(to_queue("q", pattern))
    assert matched(index, "a.b.c") == {"a.b.*"}


def test_many_hashes_do_not_explode() -> None:
    """A backtracking matcher would need more steps here than there are atoms in the universe."""
    ending = ".".join(["#"] * 60 + ["x"])
    mixed = ".".join(["#", "a"] * 30)
    index = index_of(ending, mixed)
    key = ".".join(["a"] * 30)
    assert matched(index, key) == {mixed}
    assert len(list(index.match(key))) == 1
    assert matched(index, key + ".x") == {ending}


# --- against an oracle that follows the definition word by word ---------------------------------------------


def oracle(pattern: str, key: str) -> bool:
    @cache
    def matches(pattern_words: tuple[str, ...], words: tuple[str, ...]) -> bool:
        if not pattern_words:
            return not words
        first, rest = pattern_words[0], pattern_words[1:]
        if first == "#":
            return any(matches(rest, words[taken:]) for taken in range(len(words) + 1))
        return bool(words) and first in ("*", words[0]) and matches(rest, words[1:])

    def split(text: str) -> tuple[str, ...]:
        return tuple(text.split(".")) if text else ()

    return matches(split(pattern), split(key))


WORDS = st.sampled_from(["a", "b", "", "*", "#", "a*", "##"])
KEYS = st.lists(WORDS, max_size=7).map(".".join)
PATTERNS = st.lists(st.one_of(st.sampled_from(["*", "#"]), WORDS), max_size=6).map(".".join)


@given(st.lists(PATTERNS, max_size=12, unique=True), st.lists(KEYS, min_size=1, max_size=4))
def test_agrees_with_the_definition(patterns: list[str], keys: list[str]) -> None:
    index = index_of(*patterns)
    for key in keys:
        assert matched(index, key) == {pattern for pattern in patterns if oracle(pattern, key)}


@given(st.lists(PATTERNS, max_size=12, unique=True), st.data())
def test_unbind_undoes_bind(patterns: list[str], data: st.DataObject) -> None:
    index = index_of(*patterns)
    gone = set(data.draw(st.lists(st.sampled_from(patterns), unique=True))) if patterns else set()
    for pattern in sorted(gone):
        index.unbind(to_queue(pattern, pattern))
    key = data.draw(KEYS)
    left = [pattern for pattern in patterns if pattern not in gone]
    assert matched(index, key) == {pattern for pattern in left if oracle(pattern, key)}
    assert index._root.is_unused() == (not left)


def test_patterns_that_were_made_to_cost_much() -> None:
    """§3.16 does not bound them; we do, by what one key may reach."""
    index = index_of(*(f"#.w{number}.#.*.#.*.#" for number in range(400)))
    with pytest.raises(ProtocolError) as refused:
        index.match(".".join(f"w{number}" for number in range(100)))
    assert refused.value.code == ReplyCode.PRECONDITION_FAILED
    assert "too many ways" in refused.value.explanation
    assert len(matched(index, "w1.a.b")) == 1


def test_many_ordinary_patterns_are_far_from_the_limit() -> None:
    devices = [f"device.{number}.#" for number in range(10_000)]
    index = index_of(*devices, *(f"#.error.{number}" for number in range(10_000)))
    assert matched(index, "device.7.error.7") == {"device.7.#", "#.error.7"}
    assert index.states < STATES_MAX / 100
