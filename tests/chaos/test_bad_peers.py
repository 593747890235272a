"""Peers that are not what they should be, and files that are damaged, against real nodes.

Each is refused, or recovered from, with a line that says what and why; the others serve on; nothing that is received
is ever run. Source: reliability §3.6; docs/security.md, "Hostile clients".
"""

import base64
import json
import os
import pickle
import re
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from cluster.metadata.raft_pb2 import Append, Entry, Propose, RaftMessage
from cluster.transport.frames import CONTROL, FrameType, encode, preface
from cluster.transport.interface import Topic
from tests.kit import certificates
from tests.kit.cluster_processes import (
    HOST,
    ClusterProcesses,
    MemberProcess,
    cluster_processes,
    until,
    until_running,
)
from tests.kit.server_process import ROOT

pytestmark = pytest.mark.slow

SERVES_S: Final = 20


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[MemberProcess]]:
    """Three nodes that every test leaves as it found them."""
    with cluster_processes(tmp_path_factory.mktemp("trio")) as processes:
        yield processes.formed("n1", "n2", "n3")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_processes(tmp_path) as made:
        yield made


# --- what must be so afterwards ---


def serves(nodes: list[MemberProcess]) -> None:
    """Declared on the first, published to by the last, taken from each: they are one broker."""
    first, last = nodes[0], nodes[-1]
    with _connection(first) as declaring, _connection(last) as publishing:
        channel, other = declaring.channel(), publishing.channel()
        name = channel.queue_declare("", exclusive=False, durable=True).method.queue
        other.confirm_delivery()
        for _ in nodes:
            other.basic_publish("", name, b"x", pika.BasicProperties(delivery_mode=2), mandatory=True)
        for node in nodes:
            with _connection(node) as taking:
                got = taking.channel().basic_get(name, auto_ack=True)
                assert got[2] == b"x", f"by {node.name}"
        channel.queue_delete(name)


def _connection(node: MemberProcess) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            HOST, node.port, socket_timeout=SERVES_S, blocked_connection_timeout=SERVES_S
        )
    )


def incarnations(node: MemberProcess) -> dict[str, int]:
    return {row["name"]: row["incarnation"] for row in node.ask("list_members")["members"]}


class Unharmed:
    """Nodes that live through the context as if nothing had happened: no restart, no new incarnation, no fault."""

    def __init__(self, *nodes: MemberProcess) -> None:
        self._nodes = list(nodes)

    def __enter__(self) -> None:
        self._sizes = [len(node.log_text()) for node in self._nodes]
        self._before = [self._state(node) for node in self._nodes]

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            return
        assert [self._state(node) for node in self._nodes] == self._before
        for node, size in zip(self._nodes, self._sizes, strict=True):
            assert "Traceback" not in node.log_text()[size:], node.log_text()[size:]
        serves(self._nodes)

    def _state(self, node: MemberProcess) -> tuple[int, int]:
        return node.ask("status")["pid"], incarnations(node)[node.name]


def new_lines(node: MemberProcess, size: int) -> list[str]:
    return node.log_text()[size:].splitlines()


def says(node: MemberProcess, pattern: str, size: int = 0) -> None:
    """Wait until the node's log has a line like this."""
    try:
        until(lambda: re.search(pattern, node.log_text()[size:]), "a line")
    except AssertionError:
        raise AssertionError(
            f"{node.name} does not say {pattern!r}:\n{node.log_text()[size:][-3000:]}"
        ) from None


# --- bytes of strangers ---


class Payload:
    """reliability §3.6, rce.py: who unpickles this runs what the sender wants."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.system, (f"touch '{self._marker}'",)


def pickles(marker: Path) -> list[bytes]:
    """The pickle, by itself and as PySyncObj's own transport frames it."""
    found = []
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        raw = pickle.dumps(Payload(marker), protocol)
        packed = zlib.compress(raw, 3)
        found += [raw, struct.pack("i", len(packed)) + packed]
    return found


def test_the_pickle_works(tmp_path: Path) -> None:
    """The pickles work when they are loaded, without which the tests below prove nothing."""
    marker = tmp_path / "marker"
    for number, raw in enumerate(pickles(marker)[::2]):
        pickle.loads(raw)
        assert marker.exists(), number
        marker.unlink()


HTTP2: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
GARBAGE: Final = {
    "nothing": b"",
    "zeros": bytes(100_000),
    "ones": b"\xff" * 100_000,
    "HTTP/1": b"GET / HTTP/1.1\r\nHost: n1\r\n\r\n",
    "AMQP": b"AMQP\0\0\x09\x01",
    "TLS": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(508),
    "epmd": b"\0\x0bn" + b"n1@localhost",
    "half of HTTP/2": HTTP2[:12],
    "HTTP/2 and zeros": HTTP2 + bytes(100_000),
    "HTTP/2, a frame of 16 MiB": HTTP2 + b"\0\0\0\4\0\0\0\0\0" + b"\xff\xff\xff\0\0\0\0\0\1" + bytes(70_000),
    "HTTP/2, endless headers": HTTP2
    + b"\0\0\0\4\0\0\0\0\0"
    + (b"\0\x40\0\x09\0\0\0\0\1" + bytes(16384)) * 20,
}


def throw(node: MemberProcess, data: bytes) -> None:
    """Send bytes to its peer port and see what it does, which may be nothing."""
    with socket.create_connection((HOST, node.peer_port), timeout=10) as sock:
        sock.settimeout(0.3)
        try:
            sock.sendall(data)
            while sock.recv(65536):
                pass
        except OSError:
            pass


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_at_the_peer_port(trio: list[MemberProcess], kind: str) -> None:
    with Unharmed(*trio):
        for node in trio:
            throw(node, GARBAGE[kind])


def test_a_flood_of_connections_that_say_nothing(trio: list[MemberProcess]) -> None:
    """Nothing is kept of them."""
    with Unharmed(*trio):
        sockets = [socket.create_connection((HOST, trio[0].peer_port), timeout=20) for _ in range(300)]
        serves(trio)
        for sock in sockets:
            sock.close()
    pid = trio[0].ask("status")["pid"]
    until(lambda: len(os.listdir(f"/proc/{pid}/fd")) < 150, "descriptors are closed")


def test_a_pickle_at_the_peer_port(trio: list[MemberProcess], tmp_path: Path) -> None:
    """reliability §3.6: one TCP packet to a default node of PySyncObj executes code in it."""
    marker = tmp_path / "marker"
    with Unharmed(*trio):
        for node in trio:
            for each in pickles(marker):
                throw(node, each)
        for each in pickles(marker)[:4]:
            throw(trio[0], preface(CONTROL, is_encrypted=False) + encode(FrameType.HANDSHAKE, each))
            throw(trio[0], preface(CONTROL, is_encrypted=False) + encode(FrameType.MESSAGE, each))
        for each in pickles(marker)[:4]:
            throw(trio[0], HTTP2 + b"\0\0\0\4\0\0\0\0\0" + each)
    assert not marker.exists()


# --- peers with the right name ---


def rogue(node: MemberProcess, target: MemberProcess, **asked: Any) -> dict[str, Any]:
    """A peer with the identity of `node`, which is stopped, in its place. Returns: what happened to it."""
    known = json.loads((node.data / "raft" / "node.json").read_text())
    asked = {
        "name": node.name,
        "node_id": known["node_id"],
        "cluster_id": known["cluster_id"],
        "incarnation": incarnations(target).get(node.name, 0),
        "secret": "",
        "listen": node.peer_port,
        "peer": target.name,
        "address": f"{HOST}:{target.peer_port}",
        **asked,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.rogue"],
        cwd=ROOT,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def without_n3(trio: list[MemberProcess]) -> Iterator[list[MemberProcess]]:
    """n1, n2, and n3, which is killed and comes back when the test is over."""
    n3 = trio[2]
    n3.kill()
    until_running(trio[0], trio[:2])
    until_running(trio[1], trio[:2])
    yield trio
    n3.start()
    for node in trio:
        until_running(node, trio)
    serves(trio)


def commands(marker: Path) -> list[tuple[int, str]]:
    """Everything that a member may send about Raft, with a pickle or garbage where a command is expected."""
    found: list[bytes] = []
    for raw in (*pickles(marker)[::2], b"\0", b"\xff" * 1000, b"x" * 40_000):
        found += [
            raw,
            RaftMessage(propose=Propose(command=raw)).SerializeToString(),
            RaftMessage(
                term=1, append=Append(entries=[Entry(index=1, term=1, command=raw)])
            ).SerializeToString(),
        ]
    messages = [(int(topic), each) for topic in (Topic.RAFT, Topic.MEMBERSHIP, Topic.RING) for each in found]
    return [(topic, base64.b64encode(each).decode()) for topic, each in messages]


def test_a_pickle_inside_control_messages(without_n3: list[MemberProcess], tmp_path: Path) -> None:
    """A member of the cluster whose host was taken over: no code of it runs, and the metadata go on."""
    marker = tmp_path / "marker"
    n1, n2, n3 = without_n3
    sizes = [len(node.log_text()) for node in (n1, n2)]
    for target in (n1, n2):
        found = rogue(n3, target, is_linking=True, control=commands(marker), stays_s=1.5)
        assert found["is_linked"], found
    assert not marker.exists()
    with Unharmed(n1, n2):
        pass
    for node, size in zip((n1, n2), sizes, strict=True):
        says(node, rf"{n3.name}.*(cannot|unknown|not|bad)", size)
        # Lines, not a flood of them.
        assert len(new_lines(node, size)) < 400


def test_a_pickle_in_a_call(without_n3: list[MemberProcess], tmp_path: Path) -> None:
    n1, n2, n3 = without_n3
    with Unharmed(n1, n2):
        for body in (
            "\x80\x04K\x01.",
            "cos\nsystem\n(S'touch x'\ntR.",
            "[" * 100_000,
            '{"do": "join", "name": 3}',
        ):
            answer = rogue(n3, n1, call=body)["answer"]
            assert '"error"' in answer or "Refused" in answer, answer


def test_another_cluster_id(without_n3: list[MemberProcess]) -> None:
    n1, n2, n3 = without_n3
    size = len(n1.log_text())
    with Unharmed(n1, n2):
        found = rogue(n3, n1, cluster_id="of-another-one", is_linking=True, wait_s=1.5)
        assert not found["is_linked"]
        assert any("belongs to another cluster" in line for line in found["lines"]), found
    says(n1, rf"refused node '{n3.name}'.*belongs to another cluster \(id of-another-one\)", size)


def test_an_old_incarnation(without_n3: list[MemberProcess]) -> None:
    """A copy of the process that was thought dead, say a virtual machine that is resumed."""
    n1, n2, n3 = without_n3
    old = incarnations(n1)[n3.name] - 1
    if old <= 0:
        n3.start()
        until_running(n1, without_n3)
        n3.kill()
        until_running(n1, [n1, n2])
        old = incarnations(n1)[n3.name] - 1
    size = len(n1.log_text())
    with Unharmed(n1, n2):
        found = rogue(n3, n1, incarnation=old, is_linking=True, wait_s=1.5)
        assert not found["is_linked"]
    says(n1, rf"refused node '{n3.name}'.*is at incarnation {old}, but {old + 1} has started since", size)


TAKEN: Final = (
    r"node 'n1@localhost' does not let this one join: .*'%s'.*(disagrees|with another data directory)"
)


def test_two_nodes_with_one_name(trio: list[MemberProcess], processes: ClusterProcesses) -> None:
    """The second one is told, on its own log and on those that it asks; the first serves on."""
    double = processes.make("n2")
    double.formation = ",".join(node.seed for node in trio)
    with Unharmed(*trio):
        double.launch()
        says(double, TAKEN % "n2@localhost")
        assert not double.ask("status")["is_running"]
        double.kill()


def test_another_data_directory(without_n3: list[MemberProcess], processes: ClusterProcesses) -> None:
    """A node with a known name and address but an empty disk is refused, as after a repair."""
    n1, n2, n3 = without_n3
    empty = processes.make("n3")
    empty.port, empty.peer_port = n3.port, n3.peer_port
    empty.formation = ",".join(node.seed for node in without_n3)
    size = len(n1.log_text())
    with Unharmed(n1, n2):
        empty.launch()
        says(empty, TAKEN % "n3@localhost")
        assert not empty.ask("status")["is_running"]
        empty.kill()
    assert "Traceback" not in n1.log_text()[size:]


# --- secrets and certificates ---


def _formed(processes: ClusterProcesses, settings: Callable[[str], dict[str, str]]) -> list[MemberProcess]:
    """Two nodes with these settings."""
    nodes = [processes.make(name) for name in ("n1", "n2")]
    for node in nodes:
        node.formation = ",".join(each.seed for each in nodes)
        node.configure(settings(node.name))
        node.launch()
    for node in nodes:
        node.wait_ready()
    for node in nodes:
        until_running(node, nodes)
    return nodes


def _stranger(
    processes: ClusterProcesses, nodes: list[MemberProcess], settings: dict[str, str]
) -> MemberProcess:
    """A third node that wants to join."""
    stranger = processes.make("n3")
    stranger.formation = ",".join(node.seed for node in (*nodes, stranger))
    stranger.configure(settings)
    return stranger


@pytest.mark.parametrize("theirs", ["of somebody else", None])
def test_a_wrong_secret(processes: ClusterProcesses, tmp_path: Path, theirs: str | None) -> None:
    def secret(text: str, name: str) -> dict[str, str]:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return {"cluster.secret_file": str(path)}

    nodes = _formed(processes, lambda name: secret("our own secret", "secret"))
    stranger = _stranger(processes, nodes, secret(theirs, "theirs") if theirs else {})
    with Unharmed(*nodes):
        stranger.launch()
        says(nodes[0], "refused .*different cluster secrets")
        says(stranger, "different cluster secrets")
        assert not stranger.ask("status")["is_running"]
        assert not [line for line in nodes[0].log_text().splitlines() if "our own secret" in line]
        stranger.kill()


@pytest.mark.parametrize("has", ["a certificate for n9", "another authority", "no certificate"])
def test_a_wrong_certificate(processes: ClusterProcesses, tmp_path: Path, has: str) -> None:
    certs, others = tmp_path / "certs", tmp_path / "others"
    certificates.make(certs, "n1@localhost", "n2@localhost", "n9@localhost")
    certificates.make(others, "n3@localhost")

    def settings(directory: Path, name: str) -> dict[str, str]:
        files = {"cacertfile": "ca.pem", "certfile": f"{name}.pem", "keyfile": f"{name}.key"}
        return {f"cluster.ssl_options.{key}": str(directory / file) for key, file in files.items()}

    nodes = _formed(processes, lambda name: settings(certs, name))
    theirs = {
        "a certificate for n9": settings(certs, "n9@localhost"),
        "another authority": settings(others, "n3@localhost"),
        "no certificate": {},
    }[has]
    stranger = _stranger(processes, nodes, theirs)
    with Unharmed(*nodes):
        stranger.launch()
        if has == "a certificate for n9":
            says(nodes[0], "the certificate is not for node 'n3@localhost' but for .*n9@localhost")
        until(lambda: not stranger.ask("status")["is_running"], "it does not serve")
        says(stranger, r"node 'n1@localhost' at localhost:\d+.*(certificate|handshake|authority|verif)")
        stranger.kill()


# --- who may be first ---


def test_a_ram_node_first(processes: ClusterProcesses) -> None:
    """reliability §2.5: it cannot make a cluster, nor start while none of its disk nodes runs."""
    disc, ram = processes.make("n1"), processes.make("n2")
    for node in (disc, ram):
        node.formation = f"{ram.seed},{disc.seed}"
    ram.options = ["--ram"]
    ram.configure({"cluster_formation.discovery_retry_limit": "2"})
    ram.launch()
    assert ram.wait() != 0
    assert re.search("RAM node.* cannot be the first of a cluster", ram.log_text())
    disc.formation = f"{disc.seed},{ram.seed}"
    disc.start()
    ram.start()
    until_running(disc, [disc, ram])
    serves([disc, ram])
    ram.kill()
    assert disc.stop() == 0
    ram.launch()
    says(ram, "waiting")
    assert not ram.ask("status")["is_running"]
    disc.start()
    ram.wait_ready()
    until_running(disc, [disc, ram])
    serves([disc, ram])


# --- clocks ---

SKEW: Final = """
import os, time
_skew = float(os.environ["CLOCK_SKEW_S"])
_gettime, _time = time.clock_gettime, time.time
time.clock_gettime = lambda clock: _gettime(clock) + _skew
time.clock_gettime_ns = lambda clock: int((_gettime(clock) + _skew) * 1e9)
time.time = lambda: _time() + _skew
time.time_ns = lambda: int((_time() + _skew) * 1e9)
"""


def test_clocks_an_hour_apart(processes: ClusterProcesses, tmp_path: Path) -> None:
    """reliability §4.0, §4.2: leases are counted by each node's own clock. TTLs are, too."""
    (tmp_path / "sitecustomize.py").write_text(SKEW)
    nodes = [processes.make(name) for name in ("n1", "n2", "n3")]
    skewed = [  # no clock goes back, for the one since boot is never below 0
        {"PYTHONPATH": str(tmp_path), "CLOCK_SKEW_S": str(skew_s)} for skew_s in (3600, 7200, 0)
    ]
    for node, environ in zip(nodes, skewed, strict=True):
        node.formation = ",".join(each.seed for each in nodes)
        node.environment.update(environ)
        node.launch()
    for node in nodes:
        node.wait_ready()
    for node in nodes:
        until_running(node, nodes)
    hours = {re.search(r"^\S+ (\d\d):", node.log_text())[1] for node in nodes}  # type: ignore[index]
    assert len(hours) == 3, "the clocks are not what they should be"
    before = incarnations(nodes[0])
    serves(nodes)
    _expire(nodes)
    nodes[0].kill()
    until_running(nodes[1], nodes[1:])
    serves(nodes[1:])
    nodes[0].launch()
    nodes[0].wait_ready()
    for node in nodes:
        until_running(node, nodes)
    serves(nodes)
    after = incarnations(nodes[0])
    assert {node.name for node in nodes if after[node.name] != before[node.name]} == {nodes[0].name}


def _expire(nodes: list[MemberProcess]) -> None:
    """A message by a node whose clock is ahead on a queue of one whose clock is behind lives as long as it says."""
    with _connection(nodes[2]) as home, _connection(nodes[1]) as ahead:
        queue = home.channel().queue_declare("", exclusive=True).method.queue
        channel = ahead.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"long", pika.BasicProperties(expiration="600000"), mandatory=True)
        channel.basic_publish("", queue, b"short", pika.BasicProperties(expiration="1"), mandatory=True)
        taking = home.channel()
        assert taking.basic_get(queue, auto_ack=True)[2] == b"long"
        until(
            lambda: taking.queue_declare(queue, passive=True).method.message_count == 0, "the other is gone"
        )


# --- the journal of the metadata ---


def _journal(node: MemberProcess) -> Path:
    return node.data / "raft" / "journal"


@pytest.mark.parametrize("cut_bytes", [1, 7, 60])
def test_a_journal_cut_short(trio: list[MemberProcess], cut_bytes: int) -> None:
    """A torn end is what a crash leaves: nobody was told what was in it. The node gets it from the others."""
    n1, n2, n3 = trio
    with Unharmed(n1, n2):
        n3.kill()
        path = _journal(n3)
        content = path.read_bytes()
        path.write_bytes(content[:-cut_bytes])
        with _connection(n1) as connection:
            connection.channel().queue_declare(f"cut.{cut_bytes}", durable=True)
        n3.start()
        for node in trio:
            until_running(node, trio)
        with _connection(n3) as connection:
            connection.channel().queue_declare(f"cut.{cut_bytes}", passive=True)
            connection.channel().queue_delete(f"cut.{cut_bytes}")
    serves(trio)


@pytest.mark.parametrize("part", ["header", "beginning", "middle"])
def test_a_flipped_bit_in_the_journal(trio: list[MemberProcess], part: str) -> None:
    """A flipped bit may be a vote or an entry that others count on: refused by name, the file stays as it is."""
    n1, n2, n3 = trio
    with Unharmed(n1, n2):
        n3.kill()
        path = _journal(n3)
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[{"header": 2, "beginning": 60, "middle": len(content) // 2}[part]] ^= 0x10
        path.write_bytes(damaged)
        n3.launch()
        assert n3.wait() not in (0, -9)
        assert re.search(r"raft/journal: ", n3.log_text()), n3.log_text()
        assert "Traceback" not in n3.log_text()
        assert path.read_bytes() == bytes(damaged)
        path.write_bytes(content)
        n3.start()
        for node in trio:
            until_running(node, trio)
    serves(trio)


@pytest.mark.parametrize("damage", ["gone", "empty", "garbage", "pickle"])
def test_a_damaged_identity(trio: list[MemberProcess], damage: str, tmp_path: Path) -> None:
    """`raft/node.json`: without it the directory belongs to nobody."""
    n1, n2, n3 = trio
    marker = tmp_path / "marker"
    with Unharmed(n1, n2):
        n3.kill()
        path = n3.data / "raft" / "node.json"
        content = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes({"empty": b"", "garbage": b'{"format": 1', "pickle": pickles(marker)[0]}[damage])
        n3.launch()
        assert n3.wait() not in (0, -9)
        why = (
            "messages of a node that belonged to a cluster"
            if damage == "gone"
            else r"raft/node\.json .*damaged"
        )
        assert re.search(why, n3.log_text()), n3.log_text()
        assert "Traceback" not in n3.log_text()
        assert not marker.exists()
        path.write_bytes(content)
        n3.start()
        for node in trio:
            until_running(node, trio)
    serves(trio)
