"""Made-up telemetry looks like a healthy cluster's, and its faults like faults."""

import json
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ops.documents import content_hash
from spark_ops.telemetry.quality import HourFacts, Watch, doubled
from spark_ops.telemetry.schema import FIELDS, KEY
from spark_ops.telemetry.segments import wrong_field
from tests.kit.synthetic.faults import FAULTS, HARMLESS, drop, duplicate, inject, setup_for, shuffle
from tests.kit.synthetic.telemetry import Setup, rows

SMALL = Setup(queues=6, hours=0.3, interval_s=30)


def rises(made: list[dict[str, Any]]) -> None:
    """Each counter of each process and subject never falls, and time goes on."""
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in made:
        subject = (
            row["node"],
            row["boot_id"],
            row["kind"],
            row.get("vhost"),
            row.get("queue"),
            row.get("to_node"),
        )
        before = last.get(subject, {})
        for name, value in row.items():
            if value is None or before.get(name) is None:
                continue
            if name.endswith("_total") or name in ("mono_ms", "ts"):
                assert value >= before[name], name
            elif FIELDS[row["kind"]][name] == "histogram":
                assert all(new >= old for new, old in zip(value, before[name], strict=True)), name
        last[subject] = row


@settings(max_examples=15, deadline=None)
@given(
    nodes=st.integers(1, 6),
    queues=st.integers(0, 9),
    replicas=st.integers(1, 4),
    zones=st.integers(0, 3),
    idle=st.sampled_from([0.0, 0.5, 1.0]),
    uneven=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 99),
)
def test_a_clean_cluster(
    nodes: int, queues: int, replicas: int, zones: int, idle: float, uneven: float, seed: int
) -> None:
    """Right types, each key once, counters that rise, copies on distinct nodes, all of them synchronised."""
    setup = Setup(nodes, queues, replicas, 0.1, 30, seed, zones=zones, idle_share=idle, uneven=uneven)
    made = list(rows(setup))
    assert made == list(rows(setup))
    assert len({tuple(row[name] for name in KEY) for row in made}) == len(made)
    for row in made:
        assert wrong_field(row) is None
        assert row.keys() <= FIELDS[row["kind"]].keys()
        if row["kind"] == "queue":
            assert len(set(row["ring"])) == len(row["ring"]) == min(replicas, nodes)
            assert row["ring"] == row["synced"]
            assert row["ring"][row["ring_pos"]] == row["node"]
            assert (row["role"] == "master") == (row.get("ready") is not None)
            assert (row["heir"] is None) == (len(row["ring"]) == 1)
    rises(made)
    assert [row["ts"] // 30_000 for row in made] == sorted(row["ts"] // 30_000 for row in made)


def test_even_and_uneven_loads() -> None:
    """By default all nodes' masters cost the same; uneven clusters are uneven."""
    for uneven in (0.0, 1.0):
        cpu: defaultdict[str, int] = defaultdict(int)
        for row in rows(Setup(nodes=3, queues=20, hours=0.01, interval_s=30, uneven=uneven, uptime_s=0)):
            if row["kind"] == "queue" and row["role"] == "master":
                cpu[row["node"]] += row["cpu_us_total"]
        ratio = max(cpu.values()) * len(cpu) / sum(cpu.values())
        assert (ratio < 1.1) == (uneven == 0)


def test_the_topology() -> None:
    """Every five minutes, in parts; the hash is of the whole."""
    made = [
        row
        for row in rows(Setup(queues=1001, replicas=2, hours=0.1, interval_s=60))
        if row["kind"] == "topology"
    ]
    assert len(made) == 2 * 3
    assert [(row["part"], row["parts"]) for row in made[:3]] == [(0, 3), (1, 3), (2, 3)]
    parts = [json.loads(row["document"]) for row in made[:3]]
    whole = {**parts[0], "queues": [queue for part in parts for queue in part["queues"]]}
    assert len(whole["queues"]) == 1001
    assert made[0]["topology_hash"] == content_hash(whole)
    assert len({row["snapshot"] for row in made}) == 2


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if "hours" in FAULTS[name].needs else [])
        for name in FAULTS
    ],
)
def test_faults_write_right_rows(name: str) -> None:
    """Up to its beginning a fault changes nothing; after it something. Counters do not fall within a process."""
    setup = setup_for(SMALL, name)
    made = [row for row in inject(SMALL, name, at_s=600) if row["kind"] != "topology"]
    clean = [row for row in rows(setup) if row["kind"] != "topology"]
    begin = (setup.start_s + 600) * 1000
    assert [row for row in made if row["mono_ms"] >= 3_600_000 and row["ts"] < begin - 5000] == [
        row for row in clean if row["ts"] < begin - 5000
    ]
    assert made != clean
    for row in made:
        assert wrong_field(row) is None
    if name != "clock-skew":
        rises(made)


def test_what_faults_are_for() -> None:
    """Each of spark §3.2 that rows can show."""
    assert {fault.finding for fault in FAULTS.values()} - {None} == {
        "under-replicated",
        "unsynced-mirror",
        "single-zone",
        "mirror-lagging",
        "master-imbalance",
        "hot-node",
        "runaway-queue",
        "consumer-starvation",
        "unacked-stuck",
        "redelivery-loop",
        "flapping-link",
        "unstable-failover",
        "unsynced-promotion",
        "resource-near-limit",
        "conn-churn",
        "clock-skew",
        "telemetry-gap",
        "duplicate-node-id",
        "hot-single-queue",
        "alarm-active",
        "cluster-down",
        "dead-letters-lost",
        "host-without-cpu",
        "messages-dropped",
        "node-down",
        "partition",
        "publishers-blocked",
        "queue-without-master",
        "slow-confirms",
        "slow-syncs",
    }
    assert set(HARMLESS) == {"node-restart", "planned-moves"}


def facts_of(made: Any) -> list[HourFacts]:
    """Return the facts that a collector would count."""
    watch = Watch()
    for row in made:
        watch.row(row)
    return list(watch.hours.values())


def test_faults_of_the_way_are_facts() -> None:
    """A gap, a second node of a name and a skewed clock are seen by a collector; a restart is none of them."""
    assert sum(facts.lost for facts in facts_of(rows(SMALL))) == 0
    assert {facts.node for facts in facts_of(inject(SMALL, "telemetry-gap")) if facts.lost} == {"node2"}
    assert doubled(facts_of(inject(SMALL, "duplicate-node-id"))) == [("synthetic", "node2")]
    assert doubled(facts_of(inject(SMALL, "node-restart"))) == []
    skews = {facts.node: facts.skew_max_ms for facts in facts_of(inject(SMALL, "clock-skew"))}
    assert skews == {"node1": 0, "node2": 5000, "node3": 0}


def test_changes_of_any_rows() -> None:
    """Dropped, told twice, in another order; the same each time."""
    made = list(rows(SMALL))
    assert 0.85 < len(list(drop(made, 0.1))) / len(made) < 0.95
    twice = list(duplicate(made, 0.2))
    assert 1.1 < len(twice) / len(made) < 1.3
    assert sum(facts.duplicates for facts in facts_of(twice)) == len(twice) - len(made)
    turned = shuffle(made)
    assert turned != made
    assert turned == shuffle(made)
    assert sorted(map(str, turned)) == sorted(map(str, made))
