"""`spark-ops compact`."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from spark_ops.cli.main import main
from spark_ops.telemetry import manifest
from spark_ops.telemetry.layout import existing_hours, hour_directory
from tests.kit.synthetic.files import tear, write_parquet
from tests.kit.synthetic.telemetry import Setup, rows

Capture = pytest.CaptureFixture[str]
ROWS = list(rows(Setup(queues=2, hours=0.3, interval_s=60)))


def test_it_tells_what_it_did(tmp_path: Path, capsys: Capture) -> None:
    """The command tells what it did, and which files it had to leave alone."""
    paths = write_parquet(ROWS, tmp_path)
    tear(paths[0])
    assert main(["compact", str(tmp_path), "--no-retention"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 hours: 8 files became 3, ")
    assert str(paths[0].relative_to(tmp_path)) in out
    assert main(["compact", str(tmp_path), "--no-retention", "--grace", "0", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["hours"], told["removed"], told["retention"]) == (0, 8, None)


def test_old_hours_go(tmp_path: Path, capsys: Capture) -> None:
    """Unless told otherwise; the last topology stays."""
    write_parquet(ROWS, tmp_path)
    assert main(["compact", str(tmp_path)]) == 0
    assert "removed because of their age: 3 hours" in capsys.readouterr().out
    assert [len(existing_hours(tmp_path, kind)) for kind in ("node", "topology")] == [0, 1]


def test_one_line_for_what_makes_no_sense(tmp_path: Path, capsys: Capture) -> None:
    """A root that is none, a damaged manifest."""
    assert main(["compact", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["compact", str(tmp_path)]) == 0
    capsys.readouterr()
    write_parquet(ROWS, tmp_path)
    (hour,) = existing_hours(tmp_path, "node")
    (hour_directory(tmp_path, "node", hour) / manifest.NAME).write_text("{")
    assert main(["compact", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert "is damaged" in captured.err
    assert captured.err.count("\n") == 1
