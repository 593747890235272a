"""Keys of bindings (management §1.5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.amqp.field_table import Field, Table, boolean, long, longstr
from node.catalogue.records import Binding
from node.management.resources.bindings import binding_row, key_of_path, location, properties_key
from tests.kit.live_site import live


def binding(key: str, arguments: Table | None = None, destination: str = "q") -> Binding:
    return Binding("/", "x", "queue", destination, key, arguments or {})


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a.#", "a.%23"),
        ("a b%&+?", "a+b%25%26%2B%3F"),
        ("a/b", "a%2Fb"),
        ("é", "%C3%A9"),
        ("~", "%7E"),
        ("", "~"),
        ("a~b", "a%7Eb"),
        ("\udcff", "%FF"),
    ],
)
def test_examples_of_the_reference(key: str, expected: str) -> None:
    assert properties_key(binding(key)) == expected


@pytest.mark.parametrize("arguments", [{}, {"x": long(1)}])
@pytest.mark.parametrize("key", ["a.#", "a+b", "a b", "50%", "50%25", "", "~", "a~b", "é", "\udcff"])
def test_a_path_names_the_key_as_it_is(key: str, arguments: Table) -> None:
    wanted = properties_key(binding(key, arguments))
    assert key_of_path(wanted) == wanted


@pytest.mark.parametrize(
    ("segment", "key"),
    [("a.#", "a.#"), ("a b", "a b"), ("a b~uoZOwg", "a b"), ("a/b", "a/b"), ("50%", "50%")],
)
def test_a_path_that_was_encoded_once(segment: str, key: str) -> None:
    """pyrabbit does so."""
    arguments = {"x": long(1)} if "~" in segment else {}
    assert key_of_path(segment) == properties_key(binding(key, arguments))


def test_the_hash_is_the_same_for_ever() -> None:
    """Stable for equal arguments across nodes and restarts: scripts may have kept it."""
    assert properties_key(binding("k", {"x": long(1)})) == "k~uoZOwg"
    assert properties_key(binding("", {"x-match": longstr("all"), "n": boolean(True)})) == "~K9LEtA"


def test_the_order_does_not_count_but_types_do() -> None:
    one, other = {"a": long(1), "b": long(2)}, {"b": long(2), "a": long(1)}
    assert properties_key(binding("", one)) == properties_key(binding("", other))
    assert properties_key(binding("", {"a": long(1)})) != properties_key(binding("", {"a": Field("I", 1)}))


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_different_keys_stay_different(one: str, other: str) -> None:
    """`~` marks the hash and nothing else, so a key with and one without arguments never meet."""
    keys = [
        properties_key(binding(key, arguments)) for key in (one, other) for arguments in ({}, {"x": long(1)})
    ]
    assert len(set(keys)) == (4 if one != other else 2)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (binding("a.#"), "q/a.%2523"),
        (binding(""), "q/~"),
        (binding("a/b &~x"), "q/a%252Fb%2B%2526%257Ex"),
        (binding("k", None, "q a/b"), "q%20a%2Fb/k"),
    ],
)
def test_the_location_is_encoded_once_more(found: Binding, expected: str) -> None:
    assert location(found) == expected


def test_a_row() -> None:
    assert binding_row(binding("k", {"x": longstr("y")})) == {
        "source": "x",
        "vhost": "/",
        "destination": "q",
        "destination_type": "queue",
        "routing_key": "k",
        "arguments": {"x": "y"},
        "properties_key": properties_key(binding("k", {"x": longstr("y")})),
    }


def test_made_found_removed() -> None:
    _, caller = live()
    caller.ask("PUT", "/api/queues/%2F/q", {})
    between = "/api/bindings/%2F/e/amq.topic/q/q"
    answer = caller.ask("POST", between, {"routing_key": "a~b", "arguments": {"x": 1}})
    assert answer.status == 201
    (row,) = caller.ask("GET", between).value
    one = between + "/" + answer.headers["location"].rpartition("/")[2]
    assert caller.ask("GET", one).value == row
    assert caller.ask("DELETE", one).status == 204
    assert caller.ask("DELETE", one).status == 404
    assert caller.ask("GET", between).value == []


def test_bindings_of_one_thing_come_in_pages() -> None:
    """RabbitMQ has no pages of them; an exchange with 10,000 bindings needs some."""
    _, caller = live()
    caller.ask("PUT", "/api/queues/%2F/tea", {})
    for number in range(12):
        caller.ask("POST", "/api/bindings/%2F/e/amq.topic/q/tea", {"routing_key": f"k{number:02d}"})

    def keys(path: str, query: str) -> tuple[list[str], int, int]:
        page = caller.ask("GET", f"/api/{path}?{query}").value
        return [row["routing_key"] for row in page["items"]], page["filtered_count"], page["total_count"]

    source = "exchanges/%2F/amq.topic/bindings/source"
    assert keys(source, "page=2&page_size=5") == ([f"k{n:02d}" for n in range(5, 10)], 12, 12)
    assert keys(source, "page=1&name=K1") == (["k10", "k11"], 2, 12)
    assert keys(source, "page=1&name=%5Ete&use_regex=true&page_size=1")[1] == 12  # the queue's name
    assert keys(source, "page=1&name=topic")[1] == 0  # the same in all rows: nothing to look for
    assert keys("queues/%2F/tea/bindings", "page=1&name=topic")[1:] == (12, 13)
    assert len(caller.ask("GET", f"/api/{source}").value) == 12
    assert len(caller.ask("GET", "/api/bindings?page=1&page_size=1").value) == 13  # as RabbitMQ: no page
