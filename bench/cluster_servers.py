"""Clusters of three nodes of a broker on this machine: n1, n2 and n3 at localhost.

Each node is a `Server` with its own ports and its own temporary directory.
"""

import json
import re
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from bench.client import BenchError, Connection
from bench.servers import REPOSITORY, Broker, Erlang, Fluffle, RabbitMQ, Server, free_port

NODE_NAMES = ("n1@localhost", "n2@localhost", "n3@localhost")
FORMED_TIMEOUT_S = 30.0
"""The longest time from the last node's ready line until all nodes know the metadata of the first node."""
FORMED_QUEUE = "bench.formed"
MIRRORED_TIMEOUT_S = 30.0
SYNCHRONISED_TIMEOUT_S = 300.0
"""The longest time for a synchronisation. RabbitMQ takes a minute for a million messages."""


class Span(NamedTuple):
    """A span of time, measured by `time.time`."""

    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


class Policy(NamedTuple):
    """A policy for queues of the virtual host `/`.   pattern: a regular expression for their names."""

    name: str
    pattern: str
    definition: Mapping[str, str | int]

    @property
    def definition_json(self) -> str:
        return json.dumps(self.definition)


class Cluster(Broker):
    """A cluster of three nodes. `start` starts the nodes one after the other, and waits until they form a cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: Sequence[Server] = ()
        self._policies: dict[str, Policy] = {}
        self._single: Server | None = None

    @property
    def ports(self) -> Sequence[int]:
        return [node.port for node in self.nodes]

    def single(self) -> Server:
        """Return a running node of the same broker that is in no cluster. It stops when the cluster stops."""
        if self._single is None:
            self._single = self._make_single()
        if not self._single.running:
            self._single.start()
        return self._single

    def start(self) -> None:
        assert not self.running, "already started"
        self.nodes = self._make_nodes()
        self._policies = {}
        try:
            self._begin_helpers()
            for node in self.nodes:
                node.start()
            self._await_formed()
        except BaseException:
            self.stop()
            raise
        self.version = self.nodes[0].version
        self.running = True
        self.used = False

    def _await_formed(self) -> None:
        """Wait until the nodes form a cluster. Raises: BenchError after FORMED_TIMEOUT_S, with all nodes' output."""
        try:
            await_formed(self.ports)
        except (BenchError, OSError) as error:
            raise BenchError(f"{self.name} forms no cluster: {error}\n{self.last_words()}") from error

    def stop(self) -> None:
        self.running = False
        servers = [*self.nodes, *([self._single] if self._single is not None else [])]
        if servers:
            with ThreadPoolExecutor(len(servers)) as pool:
                list(pool.map(lambda server: server.stop(), servers))
        self._end_helpers()

    def connect(self, node: int) -> Connection:
        """Return a connection to a node."""
        return Connection(self.ports[node])

    def set_policy(self, policy: Policy) -> None:
        """Set a policy, unless it is set already."""
        if self._policies.get(policy.name) != policy:
            words = ("--apply-to", "queues", policy.name, policy.pattern, policy.definition_json)
            self.nodes[0].ctl("set_policy", *words)
            self._policies[policy.name] = policy

    def clear_policy(self, name: str) -> None:
        """Clear a policy, so that its queues lose their mirrors."""
        if self._policies.pop(name, None):
            self.nodes[0].ctl("clear_policy", name)

    def await_mirrors(self, queues: Sequence[str], count: int) -> None:
        """Wait until each queue has this number of synchronised mirrors. Raises: BenchError."""
        deadline = time.perf_counter() + MIRRORED_TIMEOUT_S
        while True:
            columns = ("name", "synchronised_slave_pids")
            lines = self.nodes[0].ctl("list_queues", *columns).splitlines()
            found = {name: rest.count("<") for name, _, rest in (line.partition("\t") for line in lines)}
            if all(found.get(queue) == count for queue in queues):
                return
            if time.perf_counter() > deadline:
                raise BenchError(f"{count} mirrors of each queue expected: {lines}")
            time.sleep(0.1)

    def synchronise(self, policy: Policy, queue: str, new_count: int, count: int) -> Span:
        """Set a policy that gives a queue of node 0 new mirrors; wait until `count` mirrors in all are synchronised.

        Returns: the span from the creation of the new mirrors until the last of them was synchronised.
        """
        self._policies[policy.name] = policy
        return self._synchronise(policy, queue, new_count, count)

    def _synchronise(self, policy: Policy, queue: str, new_count: int, count: int) -> Span:
        """Do the work of `synchronise` in the way of this broker."""
        raise NotImplementedError

    def metadata_leader(self) -> int | None:
        """Return the number of the Raft leader; None if this broker has none."""
        return None

    def relaunch(self, node: int) -> None:
        """Start a node that was killed, and wait until the cluster is complete again."""
        self.nodes[node].relaunch()
        self._await_formed()

    def cpu_s(self) -> float:
        return sum(node.cpu_s() for node in self.nodes)

    def last_words(self) -> str:
        return "\n".join(
            f"{name}: {line}"
            for name, node in zip(NODE_NAMES, self.nodes, strict=False)
            for line in node.last_words().splitlines()
        )

    @abstractmethod
    def _make_nodes(self) -> Sequence[Server]:
        """Make a server for each of NODE_NAMES, not started."""

    @abstractmethod
    def _make_single(self) -> Server:
        """Make a server outside of the cluster, not started."""

    def _begin_helpers(self) -> None:
        """Start the helper processes that the nodes share."""

    def _end_helpers(self) -> None:
        """Stop the helper processes, if they were started."""


def await_formed(ports: Sequence[int]) -> None:
    """Wait until each node knows a queue of the first one. Raises: BenchError after FORMED_TIMEOUT_S."""
    deadline = time.perf_counter() + FORMED_TIMEOUT_S
    with Connection(ports[0]) as first:
        first.declare_queue(FORMED_QUEUE)
        for port in ports[1:]:
            while not _knows_queue(port):
                if time.perf_counter() > deadline:
                    raise BenchError(f"the node at {port} is not in the cluster")
                time.sleep(0.1)
        first.delete_queue(FORMED_QUEUE)
        first.close()


def _knows_queue(port: int) -> bool:
    with Connection(port) as connection:
        try:
            connection.declare_queue(FORMED_QUEUE, passive=True)
        except BenchError:  # 404, which closes the channel
            return False
        connection.close()
        return True


class FluffleCluster(Cluster):
    """A cluster of Fluffle.   checkout: as in `Fluffle`.   profile: a directory for each node's file of cProfile."""

    name = Fluffle.name

    def __init__(self, *, profile: Path | None = None, checkout: Path = REPOSITORY) -> None:
        super().__init__()
        self.name = Fluffle(checkout=checkout).name
        self.profile, self.checkout = profile, checkout

    def _make_nodes(self) -> Sequence[Server]:
        peers = {name: free_port() for name in NODE_NAMES}
        formation = [
            f"cluster_formation.classic_config.nodes.{number} = {name}:{port}"
            for number, (name, port) in enumerate(peers.items(), 1)
        ]
        return [
            FluffleNode(name, port, formation, profile=self._profile_of(name), checkout=self.checkout)
            for name, port in peers.items()
        ]

    def _profile_of(self, name: str) -> Path | None:
        return self.profile / name if self.profile else None

    def _make_single(self) -> Server:
        return Fluffle(checkout=self.checkout)

    def metadata_leader(self) -> int | None:
        deadline = time.perf_counter() + FORMED_TIMEOUT_S
        status = ""
        while time.perf_counter() < deadline:
            status = self.nodes[0].ctl("cluster_status")
            found = re.search(r"^Leader: (\S+)$", status, re.MULTILINE)
            if found and found[1] in NODE_NAMES:
                return NODE_NAMES.index(found[1])
            time.sleep(0.1)
        raise BenchError(f"there is no Raft leader: {status}")

    def _synchronise(self, policy: Policy, queue: str, new_count: int, count: int) -> Span:
        # Read from the log of the master's node, since polling would use CPU time of that node.
        log = self.nodes[0].directory / "stderr"
        known_bytes = log.stat().st_size
        words = ("--apply-to", "queues", policy.name, policy.pattern, policy.definition_json)
        self.nodes[0].ctl("set_policy", *words)
        deadline = time.perf_counter() + SYNCHRONISED_TIMEOUT_S
        while time.perf_counter() < deadline:
            with log.open("rb") as lines:
                lines.seek(known_bytes)
                news = lines.read().decode(errors="replace")
            begun = _times(news, rf"Mirrored queue '{queue}' .*Adding mirror on node")
            ended = _times(news, rf"Mirrored queue '{queue}' .*Mirror <\S+> is synchronised")
            if len(ended) == new_count:
                return Span(begun[0], ended[-1])
            time.sleep(0.05)
        raise BenchError(f"{queue} does not get {count} synchronised mirrors:\n{news}")


def _times(log: str, pattern: str) -> list[float]:
    """Return the times of the log lines that match a pattern."""
    lines = [line for line in log.splitlines() if re.search(pattern, line)]
    return [datetime.fromisoformat(" ".join(line.split()[:2])).timestamp() for line in lines]


class FluffleNode(Fluffle):
    """A node of a Fluffle cluster.   formation: the lines of configuration that name all nodes and their ports."""

    def __init__(
        self,
        node_name: str,
        peer_port: int,
        formation: Sequence[str],
        *,
        profile: Path | None,
        checkout: Path,
    ) -> None:
        super().__init__(profile=profile, checkout=checkout)
        self.node_name, self.peer_port, self.formation = node_name, peer_port, formation

    def command(self) -> Sequence[str]:
        return [*super().command(), "--peer", f"127.0.0.1:{self.peer_port}"]

    def configuration(self) -> Sequence[str]:
        return [*self.formation, *super().configuration()]


class RabbitCluster(Cluster):
    name = RabbitMQ.name

    def __init__(self) -> None:
        super().__init__()
        self._erlang = Erlang()

    def _make_nodes(self) -> Sequence[Server]:
        return [RabbitNode(name, self._erlang) for name in NODE_NAMES]

    def _make_single(self) -> Server:
        return RabbitMQ()

    def _synchronise(self, policy: Policy, queue: str, new_count: int, count: int) -> Span:
        name, pattern, definition = (
            _binary(text) for text in (policy.name, policy.pattern, policy.definition_json)
        )
        said = self.nodes[0].ctl(
            "eval",
            f'Q = rabbit_misc:r(<<"/">>, queue, {_binary(queue)}), T = os:system_time(microsecond),'
            f' ok = rabbit_policy:parse_set(<<"/">>, {name}, {pattern}, {definition}, 0, <<"queues">>, <<"b">>),'
            " Wait = fun Loop() -> {ok, Found} = rabbit_amqqueue:lookup(Q),"
            " case length(amqqueue:get_sync_slave_pids(Found)) of"
            f" {count} -> os:system_time(microsecond); _ -> timer:sleep(10), Loop() end end, {{T, Wait()}}.",
        )
        found = re.search(r"{(\d+),(\d+)}", said)
        if found is None:
            raise BenchError(f"the synchronisation failed: {said}")
        return Span(int(found[1]) / 1e6, int(found[2]) / 1e6)

    def _begin_helpers(self) -> None:
        self._erlang.start()

    def _end_helpers(self) -> None:
        self._erlang.stop()


def _binary(text: str) -> str:
    """Return a text as an Erlang binary."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'<<"{quoted}">>'


class RabbitNode(RabbitMQ):
    """A node of a cluster of RabbitMQ, which uses the cluster's epmd and cookie."""

    def __init__(self, node_name: str, erlang: Erlang) -> None:
        super().__init__()
        self.node_name, self.erlang = node_name, erlang

    def configuration(self) -> Sequence[str]:
        # The first node's configuration names no other node, which it would seek for five seconds before it starts.
        first = NODE_NAMES[0]
        peers = [] if self.node_name == first else [f"cluster_formation.classic_config.nodes.1 = {first}"]
        return [*peers, *super().configuration()]

    def _prepare(self) -> None:
        self._write_files()

    def _end_helpers(self) -> None:
        """Leave the cluster's epmd running, since other nodes need it."""
