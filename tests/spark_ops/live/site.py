"""Three live nodes that can be broken in many ways, clients that publish, and `spark-ops` beside them.

`collect` and `health --follow` run as processes of their own, as an operator runs them. What `--follow` tells is read
from its alerts: a line for each judgement that raised or cleared a finding.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from examples.rebalance_demo.load import Shop
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.fluffle_cluster import FluffleCluster
from tests.kit.managed_fluffle import ManagedNode
from tests.kit.network import ProxyNetwork
from tests.kit.patience import wait_until
from tests.kit.server_cluster import NAMES, SETTINGS, Cluster
from tests.kit.server_process import ServerProcess
from tests.kit.shifted_clock import ShiftedClock

RATE: Final = 5.0
"""Messages a second of the busiest queue; all queues together have some 30."""
TOLD_S: Final = 900.0
"""A finding may take this long on a quiet machine; only a failing test waits so long."""
FIRST_S: Final = 300.0
"""The first telemetry and the first judgement may take this long."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace at which telemetry gets to a judgement.   segment_s: length of a segment; None: the node's default.

    flush, every: options of `collect` and `health --follow`.
    """

    segment_s: float | None = None
    flush: str = "60s"
    every: str = "60s"


DEFAULTS: Final = Pace()
QUICK: Final = Pace(5.0, "2s", "15s")


class LiveNode(ManagedNode):
    """A node with a disk that can be slow and a clock that can be wrong."""

    pace: ClassVar = DEFAULTS

    def __init__(self, name: str, directory: Path, network: ProxyNetwork | None = None) -> None:
        super().__init__(name, directory, network)
        self.disk: Final = FaultyDisk(self._directory, Path(self.data), takes_notes=False)
        self.clock: Final = ShiftedClock(self._directory)
        disk, clock = self.disk.environment, self.clock.environment
        both = {"LD_PRELOAD": f"{disk['LD_PRELOAD']}:{clock['LD_PRELOAD']}"}
        self._environment |= {**disk, **clock, **both}
        if self.pace.segment_s is not None:
            self._environment["FLUFFLE_TEST_SEGMENT_S"] = str(self.pace.segment_s)

    @property
    def telemetry(self) -> Path:
        """The directory of its segments."""
        return Path(self.data) / "telemetry"

    def must(self, *words: str) -> None:
        """Run `fluffle ctl` as an operator would."""
        done = self.ctl(*words)
        assert done.code == 0, f"{words}: {done}"


class Told:
    """The findings that a follower has told.   path: of its alerts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def alerts(self) -> Iterator[dict[str, Any]]:
        """Yield the alerts so far; a line that is being written is left out."""
        text = self._path.read_text() if self._path.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)

    def standing(self) -> dict[str, dict[str, Any]]:
        """Return the findings that are raised and not cleared, by id."""
        found: dict[str, dict[str, Any]] = {}
        for alert in self.alerts():
            for each in alert["cleared"]:
                found.pop(each["id"], None)
            found.update({each["id"]: each for each in alert["raised"]})
        return found


class Site:
    """A cluster, its load and its follower.   directory: for telemetry and logs; made and removed by the caller."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        self.directory = directory
        self.cluster = cluster
        self.root = directory / "telemetry"
        self.told = Told(directory / "alerts.ndjson")

    def node(self, number: int) -> LiveNode:
        """Return n1, n2 or n3."""
        return cast(LiveNode, self.cluster.nodes[number - 1])

    def await_that(self, look: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait until something was told.   what: names it for a failure."""
        wait_until(look, what, TOLD_S)

    def await_cleared(self, finding_id: str) -> None:
        """Wait until a finding does not stand."""
        wait_until(lambda: finding_id not in self.told.standing(), f"{finding_id} is cleared", TOLD_S)


@contextmanager
def live_site(directory: Path, pace: Pace) -> Iterator[Site]:
    """Yield a cluster under load whose follower has judged it once. Raises: NoCompiler."""
    settings = {**SETTINGS, "cluster_name": "live", "telemetry.enabled": "true"}
    kind = type("PacedNode", (LiveNode,), {"pace": pace})
    with ExitStack() as stack:
        cluster = FluffleCluster.form(settings, NAMES, can_be_cut=True, kind=kind)
        stack.callback(cluster.stop)
        site = Site(directory, cluster)
        cluster[0].admin.set_policy(
            "/", "all", ".*", {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"}
        )
        shop = Shop([node.port for node in cluster.nodes], RATE)
        shop.declare()
        shop.open()
        stack.callback(shop.close, 0.0)
        segments = [str(site.node(number).telemetry) for number in (1, 2, 3)]
        collect = ("collect", *segments, "--out", str(site.root), "--flush", pace.flush)
        stack.enter_context(_spark_ops(directory, *collect))
        rows = site.root / "v1" / "kind=node"
        wait_until(lambda: any(rows.rglob("*.parquet")), "the first telemetry", FIRST_S)
        follow = ("health", str(site.root), "--follow", "--window", "30m", "--every", pace.every, "--json")
        follower = stack.enter_context(
            _spark_ops(directory, *follow, "--alerts", str(directory / "alerts.ndjson"))
        )
        judged = site.root / "_health"

        def is_judged() -> bool:
            assert follower.is_running, follower.log_text()[-4000:]
            # Not recursive: Spark removes folders of its own beneath while this looks.
            return any(judged.glob("*/*/judged/*.json"))

        wait_until(is_judged, "the first judgement", FIRST_S)
        yield site


class SparkOps(ServerProcess):
    """A command of spark-ops that runs until it is killed."""

    def start(self, *words: str) -> None:
        """Start it."""
        self._spawn([sys.executable, "-m", "spark_ops", *words], os.environ)


@contextmanager
def _spark_ops(directory: Path, *words: str) -> Iterator[SparkOps]:
    """Run a command of spark-ops until the context ends."""
    process = SparkOps(directory, words[0])
    process.start(*words)
    try:
        yield process
    finally:
        process.kill()
