"""Files with an intact footer and damaged pages: they are found, recorded and left out of reads."""

from pathlib import Path

import pytest

from spark_ops.jobs import files
from spark_ops.telemetry import arrow, damage
from tests.kit.synthetic.telemetry import Row, Setup, rows
from tests.spark_ops.jobs import roots

SETUP = Setup(nodes=2, queues=2, replicas=2, hours=0.5, interval_s=60)
ROWS: list[Row] = [row for row in rows(SETUP) if row["kind"] == "node"]


def test_pages_are_looked_at(tmp_path: Path) -> None:
    path, other = roots.write(tmp_path, ROWS)
    assert not damage.is_damaged(path)
    roots.overwrite_pages(path)
    assert files.read_footer(path) is not None
    assert damage.is_damaged(path)
    assert not damage.is_damaged(other)
    assert not damage.is_damaged(tmp_path / "none.parquet")


def test_a_wrong_value_is_damage(tmp_path: Path) -> None:
    """A page that can still be decoded has a checksum, which our writer adds."""
    path = tmp_path / "a.parquet"
    arrow.write(arrow.convert("node", ROWS).table, path, unique=True)
    assert not damage.is_damaged(path)
    import pyarrow.parquet as pq

    column = pq.read_metadata(path).row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    assert damage.is_damaged(path)


def test_recorded_files_are_told_as_torn(tmp_path: Path) -> None:
    path, other = roots.write(tmp_path, ROWS)
    assert damage.recorded(tmp_path) == {}
    damage.record(tmp_path, [path])
    found = files.find(tmp_path, "node", None, None)
    assert found.torn == (str(path.relative_to(tmp_path)),)
    assert [each for hour in found.hours for each in hour.paths] == [other]


def test_a_file_of_another_size_is_read_again(tmp_path: Path) -> None:
    path, other = roots.write(tmp_path, ROWS)
    damage.record(tmp_path, [path, other])
    path.write_bytes(path.read_bytes() + b"PAR1")
    other.unlink()
    assert not damage.is_recorded(path, tmp_path, damage.recorded(tmp_path))
    assert not damage.is_recorded(other, tmp_path, damage.recorded(tmp_path))
    damage.record(tmp_path, [])
    assert list(damage.recorded(tmp_path)) == [str(path.relative_to(tmp_path))]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other", "files": {}}', '{"format": 1}'])
def test_a_damaged_record_is_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / damage.NAME).write_text(text)
    assert damage.recorded(tmp_path) == {}
