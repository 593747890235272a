"""Sort, filter, cut and page lists by the parameters of a request. Pure.

Source: management §1.0 "List query parameters".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import regex

Row = Mapping[str, Any]
T = TypeVar("T")

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 500
PATTERN_CHARACTERS_MAX: Final = 1000
PATTERN_S: Final = 0.05
"""How long a regular expression may look at one name; the first name that takes longer ends it, as a stranger's pattern
may be made to backtrack without end."""
COLUMNS_MAX: Final = 200

_MISSING: Final = object()


class ListingError(ValueError):
    """The parameters make no sense; answered with 400.   error: RabbitMQ's word for it."""

    def __init__(self, error: str, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


class Page(NamedTuple):
    """Which page, counted from 1, and how long pages are."""

    number: int
    size: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The options of a list in a request.

    sort: None: the list's own order; "": none at all.   columns: None for all.   matches: by name, of paged lists
    only.
    """

    sort: str | None = None
    is_reverse: bool = False
    columns: tuple[str, ...] | None = None
    page: Page | None = None
    name: str = ""
    matches: Callable[[str], bool] | None = None

    @classmethod
    def of(cls, query: Mapping[str, str], *, can_page: bool = True) -> "Listing":
        """Read the options from a request's parameters. Raises: ListingError."""
        page = _page(query) if can_page else None
        columns = query.get("columns")
        name = query.get("name", "") if page is not None else ""
        return cls(
            sort=query.get("sort"),
            is_reverse=query.get("sort_reverse") == "true",
            columns=tuple(filter(None, columns.split(",")))[:COLUMNS_MAX] if columns else None,
            page=page,
            name=name,
            matches=_matcher(name, is_regex=query.get("use_regex") == "true") if name else None,
        )

    # --- the steps, in their order ---

    def chosen(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the rows whose name is asked for."""
        if self.matches is None:
            return rows
        return [row for row in rows if self.matches(str(row.get("name", "")))]

    def ordered(self, rows: Sequence[Row], default: Sequence[str]) -> Sequence[Row]:
        """Return the rows sorted; those without the field come first.   default: fields that also decide between
        equal rows.
        """
        if self.sort == "":
            return list(reversed(rows)) if self.is_reverse else rows
        fields = list(default) if self.sort is None else [self.sort, *default]
        return sorted(rows, key=lambda row: [rank(row, field) for field in fields], reverse=self.is_reverse)

    def cut(self, rows: Sequence[T]) -> Sequence[T]:
        """Return the rows of the page. Raises: ListingError if there is no such page."""
        if self.page is None:
            return rows
        first = (self.page.number - 1) * self.page.size
        if first >= len(rows) and self.page.number > 1:
            raise ListingError(
                "page_out_of_range",
                f"Page out of range, page: {self.page.number} page size: {self.page.size}, len: {len(rows)}",
            )
        return rows[first : first + self.page.size]

    def shown(self, rows: Sequence[Row], filtered_count: int, total_count: int) -> Any:
        """Return the answer for the rows of a page, or for all."""
        items = [narrowed(row, self.columns) for row in rows] if self.columns is not None else list(rows)
        if self.page is None:
            return items
        return {
            "filtered_count": filtered_count,
            "item_count": len(items),
            "items": items,
            "page": self.page.number,
            "page_count": -(-filtered_count // self.page.size),
            "page_size": self.page.size,
            "total_count": total_count,
        }

    def apply(self, rows: Sequence[Row], default: Sequence[str]) -> Any:
        """Apply all steps to complete rows, and return the answer. Raises: ListingError."""
        chosen = self.chosen(rows)
        return self.shown(self.cut(self.ordered(chosen, default)), len(chosen), len(rows))


def narrowed(row: Row, columns: Sequence[str]) -> dict[str, Any]:
    """Return only these fields of a row, dotted ones within objects; a field that holds an object brings all of it."""
    found: dict[str, Any] = {}
    for column in columns:
        names = column.split(".")
        value = field_of(row, column)
        if value is _MISSING:
            continue
        place = found
        for name in names[:-1]:
            inner = place.setdefault(name, {})
            if inner is row.get(name):  # asked for as a whole already
                break
            place = inner
        else:
            place[names[-1]] = value
    return found


def field_of(row: Row, dotted: str) -> Any:
    """Return the value of a field, or a mark that compares with nothing."""
    if dotted in row:
        return row[dotted]
    value: Any = row
    for name in dotted.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = value[name]
    return value


def rank(row: Row, field: str) -> tuple[int, Any]:
    """Return a sort key: values of different kinds in Erlang's order, missing ones first."""
    value = field_of(row, field)
    if value is _MISSING or value is None:
        return (0, 0)
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (1, value)
    if isinstance(value, str):
        return (3, value)
    return (4, str(value))


def _page(query: Mapping[str, str]) -> Page | None:
    if "page" not in query:
        return None
    number = _integer(query["page"])
    size = _integer(query.get("page_size", str(PAGE_SIZE_DEFAULT)))
    if number < 1:
        raise ListingError("invalid_pagination_parameters", f"page number invalid: {number}")
    if not 1 <= size <= PAGE_SIZE_MAX:
        raise ListingError("invalid_pagination_parameters", f"page size invalid: {size}")
    return Page(number, size)


def _integer(text: str) -> int:
    try:
        return int(text if len(text) <= 18 else "?")
    except ValueError:
        raise ListingError("bad_request", "Pagination parameters are invalid") from None


def _matcher(pattern: str, *, is_regex: bool) -> Callable[[str], bool]:
    if not is_regex:
        lowered = pattern.lower()
        return lambda name: lowered in name.lower()
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise ListingError("bad_request", "Pagination parameters are invalid")
    try:
        return _Searched(regex.compile(pattern, regex.IGNORECASE, cache_pattern=False))
    except (regex.error, OverflowError, RecursionError):
        raise ListingError("bad_request", "Pagination parameters are invalid") from None


class _Searched:
    """Tests if an expression is found in names, within a time for each."""

    def __init__(self, pattern: "regex.Pattern[str]") -> None:
        self._pattern = pattern

    def __call__(self, name: str) -> bool:
        try:
            return self._pattern.search(name, timeout=PATTERN_S) is not None
        except TimeoutError:
            raise ListingError("bad_request", "The regular expression takes too long") from None
