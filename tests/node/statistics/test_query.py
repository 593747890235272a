"""Queries of statistics are parsed or refused (management §1.0)."""

from typing import Any

import pytest

from node.statistics.query import IDS_MAX, NO_RANGES, Query, Range, Ranges


def test_time_series_parameters() -> None:
    """§1.0: pairs in seconds; age/incr up to 500."""
    found = Ranges.of(
        {"lengths_age": "60", "lengths_incr": "5", "msg_rates_age": "500", "msg_rates_incr": "1", "page": "1"}
    )
    assert found == Ranges(lengths=Range(60, 5), msg_rates=Range(500, 1))


@pytest.mark.parametrize(
    "parameters",
    [
        {"lengths_age": "60"},
        {"lengths_incr": "60"},
        {"lengths_age": "a", "lengths_incr": "5"},
        {"lengths_age": "60.5", "lengths_incr": "5"},
        {"lengths_age": "", "lengths_incr": "5"},
    ],
)
def test_only_one_of_a_pair_is_ignored(parameters: dict[str, str]) -> None:
    assert Ranges.of(parameters) == NO_RANGES


@pytest.mark.parametrize(("age", "incr"), [(0, 5), (-5, 5), (5, 0), (600, 1), (2_000_000_000, 1_000_000_000)])
def test_a_range_that_cannot_be(age: int, incr: int) -> None:
    """The text is a live RabbitMQ's."""
    with pytest.raises(ValueError, match=rf"^Invalid range parameters: age {age}, incr {incr}$"):
        Ranges.of({"node_stats_age": str(age), "node_stats_incr": str(incr)})


QUERIES = [
    Query(),
    Query(ids=(), fields=frozenset()),
    Query(ids=("a", "b\0c"), vhost="/", user="guest", fields=frozenset({"messages"}), is_detailed=True),
    Query(ranges=Ranges(data_rates=Range(60, 5), node_stats=Range(5, 5))),
]


@pytest.mark.parametrize("query", QUERIES)
def test_there_and_back(query: Query) -> None:
    assert Query.from_json(query.as_json()) == query


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"id": []},
        {"ids": "a"},
        {"ids": [1]},
        {"ids": ["a"] * (IDS_MAX + 1)},
        {"fields": [None]},
        {"vhost": 1},
        {"is_detailed": 1},
        {"ranges": []},
        {"ranges": {"lengths": 5}},
        {"ranges": {"lengths": [60]}},
        {"ranges": {"lengths": [True, True]}},
        {"ranges": {"lengths": [0, 5]}},
        {"ranges": {"other": [60, 5]}},
    ],
)
def test_what_is_no_query(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^(query|ranges|Invalid range)"):
        Query.from_json(value)


def test_scope() -> None:
    assert Query().is_in_scope("/", "guest")
    assert not Query(vhost="v").is_in_scope("/")
    assert not Query(user="other").is_in_scope("/", "guest")
    assert Query(user="other").is_in_scope("/")
