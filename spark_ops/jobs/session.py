"""This module creates and stops SparkSessions; no other module does.

An embedded session has all settings from here: a JVM on loopback that logs only errors and removes its files. Under
`spark-submit` the operator chooses master, memory, partitions and logs, and only the settings that affect results are
set here (UTC, partition columns as strings), and the partitions of shuffles unless the operator has chosen them. JVM
flags cannot be changed after the start, so the caller passes
`rows_hint`: for fewer than a million rows the JVM's second compiler costs more time than it saves. Source: spark §4.
"""

import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_ops.jobs.engine import EngineError, java, one_line, packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

C2_ROWS: Final = 1_000_000
"""A session for at least this many rows uses the JVM's second compiler, C2 (spark §4)."""
SMALL_ROWS: Final = 500_000
"""Up to this number of rows, one task reads them all. Spark then shuffles nothing: starting tasks and planning each
stage of a query by itself would take longer than the work, ten times as long for a small cluster."""
LARGE_ROWS: Final = 20_000_000
"""Above this number of rows the heap is 4 GB instead of 2 GB."""
ROWS_PER_PARTITION: Final = 2_000_000
PARTITIONS_MIN: Final = 4
PARTITIONS_MAX: Final = 200
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_DIRECTORY: Final = "spark-ops-"
_PID: Final = "pid"
"""The file in a session's directory that names the process to which it belongs."""

_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # Rows from the driver become partitions. As a part of the plan, all of them are compared each time it changes.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    # A read lists its files explicitly, so Spark needs no job to discover them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}

_LOG4J: Final = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
# Its messages are also raised as exceptions.
logger.query.name = org.apache.spark.sql.catalyst.trees.SQLQueryContextLogger
logger.query.level = off
"""


def is_submitted() -> bool:
    """True if `spark-submit` started this process; the operator then chooses the settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def partitions(rows_hint: int) -> int:
    """Return the number of partitions of a shuffle. Spark's default of 200 makes 200 tasks for a stage of few rows."""
    return min(max(-(-rows_hint // ROWS_PER_PARTITION), PARTITIONS_MIN), PARTITIONS_MAX)


def submitted_settings(rows_hint: int, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session that `spark-submit` started.   chosen: the operator's, which are kept."""
    ours = {**_ALWAYS, _PARTITIONS: str(partitions(rows_hint))}
    return {key: value for key, value in ours.items() if key in _ALWAYS or key not in chosen}


def settings(rows_hint: int, directory: Path) -> dict[str, str]:
    """Return the settings of an embedded session.   directory: for all temporary files."""
    flags = f"-XX:+UseSerialGC -Dlog4j2.configurationFile={directory / 'log4j2.properties'}"
    if rows_hint < C2_ROWS:
        # The classes of Spark and the first rows fit, so that the JVM's collector need not make room for them.
        flags += " -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m -Xms512m"
    return {
        **_ALWAYS,
        "spark.driver.memory": "4g" if rows_hint > LARGE_ROWS else "2g",
        "spark.driver.extraJavaOptions": flags,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        _PARTITIONS: str(partitions(rows_hint)),
        # To plan each stage of a small query anew costs more than a better plan saves.
        "spark.sql.adaptive.enabled": "false" if 0 < rows_hint <= SMALL_ROWS else "true",
        "spark.sql.files.maxPartitionBytes": "64m",
        # A judgement compiles more classes than Spark remembers (100), and each one after it compiled them again.
        "spark.sql.codegen.cache.maxEntries": "1000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }


@contextmanager
def session(
    name: str, *, rows_hint: int = 0, master: str | None = None, extra: Mapping[str, str] | None = None
) -> "Iterator[SparkSession]":
    """Yield a session for one job; an active session is reused and stays open.

    rows_hint: approximate number of rows that will be read.   master: None: all cores of this machine.   extra:
    settings that override ours. Ctrl-C cancels the running query. Raises: EngineError, in one line, for Spark's errors.
    """
    packages("pyspark", "pyarrow")
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        if (active := SparkSession.getActiveSession()) is not None:
            yield active
        elif is_submitted():
            with _submitted(name, rows_hint, extra or {}) as spark:
                yield spark
        else:
            with _embedded(name, rows_hint, master or "local[*]", extra or {}) as spark:
                yield spark
    except (PySparkException, Py4JError) as error:
        raise EngineError(f"Spark failed: {one_line(error)}") from error


@contextmanager
def _submitted(name: str, rows_hint: int, extra: Mapping[str, str]) -> "Iterator[SparkSession]":
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    chosen = dict(SparkConf().getAll())  # what spark-submit was given
    for key, value in {**submitted_settings(rows_hint, chosen), **extra}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _embedded(name: str, rows_hint: int, master: str, extra: Mapping[str, str]) -> "Iterator[SparkSession]":
    java()
    sweep(Path(tempfile.gettempdir()))
    directory = Path(tempfile.mkdtemp(prefix=_DIRECTORY))
    (directory / _PID).write_text(str(os.getpid()))
    # pyspark installs its own SIGINT handler, which cancels the query; the caller's is restored at the end.
    is_main = threading.current_thread() is threading.main_thread()
    interrupt = signal.getsignal(signal.SIGINT) if is_main else None
    try:
        (directory / "log4j2.properties").write_text(_LOG4J)
        spark = _start(name, {"spark.master": master, **settings(rows_hint, directory), **extra}, directory)
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        if interrupt is not None:
            signal.signal(signal.SIGINT, interrupt)
        shutil.rmtree(directory, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove the directories of our sessions whose process was killed before it could."""
    for path in folder.glob(f"{_DIRECTORY}*"):
        try:
            is_own = path.stat().st_uid == os.getuid() and not path.is_symlink()
            if is_own and not _is_running(int((path / _PID).read_text())):
                shutil.rmtree(path, ignore_errors=True)
        except (OSError, ValueError):
            continue  # it is another process's, has just been made, or is already gone


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _start(name: str, chosen: Mapping[str, str], directory: Path) -> "SparkSession":
    """Start the JVM with its output in a file; if the start fails, the error has the file's last line."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    # Workers would otherwise run the `python3` of PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if chosen["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf().setAppName(name).setAll(list(chosen.items()))
    log = directory / "jvm.log"
    with log.open("wb") as output:
        try:
            # A process has one JVM; a second session reuses it.
            gateway = SparkContext._gateway or launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=conf, gateway=gateway)
        except PySparkRuntimeError as error:
            said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            raise EngineError(f"Java did not start Spark: {said[-1] if said else one_line(error)}") from error
    return SparkSession(context)
