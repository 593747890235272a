"""Paths below a root."""

from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spark_ops.telemetry.layout import (
    DataFile,
    escape,
    existing_hours,
    hour_of,
    hours,
    kind_directory,
    parse,
    unescape,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
ROOT = Path("/root")
HOUR = datetime(2026, 11, 22, 13, tzinfo=UTC)


@given(NAMES)
def test_a_name_comes_back(name: str) -> None:
    """Whatever a name is, its part of a path stays in its directory, is not hidden, and can be read back."""
    part = escape(name)
    assert unescape(part) == name
    assert part not in (".", "..")
    assert not set(part) & set("/=\0_")
    assert not part.startswith((".", "_"))


@given(NAMES, NAMES, st.uuids(), st.integers(0, 2**62), st.integers(0, 10**6), st.booleans())
def test_a_path_comes_back(
    cluster: str, node: str, boot: object, first: int, more: int, is_late: bool
) -> None:
    """`parse` is the inverse of `DataFile.path`."""
    file = DataFile("queue", HOUR, cluster, node, str(boot), first, first + more, is_late)
    assert parse(file.path(ROOT), ROOT, "queue") == file
    assert parse(file.path(ROOT), ROOT, "node") is None


def test_what_is_no_file_of_rows() -> None:
    """Merged files, manifests and strangers are not taken for one."""
    directory = kind_directory(ROOT, "queue") / "dt=2026-11-22" / "hour=13"
    for name in (
        "_manifest.json",
        "cluster=c/node=_all/merged-0123.parquet",
        "cluster=c/node=n/abc.parquet",
        "cluster=c/node=n/other/a-0-1.parquet",
        "x/y/a-0-1.parquet",
    ):
        assert parse(directory / name, ROOT, "queue") is None
    assert (
        parse(kind_directory(ROOT, "queue") / "dt=x/hour=1/cluster=c/node=n/a-0-1.parquet", ROOT, "queue")
        is None
    )


def test_hours() -> None:
    """Hours are of UTC, and whole."""
    assert hour_of(1_793_494_799_999) == datetime(2026, 11, 1, 0, tzinfo=UTC)
    since, until = datetime(2026, 11, 1, 22, 30, tzinfo=UTC), datetime(2026, 11, 2, 0, 0, tzinfo=UTC)
    assert [hour.hour for hour in hours(since, until)] == [22, 23]


def test_existing_hours(tmp_path: Path) -> None:
    """In order; what is not named like an hour is passed over."""
    assert existing_hours(tmp_path, "node") == []
    for name in ("dt=2026-11-02/hour=01", "dt=2026-11-01/hour=23", "dt=2026-11-01/hour=99", "dt=x/hour=01"):
        (kind_directory(tmp_path, "node") / name).mkdir(parents=True)
    assert [hour.hour for hour in existing_hours(tmp_path, "node")] == [23, 1]
