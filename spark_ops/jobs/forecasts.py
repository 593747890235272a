"""The job `forecast` predicts when memory, disk and file descriptors reach their limits, and names growing queues."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_ops.health.context import Context
from spark_ops.health.document import forecasts
from spark_ops.health.settings import Settings
from spark_ops.jobs.damaged_files import without_damaged
from spark_ops.jobs.evidence import gather_growth
from spark_ops.jobs.health import Window, WindowFiles, facts_of_files, files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def forecast(
    spark: "SparkSession", root: Path, window: Window, settings: Settings, files: WindowFiles | None = None
) -> list[dict[str, Any]]:
    """Return the forecasts of a window in the format of the health document.

    files: the result of `files_of`, if the caller has it.   Raises: FileNotFoundError, OSError.
    """
    given = [files] if files is not None else []

    def found() -> list[dict[str, Any]]:
        read = given.pop() if given else files_of(root, window)
        facts = facts_of_files(spark, read, window.end)
        evidence = gather_growth(facts, window.cluster, window.start, window.end)
        return forecasts(Context(evidence, settings))

    return without_damaged(root, ("node", "queue"), window.since_s, window.until_s, found)
