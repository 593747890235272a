"""The sums of the regression are made of the rows of a window, by whichever way Spark gets them."""

from pathlib import Path
from typing import Any

import pytest

from tests.kit.synthetic.model import MASTER_CPU_US, MIRROR_CPU_US
from tests.kit.synthetic.telemetry import Row, Setup, rows
from tests.spark_ops.jobs.roots import write

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETUP = Setup(nodes=3, queues=9, replicas=2, hours=1.0, interval_s=30.0, zones=0)
START = SETUP.start_s // 60


def costly(made: list[Row]) -> list[Row]:
    """Rows in which all operations vary, and the CPU time of a node is that of its copies and a base."""
    factor = {
        name: 1.0 + (ord(name[-1]) % 5) for name in {row["queue"] for row in made if row["kind"] == "queue"}
    }

    def amount(queue: str, ts: int) -> int:
        at = (ts / 1000 - SETUP.start_s) / 60
        return int(1000 * factor[queue] * (at + at * at / 20 * (1 + ord(queue[-1]) % 3)))

    spent: dict[tuple[str, int], float] = {}
    found = []
    for row in made:
        if row["kind"] == "queue":
            count = amount(row["queue"], row["ts"])
            cost = MASTER_CPU_US if row["role"] == "master" else MIRROR_CPU_US
            tick = (row["node"], row["ts"])
            spent[tick] = spent.get(tick, 0.0) + count * cost
            changed = {"cpu_us_total": int(count * cost), "client_us_total": 0, "disk_us_total": 0}
            if row["role"] == "master":
                changed |= {"pub_total": count, "pub_bytes_total": 100 * count}
                changed |= dict.fromkeys(("dlv_total", "get_total", "ack_total", "dlv_bytes_total"), 0)
            found.append({**row, **changed})
        else:
            found.append(row)
    return [
        {
            **row,
            "cpu_sys_ms_total": 0,
            "cpu_user_ms_total": int(
                spent[row["node"], row["ts"]] / 1000 + (row["ts"] / 1000 - SETUP.start_s) * 20
            ),
        }
        if row["kind"] == "node"
        else row
        for row in found
    ]


@pytest.mark.parametrize("is_local", [True, False])
def test_costs_of_masters_and_mirrors(
    spark: Any, tmp_path: Path, is_local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_ops.jobs import load_check as module
    from spark_ops.jobs.health import Window
    from spark_ops.jobs.load_check import load_check

    write(tmp_path, costly(list(rows(SETUP))))
    monkeypatch.setattr(module, "LOCAL_ROWS", module.LOCAL_ROWS if is_local else 0)
    found = load_check(spark, tmp_path, Window("synthetic", START, START + 60, None))
    assert found is not None
    assert found.minutes == 3 * 59
    assert found.r2 > 0.95
    assert found.modelled == pytest.approx(found.measured, abs=0.08)
    assert set(found.nodes) == {"node1", "node2", "node3"}
    per_master = found.cost_us["master_ops"] + 100 * found.cost_us["master_bytes"]
    assert per_master == pytest.approx(MASTER_CPU_US, rel=0.2)


def test_another_cluster_and_an_empty_window(spark: Any, tmp_path: Path) -> None:
    from spark_ops.jobs.health import Window
    from spark_ops.jobs.load_check import load_check

    write(tmp_path, rows(SETUP))
    assert load_check(spark, tmp_path, Window("other", START, START + 60, None)) is None
    assert load_check(spark, tmp_path, Window("synthetic", START + 600, START + 660, None)) is None
