"""A Spark cluster: a master and two workers as processes of their own, at addresses of their own on loopback.

A worker can have a mount namespace in which a path is another directory than on this machine, as on a worker that does
not share it. Namespaces need root.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.kit.patience import wait_until
from tests.kit.ports import free_ports
from tests.kit.server_process import ServerProcess

WORKERS: Final = ("127.0.0.2", "127.0.0.3")
START_S: Final = 120.0
SETTINGS: Final = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    # A job begins when both workers have joined, and each takes tasks of every stage.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.locality.wait": "0s",
    # As in tests/spark_ops/conftest.py: half of the time would go into compiling, in each of the three processes.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""The settings of a job that uses both workers."""
_COVER: Final = 'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 1; shift 2; done; shift; exec "$@"'

Covers = Mapping[Path, Path]
"""Directories by the paths at which a worker sees them."""


class SparkDaemon(ServerProcess):
    """A master or a worker.   directory: for its log, made and removed by the caller.   host: its address."""

    def __init__(self, directory: Path, host: str) -> None:
        super().__init__(directory, "spark")
        self._host = host

    def start(self, name: str, arguments: Sequence[str], covers: Covers) -> None:
        """Start the class `name` of Spark's package `deploy`."""
        import pyspark

        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        if covers:
            pairs = [str(path) for at, own in covers.items() for path in (own, at)]
            command = ["unshare", "--mount", "sh", "-c", _COVER, "sh", *pairs, "--", *command]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": self._host,  # its page listens there, too
            "SPARK_LOCAL_DIRS": str(self.directory / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        self._spawn(command, environment, cwd=self.directory)


@contextmanager
def standalone(directory: Path, covers: Mapping[str, Covers]) -> Iterator[str]:
    """Run a cluster of Spark. Yields: the URL of its master.   covers: by the address of the worker."""
    port, page = free_ports(2)
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:

        def start(host: str, name: str, *arguments: str) -> SparkDaemon:
            own = directory / host
            own.mkdir()
            daemon = SparkDaemon(own, host)
            stack.callback(daemon.stop)
            daemon.start(name, ["--host", host, *arguments], covers.get(host, {}))
            return daemon

        daemons = [start("127.0.0.1", "master.Master", "--port", str(port), "--webui-port", str(page))]
        for host in WORKERS:
            limits = ("--cores", "1", "--memory", "600m", "--webui-port", "0")
            work = ("--work-dir", str(directory / host / "work"))
            daemons.append(start(host, "worker.Worker", *limits, *work, url))

        def alive() -> bool:
            for daemon in daemons:
                assert daemon.is_running, daemon.log_text()[-2000:]
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
                    return bool(json.load(answer)["aliveworkers"] == len(WORKERS))
            except OSError:
                return False

        wait_until(alive, lambda: daemons[-1].log_text()[-2000:], START_S)
        yield url


def can_cover() -> bool:
    """Return whether this process may make mount namespaces."""
    try:
        done = subprocess.run(
            ["unshare", "--mount", "mount", "--bind", "/tmp", "/tmp"], capture_output=True, check=False
        )
    except OSError:
        return False
    return done.returncode == 0
