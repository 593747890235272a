"""Jobs of the package by `spark-submit`, in an empty directory, as an operator runs them."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_ops.jobs.submit import Package

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}
"""The settings of a small driver on loopback. The second compiler costs a short job more than it saves."""


def submitted(
    made: Package, work: Path, master: str, *words: str, settings: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command of spark-ops by `spark-submit`.   work: the directory to run it in.   settings: besides ours."""
    chosen = [
        word
        for key, value in {**SETTINGS, **(settings or {})}.items()
        for word in ("--conf", f"{key}={value}")
    ]
    command = made.command(*words, master=master)
    command = [str(Path(sys.executable).with_name("spark-submit")), *chosen, *command[1:]]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")
    }
    environment |= {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": "/no/python",  # a job runs no code of its own on the workers
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=work, check=False)
