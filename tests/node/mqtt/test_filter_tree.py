"""A tree of filters finds the same as each of its filters alone, whatever was added and removed before."""

from hypothesis import given
from hypothesis import strategies as st

from node.mqtt.filter_tree import FilterTree
from tests.kit.mqtt_topics import matches

levels = st.sampled_from(["", "a", "b", "$a"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.builds(
    lambda words, is_open: "/".join([*words, "#"] if is_open else words),
    st.lists(levels | st.just("+"), min_size=1, max_size=4),
    st.booleans(),
).filter(bool)


@given(st.lists(filters, unique=True, max_size=8), st.data(), topics)
def test_a_tree_finds_what_its_filters_match(
    given_filters: list[str], data: st.DataObject, topic: str
) -> None:
    tree = FilterTree()
    for each in given_filters:
        tree.put(each, each)
    removed = data.draw(st.lists(st.sampled_from(given_filters), unique=True)) if given_filters else []
    for each in removed:
        tree.remove(each, each)
    left = set(given_filters) - set(removed)
    found = tree.match(topic)
    assert len(found) == len(set(found))
    assert set(found) == {each for each in left if matches(each, topic)}


def test_several_names_may_have_one_filter() -> None:
    tree = FilterTree()
    tree.put("a.b", "a/b")
    tree.put("a/b", "a/b")
    tree.put("a/b", "a/b")
    assert tree.match("a/b") == ["a.b", "a/b"]
    tree.remove("a.b", "a/b")
    assert tree.match("a/b") == ["a/b"]


def test_an_empty_tree_keeps_nothing() -> None:
    tree = FilterTree()
    for each in ("a/b/c", "a/b", "a/+/c/#"):
        tree.put(each, each)
    for each in ("a/b", "a/+/c/#", "a/b/c"):
        tree.remove(each, each)
    assert not tree._root.below
