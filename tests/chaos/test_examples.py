"""The programs of examples/ that are to survive the loss of a node: what they were told is confirmed must arrive.

All run at once against three nodes with mirrored queues, first with the list of the nodes' addresses, then through a
real HAProxy. One node after the other is killed with -9 while they send.
"""

import asyncio
import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.chaos.cluster import ChaosCluster
from tests.chaos.example_process import Sender, await_true
from tests.kit.client_steps import Process
from tests.kit.haproxy import PROGRAM as HAPROXY
from tests.kit.haproxy import Haproxy, Server
from tests.kit.network import NAMES, LoopbackNetwork

pytestmark = pytest.mark.slow  # Processes of all sorts.

SOME: Final = 10
"""Each example confirms at least so many values before a kill, and again after it."""
POLICY: Final = {"ha-mode": "all", "ha-sync-mode": "automatic"}


class Example(NamedTuple):
    """A worker and a sender, and the queue between them.

    ready: what the worker prints once it works.   confirmed, done: what the sender prints of a value that the broker
    has, and the worker of one that has arrived.
    """

    queue: str
    worker: tuple[str, ...]
    ready: str
    sender: tuple[str, ...]
    confirmed: str
    done: str


CELERY: Final = ("-m", "celery", "--workdir", "examples", "-A", "celery_app", "worker", "-l", "INFO")
EXAMPLES: Final = {
    "pika": Example(
        "tasks",
        ("examples/pika_work_queue.py", "work"),
        "waiting for tasks\n",
        ("examples/pika_work_queue.py", "send", "-"),
        r"^sent (\S+)\n",
        r"^done (\S+)\n",
    ),
    "aio-pika": Example(
        "events.billing",
        ("examples/aio_pika_events.py", "listen", "billing"),
        "listening\n",
        ("examples/aio_pika_events.py", "publish", "-"),
        r"^published (\S+)\n",
        r"^heard (\S+)\n",
    ),
    "celery": Example(
        "celery",
        (*CELERY, "-P", "solo", "--without-gossip", "--without-mingle"),
        " ready.",
        ("examples/celery_app.py", "-"),
        r"^sent (\S+)\n",
        r" noted (\S+)\n",
    ),
    "oslo.messaging": Example(
        "greetings",
        ("examples/oslo_rpc.py", "serve"),
        "serving\n",
        ("examples/oslo_rpc.py", "call", "-"),
        r"^hello (\S+)\n",
        r"^noted (\S+) was greeted\n",
    ),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    """Three nodes, all queues on all of them."""
    network = LoopbackNetwork()
    cluster = ChaosCluster(tmp_path_factory.mktemp("nodes"), network)
    try:
        asyncio.run(cluster.start())
        done = cluster.nodes[0].ctl("set_policy", "all", r"^(?!amq\.)", json.dumps(POLICY))
        assert done.returncode == 0, done.stderr
        yield cluster
    finally:
        cluster.close()
        network.close()


@pytest.fixture(scope="module", params=["hosts", "haproxy"])
def environment(
    request: pytest.FixtureRequest, cluster: ChaosCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Give the variables by which the programs find the cluster."""
    places = [node.place for node in cluster.nodes]
    if request.param == "hosts":
        yield urls(*(f"{place.host}:{place.port}" for place in places))
        return
    if HAPROXY is None:
        pytest.skip("haproxy is not installed")
    servers = [Server(node.short_name, node.place.host, node.place.port) for node in cluster.nodes]
    balancer = Haproxy(tmp_path_factory.mktemp("balancer"), servers)
    try:
        balancer.start()
        asyncio.run(balancer.await_up(*(server.name for server in servers)))
        yield urls(f"{balancer.host}:{balancer.port}")
    finally:
        balancer.close()


def urls(*addresses: str) -> dict[str, str]:
    """Return the variables that tell programs where the broker is, or where its nodes are."""
    own = [f"guest:guest@{address}" for address in addresses]
    return {
        "AMQP_URL": ";".join(f"amqp://{each}/%2F" for each in own),
        "TRANSPORT_URL": f"rabbit://{','.join(own)}/",
    }


class Run:
    """An example at work.   base: how many values were confirmed when it was last asked to send some."""

    def __init__(self, name: str, environment: dict[str, str], directory: Path) -> None:
        self.example = EXAMPLES[name]
        self.base = 0
        self.worker = Process(directory / f"{name}-worker.log", *self.example.worker, environment=environment)
        self.sender = Sender(
            directory / f"{name}-sender.log",
            *self.example.sender,
            environment=environment,
            says=re.compile(self.example.confirmed, re.MULTILINE),
            prefix=f"{name}-{secrets.token_hex(3)}-",
        )

    def end(self) -> None:
        """End both programs."""
        self.sender.end()
        self.worker.end()

    def is_ready(self) -> bool:
        """Whether the worker works."""
        return self.example.ready in self.worker.output

    def has_arrived(self) -> bool:
        """Whether the worker has all that was sent."""
        return set(re.findall(self.example.done, self.worker.output, re.MULTILINE)) >= self.sender.given


@pytest.fixture
def runs(environment: dict[str, str], tmp_path: Path) -> Iterator[list[Run]]:
    """All examples; they end with the test."""
    runs: list[Run] = []
    try:
        for name in EXAMPLES:
            runs.append(Run(name, environment, tmp_path))
        for run in runs:
            await_true(run.is_ready, "a worker", run.worker)
        yield runs
    finally:
        for run in runs:
            run.end()


def send_some(runs: list[Run]) -> None:
    """Have all examples send until each has some more values confirmed; then they have others under way."""
    for run in runs:
        run.base = len(run.sender.confirmed)

    def have_sent() -> bool:
        for run in runs:
            run.sender.feed()
        return all(len(run.sender.confirmed) >= run.base + SOME for run in runs)

    await_true(have_sent, f"{SOME} more confirmed values", *(run.sender for run in runs))


def rings(cluster: ChaosCluster) -> dict[str, dict[str, Any]]:
    """The copies of the examples' queues, as any running node tells."""
    node = next(node for node in cluster.nodes if node.is_running)
    rows = asyncio.run(node.ask("list_rings", vhost="/"))["rings"]
    queues = {example.queue for example in EXAMPLES.values()}
    return {row["name"]: row for row in rows if row["name"] in queues}


def test_nothing_confirmed_is_lost(cluster: ChaosCluster, runs: list[Run]) -> None:
    """kill -9 of one node after the other: the programs go on, and what was confirmed arrives.

    So each queue loses its master, and each program its connection, at least once.
    """

    def are_whole() -> bool:
        return all(len(row["synchronised"]) == len(NAMES) - 1 for row in rings(cluster).values())

    for victim in cluster.nodes:
        await_true(are_whole, "two synchronised mirrors of each queue")
        send_some(runs)
        victim.kill()
        send_some(runs)
        victim.launch()
        asyncio.run(cluster.await_up())
    for run in runs:
        run.sender.finish()
        assert run.sender.confirmed == run.sender.given
    for run in runs:
        await_true(run.has_arrived, "all that was confirmed", run.worker, run.sender)
