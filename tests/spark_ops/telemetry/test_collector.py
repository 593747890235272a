"""The collector: whatever happens, each row is in the files once."""

import errno
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pq = pytest.importorskip("pyarrow.parquet")

from spark_ops.telemetry import arrow, checkpoint, collector, layout  # noqa: E402
from spark_ops.telemetry.checkpoint import CheckpointError  # noqa: E402
from spark_ops.telemetry.collector import LEFT_BEHIND_S, Taken, take_all  # noqa: E402
from spark_ops.telemetry.manifest import live_files  # noqa: E402
from spark_ops.telemetry.quality import read_facts  # noqa: E402
from spark_ops.telemetry.schema import KINDS, VERSION  # noqa: E402
from tests.kit.synthetic.files import write_segments  # noqa: E402
from tests.kit.synthetic.telemetry import Setup, rows  # noqa: E402

SETUP = Setup(queues=2, hours=0.05, start_s=Setup().start_s + 3600 - 100)
"""Some rows, in two hours."""
ROWS = list(rows(SETUP))
NOW = 2e9


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields that tell a row from all others."""
    return row["node"], row["boot_id"], row["kind"], row["seq"]


def collected(root: Path) -> Counter[tuple[Any, ...]]:
    """Keys of all rows in the files, and how often they are there."""
    found: Counter[tuple[Any, ...]] = Counter()
    for kind in KINDS:
        for path in live_files(root, kind):
            found.update(key(row) for row in pq.ParquetFile(path).read().to_pylist())
    return found


def take(source: Path, root: Path, *, keep: bool = False) -> Taken:
    """One turn."""
    return take_all([source], root, keep=keep, now=NOW)


EXPECTED = Counter(key(row) for row in ROWS)


def test_all_rows_and_no_segments_are_left(tmp_path: Path) -> None:
    """Segments become files, hour by hour and node by node; a second turn has nothing to do."""
    segments = write_segments(ROWS, tmp_path / "in")
    taken = take(tmp_path / "in", tmp_path / "out")
    assert (taken.segments, taken.rows, taken.late, taken.duplicates) == (len(segments), len(ROWS), 0, 0)
    assert collected(tmp_path / "out") == EXPECTED
    assert not any(path.exists() for path in segments)
    for path in live_files(tmp_path / "out", "queue"):
        file = layout.parse(path, tmp_path / "out", "queue")
        assert file is not None
        read = pq.ParquetFile(path).read().to_pylist()
        assert {(row["node"], layout.hour_of(row["ts"])) for row in read} == {(file.node, file.hour)}
        assert (min(row["seq"] for row in read), max(row["seq"] for row in read)) == (file.first, file.last)
    assert take(tmp_path / "in", tmp_path / "out").segments == 0
    assert sum(facts.rows for facts in read_facts(tmp_path / "out")) == len(ROWS)


def test_kept_segments_are_taken_once(tmp_path: Path) -> None:
    """With --keep the checkpoint knows which ones; without it they go the next time."""
    segments = write_segments(ROWS, tmp_path / "in")
    assert take(tmp_path / "in", tmp_path / "out", keep=True).rows == len(ROWS)
    assert all(path.exists() for path in segments)
    assert take(tmp_path / "in", tmp_path / "out", keep=True).segments == 0
    assert take(tmp_path / "in", tmp_path / "out").segments == 0
    assert not any(path.exists() for path in segments)
    assert collected(tmp_path / "out") == EXPECTED


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6))
def test_any_way_of_arrival(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """spark §6.18: duplicates, disorder and cuts change nothing of which rows there are."""
    directory = tmp_path_factory.mktemp("any")
    chance = random.Random(seed)
    mine = chance.sample(ROWS, 40)
    stream = mine + chance.choices(mine, k=chance.randrange(20))
    chance.shuffle(stream)
    node = directory / "in" / "n"
    node.mkdir(parents=True)
    number = 0
    while stream:
        cut = chance.randrange(1, 25)
        data = b"".join(json.dumps(row).encode() + b"\n" for row in stream[:cut])
        (node / f"a-20261101T000000-{number}.ndjson").write_bytes(data)
        del stream[:cut]
        number += 1
        if chance.random() < 0.4:
            take(directory / "in", directory / "out", keep=chance.random() < 0.5)
    take(directory / "in", directory / "out")
    assert collected(directory / "out") == Counter(key(row) for row in mine)


class Crash(Exception):
    """The process is gone."""


@pytest.mark.slow
@pytest.mark.parametrize("full", [True, False], ids=["no room", "killed"])
def test_a_crash_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool) -> None:
    """Whatever write fails, or is the last one of a process: the next turn goes on, and no row is lost or doubled."""
    steps = 0
    real_write, real_save, real_unlink = arrow.write, checkpoint.save, Path.unlink

    def step(real: Any) -> Any:
        def stepped(*arguments: Any, **options: Any) -> Any:
            nonlocal steps
            steps -= 1
            if steps == 0:
                raise OSError(errno.ENOSPC, "No space left on device") if full else Crash
            return real(*arguments, **options)

        return stepped

    monkeypatch.setattr(arrow, "write", step(real_write))
    monkeypatch.setattr(checkpoint, "save", step(real_save))
    monkeypatch.setattr(Path, "unlink", step(real_unlink))
    failed = 0
    for number in range(1, 40, 3):
        source, root = tmp_path / f"in{number}", tmp_path / f"out{number}"
        write_segments(ROWS[:90], source, rotate_s=3600)
        steps = number
        try:
            take(source, root)
        except (OSError, Crash):
            failed += 1
            steps = 0
            before = sum(collected(root).values())
            assert before <= 90
            take(source, root)
        steps = 0
        assert collected(root) == Counter(key(row) for row in ROWS[:90]), number
        assert sum(facts.rows for facts in read_facts(root)) == 90
        assert not list(source.glob("*/*.ndjson"))
    assert failed > 5


def test_lines_that_give_no_row(tmp_path: Path) -> None:
    """Lines that give no row are counted by kind and kept apart; the rows around them are taken."""
    node = tmp_path / "in" / "node1"
    node.mkdir(parents=True)
    mine = [row for row in ROWS if row["node"] == "node1" and row["kind"] == "node"][:4]
    lines = [json.dumps(row).encode() + b"\n" for row in mine]
    strange = json.dumps(mine[0] | {"seq": 99, "fd_used": "many"}).encode() + b"\n"
    future = json.dumps(mine[0] | {"seq": 98, "v": VERSION + 2}).encode() + b"\n"
    (node / "a-1-1.ndjson").write_bytes(
        lines[0] + b"nonsense\n" + lines[1] + future + strange + b"[]\n" + lines[2][:40]
    )
    (node / "a-1-2.ndjson").write_bytes(lines[3])
    taken = take(tmp_path / "in", tmp_path / "out")
    assert (taken.rows, taken.torn, taken.bad, taken.unknown_versions) == (3, 2, 2, 1)
    assert sum(collected(tmp_path / "out").values()) == 3
    kept = (tmp_path / "out" / layout.QUARANTINE / "node1" / "a-1-1.ndjson").read_bytes().splitlines()
    assert kept == [b"nonsense", future.strip(), b"[]", lines[2][:40]]
    facts = read_facts(tmp_path / "out")
    assert [(each.torn, each.bad, each.unknown_versions) for each in facts] == [(2, 2, 1)]


def test_a_node_that_died(tmp_path: Path) -> None:
    """A dead node's open segment is taken when nobody has written to it for long, and left to the node."""
    write_segments(ROWS[:50], tmp_path / "in", rotate_s=36000)
    path = next((tmp_path / "in").glob("node1/*.ndjson"))
    mine = path.read_bytes()
    opened = path.with_name(path.name + ".open")
    path.rename(opened)
    os.utime(opened, (NOW - 10, NOW - 10))
    before = take(tmp_path / "in", tmp_path / "out").segments
    os.utime(opened, (NOW - LEFT_BEHIND_S - 1, NOW - LEFT_BEHIND_S - 1))
    assert take(tmp_path / "in", tmp_path / "out").segments == 1
    assert take(tmp_path / "in", tmp_path / "out").segments == 0
    assert opened.read_bytes() == mine
    opened.rename(path)  # the node is back
    assert take(tmp_path / "in", tmp_path / "out").segments == 0
    assert not path.exists()
    assert before == 2
    assert sum(collected(tmp_path / "out").values()) == 50


def test_late_rows_lie_apart(tmp_path: Path) -> None:
    """Rows of an hour that was over long since."""
    late = [
        row | {"seq": row["seq"] + 1000, "ts": row["ts"] - 3_600_000} for row in ROWS if row["kind"] == "node"
    ]
    write_segments([*ROWS, *late], tmp_path / "in", rotate_s=10**6)
    taken = take(tmp_path / "in", tmp_path / "out")
    assert taken.late > 0
    apart = [path for path in live_files(tmp_path / "out", "node") if "late=1" in path.parts]
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in apart) == taken.late
    assert sum(collected(tmp_path / "out").values()) == len(ROWS) + len(late)


def test_one_collector_at_a_time(tmp_path: Path) -> None:
    """A second one says so, and takes nothing."""
    write_segments(ROWS[:20], tmp_path / "in")
    source = tmp_path / "in" / "node1"
    with (
        checkpoint.held(checkpoint.path_of(tmp_path / "out", source)),
        pytest.raises(CheckpointError, match="another collector"),
    ):
        take(tmp_path / "in", tmp_path / "out")
    assert collected(tmp_path / "out") == Counter()


@pytest.mark.parametrize("text", ["", "{}", "null", '{"format":"spark-ops-collect/1"}'])
def test_a_damaged_checkpoint(tmp_path: Path, text: str) -> None:
    """One line says which and what to do; without it no row is doubled in one file."""
    write_segments(ROWS, tmp_path / "in")
    take(tmp_path / "in", tmp_path / "out", keep=True)
    for path in (tmp_path / "out" / "_collect").glob("*.json"):
        path.write_text(text)
    with pytest.raises(CheckpointError, match="is damaged: remove it"):
        take(tmp_path / "in", tmp_path / "out")
    for path in (tmp_path / "out" / "_collect").glob("*.json"):
        path.unlink()
    take(tmp_path / "in", tmp_path / "out")
    assert collected(tmp_path / "out") == EXPECTED


def test_names_from_outside_stay_below_the_root(tmp_path: Path) -> None:
    """A row's names make one directory each."""
    node = tmp_path / "in" / "n"
    node.mkdir(parents=True)
    hostile = ROWS[0] | {"cluster": "../../..", "node": "/etc/passwd\n= %2F"}
    (node / "a-1-1.ndjson").write_text(json.dumps(hostile) + "\n")
    assert take(tmp_path / "in", tmp_path / "out").rows == 1
    (path,) = live_files(tmp_path / "out", hostile["kind"])
    file = layout.parse(path, tmp_path / "out", hostile["kind"])
    assert file is not None
    assert (file.cluster, file.node) == (hostile["cluster"], hostile["node"])
    assert {each.name for each in tmp_path.iterdir()} == {"in", "out"}


def test_nothing_to_take(tmp_path: Path) -> None:
    """An empty directory is no fault."""
    (tmp_path / "in").mkdir()
    assert take(tmp_path / "in", tmp_path / "out") == Taken()
    (tmp_path / "in" / "node1").mkdir()
    assert take(tmp_path / "in", tmp_path / "out") == Taken()


def test_batches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few segments at a time are in memory; the checkpoint is saved after each batch."""
    monkeypatch.setattr(collector, "BATCH_BYTES", 1)
    write_segments(ROWS, tmp_path / "in")
    taken = take(tmp_path / "in", tmp_path / "out")
    assert taken.files > 20
    assert collected(tmp_path / "out") == EXPECTED
