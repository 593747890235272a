"""Three nodes of RabbitMQ 3.10 as the chaos tests' cluster, so that the same run asks the same of both brokers.

Each node is Debian's package run from its own scripts: its own directory, cookie and epmd, nothing of an installed
RabbitMQ is touched. In namespaces the link between Erlang nodes goes over the bridge and is cut there; proxies cannot
be between them, since they tell each other their ports. Operators' questions are calls of `erl_call`, some 10 ms each.
"""

import asyncio
import base64
import json
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from tests.chaos.broker import RABBITMQ, SERVES_S, START_S, NodeFailed
from tests.chaos.broker_process import BrokerProcess, Launch
from tests.kit.network import NAMES, Network
from tests.kit.patience import patience
from tests.kit.ports import free_ports
from tests.kit.rabbit_server import RABBITMQ_SERVER, prepare

EPMD_PORT: Final = 4369
CALL_S: Final = 10.0
"""A question may take this long: a frozen node never answers."""
PARTED_S: Final = 20.0
"""Nodes may say for this long that they are partitioned before somebody acts."""
PARTITION_HANDLINGS: Final = ("pause_minority", "ignore", "autoheal")
EXPECTED: Final[Mapping[int, Sequence[str]]] = {
    320: ("",),  # a node stops, or pauses
    404: (
        "no queue",
        "is down or inaccessible",
        "process is stopped by",
        "timeout",
        "stopping or being demoted",
    ),
    # What a queue or a connection is doing when its node goes.
    406: ("unknown delivery tag",),
    506: ("",),
    541: ("",),
}


class View(NamedTuple):
    """A view holds what a node says of others.   running: they and itself.   partitions: those it was cut off from.

    Erlang connects to those again, and RabbitMQ stays apart until somebody restarts it.
    """

    running: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()


class RabbitError(Exception):
    """A node did not answer, or refused."""


@dataclass(frozen=True, slots=True)
class RabbitOptions:
    """RabbitMQ leaves these to its operator.

    handling: `cluster_partition_handling`; RabbitMQ's default is `ignore`.
    tick_s: `net_ticktime`: a silent node counts as down after 0.75 to 1.25 times this. RabbitMQ's default is 60, which
    most faults don't last.
    """

    handling: str = "pause_minority"
    tick_s: int = 10

    @classmethod
    def parse(cls, text: str) -> Self:
        """From words with commas between, as `ignore,tick=60`. Raises: ValueError."""
        found: dict[str, Any] = {}
        for word in filter(None, text.split(",")):
            if word in PARTITION_HANDLINGS:
                found["handling"] = word
            elif re.fullmatch(r"tick=[1-9]\d*", word):
                found["tick_s"] = int(word[5:])
            else:
                raise ValueError(f"{word!r} is nothing that RabbitMQ is told here")
        return cls(**found)

    @property
    def text(self) -> str:
        """Return the text from which `parse` makes these."""
        return f"{self.handling},tick={self.tick_s}"

    def settings(self) -> dict[str, str]:
        """Lines of rabbitmq.conf."""
        return {
            "cluster_partition_handling": self.handling,
            "loopback_users": "none",
            "log.console": "true",
            "log.console.level": "info",
            "log.file": "false",
        }


def missing() -> str:
    """Return why RabbitMQ cannot be run here; empty: it can."""
    if not Path(RABBITMQ_SERVER).exists():
        return "RabbitMQ is not installed"
    absent = [name for name in ("epmd", "erl_call") if shutil.which(name) is None]
    return f"{' and '.join(absent)} of Erlang missing" if absent else ""


class Epmd:
    """Tells Erlang nodes each other's ports. Started here, or the first node would start one that outlives it."""

    def __init__(self, port: int, command: Sequence[str]) -> None:
        self.port = port
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"]},
            start_new_session=True,
        )

    @classmethod
    def among(cls, network: Network, name: str, port: int) -> Self:
        """One where that node is."""
        own = [] if network.is_beyond_loopback else ["-address", "127.0.0.1"]
        return cls(port, network.command(name, ["epmd", "-port", str(port), *own]))

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True, slots=True)
class _Erlang:
    """The nodes of a cluster have these in common.   epmd_port: where each finds an epmd."""

    epmd_port: int
    options: RabbitOptions
    cookie: str = field(default_factory=lambda: secrets.token_hex(16))


class RabbitNode(BrokerProcess):
    """One node. Implements `BrokerNode`."""

    stop_s = 60.0

    def __init__(self, index: int, directory: Path, network: Network, erlang: _Erlang) -> None:
        super().__init__(index, directory, network)
        self._erlang = erlang
        self._environment: dict[str, str] = {}

    def configure(self, first: str) -> None:
        """Write its files.   first: the node that it joins when it starts for the first time; empty: none."""
        self.data.mkdir(exist_ok=True)
        place = self.place
        settings = self._erlang.options.settings()
        if first:
            settings["cluster_formation.peer_discovery_backend"] = "classic_config"
            settings["cluster_formation.classic_config.nodes.1"] = first
        if place.host != "127.0.0.1":
            settings["listeners.tcp.2"] = f"{place.host}:{place.port}"
        dist_port = int(place.peer.rpartition(":")[2])
        ports = place.port, self._erlang.epmd_port, dist_port
        environment = prepare(self.data, self.name, self._erlang.cookie, ports, settings)
        if self._network.is_beyond_loopback:
            del environment["ERL_EPMD_ADDRESS"]
            # Only such names may have an address behind the @.
            environment["RABBITMQ_USE_LONGNAME"] = "true"
        interface = place.host.replace(".", ",")
        self._environment = {
            **environment,
            # Then the script becomes Erlang's machine, and its process is the node.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput +sbwt none +sbwtdcpu none +sbwtdio none"
            f" -kernel inet_dist_use_interface {{{interface}}} -kernel net_ticktime {self._erlang.options.tick_s}",
        }

    def _how_to_launch(self) -> Launch:
        return Launch([RABBITMQ_SERVER], self.data, self._environment)

    def faults_in_log(self, allowed: re.Pattern[str] = re.compile("")) -> str:
        """Return nothing: RabbitMQ reports a process that a fault ends as a crash. What counts is what clients see."""
        return ""

    # --- questions ---

    def evaluate(self, expression: str, timeout_s: float = CALL_S) -> str:
        """Evaluate an Erlang expression in the node.

        Returns: the value as Erlang prints it on one line. Raises: RabbitError.
        """
        naming = "-name" if self._network.is_beyond_loopback else "-sname"
        command = ["erl_call", "-c", self._erlang.cookie, naming, self.name, "-e"]
        program = f'lists:flatten(io_lib:format("~0p", [begin {expression} end])).\n'
        try:
            done = subprocess.run(
                self._network.command(self.short_name, command),
                input=program.encode(),
                env=self._environment,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RabbitError(f"{self.name} does not answer within {timeout_s:.0f} s") from None
        text = done.stdout.decode(errors="replace")
        if not text.startswith('{ok, "'):
            raise RabbitError(f"{self.name}: {text[:500]} {done.stderr.decode(errors='replace')[:500]}")
        return text.removeprefix('{ok, "').removesuffix('"}').replace('\\"', '"')

    def evaluate_json(self, expression: str, timeout_s: float = CALL_S) -> Any:
        """Evaluate an expression whose value JSON can hold, and return the value. Raises: RabbitError."""
        text = self.evaluate(f"base64:encode(iolist_to_binary(rabbit_json:encode({expression})))", timeout_s)
        found = re.fullmatch(r'<<"([A-Za-z0-9+/=]*)">>', text)
        if found is None:
            raise RabbitError(f"{self.name} says {text[:500]}")
        return json.loads(base64.b64decode(found[1]))

    def view(self) -> View:
        """Return what it says of the others; nothing while it does not serve clients, or does not answer."""
        try:
            running, partitions = self.evaluate_json(
                "[[atom_to_binary(N) || N <- L] || L <- case rabbit:is_running() of"
                " true -> [rabbit_nodes:all_running(), rabbit_node_monitor:partitions()]; _ -> [[], []] end]"
            )
        except RabbitError:
            return View()
        return View(frozenset(running), frozenset(partitions))


class RabbitCluster:
    """The three of them. Implements `BrokerCluster`.

    directory: for data, configuration and logs; made and removed by who calls.   network: loopback or namespaces.
    rescues: what an operator had to restart since it did not come back by itself.
    """

    kind = RABBITMQ
    expected = EXPECTED

    def __init__(self, directory: Path, network: Network, options: RabbitOptions | None = None) -> None:
        if network.kind == "proxies":
            raise ValueError("Erlang nodes tell each other their ports: proxies cannot be between them")
        self.network = network
        self.options = options or RabbitOptions()
        self.rescues: list[str] = []
        epmd_port = EPMD_PORT if network.is_beyond_loopback else free_ports(1)[0]
        erlang = _Erlang(epmd_port, self.options)
        self.nodes = [RabbitNode(index, directory, network, erlang) for index in range(len(NAMES))]
        self._epmd_port = epmd_port
        self._epmds: list[Epmd] = []

    async def start(self) -> None:
        """Start all, one after the other, and wait until each sees each. Raises: NodeFailed."""
        names = [node.short_name for node in self.nodes]
        hosts = names if self.network.is_beyond_loopback else names[:1]
        self._epmds = [Epmd.among(self.network, name, self._epmd_port) for name in hosts]
        await asyncio.sleep(0.3)  # epmd says nothing when it listens
        # The first is told of no other: it would look for them before it starts alone.
        for number, node in enumerate(self.nodes):
            node.configure(self.nodes[0].name if number else "")
            node.launch()
            await self._await_seen(self.nodes[: number + 1], START_S)

    async def await_up(self, limit_s: float = SERVES_S) -> float:
        """Wait until each node runs and sees each; restart those that don't come back, as an operator would.

        Returns: how long it took, in s. Raises: NodeFailed.
        """
        since = time.monotonic()
        try:
            await self._await_seen(self.nodes, max(limit_s, START_S))
        except NodeFailed as failed:
            await self._rescue(str(failed))
        return time.monotonic() - since

    async def _rescue(self, why: str) -> None:
        """As RabbitMQ's guide says: trust the largest part, and restart the nodes of the others."""
        views = {node.name: view for node, view in zip(self.nodes, await _views(self.nodes), strict=True)}
        odd = [node for node in self.nodes if node.name not in trusted(views)]
        self.rescues.append(f"{', '.join(node.short_name for node in odd)} restarted: {why}")
        for node in odd:
            node.kill()
        for node in odd:
            node.launch()
        await self._await_seen(self.nodes, 2 * START_S)

    async def _await_seen(self, nodes: Sequence[RabbitNode], limit_s: float) -> None:
        wanted = {node.name for node in nodes}
        limit_s *= patience()
        since = one_since = time.monotonic()
        while True:
            views = await _views(nodes)
            if all(view.running == wanted and not view.partitions for view in views):
                return
            now = time.monotonic()
            if not any(view.partitions for view in views):
                one_since = now
            dead = [node for node in nodes if not node.is_running]
            if dead or now > since + limit_s or now > one_since + PARTED_S:
                what = f"{dead[0].name} ended: {dead[0].log_end()}" if dead else f"after {now - since:.0f} s"
                told = {
                    node.short_name: [sorted(names) for names in view]
                    for node, view in zip(nodes, views, strict=True)
                }
                raise NodeFailed(f"not all see all, {what}; running and partitions: {told}")
            await asyncio.sleep(0.2)

    async def leader(self) -> RabbitNode | None:
        """Return None, as RabbitMQ has no leader of all its metadata."""
        return None

    def close(self) -> None:
        """End all processes."""
        for node in self.nodes:
            node.kill()
        for epmd in self._epmds:
            epmd.close()
        self._epmds = []


async def _views(nodes: Sequence[RabbitNode]) -> list[View]:
    return await asyncio.gather(*(asyncio.to_thread(node.view) for node in nodes))


def trusted(views: Mapping[str, View]) -> frozenset[str]:
    """The largest part whose nodes all see each other; never all, since somebody has to be restarted.

    views: by the name of the node.
    """
    names = sorted(views)
    for size in range(len(names) - 1, 0, -1):
        for part in combinations(names, size):
            if all(views[name].running - views[name].partitions >= set(part) for name in part):
                return frozenset(part)
    return frozenset(names[:1])
