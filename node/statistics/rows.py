"""Rows of statistics, and how one is made. Rows of one kind are made in the file of that name."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from node.catalogue.records import Json
from node.statistics.query import Query

if TYPE_CHECKING:
    from node.statistics.watches import Watches

T = TypeVar("T")

Row: TypeAlias = dict[str, Json]
"""One object as the HTTP API shows it, and under "id" its name among those of its kind, unique in the cluster."""

Kind: TypeAlias = Literal["queues", "connections", "channels", "consumers", "exchanges", "vhosts"]

Part: TypeAlias = tuple[frozenset[str], Callable[[T, "Watches", Query, dict[str, Any]], None]]
"""Some keys, and the function that puts at least these into the row of an object."""


class Selection(Generic[T]):
    """Makes rows with the wanted fields: parts without any of them are not computed."""

    def __init__(self, parts: Sequence[Part[T]], watches: "Watches", query: Query) -> None:
        self._fill = [fill for names, fill in parts if query.wants_any(names)]
        self._watches = watches
        self._query = query
        wanted = query.fields
        surplus = {name for names, _ in parts if query.wants_any(names) for name in names}
        self._surplus = () if wanted is None else tuple(surplus.difference(wanted))

    def row(self, id_: str, source: T) -> Row:
        """Return the row of one object."""
        row: Row = {"id": id_}
        for fill in self._fill:
            fill(source, self._watches, self._query, row)
        for name in self._surplus:
            row.pop(name, None)
        return row
