"""Long lists in slices (management §1.0 "List query parameters")."""

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.management import slicing
from node.management.listing import Listing, ListingError
from node.management.slicing import (
    SORTED_AT_ONCE,
    applied,
    chosen,
    mapped,
    ordered,
    top_levels,
    wanted_fields,
)

ROWS = [
    {"name": f"q{number % 37:02d}", "vhost": "/", "n": number % 5} for number in range(3 * SORTED_AT_ONCE)
]
QUERIES: list[dict[str, str]] = [
    {},
    {"sort": "n"},
    {"sort": "n", "sort_reverse": "true"},
    {"sort": "", "sort_reverse": "true"},
    {"sort": "nope.nope"},
    {"page": "2", "page_size": "7"},
    {"page": "1", "name": "Q0", "sort": "n"},
    {"page": "1", "name": "^q.3$", "use_regex": "true", "columns": "name"},
    {"columns": "n,vhost"},
]


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_slices_come_to_the_same_as_all_at_once(query: dict[str, str]) -> None:
    listing = Listing.of(query)
    expected = listing.apply(ROWS, ("vhost", "name"))
    assert asyncio.run(applied(listing, ROWS, ("vhost", "name"))) == expected


@given(st.lists(st.integers(0, 50), max_size=60), st.booleans())
def test_sorted_as_python_sorts(numbers: list[int], is_reverse: bool) -> None:
    pairs = list(enumerate(numbers))
    before, slicing.SORTED_AT_ONCE = slicing.SORTED_AT_ONCE, 4  # type: ignore[misc]
    try:
        found = asyncio.run(ordered(pairs, lambda pair: pair[1], is_reverse=is_reverse))
    finally:
        slicing.SORTED_AT_ONCE = before  # type: ignore[misc]
    assert found == sorted(pairs, key=lambda pair: pair[1], reverse=is_reverse)


@pytest.mark.real
def test_the_loop_is_not_held() -> None:
    """Others have their turn while a long list is worked on."""

    async def story() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await mapped(lambda _: time.sleep(0.0001), range(300))
        task.cancel()
        return turns

    assert asyncio.run(story()) >= 4


def test_a_pattern_that_takes_too_long_in_all_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slicing, "MATCHING_S", -1.0)
    with pytest.raises(ListingError, match="takes too long"):
        asyncio.run(chosen(Listing.of({"page": "1", "name": "x"}), ROWS))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, None),
        ({"sort": "a"}, None),
        ({"columns": "name,a.b.c"}, {"name", "a", "vhost"}),
        ({"columns": "name", "sort": "x.y"}, {"name", "x", "vhost"}),
        ({"columns": "name", "sort": ""}, {"name", "vhost"}),
    ],
)
def test_only_what_is_shown_or_sorted_by_is_wanted(query: dict[str, str], expected: Any) -> None:
    assert wanted_fields(Listing.of(query), ("vhost",)) == expected


def test_top_levels() -> None:
    assert top_levels(["a.b", "a", "c.d.e"]) == {"a", "c"}
