"""Clusters: what each node is told of the others, what is added up, and that an end removes only its own."""

from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from bench import cluster_servers
from bench.client import BenchError
from bench.cluster_servers import NODE_NAMES, Cluster, FluffleCluster, Policy, RabbitCluster, Span
from bench.servers import Fluffle, RabbitMQ, Server


class QuietServer(Server):
    """Has no process; notes what it is told."""

    def __init__(self, port: int = 0, cpu_s: float = 0.0) -> None:
        super().__init__()
        self.port, self._cpu_s, self.told = port, cpu_s, ""
        self.answers: list[str] = []

    def start(self) -> None:
        self.told += "start "
        self.running = True

    def stop(self) -> None:
        self.told += "stop "
        self.running = False

    def cpu_s(self) -> float:
        return self._cpu_s

    def last_words(self) -> str:
        return f"what node {self.port} said"

    def ctl(self, *words: str) -> str:
        self.told += " ".join(words[:1]) + " "
        return self.answers.pop(0) if self.answers else ""


class QuietCluster(Cluster):
    def _make_nodes(self) -> list[Server]:
        return [QuietServer(port, port / 10) for port in (1, 2, 3)]

    def _make_single(self) -> Server:
        return QuietServer(4)


@pytest.fixture
def formed(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The ports that a cluster was looked for at."""
    seen: list[list[int]] = []
    monkeypatch.setattr(cluster_servers, "await_formed", lambda ports: seen.append(list(ports)))
    return seen


@pytest.mark.parametrize("kind", [FluffleCluster, RabbitCluster])
def test_stop_before_start_removes_nothing(
    kind: type[Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").write_text("work of others")
    monkeypatch.chdir(tmp_path)
    with kind() as cluster:
        cluster.stop()
    assert (tmp_path / "kept").read_text() == "work of others"


def test_a_cluster_is_the_sum_of_its_nodes(formed: list[list[int]]) -> None:
    cluster = QuietCluster()
    cluster.start()
    assert cluster.running
    assert cluster.ports == [1, 2, 3]
    assert formed == [[1, 2, 3]]
    assert cluster.cpu_s() == pytest.approx(0.6)
    cluster.stop()
    assert [node.told for node in cluster.nodes if isinstance(node, QuietServer)] == ["start stop "] * 3


def test_a_single_node_starts_when_it_is_asked_for_and_ends_with_the_cluster(
    formed: list[list[int]],
) -> None:
    """A single node's CPU is not counted as the cluster's."""
    cluster = QuietCluster()
    cluster.start()
    single = cluster.single()
    assert single is cluster.single()
    assert isinstance(single, QuietServer)
    assert cluster.cpu_s() == pytest.approx(0.6)
    cluster.stop()
    assert single.told == "start stop "


def test_a_cluster_that_does_not_form_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(ports: object) -> None:
        raise BenchError("no part of the cluster")

    monkeypatch.setattr(cluster_servers, "await_formed", fail)
    cluster = QuietCluster()
    with pytest.raises(BenchError, match=r"(?s)no part of the cluster.*n2@localhost: what node 2 said"):
        cluster.start()
    assert not any(node.running for node in cluster.nodes)


class Peer:
    """A connection to one of three nodes: the last learns of the queue at the third question."""

    questions = 0

    def __init__(self, port: int) -> None:
        self.port = port

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close."""

    def declare_queue(self, queue: str, *, passive: bool = False) -> int:
        assert passive == (self.port != 1)
        if self.port == 3:
            Peer.questions += 1
            if Peer.questions < 3:
                raise BenchError("closed by the broker: 404")
        return 0

    def delete_queue(self, queue: str) -> int:
        assert self.port == 1
        return 0

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.real
def test_formed_is_when_all_know_what_the_first_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_servers, "Connection", Peer)
    cluster_servers.await_formed([1, 2, 3])
    assert Peer.questions == 3
    Peer.questions = -1000
    monkeypatch.setattr(cluster_servers, "FORMED_TIMEOUT_S", 0.0)
    with pytest.raises(BenchError, match="the node at 3 is not in the cluster"):
        cluster_servers.await_formed([1, 2, 3])


@pytest.mark.real
def test_each_node_of_fluffle_knows_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and peer ports in the configuration; its own port on its command line."""
    nodes = FluffleCluster(profile=tmp_path)._make_nodes()
    monkeypatch.setattr(Server, "directory", tmp_path)
    lines = nodes[0].configuration()
    assert [line.partition(" = ")[0] for line in lines] == [
        f"cluster_formation.classic_config.nodes.{number}" for number in (1, 2, 3)
    ]
    for node, name, line in zip(nodes, NODE_NAMES, lines, strict=True):
        assert isinstance(node, Fluffle)
        assert node.configuration() == lines
        peer, port = line.partition(" = ")[2].rsplit(":", 1)
        assert peer == name
        command = list(node.command())
        assert command[command.index("--name") + 1] == name
        assert command[command.index("--peer") + 1] == f"127.0.0.1:{port}"
        assert node.profile == tmp_path / name


@pytest.mark.real
def test_nodes_of_rabbitmq_share_epmd_and_cookie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first knows of none, the others join it."""
    nodes = RabbitCluster()._make_nodes()
    monkeypatch.setattr(Server, "directory", tmp_path)
    for node, name in zip(nodes, NODE_NAMES, strict=True):
        assert isinstance(node, RabbitMQ)
        assert isinstance(nodes[0], RabbitMQ)
        assert node.erlang is nodes[0].erlang
        assert node.environment()["RABBITMQ_NODENAME"] == name
        joins = [line for line in node.configuration() if line.startswith("cluster_formation")]
        assert joins == ([] if name == NODE_NAMES[0] else [f"{CLASSIC}.1 = {NODE_NAMES[0]}"])


CLASSIC = "cluster_formation.classic_config.nodes"


@pytest.mark.real
@pytest.mark.parametrize("kind", [FluffleCluster, RabbitCluster])
def test_settings_come_last(kind: type[Cluster]) -> None:
    """A test's settings come last, as they may change what the cluster needs."""
    for node in kind()._make_nodes():
        node.settings = ["heartbeat = 10"]
        assert node.configuration()[-1] == "heartbeat = 10"


@pytest.mark.real
def test_another_checkout_has_its_own_name_and_sources(tmp_path: Path) -> None:
    checkout = tmp_path / "before"
    checkout.mkdir()
    other = FluffleCluster(checkout=checkout)
    assert other.name == "before"
    assert FluffleCluster().name == "Fluffle"
    for node in (*other._make_nodes(), other._make_single()):
        assert node.environment()["PYTHONPATH"] == str(checkout)


MIRRORS = Policy("m", r"^m\.", {"ha-mode": "all"})


def first_of(cluster: Cluster) -> QuietServer:
    """Node 1 of a cluster that has started."""
    cluster.nodes = cluster._make_nodes() if not cluster.nodes else cluster.nodes
    (first, *_) = cluster.nodes
    assert isinstance(first, QuietServer)
    return first


def test_a_policy_is_set_once(formed: list[list[int]]) -> None:
    """Again after another one of its name, after it was cleared, and in the next cluster."""
    cluster = QuietCluster()
    cluster.start()
    first = first_of(cluster)
    first.told = ""
    for policy in (MIRRORS, MIRRORS, MIRRORS._replace(definition={"ha-mode": "exactly"}), MIRRORS):
        cluster.set_policy(policy)
    cluster.clear_policy("m")
    cluster.clear_policy("m")
    assert first.told == "set_policy set_policy set_policy clear_policy "
    cluster.stop()
    cluster.start()
    cluster.set_policy(MIRRORS)
    assert first_of(cluster).told == "start set_policy "


@pytest.mark.real
def test_mirrors_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """All queues must have all of them. RabbitMQ and Fluffle show processes alike."""
    cluster = QuietCluster()
    first = first_of(cluster)
    both = "[<n2@localhost.3.2.0>, <n3@localhost.2.3.0>]"
    some = "name\tsynchronised_slave_pids\nm.0\t[<n2@localhost.3.2.0>]\nm.1\t"
    first.answers = ["name\tsynchronised_slave_pids\n", f"{some}{both}\n", f"m.0\t{both}\nm.1\t{both}\nx\t\n"]
    cluster.await_mirrors(["m.0", "m.1"], 2)
    assert not first.answers
    monkeypatch.setattr(cluster_servers, "MIRRORED_TIMEOUT_S", 0.0)
    first.answers = [some]
    with pytest.raises(BenchError, match="2 mirrors of each queue expected"):
        cluster.await_mirrors(["m.0"], 2)


@pytest.mark.real
def test_who_leads_fluffles_metadata() -> None:
    cluster = FluffleCluster()
    first = QuietServer()
    first.answers = ["Metadata\n\nLeader: (none)\n", f"Metadata\n\nLeader: {NODE_NAMES[2]}\nMajority\n"]
    cluster.nodes = [first]
    assert cluster.metadata_leader() == 2
    assert RabbitCluster().metadata_leader() is None


def test_when_fluffle_synchronised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its master's log: what came after the policy was set, of that queue."""
    log = tmp_path / "stderr"
    queue = "[info] <0.0.0> Mirrored queue 'q' in vhost '/':"
    log.write_text(f"2026-11-21 21:00:00.000000+00:00 {queue} Mirror <n2@localhost.9.8> is synchronised\n")
    monkeypatch.setattr(Server, "directory", tmp_path)

    class Logging(QuietServer):
        def ctl(self, *words: str) -> str:
            news = [
                f"21:00:01.000000+00:00 {queue} Adding mirror on node n2@localhost: <n2@localhost.3.2>",
                f"21:00:03.000000+00:00 {queue.replace('q', 'r')} Mirror <n2@localhost.3.3> is synchronised",
                f"21:00:03.500000+00:00 {queue} Mirror <n2@localhost.3.2> is synchronised",
            ]
            with log.open("a") as lines:
                lines.writelines(f"2026-11-21 {line}\n" for line in news)
            return ""

    cluster = FluffleCluster()
    cluster.nodes = [Logging()]
    assert cluster.synchronise(MIRRORS, "q", 1, 1).seconds == pytest.approx(2.5)


def test_when_rabbitmq_synchronised() -> None:
    """RabbitMQ's node says in microseconds when it synchronised."""
    cluster = RabbitCluster()
    first = QuietServer()
    first.answers = ["{1700000000000000,1700000002500000}\n"]
    cluster.nodes = [first]
    assert cluster.synchronise(MIRRORS, "q", 1, 1) == Span(1_700_000_000.0, 1_700_000_002.5)
    assert cluster_servers._binary(MIRRORS.pattern) == r'<<"^m\\.">>'
    assert cluster_servers._binary(MIRRORS.definition_json) == r'<<"{\"ha-mode\": \"all\"}">>'
