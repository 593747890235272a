"""Capacities by setting replace those of telemetry, in plans and in what their effect is measured by."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ops.planning.capacities import FIELDS, Capacity, capacities_from, table_of, with_capacities
from spark_ops.planning.goals import Settings, SettingsError, settings_from
from spark_ops.planning.plan import Plan
from spark_ops.reports.after import compare
from tests.spark_ops.planning.clusters import FREE, after, cluster, node, plan, queue

ROWS = cluster(
    [node("a"), node("b")], [queue(f"q{n}", *("ab" if n % 2 else "ba"), cpu=1.0) for n in range(8)]
)
"""Two nodes of 8 cores with four masters each, one core a master."""


def _given(**values: Any) -> Settings:
    return settings_from({"capacity": {"a": values}}, FREE)


def _masters(found: Plan) -> list[int]:
    rows = after(ROWS, found)
    return [sum(row.master == name for row in rows.queues) for name in "ab"]


def test_a_node_with_less_cpu_gets_fewer_masters() -> None:
    """Nothing is to be done among equals; a node of a third of the cores keeps about a third of the masters."""
    assert _masters(plan(ROWS)) == [4, 4]
    settings = replace(_given(cores=4), goals=("cpu",))
    assert _masters(plan(ROWS, settings)) == [3, 5]


def test_what_is_not_set_is_as_telemetry_says() -> None:
    settings = _given(memory="16 GiB", disk=5e11, fds=1000)
    first, second = with_capacities(ROWS, settings.capacity).nodes
    assert first == replace(ROWS.nodes[0], memory=16 * 2**30, disk=5e11, fds=1000)
    assert second == ROWS.nodes[1]


def test_capacities_are_part_of_the_settings_hash() -> None:
    """The order in the file is not."""
    assert _given(cores=2).config_hash not in (Settings().config_hash, _given(cores=3).config_hash)
    both = {"a": {"cores": 2}, "b": {"fds": 9, "cores": 1}}
    turned = {"b": {"cores": 1, "fds": 9}, "a": {"cores": 2}}
    hashes = {settings_from({"capacity": each}, FREE).config_hash for each in (both, turned)}
    assert len(hashes) == 1


def test_a_node_that_is_not_there() -> None:
    settings = settings_from({"capacity": {"x": {"cores": 1}}}, FREE)
    with pytest.raises(SettingsError, match="no node 'x' in cluster 'c', but a capacity for it"):
        plan(ROWS, settings)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (5, "no table"),
        ({"a": 5}, "no table of cores"),
        ({"a": {"cpus": 5}}, "has no 'cpus'"),
        ({"a": {"cores": 0}}, "cores is not a number above 0"),
        ({"a": {"cores": True}}, "cores is not a number above 0"),
        ({"a": {"cores": "2"}}, "cores is not a number above 0"),
        ({"a": {"fds": float("inf")}}, "fds is not a number above 0"),
        ({"a": {"fds": float("nan")}}, "fds is not a number above 0"),
        ({"a": {"memory": "much"}}, "memory is not a size above 0"),
        ({"a": {"disk": -1}}, "disk is not a size above 0"),
        ({"a": {"disk": "0GB"}}, "disk is not a size above 0"),
        ({"a": {"disk": 10**400}}, "disk is not a size above 0"),
    ],
)
def test_what_is_no_capacity(document: object, text: str) -> None:
    """An operator gets one line that names the node and the field."""
    with pytest.raises(SettingsError, match=text) as caught:
        settings_from({"capacity": document}, FREE)
    assert "\n" not in str(caught.value)


def test_the_effect_is_measured_by_the_same_capacities() -> None:
    """A plan's shares are of the given cores. Measured by others, loads that came as predicted would be errors."""
    for settings in (FREE, replace(_given(cores=4), goals=("cpu",))):
        found = plan(ROWS, settings)
        document = {
            "cluster": "c",
            "plan_id": found.plan_id,
            "inputs": found.inputs,
            "nodes": list(found.nodes),
            "steps": [],
            "waves": [],
        }
        result = compare(document, after(ROWS, found), created="2026-11-21T09:40:00Z")
        assert result["error"]["cpu_max"] == pytest.approx(0.0, abs=1e-4)


def test_a_node_that_left_since_is_not_measured() -> None:
    """A plan may name the capacity of a node that is no longer a member when its effect is measured."""
    found = plan(ROWS, _given(cores=4))
    left = replace(after(ROWS, found), nodes=ROWS.nodes[1:], queues=())
    document = {"cluster": "c", "inputs": found.inputs, "nodes": [], "steps": [], "waves": []}
    assert compare(document, left, created="2026-11-21T09:40:00Z")["nodes"] == []


_NUMBERS = st.none() | st.floats(1e-3, 1e18)


@given(st.lists(st.tuples(st.text(), st.fixed_dictionaries(dict.fromkeys(FIELDS, _NUMBERS)))))
def test_a_table_is_read_as_it_is_written(given: list[tuple[str, dict[str, float | None]]]) -> None:
    capacities = tuple(Capacity(name, **values) for name, values in sorted(dict(given).items()))
    assert capacities_from(table_of(capacities)) == capacities
