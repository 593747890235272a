"""Some files of an hour count, as its manifest says."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark_ops.telemetry import manifest
from spark_ops.telemetry.layout import hour_directory
from spark_ops.telemetry.manifest import Manifest, ManifestError, files_of_hour, live, live_files

HOUR = datetime(2026, 11, 22, 13, tzinfo=UTC)


def test_what_counts() -> None:
    """Neither what was replaced, nor what a compaction left that did not end; late files do."""
    files = ["c/n/a-0-9.parquet", "c/n/a-10-19.parquet", "c/_all/merged-1.parquet", "c/_all/merged-2.parquet"]
    assert live(files, Manifest()) == files[:2]
    told = Manifest(("c/_all/merged-1.parquet",), frozenset(files[:1]))
    assert live(files, told) == ["c/_all/merged-1.parquet", "c/n/a-10-19.parquet"]


def test_a_manifest_comes_back(tmp_path: Path) -> None:
    """A manifest is read as it was written, and a missing one is empty."""
    assert manifest.read(tmp_path) == Manifest()
    told = Manifest(("b", "a"), frozenset(("x", "y")), 7)
    manifest.write(tmp_path, told)
    assert manifest.read(tmp_path) == told
    assert [path.name for path in tmp_path.iterdir()] == ["_manifest.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format":"spark-ops-manifest/1","merged":[1]}', "\xff"]
)
def test_a_damaged_manifest(tmp_path: Path, text: str) -> None:
    """One line says which."""
    (tmp_path / manifest.NAME).write_text(text, encoding="latin-1")
    with pytest.raises(ManifestError, match=r"^[^\n]*_manifest\.json[^\n]*$"):
        manifest.read(tmp_path)


def test_files_of_a_time(tmp_path: Path) -> None:
    """Hidden and unfinished files are none; the limits are of hours."""
    for number in range(3):
        directory = hour_directory(tmp_path, "node", HOUR + timedelta(hours=number)) / "cluster=c" / "node=n"
        directory.mkdir(parents=True)
        for name in (f"a-{number}-{number}.parquet", ".a-0-0.parquet.tmp", "_x.parquet", ".y.parquet"):
            (directory / name).touch()
    assert files_of_hour(tmp_path / "none") == []
    assert len(live_files(tmp_path, "node")) == 3
    until = HOUR + timedelta(hours=2)
    found = live_files(tmp_path, "node", since=HOUR + timedelta(minutes=90), until=until)
    assert [path.name for path in found] == ["a-1-1.parquet"]
    assert live_files(tmp_path, "queue") == []
