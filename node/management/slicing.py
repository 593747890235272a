"""Work on long lists in slices: the loop serves AMQP and is never held longer than a few ms.

A page costs no more than itself: the contents of its rows are asked for once it is known which rows are on it.
Source: management §1.0 "List query parameters".
"""

import time
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

from node.io.turns import Turns, taken
from node.management.listing import Listing, ListingError, Row, narrowed, rank

SORTED_AT_ONCE: Final = 1000
MATCHING_S: Final = 5.0
"""For how long all names of a list together may be matched."""

T = TypeVar("T")
U = TypeVar("U")


async def mapped(function: Callable[[T], U], values: Iterable[T]) -> list[U]:
    """Return the function's value for each."""
    return await taken(map(function, values))


async def ordered(values: Sequence[T], key: Callable[[T], Any], *, is_reverse: bool = False) -> list[T]:
    """Return the values sorted by the key, as `sorted` does: sorted runs are merged by pairs."""
    keyed = list(zip(await mapped(key, values), values, strict=True))
    runs = [keyed[at : at + SORTED_AT_ONCE] for at in range(0, len(keyed), SORTED_AT_ONCE)]
    turns = Turns()
    for run in runs:
        run.sort(key=_first, reverse=is_reverse)
        await turns.give()
    while len(runs) > 1:
        merged = []
        for at in range(0, len(runs), 2):
            both = [*runs[at], *(runs[at + 1] if at + 1 < len(runs) else ())]
            both.sort(key=_first, reverse=is_reverse)  # of two sorted runs it makes one in a single pass
            merged.append(both)
            await turns.give()
        runs = merged
    return [value for _, value in runs[0]] if runs else []


_first: Final = itemgetter(0)


# --- the steps of `Listing`, for rows that hold what is needed to choose and sort them ---


async def chosen(listing: Listing, rows: Sequence[Row], names: Sequence[str] = ("name",)) -> Sequence[Row]:
    """Return the rows whose name matches, in slices.   names: fields of which one has to match."""
    if listing.matches is None:
        return rows
    matches, ends = listing.matches, time.monotonic() + MATCHING_S

    def is_chosen(row: Row) -> bool:
        if time.monotonic() > ends:
            raise ListingError("bad_request", "The regular expression takes too long")
        return any(matches(str(row.get(name, ""))) for name in names)

    kept = await mapped(is_chosen, rows)
    return [row for row, is_kept in zip(rows, kept, strict=True) if is_kept]


async def sorted_rows(listing: Listing, rows: Sequence[Row], default: Sequence[str]) -> Sequence[Row]:
    """Return the rows in the order of the listing, sorted in slices."""
    if listing.sort == "":
        return list(reversed(rows)) if listing.is_reverse else rows
    fields = list(default) if listing.sort is None else [listing.sort, *default]
    return await ordered(
        rows, lambda row: tuple(rank(row, field) for field in fields), is_reverse=listing.is_reverse
    )


async def shown(listing: Listing, rows: Sequence[Row], filtered_count: int, total_count: int) -> Any:
    """Return the answer for the rows, narrowed to the listing's columns in slices."""
    columns = listing.columns
    if columns is None:
        return listing.shown(rows, filtered_count, total_count)
    narrow = await mapped(lambda row: narrowed(row, columns), rows)
    value = listing.shown((), filtered_count, total_count)
    if listing.page is None:
        return narrow
    return {**value, "items": narrow, "item_count": len(narrow)}


async def applied(
    listing: Listing, rows: Sequence[Row], default: Sequence[str], names: Sequence[str] = ("name",)
) -> Any:
    """Apply all steps of the listing to complete rows, in slices.   names: see `chosen`. Raises: ListingError."""
    found = await chosen(listing, rows, names)
    on_page = listing.cut(await sorted_rows(listing, found, default))
    return await shown(listing, on_page, len(found), len(rows))


# --- fields ---


def top_levels(columns: Iterable[str]) -> frozenset[str]:
    """Return the keys of rows in which these dotted fields are."""
    return frozenset(column.partition(".")[0] for column in columns)


def wanted_fields(listing: Listing, needed: Iterable[str] = ()) -> frozenset[str] | None:
    """Return the keys of rows that a list shows or is sorted by; None: all.   needed: keys that are used besides."""
    if listing.columns is None:
        return None
    return top_levels([*listing.columns, *needed, *([listing.sort] if listing.sort else ())])
