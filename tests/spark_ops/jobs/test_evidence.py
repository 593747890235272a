"""Evidence that Spark gathers is the one that plain Python does, and leads to the same findings (spark §6.18)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_ops.health.document import health_document
from spark_ops.health.judge import judge
from spark_ops.health.settings import Settings
from tests.kit.synthetic.faults import FAULTS, duplicate, inject, setup_for, shuffle
from tests.kit.synthetic.telemetry import Row, Setup, rows
from tests.spark_ops.health.reference import evidence

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETUP = Setup(hours=1.0, queues=6, interval_s=20.0)
OF_CLUSTERS = (
    *("node-down", "runaway-queue", "single-zone", "unsynced-promotion", "node-restart", "slow-link"),
    *("dead-letters-lost", "slow-confirms"),
)
"""All evidence of these is compared; each asks Spark about ten times."""
OF_QUEUES = (
    *("under-replicated", "unsynced-mirror", "mirror-lagging", "runaway-queue", "consumer-starvation"),
    *("consumer-bound", "old-messages", "unacked-stuck", "redelivery-loop", "unstable-failover"),
    *(
        "hot-single-queue",
        "queue-without-master",
        "messages-dropped",
        "dead-letters-lost",
        "slow-confirms",
        "clean",
    ),
)


def made_rows(name: str) -> list[Row]:
    """A fault in a cluster of its name, with rows that come twice and in any order."""
    setup = replace(SETUP, cluster=name)
    return list(rows(setup)) if name == "clean" else shuffle(duplicate(inject(setup, name), 0.1))


def facts_of(spark: Any, made: list[Row], folder: Path) -> Any:
    """Minute facts of rows, by way of files."""
    from spark_ops.jobs.minute_facts import RAW_KINDS, known, reduce
    from spark_ops.jobs.reading import envelope, load, schema
    from tests.spark_ops.jobs.roots import write_file

    frames = {}
    paths = []
    for kind in RAW_KINDS:
        path = folder / f"{kind}.parquet"
        write_file(path, kind, [row for row in made if row["kind"] == kind])
        paths.append(path)
        frames[kind] = known(load(spark, [path], schema(kind)))
    facts = reduce(frames, known(load(spark, paths, envelope())))
    for kind in ("node", "queue", "link", "event", "rows"):
        getattr(facts, kind).persist()
    return facts


@pytest.fixture(scope="module")
def clusters(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = {name: made_rows(name) for name in OF_CLUSTERS}
    every = [row for some in made.values() for row in some]
    return facts_of(spark, every, tmp_path_factory.mktemp("clusters")), made


@pytest.mark.parametrize("name", OF_CLUSTERS)
def test_spark_finds_what_the_rules_find(
    spark: Any, clusters: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole document is the same, though Spark sends suspicious queues only."""
    from spark_ops.jobs.evidence import Intake, gather

    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/python")  # no worker is needed
    facts, made = clusters
    setup = SETUP if name == "clean" else setup_for(SETUP, name)
    start = setup.start_s // 60
    end = start + round(setup.hours * 60)
    told = gather(facts, name, start, end, Settings(), Intake())
    wanted = evidence(made[name], start, end, name)
    by_spark = health_document(judge(told, Settings()), 0.0)
    by_rules = health_document(judge(wanted, Settings()), 0.0)
    assert by_spark == by_rules
    finding = None if name == "clean" else FAULTS[name].finding
    assert {each["kind"] for each in by_spark["findings"]} == ({finding} if finding else set())
    assert by_spark["verdict"] != "unknown"


def test_suspicion_lets_through_what_rules_look_for_and_little_more(spark: Any, tmp_path: Path) -> None:
    """Each fault makes its queue suspicious, and no other; all at once, each in a virtual host of its own."""
    from spark_ops.jobs.minute_facts import columns
    from spark_ops.jobs.suspicion import queue_totals

    made = []
    for name in OF_QUEUES:
        some = made_rows(name)
        made += [{**row, "vhost": name} for row in some if row["kind"] == "queue" and row["seq"] >= 0]
    others = [row for row in made_rows("clean") if row["kind"] != "queue"]
    facts = facts_of(spark, made + others, tmp_path)
    end = SETUP.start_s // 60 + 60
    zones = {"node1": "zone-1", "node2": "zone-2", "node3": "zone-3"}
    totals = queue_totals(facts.queue.select(*columns("queue")), Settings(), end, zones, 1.0)
    found = {(row["vhost"], row["queue"]) for row in totals.where("is_suspicious").collect()}
    assert found == {(name, "queue-00000") for name in OF_QUEUES if name != "clean"}
