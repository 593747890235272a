"""Networks between nodes that tests can cut: proxies on loopback, or a namespace for each node on one bridge.

Namespaces need root (or a machine whose users may make them) and drop packets in the kernel: nothing of the nodes'
own traffic goes through Python. Silent cuts drop what comes in by a policy rule, at both ends, since nft, iptables and
sch_netem are not on every machine; `reset` also kills the established connections with RST (`ss -K`). Where there is
an iptables that can, packets are lost at random, and slow links go through a proxy that delays.
"""

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from tests.kit.ports import free_ports
from tests.kit.server_process import ROOT

HOST: Final = "127.0.0.1"
SUBNET: Final = "10.77.0"
AMQP_PORT: Final = 5672
CUT: Final = "cut"
ONE_WAY: Final = "one-way"
SLOW: Final = "slow"
LOSS: Final = "loss"
PEER_PORT: Final = 25672
HTTP_PORT: Final = 15672
NAMES: Final = ("n1", "n2", "n3")
Pairs = Sequence[tuple[str, str]]


class Place(NamedTuple):
    """The addresses of a node.   advertised: for other nodes.   node: its name.   http_port: for management."""

    node: str
    host: str
    port: int
    peer: str
    advertised: str
    http_port: int = 0


class Network(Protocol):
    """The network of a cluster.   can: the faults of `CUT`, `ONE_WAY`, `SLOW` and `LOSS` that it supports."""

    kind: str
    is_beyond_loopback: bool
    can: frozenset[str]

    def place(self, name: str) -> Place:
        """Return the addresses of a node."""

    def command(self, name: str, command: list[str]) -> list[str]:
        """Return the command that runs another command in the node's place of the network."""

    def starts(self, name: str) -> None:
        """Prepare for the start of the node's process."""

    def started(self, name: str, pid: int) -> None:
        """Note that the node's process was started."""

    def ends(self, name: str) -> None:
        """Prepare for the kill of the node's process."""

    def cut(self, pairs: Pairs, how: str) -> None:
        """Cut links.   how: silent or reset, both ways; one-way: nothing gets from the first to the second."""

    def slow(self, names: Sequence[str], delay_s: float) -> None:
        """Delay all links of these nodes, each way. Their connections may be reset first."""

    def lose(self, names: Sequence[str], part: float) -> None:
        """Lose this part of the packets from other nodes to these nodes."""

    def heal(self) -> None:
        """Undo all faults of the network."""

    def close(self) -> None: ...


class LoopbackNetwork:
    """A network on loopback without proxies: it cannot be cut, and costs nothing."""

    kind = "loopback"
    is_beyond_loopback = False
    can: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        for name in NAMES:
            port, peer_port, http_port = free_ports(3)
            peer = f"{HOST}:{peer_port}"
            self._places[name] = Place(f"{name}@localhost", HOST, port, peer, peer, http_port)

    def place(self, name: str) -> Place:
        return self._places[name]

    def command(self, name: str, command: list[str]) -> list[str]:
        return command

    def starts(self, name: str) -> None:
        pass

    def started(self, name: str, pid: int) -> None:
        pass

    def ends(self, name: str) -> None:
        pass

    def cut(self, pairs: Pairs, how: str) -> None:
        raise NotImplementedError("the loopback cannot be cut")

    def slow(self, names: Sequence[str], delay_s: float) -> None:
        raise NotImplementedError("the loopback is never slow")

    def lose(self, names: Sequence[str], part: float) -> None:
        raise NotImplementedError("the loopback loses nothing")

    def heal(self) -> None:
        pass

    def close(self) -> None:
        pass


class ProxyProcess:
    """The process of `tests.kit.proxies`.   command: makes of a command the one that runs it elsewhere."""

    def __init__(self, command: Callable[[list[str]], list[str]] = lambda command: command) -> None:
        self._process = subprocess.Popen(
            command([sys.executable, "-m", "tests.kit.proxies"]),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **asked: Any) -> Any:
        """Send a request to the process. Returns: its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the proxies ended"
        return json.loads(line)

    def close(self) -> None:
        """End the process, and all links that pass it."""
        self._process.kill()
        self._process.wait()


class ProxyNetwork:
    """A network on loopback in which all links pass `tests.kit.proxies`."""

    kind = "proxies"
    is_beyond_loopback = False
    can = frozenset({CUT, SLOW})

    def __init__(self) -> None:
        self._proxies = ProxyProcess()
        self._ask = self._proxies.ask
        self._places: dict[str, Place] = {}
        for name in NAMES:
            port, peer_port, http_port = free_ports(3)
            self._ask(do="target", name=name, host=HOST, port=peer_port)
            proxy = self._ask(do="open", name=name)
            self._places[name] = Place(
                f"{name}@localhost", HOST, port, f"{HOST}:{peer_port}", f"{HOST}:{proxy}", http_port
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
        assert how != ONE_WAY
        self._ask(do="cut", pairs=[list(pair) for pair in pairs], how=how)

    def slow(self, names: Sequence[str], delay_s: float) -> None:
        pairs = [(name, other) for name in names for other in NAMES if other != name]
        self._ask(do="slow", pairs=pairs, delay_s=delay_s)

    def lose(self, names: Sequence[str], part: float) -> None:
        raise NotImplementedError("proxies have no packets")

    def heal(self) -> None:
        self._ask(do="heal")

    def close(self) -> None:
        self._proxies.close()


class NamespaceNetwork:
    """A namespace and an address for each node, a bridge in our own one, which `enter_namespace` has made."""

    kind = "namespaces"
    is_beyond_loopback = True

    def __init__(self) -> None:
        self.can = frozenset({CUT, ONE_WAY}) | _abilities()
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._proxies: list[ProxyProcess] = []
        self._loses = False
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
        return Place(
            f"{name}@{host}", host, AMQP_PORT, f"{host}:{PEER_PORT}", f"{host}:{PEER_PORT}", HTTP_PORT
        )

    def command(self, name: str, command: list[str]) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net", *command]

    def starts(self, name: str) -> None:
        pass

    def started(self, name: str, pid: int) -> None:
        pass

    def ends(self, name: str) -> None:
        pass

    def cut(self, pairs: Pairs, how: str) -> None:
        back = [] if how == ONE_WAY else pairs
        both = [*((here, there) for there, here in pairs), *back]
        for here, there in both:
            rule = ("from", self._addresses[there], "iif", "eth0", "blackhole")
            self._in(here, "ip", "rule", "add", "pref", "7", *rule)
        if how == "reset":
            for here, there in both:
                self._in(here, "ss", "-K", "dst", self._addresses[there])

    def slow(self, names: Sequence[str], delay_s: float) -> None:
        pairs = [
            (here, there) for here in NAMES for there in NAMES if here != there and {here, there} & {*names}
        ]
        for here in NAMES:
            proxies = ProxyProcess(functools.partial(self.command, here))
            self._proxies.append(proxies)
            proxies.ask(do="mark", mark=MARK)
            proxies.ask(do="slow", pairs=None, delay_s=delay_s)
            for there in (there for one, there in pairs if one == here):
                proxies.ask(do="target", name=there, host=self._addresses[there], port=PEER_PORT)
                port = proxies.ask(do="open", name=there)
                self._in(here, *_redirection(self._addresses[there], port))
        for here, there in pairs:
            self._in(here, "ss", "-K", "dst", self._addresses[there])

    def lose(self, names: Sequence[str], part: float) -> None:
        self._loses = True
        for here in names:
            for there in NAMES:
                if here != there:
                    self._in(here, *_loss(self._addresses[there], part))

    def heal(self) -> None:
        if self._loses or self._proxies:
            for name in NAMES:
                self._in(name, "iptables", "-w", "-F")
                self._in(name, "iptables", "-w", "-t", "nat", "-F")
            self._end_proxies()
            self._loses = False
        for name in NAMES:
            rules = subprocess.run(
                self.command(name, ["ip", "rule"]), capture_output=True, text=True, check=True
            )
            for _ in range(rules.stdout.count("blackhole")):
                self._in(name, "ip", "rule", "del", "pref", "7")

    def _end_proxies(self) -> None:
        for proxies in self._proxies:
            proxies.close()
        self._proxies.clear()

    def close(self) -> None:
        self._end_proxies()
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


MARK: Final = 7
"""Packets that come from a delaying proxy, not from the node, have this mark."""


def _redirection(address: str, port: int) -> list[str]:
    """The rule by which a node's connections to another one's peer port go to a port of its own host."""
    rule = f"iptables -w -t nat -A OUTPUT -p tcp -d {address} --dport {PEER_PORT} -m mark ! --mark {MARK}"
    return [*rule.split(), "-j", "REDIRECT", "--to-ports", str(port)]


def _loss(address: str, part: float) -> list[str]:
    rule = f"iptables -w -A INPUT -s {address} -m statistic --mode random --probability {part}"
    return [*rule.split(), "-j", "DROP"]


@functools.cache
def _abilities() -> frozenset[str]:
    """Return the faults that iptables can make here; none without iptables."""
    probes = {SLOW: _redirection(f"{SUBNET}.1", 1), LOSS: _loss(f"{SUBNET}.1", 0.1)}
    return frozenset(name for name, probe in probes.items() if _succeeds(in_namespace(probe)))


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def has_namespaces() -> bool:
    """Return whether this process may make network namespaces with interfaces."""
    probe = "ip link add br0 type bridge && ip rule add pref 7 from 10.77.0.1 iif br0 blackhole && ss -K dst 10.77.0.1"
    return _succeeds(in_namespace(["sh", "-c", probe]))


def in_namespace(command: list[str]) -> list[str]:
    """The command that runs another in a network namespace of its own, which ends with it."""
    return ["unshare", "--net", *command]


NETWORKS: Final[dict[str, type[Network]]] = {
    each.kind: each for each in (LoopbackNetwork, ProxyNetwork, NamespaceNetwork)
}
_INSIDE: Final = "FLUFFLE_CHAOS_NAMESPACE"


def run_inside(module: str, arguments: Sequence[str]) -> bool:
    """Run a module of ours again in a network namespace of its own, as `NamespaceNetwork` needs, in place of this one.

    Returns: whether this is the one inside; False: there can't be one, and that was said.
    """
    is_inside = bool(os.environ.get(_INSIDE))
    if not is_inside:
        if has_namespaces():
            _become(in_namespace([sys.executable, "-m", module, *arguments]))
        print(f"{module}: network namespaces cannot be made here: root is needed")
    return is_inside


def _become(command: list[str]) -> NoReturn:
    """Replace this process, so that a signal to it ends everything."""
    os.chdir(ROOT)
    os.environ[_INSIDE] = "1"
    os.execvp(command[0], command)
