"""The job: from files to a document, with what is torn, too new or missing told (spark §2.7, §6.18, §6.22)."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_ops.health.judge import judge
from spark_ops.health.settings import Settings
from spark_ops.jobs import files
from spark_ops.jobs.files import find, read_footer, skewed, times, times_of
from spark_ops.jobs.health import HealthError, choose_window, files_of, judge_empty, newest_by_cluster
from spark_ops.telemetry.rounds import Rounds
from tests.kit.synthetic.faults import inject
from tests.kit.synthetic.telemetry import Row, Setup, rows
from tests.spark_ops.health.reference import evidence
from tests.spark_ops.jobs.roots import write, write_file, write_slices

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


def test_a_cluster_that_falls_silent_is_judged_up_to_now(tmp_path: Path) -> None:
    """A silent cluster's outage shows in the last minutes, which have no rows: the window must have them."""
    pytest.importorskip("pyarrow")
    write(tmp_path, rows(SETUP))
    now_s = END_S + 240
    window = choose_window(tmp_path, window_s=1800, now_s=now_s)
    assert window.end == int(now_s // 60)
    made = evidence(rows(SETUP), window.start, window.end)
    result = judge(made, Settings())
    assert [(each.kind, each.severity) for each in result.findings] == [("cluster-down", "crit")]
    assert result.verdict == "critical"


def test_rows_that_are_not_collected_yet_are_no_silence(tmp_path: Path) -> None:
    """A collector that has no CPU for minutes says so: all nodes run, and no file tells of it."""
    pytest.importorskip("pyarrow")
    write(tmp_path, rows(SETUP))
    newest = newest_by_cluster(tmp_path)["synthetic"]
    now_s = END_S + 300
    own = Rounds(tmp_path, [tmp_path / "segments"], 60.0, END_S)
    own.renew(now_s - 20)
    window = choose_window(tmp_path, window_s=1800, now_s=now_s)
    assert window.end == int(newest // 60)
    result = judge(evidence(rows(SETUP), window.start, window.end), Settings())
    assert result.findings == ()
    # It has caught up, and there was nothing to collect: the nodes are down.
    own.ended(now_s - 20, now_s - 10)
    assert choose_window(tmp_path, window_s=1800, now_s=now_s).end == int(now_s // 60)


def with_clock(ahead_s: int, *, is_known: bool = True) -> list[Row]:
    """Rows of a cluster of which one node's clock is ahead of the others'."""
    return [
        {**row, "ts": row["ts"] + ahead_s * 1000, "skew_ms": ahead_s * 1000 if is_known else None}
        if row["node"] == "node2"
        else row
        for row in rows(SETUP)
    ]


def write_at(root: Path, made: list[Row]) -> None:
    """Write files as a collector does whose clock is right."""
    for path in write(root, made):
        os.utime(path, (END_S, END_S))


@pytest.mark.parametrize("ahead_s", [3600, 86_400, -3600, -86_400])
def test_a_clock_that_is_wrong_does_not_move_the_window(tmp_path: Path, ahead_s: int) -> None:
    """The node's files are in folders of other hours, and are found there."""
    pytest.importorskip("pyarrow")
    write_at(tmp_path, with_clock(ahead_s))
    window = choose_window(tmp_path, window_s=1800, now_s=END_S + 60)
    assert END_S - 120 <= window.end * 60 <= END_S
    assert choose_window(tmp_path, window_s=1800, now_s=END_S + 60, until="last").end == window.end
    found = set(skewed(tmp_path, "node", window.since_s, window.until_s))
    found |= {
        path for hour in find(tmp_path, "node", window.since_s, window.until_s).hours for path in hour.paths
    }
    assert {path.parent.name for path in found} == {"node=node1", "node=node2", "node=node3"}
    read = files_of(tmp_path, window)
    ends = {path: times(path, "node") for path in found}
    assert set(read.paths("node")) == {
        path
        for path, both in ends.items()
        if both is not None and both[1] >= window.since_s * 1000 and both[0] < window.until_s * 1000
    }
    assert {path.parent.name for path in read.paths("node")} == {"node=node1", "node=node2", "node=node3"}
    assert read.rows > 0


def test_a_clock_of_which_nothing_is_known_does_not_end_the_window_in_the_future(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    write_at(tmp_path, with_clock(3600, is_known=False))
    assert choose_window(tmp_path, window_s=1800, now_s=END_S + 60).end == int(END_S // 60) + 1
    assert choose_window(tmp_path, window_s=1800, now_s=END_S + 60, until="last").end == int(END_S // 60) + 1


def test_files_of_other_hours_with_right_clocks_are_not_read(tmp_path: Path) -> None:
    """Late rows and merged files are written later than their hour, too."""
    pytest.importorskip("pyarrow")
    write_at(tmp_path, list(rows(SETUP)))
    assert skewed(tmp_path, "node", END_S - 1800, END_S) == []
    assert skewed(tmp_path, "queue", END_S - 1800, END_S) == []


def test_a_merged_file_with_clocks_that_are_apart_is_read_by_rows(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    made = [row for row in with_clock(-3600) if row["kind"] == "node"]
    path = tmp_path / "merged-0.parquet"
    write_file(path, "node", made)
    metadata = read_footer(path)
    assert metadata is not None
    corrected = [row["ts"] - row["skew_ms"] for row in made]
    assert times_of(path, metadata) == (min(corrected), max(corrected))


def test_an_empty_window_needs_no_spark(tmp_path: Path) -> None:
    """The verdict is known without a row."""
    pytest.importorskip("pyarrow")
    window = choose_window(tmp_path, window_s=1800, now_s=END_S)
    assert files_of(tmp_path, window).rows == 0
    assert judge_empty(window, Settings(), files_of(tmp_path, window)).verdict == "unknown"
    write(tmp_path, rows(SETUP))
    window = choose_window(tmp_path, window_s=1800, now_s=END_S + 86_400)
    assert files_of(tmp_path, window).rows == 0


def test_footers_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many small files that takes longer than all else on the driver."""
    pytest.importorskip("pyarrow")
    made = write(tmp_path, rows(SETUP))
    counts: Counter[Path] = Counter()
    read = files.read_footer

    def counted(path: Path) -> Any:
        counts[path] += 1
        return read(path)

    monkeypatch.setattr(files, "read_footer", counted)
    window = choose_window(tmp_path, window_s=7200, now_s=END_S)
    found = files_of(tmp_path, window)
    assert found.rows > 0
    wanted = Counter(path for path in made if "kind=topology" not in str(path))
    assert counts == wanted
    assert files_of(tmp_path, window) == found
    assert counts == wanted, "the process knows them already"
    path = found.paths("node")[0]
    path.write_bytes(path.read_bytes()[:-1])
    assert files_of(tmp_path, window).found["node"].torn == (str(path.relative_to(tmp_path)),)


def test_files_of_other_clusters_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    for cluster in ("a", "b c"):
        write(tmp_path, rows(replace(SETUP, cluster=cluster)))
    window = choose_window(tmp_path, window_s=7200, now_s=END_S, cluster="b c")
    read = files.read_footer
    files._footer.cache_clear()  # to choose the window, those of all clusters were read
    seen: list[str] = []
    monkeypatch.setattr(files, "read_footer", lambda path: seen.append(str(path)) or read(path))
    found = files_of(tmp_path, window)
    assert seen
    assert all("/cluster=b%20c/" in path for path in seen)
    every = find(tmp_path, "node", window.since_s, window.until_s)
    assert found.found["node"].rows * 2 == every.rows
    assert files_of(tmp_path, replace(window, cluster="c")).rows == 0


def test_files_without_rows_of_the_window_are_left_out(tmp_path: Path) -> None:
    """A minute is a file, and an hour has many minutes: a window of ten minutes reads those of ten minutes."""
    pq = pytest.importorskip("pyarrow.parquet")
    setup = replace(SETUP, hours=0.5, queues=1)
    write_slices(tmp_path, [row for row in rows(setup) if row["kind"] != "topology"], 1)
    end_s = setup.start_s + 1800.0
    window = choose_window(tmp_path, window_s=600, now_s=end_s)
    kept = {
        int(row["ts"]) // 60_000
        for path in files_of(tmp_path, window).paths("node")
        for row in pq.read_table(path, columns=["ts"], partitioning=None).to_pylist()
    }
    assert kept == set(range(window.start - 5, int(end_s // 60)))
    assert len(find(tmp_path, "node", window.since_s, window.until_s).hours[0].paths) == 90


def test_many_footers_are_read_in_the_same_order_as_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    write(tmp_path, rows(SETUP))
    alone = find(tmp_path, "queue", None, None)
    monkeypatch.setattr(files, "_THREADED", 1)
    assert find(tmp_path, "queue", None, None) == alone


@pytest.mark.spark
@pytest.mark.slow
def test_a_clock_that_is_an_hour_ahead_is_a_finding(spark: Any, tmp_path: Path) -> None:
    """A clock that is ahead does not blind the window, and all rows are seen."""
    from spark_ops.jobs.health import health

    write_at(tmp_path, with_clock(3600))
    document = health(spark, tmp_path, window_s=1800, now=END_S + 60)
    assert [(each["kind"], each["subject"]["node"]) for each in document["findings"]] == [
        ("clock-skew", "node2")
    ]
    assert document["coverage"]["share"] == 1.0
    assert document["verdict"] == "findings"


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
