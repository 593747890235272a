"""The containers of deploy/docker-compose.yml suffer faults while clients work through its HAProxy.

After each of it everything confirmed has to be there. Without an engine they are skipped, with the reason, unless
CHAOS_REQUIRED=1. All share one set of containers, which each test finds and leaves whole.
"""

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests.chaos.containers.engine import EngineMissing, base_images, running_engine
from tests.chaos.containers.stack import LIMIT_S, Stack, StackFailed
from tests.chaos.mirror_ledger import Ledger, QueueStory, Session, Trace
from tests.chaos.mirror_load import SMALL, SOMEWHERE, Load, Style, Taste
from tests.chaos.pika_client import PikaClient
from tests.kit.load_client import Lost
from tests.kit.network import NAMES
from tests.kit.patience import patience

pytestmark = [pytest.mark.slow, pytest.mark.docker]

STYLES: Final = (
    Style("h", ("hot",), SMALL, 60, window=100),
    Style("e", ("two", "three"), SMALL, 15, window=60),
)
TASTES: Final = (Taste("hot", batch=10), Taste("hot"), Taste("two", 1), Taste("three"))
POLICY: Final = {"pattern": "", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}
STEADY: Final = 200
"""Clients are served if there are so many confirms more."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """The containers, with all nodes up and all queues mirrored."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix="fluffle-stack-", dir="/tmp") as name,
            running_engine() as (client, environ),
        ):
            made = Stack(Path(name), client, {**environ, **base_images(client)})
            try:
                made.prepare()
                made.build()
            except StackFailed as error:
                made.release_disk()
                # The registry of packages may be out of reach, or the engine may not build: no word on what is tested.
                raise EngineMissing(f"no image: {error}") from error
            try:
                made.up()
                asyncio.run(made.await_up(*NAMES))
                made.ask("/api/policies/%2F/mirrored", node=NAMES[0], method="PUT", body=POLICY)
                yield made
            finally:
                made.down()
    except EngineMissing as missing:
        if os.environ.get("CHAOS_REQUIRED") == "1":
            raise
        pytest.skip(str(missing))


class Traffic:
    """Clients through HAProxy, and what they know."""

    def __init__(self, stack: Stack, trace: Path) -> None:
        self._stack = stack
        self._ledger = Ledger(Trace(trace))
        self._load = Load(stack.cluster, self._ledger, Random(trace.parent.name), front=stack.front)

    async def start(self) -> None:
        """Begin, and wait until all is well."""
        await self._load.declare()
        await self._stack.await_whole()
        self._load.start(STYLES, TASTES, ())
        await self.goes_on()

    async def goes_on(self) -> None:
        """Wait until so many messages more were confirmed."""
        count = self._ledger.count
        wanted = count.acknowledged + STEADY
        await self._stack.until(lambda: count.acknowledged >= wanted, f"{STEADY} more confirms")

    async def end(self) -> None:
        """Stop, empty all queues, and compare. Raises: AssertionError."""
        await self._load.stop()
        left = [queue for queue in self._ledger.queues.values() if queue.is_durable]
        async with asyncio.timeout(LIMIT_S * patience()):
            while left:
                # A node that hears of no majority for a while, on a machine with too much to do, cuts its clients.
                with contextlib.suppress(Lost):
                    await self._drain(left)
        self._ledger.compare([])
        count = self._ledger.count
        print(f"{count.attempt} published, {count.acknowledged} confirmed, {count.redelivered} redelivered")
        assert not count.problems, "\n".join(count.problems)
        assert count.acknowledged >= 2 * STEADY

    async def _drain(self, left: list[QueueStory]) -> None:
        """Empty these queues, and take them off the list. Raises: Lost."""
        client = await PikaClient.connect(*self._stack.front, SOMEWHERE)
        channel = await client.channel()
        while left:
            queue = left[0]
            session = Session(self._ledger, queue, SOMEWHERE, "the end")
            while (found := await channel.get(queue.name)) is not None:
                value = session.take(*found)
                if value is not None:
                    session.settled(value)
                channel.ack(found[0].delivery_tag)
            if await channel.declare(queue.name, passive=True) == 0:
                left.pop(0)
            else:
                await asyncio.sleep(0.1)
        await client.leave()


@contextlib.asynccontextmanager
async def traffic(stack: Stack, tmp_path: Path) -> AsyncIterator[Traffic]:
    """Clients at work while the context lasts; then everything confirmed must be there."""
    clients = Traffic(stack, tmp_path / "trace")
    await clients.start()
    yield clients
    await clients.goes_on()
    await clients.end()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """One test."""
    asyncio.run(scenario)


def others(name: str) -> list[str]:
    """The nodes but that one."""
    return [each for each in NAMES if each != name]


def test_clients_work_through_the_balancer(stack: Stack, tmp_path: Path) -> None:
    """Nodes see the clients' own addresses (PROXY protocol), and all nodes have some of them."""

    wanted = {f"rabbit@{name}.cluster" for name in NAMES}

    def connections() -> list[dict[str, Any]]:
        return list(stack.ask("/api/connections"))

    async def scenario() -> None:
        async with traffic(stack, tmp_path):
            await stack.until(lambda: {each["node"] for each in connections()} == wanted, "all have clients")
            assert stack.balancer not in {each["peer_host"] for each in connections()}

    run(scenario())


def test_containers_may_do_no_more_than_they_need(stack: Stack) -> None:
    """No root, no capabilities, nothing to write to but data, and no secret where `docker inspect` shows it."""
    secret = stack.run("n1", "cat", "/run/fluffle/cluster_secret").strip()
    assert len(secret) >= 16
    for name in NAMES:
        about = stack.container(name).attrs
        assert about["Config"]["User"] == "999:999"
        assert about["HostConfig"]["ReadonlyRootfs"]
        assert about["HostConfig"]["CapDrop"] == ["ALL"]
        assert secret not in str(about)
        status = stack.run(name, "cat", "/proc/self/status")
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
    with pytest.raises(AssertionError, match="Read-only file system"):
        stack.run("n1", "touch", "/opt/fluffle/mark")
    assert "Cluster status" in stack.run("n1", "fluffle", "ctl", "cluster_status")


def test_the_health_of_containers_is_that_of_nodes(stack: Stack) -> None:
    """Healthy when clients may come, not while the broker is stopped."""

    async def scenario() -> None:
        def health() -> str:
            return str(stack.container("n2").attrs["State"]["Health"]["Status"])

        await stack.until(lambda: health() == "healthy", "n2 is healthy")
        check = ["python3", "-I", "-S", "/opt/fluffle/libexec/healthcheck.py"]
        await asyncio.to_thread(stack.run, "n2", "fluffle", "ctl", "stop_app")
        with pytest.raises(AssertionError, match="the broker does not run"):
            stack.run("n2", *check)
        await stack.await_up("n1", "n3")
        await asyncio.to_thread(stack.run, "n2", "fluffle", "ctl", "start_app")
        await stack.await_whole()
        assert '"ok"' in stack.run("n2", *check)

    run(scenario())


def test_a_master_is_killed(stack: Stack, tmp_path: Path) -> None:
    """kill -9 of the container: mirrors take over, and it comes back to them."""

    async def scenario() -> None:
        async with traffic(stack, tmp_path) as clients:
            victim = stack.master("hot")
            container = stack.container(victim)
            await asyncio.to_thread(container.kill, "SIGKILL")
            await stack.await_up(*others(victim))
            await clients.goes_on()
            await asyncio.to_thread(container.start)
            await stack.await_whole()

    run(scenario())


def test_a_node_that_ends_is_started_again(stack: Stack, tmp_path: Path) -> None:
    """kill -9 of the process in the container: the engine starts it by itself."""

    async def scenario() -> None:
        async with traffic(stack, tmp_path):
            victim = stack.master("hot")
            starts = stack.container(victim).attrs["RestartCount"]
            # init is the first process, the node its only child.
            await asyncio.to_thread(stack.run, victim, "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
            await stack.until(
                lambda: stack.container(victim).attrs["RestartCount"] > starts, f"{victim} is started"
            )
            await stack.await_whole()

    run(scenario())


def test_a_master_is_paused(stack: Stack, tmp_path: Path) -> None:
    """HAProxy cuts the clients of a paused master, and others serve them; the master comes back as a mirror."""

    async def scenario() -> None:
        async with traffic(stack, tmp_path) as clients:
            victim = stack.master("hot")
            container = stack.container(victim)
            await asyncio.to_thread(container.pause)
            try:
                await stack.await_up(*others(victim))
                await clients.goes_on()
            finally:
                await asyncio.to_thread(container.unpause)
            await stack.await_whole()

    run(scenario())


def test_a_node_is_cut_off_from_its_peers(stack: Stack, tmp_path: Path) -> None:
    """Clients still reach it, but it is a minority: it says so, and HAProxy takes it out until it is back."""

    async def scenario() -> None:
        async with traffic(stack, tmp_path) as clients:
            victim = stack.master("hot")
            container, network = stack.container(victim), stack.network("cluster")
            await asyncio.to_thread(network.disconnect, container)
            try:
                await stack.await_up(*others(victim))
                assert not stack.is_ready(victim)
                assert container.status == "running"
                await clients.goes_on()
            finally:
                await asyncio.to_thread(network.connect, container, aliases=[victim, f"{victim}.cluster"])
            await stack.await_whole()

    run(scenario())


def test_a_disk_is_full(stack: Stack, tmp_path: Path) -> None:
    """An alarm that keeps publishers waiting, everywhere; when there is room again they go on."""
    if not stack.has_small_disk:
        pytest.skip("no file system can be mounted here")
    victim, filler = NAMES[-1], "/var/lib/fluffle/filler"

    def has_alarm() -> bool:
        nodes = stack.ask("/api/nodes", node=NAMES[0])
        return bool({each["name"]: each for each in nodes}[f"rabbit@{victim}.cluster"]["disk_free_alarm"])

    async def scenario() -> None:
        async with traffic(stack, tmp_path) as clients:
            with pytest.raises(AssertionError, match="No space left on device"):
                await asyncio.to_thread(stack.run, victim, "dd", "if=/dev/zero", f"of={filler}", "bs=1M")
            try:
                await stack.until(has_alarm, "the alarm is on")
                assert stack.is_ready(victim)
            finally:
                await asyncio.to_thread(stack.run, victim, "rm", filler)
            await stack.until(lambda: not has_alarm(), "the alarm is off")
            await clients.goes_on()
            await stack.await_whole()

    run(scenario())


def test_a_node_is_stopped(stack: Stack, tmp_path: Path) -> None:
    """SIGTERM: exit code 0, and clients were told to go elsewhere."""

    async def scenario() -> None:
        async with traffic(stack, tmp_path) as clients:
            victim = stack.master("hot")
            container = stack.container(victim)
            await asyncio.to_thread(container.stop, timeout=60)
            assert stack.container(victim).attrs["State"]["ExitCode"] == 0
            await clients.goes_on()
            await asyncio.to_thread(container.start)
            await stack.await_whole()

    run(scenario())


def test_a_rolling_restart(stack: Stack, tmp_path: Path) -> None:
    """One after the other is drained and restarted, as docs/clustering.md says."""

    async def scenario() -> None:
        async with traffic(stack, tmp_path) as clients:
            for name in NAMES:
                await asyncio.to_thread(stack.run, name, "fluffle", "ctl", "drain")
                await asyncio.to_thread(stack.container(name).restart, timeout=60)
                await stack.await_whole()
                await clients.goes_on()

    run(scenario())


def test_a_node_takes_all_its_memory(stack: Stack, tmp_path: Path) -> None:
    """The kernel kills it at its limit, and the engine starts it again: one more kill -9."""
    if not stack.has_memory_limits:
        pytest.skip("the engine cannot limit memory here")
    # The kernel takes the node and not what grows beside it, which takes memory until it is killed with the container.
    first = "for each in $(cat /proc/1/task/1/children); do echo 1000 >/proc/$each/oom_score_adj; done"
    grow = "import time; taken = [bytes([1]) * (1 << 20) for _ in range(4096)]; time.sleep(60)"

    async def scenario() -> None:
        async with traffic(stack, tmp_path) as clients:
            victim = stack.master("hot")
            container = stack.container(victim)
            starts = container.attrs["RestartCount"]
            await asyncio.to_thread(stack.run, victim, "sh", "-c", first)
            await asyncio.to_thread(container.exec_run, ["python3", "-c", grow], detach=True)
            await stack.until(
                lambda: stack.container(victim).attrs["RestartCount"] > starts, f"{victim} is killed"
            )
            await clients.goes_on()
            await stack.await_whole()

    run(scenario())


def test_a_ram_node_comes_and_goes(stack: Stack, tmp_path: Path) -> None:
    """The profile `ram`: it gets a copy of each queue, and clients; when it is forgotten all is as before."""

    async def scenario() -> None:
        async with traffic(stack, tmp_path) as clients:
            await asyncio.to_thread(stack.add, "ram1", "ram")
            try:
                await stack.await_whole([*NAMES, "ram1"])
                (about,) = [each for each in stack.ask("/api/nodes") if each["name"] == "rabbit@ram1.cluster"]
                assert about["type"] == "ram"
                # The balancer sends whoever comes next to the node that has the fewest.
                client = await PikaClient.connect(*stack.front, SOMEWHERE)
                await stack.until(
                    lambda: "rabbit@ram1.cluster" in {each["node"] for each in stack.ask("/api/connections")},
                    "ram1 has clients",
                )
                await client.leave()
                await clients.goes_on()
            finally:
                await asyncio.to_thread(stack.remove, "ram1", "ram")
                stack.run("n1", "fluffle", "ctl", "forget_cluster_node", "rabbit@ram1.cluster")
            await stack.await_whole()

    run(scenario())


def test_a_witness_in_the_place_of_a_node(stack: Stack, tmp_path: Path) -> None:
    """The profile `witness`: with its vote one of the other two is enough, and it has no copy and no clients."""
    pair = NAMES[:2]

    def votes() -> bool:
        status = json.loads(stack.run("n1", "fluffle", "ctl", "cluster_status", "--formatter", "json"))
        return "rabbit@witness.cluster" in status["voters"]

    async def scenario() -> None:
        async with traffic(stack, tmp_path) as clients:
            await asyncio.to_thread(stack.remove, "n3")
            stack.run("n1", "fluffle", "ctl", "forget_cluster_node", "rabbit@n3.cluster")
            try:
                await asyncio.to_thread(stack.add, "witness", "witness")
                await stack.until(votes, "the witness is there")
                await stack.await_whole(pair)
                victim = stack.master("hot")
                container = stack.container(victim)
                await asyncio.to_thread(container.kill, "SIGKILL")
                await clients.goes_on()
                await asyncio.to_thread(container.start)
                await stack.await_whole(pair)
            finally:
                await asyncio.to_thread(stack.remove, "witness", "witness")
                stack.run("n1", "fluffle", "ctl", "forget_cluster_node", "rabbit@witness.cluster")
                await asyncio.to_thread(stack.add, "n3")
            await stack.await_whole()

    run(scenario())


@pytest.mark.spark
def test_spark_ops_judges_what_the_nodes_tell(stack: Stack) -> None:
    """The profile `spark-ops`: the collector makes Parquet files of the nodes' telemetry, and `health` reads them."""
    if os.environ.get("CHAOS_SPARK_OPS") != "1":
        pytest.skip("its image takes minutes and 2 GB: CHAOS_SPARK_OPS=1 builds it")

    async def scenario() -> None:
        await asyncio.to_thread(stack.build_spark_ops)
        await asyncio.to_thread(stack.add, "collect", "spark-ops")
        try:
            find = ["find", "/srv/telemetry", "-path", "*/kind=node/*", "-name", "*.parquet"]
            await stack.until(lambda: stack.run("collect", *find) != "", "there are files", limit_s=180)
            ask = ["health", "/srv/telemetry", "--window", "5m", "--until", "last", "--json"]
            # 1: findings. 3: of a cluster of some minutes too little is known.
            codes = 0, 1, 3
            told = await asyncio.to_thread(stack.compose, "run", "--rm", "health", *ask, codes=codes)
            said = json.loads(told)
            # Whoever was there within the window is among them, too.
            assert {each["node"] for each in said["nodes"]} >= {f"rabbit@{name}.cluster" for name in NAMES}
        finally:
            await asyncio.to_thread(stack.compose, "--profile", "spark-ops", "rm", "-sfv", "collect")

    run(scenario())
