"""Queues and nodes get numbers, by which columns of their loads are indexed.

The names of an hour's rows are Arrow arrays, and hardly differ from those of the hour before; their numbers are looked
up again only if they do. Memory depends on the number of different names in the window.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from spark_ops.jobs.small_columns import Bools, Longs


class Nodes:
    """Numbers of nodes: those that are given have the numbers of their order, others follow as they come."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = list(dict.fromkeys(names))
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str) -> int:
        """Return the number of a node."""
        found = self._numbers.setdefault(name, len(self.names))
        if found == len(self.names):
            self.names.append(name)
        return found

    def numbers(self, column: "pa.Array") -> "Longs":
        """Return the numbers of a column of names, which has no nulls."""
        encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
        known = np.array([self.number(name) for name in encoded.dictionary.to_pylist()], dtype=np.int64)
        return known[encoded.indices.to_numpy(zero_copy_only=False)] if len(known) else known


class Queues:
    """Numbers of queues: those that are given have the numbers of their order, others follow as they come.

    names: virtual host and name of each, all different.
    """

    def __init__(self, names: Sequence[tuple[str, str]]) -> None:
        self._vhosts = Nodes()
        keys = [
            f"{self._vhosts.number(vhost)}/{queue}".encode("utf-8", "surrogatepass") for vhost, queue in names
        ]
        self._keys = pa.array(keys, pa.large_binary())
        self._last: tuple[Longs, pa.Array, Longs] | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def vhosts(self, column: "pa.Array") -> "Longs":
        """Return the numbers of a column of virtual hosts, which has no nulls."""
        return self._vhosts.numbers(column)

    def numbers(self, vhosts: "Longs", names: "pa.Array") -> "Longs":
        """Return the numbers of queues.   vhosts: as `vhosts` returns them.   names: strings without nulls."""
        last = self._last
        if last is not None and np.array_equal(last[0], vhosts) and last[1].equals(names):
            return last[2]
        binary = pa.large_binary()
        prefixes = pa.array(vhosts).cast(pa.string()).cast(pa.binary()).cast(binary)
        keys = pc.binary_join_element_wise(
            prefixes, names.cast(pa.binary()).cast(binary), pa.scalar(b"/", binary)
        )
        found = pc.index_in(keys, value_set=self._keys)
        if found.null_count:
            new = pc.unique(keys.filter(found.is_null()))
            later = pc.add(pc.index_in(keys, value_set=new), len(self._keys))
            found = pc.coalesce(found, later)
            self._keys = pa.concat_arrays([self._keys, new])
        numbers = np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)
        self._last = (vhosts, names, numbers)
        return numbers


def changes(vhosts: "Longs", names: "pa.Array") -> "Bools":
    """True for the rows whose queue is not that of the row before; for the first one, too."""
    found = np.ones(len(names), dtype=np.bool_)
    if len(names) > 1:
        differ: Any = pc.not_equal(names.slice(1), names.slice(0, len(names) - 1))
        found[1:] = differ.to_numpy(zero_copy_only=False) | (vhosts[1:] != vhosts[:-1])
    return found
