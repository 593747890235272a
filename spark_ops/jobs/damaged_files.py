"""A job that fails in a damaged telemetry file is repeated without that file, and the file is reported as torn.

Spark could skip the rest of a damaged file by itself (`ignoreCorruptFiles`), but it does not report that. What a query
skips depends on the columns that it reads, so that one query would count rows as seen which another one misses.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

from spark_ops.jobs.files import find, skewed
from spark_ops.telemetry import damage
from spark_ops.telemetry.schema import Kind

Result = TypeVar("Result")

TRIES: Final = 3
"""The maximal number of attempts. One check finds all damaged files; another one is for files damaged since then."""
_HINTS: Final = ("FAILED_READ_FILE", "Parquet", "parquet", "checksum", "zstd", "Zstd")
"""Errors of Spark without any of these words are not about files, so no file is checked."""


def without_damaged(
    root: Path,
    kinds: Iterable[Kind],
    since: float | None,
    until: float | None,
    job: Callable[[], Result],
) -> Result:
    """Return the result of a job that reads the files of some kinds in [since, until), s since 1970.

    If Spark fails in a file, the damaged files are recorded (`telemetry.damage`) and the job is called again; `find`
    leaves them out then. Raises: what the job raises if no file is damaged; OSError if the record cannot be written.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    for _ in range(TRIES - 1):
        try:
            return job()
        except (PySparkException, Py4JError) as error:
            text = str(error)
            if not any(hint in text for hint in _HINTS):
                raise
            found = damaged_of(root, kinds, since, until)
            if not found:
                raise
            damage.record(root, found)
    return job()


def damaged_of(root: Path, kinds: Iterable[Kind], since: float | None, until: float | None) -> list[Path]:
    """Return the damaged files among those that a job would read. All pages of all files are read, one by one."""
    paths: list[Path] = []
    for kind in kinds:
        paths += [path for hour in find(root, kind, since, until).hours for path in hour.paths]
        if since is not None and until is not None:
            paths += skewed(root, kind, since, until)
    return [path for path in paths if damage.is_damaged(path)]
