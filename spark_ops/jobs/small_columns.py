"""Columns of Arrow tables as numpy arrays, and aggregates of their groups, for windows that need no Spark.

A null is no value: an array has 0 in its place, and `known` is false there. Aggregates ignore nulls, as Spark's do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc  # type: ignore[import-untyped]

if TYPE_CHECKING:
    import pyarrow as pa

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of numbers.   known: false for nulls."""

    values: npt.NDArray[Any]
    known: Bools

    def take(self, rows: npt.NDArray[Any]) -> "Numbers":
        """Return the numbers of some rows, by their positions or by a mask."""
        return Numbers(self.values[rows], self.known[rows])

    def above(self, least: float, *, or_equal: bool = False) -> Bools:
        """True for the values above a number; false for nulls."""
        return self.known & ((self.values >= least) if or_equal else (self.values > least))


def numbers(table: "pa.Table", name: str) -> Numbers:
    """Return a column of numbers or of truth values."""
    column = table.column(name)
    known = np.asarray(pc.is_valid(column).to_numpy(), dtype=np.bool_)
    return Numbers(np.asarray(pc.fill_null(column, 0).to_numpy()), known)


def are(table: "pa.Table", name: str, text: str) -> Bools:
    """True for the rows in which a column of strings has the text."""
    return np.asarray(pc.fill_null(pc.equal(table.column(name), text), False).to_numpy(), dtype=np.bool_)


def codes(table: "pa.Table", names: Sequence[str]) -> Longs:
    """Return a number for each row, which is the same for rows with the same values in the columns."""
    found: Longs = np.zeros(table.num_rows, dtype=np.int64)
    for name in names:
        encoded = pc.dictionary_encode(table.column(name).combine_chunks(), null_encoding="encode")
        values = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
        _, inverse = np.unique(found * len(encoded.dictionary) + values, return_inverse=True)
        found = inverse.astype(np.int64).reshape(-1)
    return found


@dataclass(frozen=True, slots=True)
class Lists:
    """A column of lists.   known: false for nulls.   starts, ends: where the items of each row are in `items`."""

    items: Any
    starts: Longs
    ends: Longs
    known: Bools

    @property
    def lengths(self) -> Longs:
        """The length of each list; 0 for nulls."""
        return self.ends - self.starts

    @property
    def rows(self) -> Longs:
        """The row of each item."""
        return np.repeat(np.arange(len(self.starts)), self.lengths)


def lists(table: "pa.Table", name: str) -> Lists:
    """Return a column of lists."""
    column = table.column(name).combine_chunks()
    known = np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), dtype=np.bool_)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(np.asarray(lengths, dtype=np.int64))
    # `flatten` leaves out what is behind a null, so that the lengths tell where the items are.
    return Lists(column.flatten(), ends - lengths, ends, known)


class Groups:
    """Groups of adjacent rows with the same code.   code: of each row, in order."""

    def __init__(self, code: npt.NDArray[Any]) -> None:
        self.size = len(code)
        changes = np.flatnonzero(code[1:] != code[:-1]) + 1
        self.starts: Longs = np.concatenate(([0], changes)).astype(np.int64)[: self.size]

    @property
    def lasts(self) -> Longs:
        """The position of the last row of each group."""
        return np.append(self.starts[1:], self.size)[: len(self.starts)] - 1

    def most(self, column: Numbers, where: Bools | None = None) -> Numbers:
        """Return the maximum of each group."""
        return self._of(np.maximum, column, where)

    def least(self, column: Numbers, where: Bools | None = None) -> Numbers:
        """Return the minimum of each group."""
        return self._of(np.minimum, column, where)

    def sums(self, column: Numbers, where: Bools | None = None) -> Numbers:
        """Return the sum of each group."""
        return self._of(np.add, column, where)

    def any(self, which: Bools) -> Bools:
        """True for the groups with a row that is true."""
        if not self.size:
            return np.zeros(0, dtype=np.bool_)
        return np.logical_or.reduceat(which, self.starts)

    def rise(self, column: Numbers, where: Bools | None = None) -> npt.NDArray[Any]:
        """Return the maximum minus the minimum of each group; 0 without values."""
        most, least = self.most(column, where), self.least(column, where)
        return np.where(most.known, most.values - least.values, 0)

    def _of(self, how: np.ufunc, column: Numbers, where: Bools | None) -> Numbers:
        known = column.known if where is None else column.known & where
        values = column.values if column.values.dtype != np.bool_ else column.values.astype(np.int64)
        if not self.size:
            return Numbers(values[:0], known[:0])
        found = self.any(known)
        made = how.reduceat(np.where(known, values, _neutral(how, values.dtype)), self.starts)
        return Numbers(np.where(found, made, 0), found)


def _neutral(how: np.ufunc, dtype: "np.dtype[Any]") -> Any:
    if how is np.add:
        return dtype.type(0)
    if dtype.kind == "f":
        return -np.inf if how is np.maximum else np.inf
    limits = np.iinfo(dtype)
    return limits.min if how is np.maximum else limits.max
