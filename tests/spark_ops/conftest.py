"""The one JVM of the tests: small, and as predictable as Spark can be."""

from collections.abc import Iterator
from typing import Any

import pytest

from spark_ops.jobs.engine import EngineError, java, packages
from spark_ops.jobs.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores that all tests marked `spark` share. Code that asks for a session gets this one."""
    try:
        packages("pyspark", "pyarrow")
        java()
    except EngineError as error:
        pytest.skip(str(error))
    quiet = {
        "spark.driver.memory": "1g",
        # Without its second compiler the JVM keeps 48 MB of compiled code, which two files of tests nearly fill.
        "spark.driver.defaultJavaOptions": "-XX:ReservedCodeCacheSize=240m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        # To compile a job costs a third of a test and changes no result. Jobs that are compiled: test_submit.py.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Else each call of pyspark asks the JVM to remember the line that it comes from, for the texts of errors.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    with session("tests", master="local[2]", extra=quiet) as made:
        yield made
