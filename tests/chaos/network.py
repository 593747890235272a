"""What is between the nodes, and how it is cut: proxies on loopback, or a namespace for each node on one bridge.

Namespaces need root (or a machine whose users may make them) and drop packets in the kernel: nothing of the nodes'
own traffic goes through Python. Silent cuts drop what comes in by a policy rule, at both ends, since nft, iptables and
sch_netem are not on every machine; `reset` also kills the established connections with RST (`ss -K`).
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from tests.adversity.node_process import ROOT

HOST: Final = "127.0.0.1"
SUBNET: Final = "10.77.0"
AMQP_PORT: Final = 5672
PEER_PORT: Final = 25672
NAMES: Final = ("n1", "n2", "n3")
Pairs = Sequence[tuple[str, str]]


class Place(NamedTuple):
    """Where a node listens; `advertised` is what the others are told.   node: its name."""

    node: str
    host: str
    port: int
    peer: str
    advertised: str


class Network(Protocol):
    """One for a cluster."""

    kind: str
    is_beyond_loopback: bool

    def place(self, name: str) -> Place:
        """Where that node is."""

    def command(self, name: str, command: list[str]) -> list[str]:
        """The command that runs another where the node is."""

    def starts(self, name: str) -> None:
        """The node's process is about to be started."""

    def started(self, name: str, pid: int) -> None:
        """It was."""

    def ends(self, name: str) -> None:
        """It is about to be killed."""

    def cut(self, pairs: Pairs, how: str) -> None:
        """how: silent or reset."""

    def heal(self) -> None:
        """Undo all cuts."""

    def close(self) -> None: ...


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind((HOST, 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class ProxyNetwork:
    """All on loopback; see `tests.chaos.proxies`."""

    kind = "proxies"
    is_beyond_loopback = False

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.proxies"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._places: dict[str, Place] = {}
        for name in NAMES:
            port, peer_port = free_ports(2)
            self._ask(do="target", name=name, port=peer_port)
            proxy = self._ask(do="open", name=name)
            self._places[name] = Place(
                f"{name}@localhost", HOST, port, f"{HOST}:{peer_port}", f"{HOST}:{proxy}"
            )

    def place(self, name: str) -> Place:
        return self._places[name]

    def command(self, name: str, command: list[str]) -> list[str]:
        return command

    def starts(self, name: str) -> None:
        self._ask(do="open", name=name)

    def started(self, name: str, pid: int) -> None:
        self._ask(do="pid", name=name, pid=pid)

    def ends(self, name: str) -> None:
        # So that the others are refused at once, as without a proxy.
        self._ask(do="close", name=name)

    def cut(self, pairs: Pairs, how: str) -> None:
        self._ask(do="cut", pairs=[list(pair) for pair in pairs], how=how)

    def heal(self) -> None:
        self._ask(do="heal")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ask(self, **asked: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the proxies ended"
        return json.loads(line)


class NamespaceNetwork:
    """A namespace and an address for each node, a bridge in our own one, which `enter_namespace` has made."""

    kind = "namespaces"
    is_beyond_loopback = True

    def __init__(self) -> None:
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses = {name: f"{SUBNET}.{number}" for number, name in enumerate(NAMES, 1)}
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "br0", "type", "bridge")
        _run("ip", "addr", "add", f"{SUBNET}.254/24", "dev", "br0")
        _run("ip", "link", "set", "br0", "up")
        try:
            for name in NAMES:
                self._add(name)
        except BaseException:
            self.close()
            raise

    def _add(self, name: str) -> None:
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._holders[name] = holder
        own = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + 20
        while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
            assert time.monotonic() < deadline, "no namespace"
            time.sleep(0.01)
        veth = f"v-{name}"
        _run("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _run("ip", "link", "set", veth, "master", "br0", "up")
        self._in(name, "ip", "link", "set", "lo", "up")
        self._in(name, "ip", "addr", "add", f"{self._addresses[name]}/24", "dev", "eth0")
        self._in(name, "ip", "link", "set", "eth0", "up")
        # The rules of a cut are to come before the one by which packets for ourselves are taken.
        self._in(name, "ip", "rule", "add", "pref", "100", "lookup", "local")
        self._in(name, "ip", "rule", "del", "pref", "0")

    def place(self, name: str) -> Place:
        host = self._addresses[name]
        return Place(f"{name}@{host}", host, AMQP_PORT, f"{host}:{PEER_PORT}", f"{host}:{PEER_PORT}")

    def command(self, name: str, command: list[str]) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net", *command]

    def starts(self, name: str) -> None:
        pass

    def started(self, name: str, pid: int) -> None:
        pass

    def ends(self, name: str) -> None:
        pass

    def cut(self, pairs: Pairs, how: str) -> None:
        both = [*pairs, *((other, one) for one, other in pairs)]
        for here, there in both:
            rule = ("from", self._addresses[there], "iif", "eth0", "blackhole")
            self._in(here, "ip", "rule", "add", "pref", "7", *rule)
        if how == "reset":
            for here, there in both:
                self._in(here, "ss", "-K", "dst", self._addresses[there])

    def heal(self) -> None:
        for name in NAMES:
            rules = subprocess.run(
                self.command(name, ["ip", "rule"]), capture_output=True, text=True, check=True
            )
            for _ in range(rules.stdout.count("blackhole")):
                self._in(name, "ip", "rule", "del", "pref", "7")

    def close(self) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        for link in (*(f"v-{name}" for name in self._holders), "br0"):
            # The kernel takes those of an ended namespace away by itself, some time later.
            subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)

    def _in(self, name: str, *command: str) -> None:
        _run(*self.command(name, list(command)))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def has_namespaces() -> bool:
    """Whether this process may make network namespaces with interfaces."""
    probe = "ip link add br0 type bridge && ip rule add pref 7 from 10.77.0.1 iif br0 blackhole && ss -K dst 10.77.0.1"
    try:
        done = subprocess.run(["unshare", "--net", "sh", "-c", probe], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def in_namespace(command: list[str]) -> list[str]:
    """The command that runs another in a network namespace of its own, which ends with it."""
    return ["unshare", "--net", *command]
