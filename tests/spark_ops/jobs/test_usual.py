"""The usual figures of a queue are those of its master's rollups of the week before a window."""

from pathlib import Path
from typing import Any

import pytest

from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS
from tests.kit.synthetic.telemetry import Setup, rows
from tests.spark_ops.jobs import roots

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETUP = Setup(nodes=2, queues=3, replicas=2, hours=2.0, interval_s=120)
HOUR_S = 3600


def test_usual_figures(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Histograms are differences within an hour of a process, sizes those of the ends of hours; other queues, clusters
    and later hours do not count, and a queue without rollups has no figures."""
    from spark_ops.jobs.files import find
    from spark_ops.jobs.rollup_store import write as roll_up
    from spark_ops.jobs.usual import HISTORY_S, Usual, usual_figures

    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/python")  # no worker is needed
    made = [row for row in rows(SETUP) if row["kind"] == "queue"]
    roots.write(tmp_path, made, is_unique=True)
    list(roll_up(spark, tmp_path, "queue", find(tmp_path, "queue", None, None).hours))
    queues = [("/", "queue-00000"), ("/", "queue-00001"), ("/", "queue-none")]

    def figures(start_s: float, cluster: str = SETUP.cluster) -> Usual:
        return usual_figures(spark, tmp_path, cluster, start_s, queues)

    def risen(name: str, hours: range) -> tuple[int, ...]:
        total = [0] * HISTOGRAM_BUCKETS
        for hour in hours:
            begin = (SETUP.start_s + hour * HOUR_S) * 1000
            own = [
                row["confirm_us"]
                for row in made
                if row["queue"] == name
                and row["role"] == "master"
                and begin <= row["ts"] < begin + HOUR_S * 1000
            ]
            total = [was + last - first for was, first, last in zip(total, own[0], own[-1], strict=True)]
        return tuple(total)

    both = figures(float(SETUP.start_s + 2 * HOUR_S))
    wanted = {("/", name): risen(name, range(2)) for name in ("queue-00000", "queue-00001")}
    assert both.confirms == wanted
    assert sum(wanted["/", "queue-00000"]) > 1000
    assert set(both.sizes) == set(wanted)
    first = figures(float(SETUP.start_s + HOUR_S))
    assert first.confirms == {("/", name): risen(name, range(1)) for name in ("queue-00000", "queue-00001")}
    assert figures(float(SETUP.start_s + 2 * HOUR_S), "other") == Usual()
    assert figures(float(SETUP.start_s + 2 * HOUR_S + HISTORY_S + HOUR_S)) == Usual()
