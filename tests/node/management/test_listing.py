"""Sorting, columns and pages of lists; management §1.0 "List query parameters"."""

from typing import Any

import pytest

from node.management.listing import Listing, ListingError, narrowed

ROWS: list[dict[str, Any]] = [
    {"vhost": "/", "name": "b", "messages": 3, "message_stats": {"publish_details": {"rate": 2.0}}},
    {"vhost": "/", "name": "a", "messages": 1},
    {"vhost": "v", "name": "C", "messages": 2, "message_stats": {"publish_details": {"rate": 9.5}}},
]


def listed(*, can_page: bool = True, **query: str) -> Any:
    return Listing.of(query, can_page=can_page).apply(ROWS, ("vhost", "name"))


def names(rows: Any) -> list[str]:
    return [row["name"] for row in rows]


def test_without_parameters_the_default_order() -> None:
    assert names(listed()) == ["a", "b", "C"]


def test_an_empty_sort_is_no_sort() -> None:
    assert names(listed(sort="")) == ["b", "a", "C"]


@pytest.mark.parametrize(
    ("field", "reverse", "expected"),
    [
        ("messages", "false", ["a", "C", "b"]),
        ("messages", "true", ["b", "C", "a"]),
        ("message_stats.publish_details.rate", "false", ["a", "b", "C"]),
        ("message_stats.publish_details.rate", "true", ["C", "b", "a"]),
        ("nope", "false", ["a", "b", "C"]),
        ("messages", "nonsense", ["a", "C", "b"]),
    ],
)
def test_sort_by_a_dotted_field_with_missing_ones_smallest(
    field: str, reverse: str, expected: list[str]
) -> None:
    assert names(listed(sort=field, sort_reverse=reverse)) == expected


def test_values_of_different_kinds_can_be_compared() -> None:
    rows = [{"x": "text"}, {"x": 1}, {"x": None}, {"x": [1]}, {"x": True}, {"x": {"y": 1}}, {}]
    assert len(Listing.of({"sort": "x"}).apply(rows, ())) == len(rows)


def test_a_page_and_its_numbers() -> None:
    page = listed(page="2", page_size="2")
    assert names(page.pop("items")) == ["C"]
    assert page == {
        "filtered_count": 3,
        "item_count": 1,
        "page": 2,
        "page_count": 2,
        "page_size": 2,
        "total_count": 3,
    }


def test_the_name_filters_pages_only() -> None:
    assert len(listed(name="c")) == 3
    assert len(listed(page_size="1")) == 3
    page = listed(page="1", name="c")
    assert (names(page["items"]), page["filtered_count"], page["total_count"]) == (["C"], 1, 3)
    assert names(listed(page="1", name="^[bc]$", use_regex="true")["items"]) == ["b", "C"]
    assert listed(page="1", name="^[bc]$")["page_count"] == 0


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"page": "0"}, "invalid_pagination_parameters"),
        ({"page": "1", "page_size": "501"}, "invalid_pagination_parameters"),
        ({"page": "1", "page_size": "0"}, "invalid_pagination_parameters"),
        ({"page": "x"}, "bad_request"),
        ({"page": "1", "page_size": "1.5"}, "bad_request"),
        ({"page": "1" * 5000}, "bad_request"),
        ({"page": "1", "name": "(", "use_regex": "true"}, "bad_request"),
        ({"page": "1", "name": "a" * 1001, "use_regex": "true"}, "bad_request"),
    ],
)
def test_parameters_that_make_no_sense(query: dict[str, str], error: str) -> None:
    with pytest.raises(ListingError) as raised:
        Listing.of(query)
    assert raised.value.error == error


def test_a_page_that_is_not_there() -> None:
    with pytest.raises(ListingError, match="Page out of range, page: 100 page size: 10, len: 3") as raised:
        listed(page="100", page_size="10")
    assert raised.value.error == "page_out_of_range"
    assert Listing.of({"page": "1"}).apply([], ())["page_count"] == 0


def test_lists_that_have_no_pages_ignore_them() -> None:
    assert len(listed(can_page=False, page="7", page_size="x")) == 3


def test_a_pattern_that_backtracks_without_end_is_given_up() -> None:
    rows = [{"name": "a" * 250 + "!"}]
    with pytest.raises(ListingError, match="takes too long"):
        Listing.of({"page": "1", "name": "^(a|aa)+$", "use_regex": "true"}).apply(rows, ())


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["a"], {"a": {"b": 1, "c": 2}}),
        (["a.b"], {"a": {"b": 1}}),
        (["a.b", "a.c"], {"a": {"b": 1, "c": 2}}),
        (["a", "a.b"], {"a": {"b": 1, "c": 2}}),
        (["a.b", "a"], {"a": {"b": 1, "c": 2}}),
        (["x", "a.x", "d.x"], {}),
        (["d"], {"d": 3}),
    ],
)
def test_columns(columns: list[str], expected: dict[str, Any]) -> None:
    row = {"a": {"b": 1, "c": 2}, "d": 3}
    assert narrowed(row, columns) == expected
    assert row == {"a": {"b": 1, "c": 2}, "d": 3}
