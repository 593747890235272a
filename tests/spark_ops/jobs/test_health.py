"""The job: from files to a document, with what is torn, too new or missing told (spark §2.7, §6.18, §6.22)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_ops.jobs.health import HealthError, choose_window, newest_by_cluster
from tests.kit.synthetic.faults import inject
from tests.kit.synthetic.telemetry import Setup, rows
from tests.spark_ops.jobs.roots import write

SETUP = Setup(hours=2.0, queues=3, interval_s=60.0)
END_S = SETUP.start_s + 7200.0


def test_the_window_ends_with_what_has_come_in(tmp_path: Path) -> None:
    """Rows are some minutes on their way; a cluster that is silent for longer is not taken for one that runs."""
    pytest.importorskip("pyarrow")
    write(tmp_path, rows(SETUP))
    newest = newest_by_cluster(tmp_path)["synthetic"]
    assert END_S - 60 <= newest < END_S
    end = int(newest // 60)

    def chosen(**others: Any) -> tuple[int, int]:
        window = choose_window(tmp_path, **{"window_s": 600, "now_s": END_S + 120, **others})
        return window.start, window.end

    assert chosen() == (end - 10, end)
    assert chosen(now_s=END_S + 3600) == (int(END_S // 60) + 50, int(END_S // 60) + 60)
    assert chosen(now_s=END_S + 3600, until="last") == (end - 10, end)
    assert chosen(until=END_S - 1200.0) == (int(END_S // 60) - 30, int(END_S // 60) - 20)


def test_one_of_several_clusters_has_to_be_chosen(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for cluster in ("a", "b c"):
        write(tmp_path, rows(replace(SETUP, hours=0.1, cluster=cluster)))
    with pytest.raises(HealthError, match="there is telemetry of a, b c: choose one"):
        choose_window(tmp_path, window_s=600, now_s=END_S)
    with pytest.raises(HealthError, match="there is no telemetry of 'x', but of a, b c"):
        choose_window(tmp_path, window_s=600, now_s=END_S, cluster="x")
    assert choose_window(tmp_path, window_s=600, now_s=END_S, cluster="b c").cluster == "b c"
    with pytest.raises(FileNotFoundError):
        choose_window(tmp_path / "none", window_s=600, now_s=END_S)


@pytest.mark.spark
@pytest.mark.slow
def test_a_root_with_everything_wrong(spark: Any, tmp_path: Path) -> None:
    """A torn file, rows of a newer version, and a queue that grows, though not beyond what it had the days before."""
    from spark_ops.jobs.files import find
    from spark_ops.jobs.health import health
    from spark_ops.jobs.rollup_store import write as roll_up

    setup = replace(SETUP, hours=1.0)
    grown = [
        {**row, "msg_bytes": 10**9} if row["kind"] == "queue" and row["role"] == "master" else row
        for row in rows(setup)
    ]
    write(tmp_path, grown)
    list(roll_up(spark, tmp_path, "queue", find(tmp_path, "queue", None, None).hours))
    later = replace(setup, start_s=setup.start_s + 3600)
    made = [
        {**row, "v": 99} if row["kind"] == "link" and row["seq"] % 10 == 0 else row
        for row in inject(later, "runaway-queue")
    ]
    write(tmp_path, made)
    torn = next((tmp_path / "v1/kind=queue").rglob("hour=01/**/*.parquet"))
    torn.write_bytes(torn.read_bytes()[:100])

    document = health(spark, tmp_path, window_s=3600, now=END_S + 60, until=END_S)
    kinds = {each["kind"] for each in document["findings"]}
    assert kinds == {"telemetry-gap", "torn-files"}
    assert document["coverage"]["torn"] == [str(torn.relative_to(tmp_path))]
    assert document["coverage"]["unknown_versions"] == 18
    assert document["verdict"] == "unknown"
    assert document["score"] is None
