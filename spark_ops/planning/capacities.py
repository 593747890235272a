"""Capacities of nodes that the operator sets, in place of what telemetry says.

    [capacity."rabbit@n1"]
    cores = 0.5
    memory = "4GiB"

They are for nodes that share a machine or a disk with others, and for what a node cannot know about its machine. A plan
names them among its inputs, so that its effect is measured by the same capacities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from spark_ops.planning.rows import ClusterRows
from spark_ops.planning.sizes import size_of

FIELDS: Final = ("cores", "memory", "disk", "fds")
SIZES: Final = ("memory", "disk")
"""The fields that may be written with a unit."""

GREATEST: Final = 1e18
"""Greater capacities are mistakes: no machine has an exabyte."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a node, in units of `NodeRow`.   None: as telemetry says."""

    node: str
    cores: float | None = None
    memory: float | None = None
    disk: float | None = None
    fds: float | None = None

    def given(self) -> dict[str, float]:
        """Return the fields that are set, by name."""
        values = {name: getattr(self, name) for name in FIELDS}
        return {name: value for name, value in values.items() if value is not None}


def capacities_from(document: object) -> tuple[Capacity, ...]:
    """Return the capacities of a table of tables by node. Raises: ValueError, with one line."""
    if not isinstance(document, Mapping):
        raise ValueError('capacity is no table: write [capacity."NODE"]')
    found = []
    for node, values in sorted(document.items()):
        if not isinstance(values, Mapping):
            raise ValueError(f"capacity of {node!r} is no table of {', '.join(FIELDS)}")
        for name in values:
            if name not in FIELDS:
                raise ValueError(f"capacity of {node!r} has no {name!r}; there are {', '.join(FIELDS)}")
        found.append(Capacity(node, **{name: _value(node, name, value) for name, value in values.items()}))
    return tuple(found)


def _value(node: str, name: str, given: object) -> float:
    value = size_of(given) if name in SIZES and isinstance(given, str) else given
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= GREATEST:
        what = "a size above 0, such as 16GiB" if name in SIZES else "a number above 0"
        raise ValueError(f"capacity of {node!r}: {name} is not {what}")
    return float(value)


def table_of(capacities: Sequence[Capacity]) -> dict[str, dict[str, float]]:
    """Return capacities as a table of tables by node, which `capacities_from` reads."""
    return {each.node: each.given() for each in capacities}


def with_capacities(cluster: ClusterRows, capacities: Sequence[Capacity]) -> ClusterRows:
    """Return a cluster whose nodes have these capacities. Raises: ValueError if it has no node of such a name."""
    if not capacities:
        return cluster
    given: dict[str, dict[str, Any]] = {each.node: each.given() for each in capacities}
    for node in given.keys() - {row.node for row in cluster.nodes}:
        raise ValueError(f"there is no node {node!r} in cluster {cluster.cluster!r}, but a capacity for it")
    return replace(cluster, nodes=tuple(replace(row, **given.get(row.node, {})) for row in cluster.nodes))
