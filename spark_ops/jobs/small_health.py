"""A small window is judged on the driver, without Spark: its rows are in memory within seconds.

Spark needs a JVM, which takes 8 CPU seconds to start, and plans some ten queries for a judgement. The answer is the
same (`small_evidence`). A window is left to Spark if it has more than `ROWS_MAX` rows, if its week of rollups is large,
or if one of its files cannot be read and the reason is not found here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_ops.health.context import Context
from spark_ops.health.document import forecasts
from spark_ops.health.judge import Judged, judge
from spark_ops.health.settings import Settings
from spark_ops.jobs.damaged_files import TRIES, damaged_of
from spark_ops.jobs.engine import packages
from spark_ops.jobs.health import MINUTE_S, Window, WindowFiles, files_of, intake_of
from spark_ops.jobs.minute_facts import RAW_KINDS, sources
from spark_ops.jobs.small_files import tables_of
from spark_ops.jobs.usual import Usual
from spark_ops.telemetry import damage
from spark_ops.telemetry.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa  # type: ignore[import-untyped]


ROWS_MAX: Final = 250_000
"""The maximal number of rows of a window that is judged here: six hours of 200 queues with three copies. They take some
600 MB and three CPU seconds, which is less than a JVM does; more are work for all cores, which Spark uses."""


class _TooLarge(Exception):
    """The window is left to Spark."""


def judge_small(
    root: Path, window: Window, settings: Settings, files: WindowFiles | None = None
) -> Judged | None:
    """Judge a window from its raw telemetry; None if Spark has to.   files: the result of `files_of`, if known.

    Raises: EngineError if a package is missing; FileNotFoundError if the root is no directory; OSError.
    """
    packages("pyarrow", "numpy")
    from spark_ops.jobs.small_evidence import gather
    from spark_ops.jobs.small_facts import too_new
    from spark_ops.jobs.small_usual import small_usual

    found = small_tables(root, window, RAW_KINDS, files)
    if found is None:
        return None
    read, tables = found

    def usual(queues: Sequence[tuple[str, str]]) -> Usual:
        figures = small_usual(root, window.cluster, float(window.start * MINUTE_S), queues)
        if figures is None:
            raise _TooLarge
        return figures

    intake = intake_of(root, window, read, sum(too_new(table) for table in tables.values()))
    try:
        evidence = gather(tables, window.cluster, window.start, window.end, settings, intake, usual)
    except _TooLarge:
        return None
    return judge(evidence, settings)


def forecast_small(root: Path, window: Window, settings: Settings, files: WindowFiles) -> list[Any] | None:
    """Return the forecasts of a window in the format of the health document; None if Spark has to make them.

    Raises: EngineError if a package is missing; OSError.
    """
    packages("pyarrow", "numpy")
    from spark_ops.jobs.small_evidence import gather_growth

    found = small_tables(root, window, ("node", "queue"), files)
    if found is None:
        return None
    return forecasts(Context(gather_growth(found[1], window.cluster, window.start, window.end), settings))


def small_tables(
    root: Path, window: Window, kinds: Sequence[Kind], files: WindowFiles | None = None
) -> "tuple[WindowFiles, Mapping[Kind, pa.Table]] | None":
    """Return a window's files and their rows by kind; None if there are too many, or if a file cannot be read.

    Damaged files are recorded and left out, as `without_damaged` does. Raises: FileNotFoundError, OSError.
    """
    read = files_of(root, window) if files is None else files
    for _ in range(TRIES):
        if read.rows > ROWS_MAX:
            return None
        tables = tables_of(
            {kind: read.paths(kind) for kind in kinds}, {kind: sources(kind) for kind in kinds}
        )
        if tables is not None:
            return read, tables
        damaged = damaged_of(root, kinds, window.since_s, window.until_s)
        if not damaged:
            return None
        damage.record(root, damaged)
        read = files_of(root, window)
    return None
