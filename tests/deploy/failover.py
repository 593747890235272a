"""Two balancers with one address, as docs/deployment.md sets them up, each a network namespace; one of them fails.

The shipped haproxy.cfg, keepalived-*.conf and check-haproxy run as they are, but for addresses. A real node is
behind them, which asks for PROXY headers; n2 and n3 of the configuration are down.

    unshare --net python -m tests.deploy.failover DIRECTORY

It must run as root in a network namespace of its own. Prints how long clients were without a balancer.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from node.amqp import methods
from tests.kit.cluster_client import ClusterClient
from tests.kit.haproxy import PROGRAM as HAPROXY
from tests.kit.load_client import Lost
from tests.kit.network import SUBNET, NamespaceNetwork
from tests.kit.node_process import TemporaryNode
from tests.kit.patience import patience
from tests.kit.server_process import ROOT

DEPLOY: Final = ROOT / "deploy"
KEEPALIVED: Final = shutil.which("keepalived", path="/usr/local/sbin:/usr/sbin:/sbin")
"""Keepalived's program has this path; None if there is none."""
SHARED: Final = f"{SUBNET}.100"
NODE: Final = f"{SUBNET}.254"
"""This namespace's own address on the bridge."""
LIMIT_S: Final = 30.0
"""The address may take this long to move; only a failing test waits so long."""
PERSISTENT: Final = b"\x10\x00\x02"
"""Flags and values of the properties: delivery-mode 2."""


class BalancerNetwork(NamespaceNetwork):
    """With two machines more, lb1 and lb2."""

    names: Final = ("lb1", "lb2")

    def __init__(self) -> None:
        super().__init__()
        for number, name in enumerate(self.names, 11):
            self._addresses[name] = f"{SUBNET}.{number}"
            self._add(name)

    def address(self, name: str) -> str:
        """Return the address of one of them."""
        return self._addresses[name]


class Balancer:
    """One of the two machines.   index: 0, 1.   directory: of root's alone, as Keepalived wants its scripts to be."""

    def __init__(self, index: int, network: BalancerNetwork, directory: Path) -> None:
        self.name = network.names[index]
        self._network = network
        self._directory = directory / self.name
        self._directory.mkdir()
        script = self._directory / "check-haproxy"
        shutil.copy(DEPLOY / "keepalived" / script.name, script)
        text = (DEPLOY / "keepalived" / f"keepalived-{index + 1}.conf").read_text()
        for shipped, ours in (
            (f"$OWN=192.0.2.1{index + 1}", f"$OWN={network.address(self.name)}"),
            (f"$PEER=192.0.2.1{2 - index}", f"$PEER={network.address(network.names[1 - index])}"),
            ("$SHARED=192.0.2.10/24", f"$SHARED={SHARED}/24"),
            ("/etc/keepalived/check-haproxy", str(script)),
        ):
            assert text.count(shipped) == 1, shipped
            text = text.replace(shipped, ours)
        self._config = self._directory / "keepalived.conf"
        self._config.write_text(text)
        self._haproxy: subprocess.Popen[bytes] | None = None
        self._keepalived: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start both programs."""
        self.start_haproxy()
        assert KEEPALIVED is not None
        command = [KEEPALIVED, "--dont-fork", "--log-console", "--vrrp", "--use-file", str(self._config)]
        for option in ("pid", "vrrp_pid", "checkers_pid"):
            command += [f"--{option}", str(self._directory / option)]
        self._keepalived = self._run("keepalived", command)

    def start_haproxy(self) -> None:
        """Start HAProxy alone."""
        assert HAPROXY is not None
        self._haproxy = self._run("haproxy", [HAPROXY, "-W", "-db", "-f", str(DEPLOY / "haproxy.cfg")])

    def kill_haproxy(self) -> None:
        """kill -9, of master and worker."""
        _end(self._haproxy, signal.SIGKILL)
        self._haproxy = None

    def unplug(self) -> None:
        """Pull the cable."""
        subprocess.run(["ip", "link", "set", f"v-{self.name}", "down"], check=True)

    def has_address(self) -> bool:
        """Whether the shared address is on this machine."""
        shown = subprocess.run(
            self._network.command(self.name, ["ip", "-oneline", "address", "show", "dev", "eth0"]),
            capture_output=True,
            text=True,
            check=True,
        )
        return f" {SHARED}/" in shown.stdout

    def states(self) -> list[str]:
        """Return the states in which its Keepalived has been, in order: BACKUP, MASTER, FAULT."""
        return re.findall(r"Entering (\w+) STATE", self.log_text("keepalived"))

    def log_text(self, program: str) -> str:
        """Return what haproxy or keepalived have logged."""
        return (self._directory / f"{program}.log").read_text(errors="replace")

    def close(self) -> None:
        """End both."""
        # Keepalived's child would outlive a kill -9 of its parent by a moment, and the group does not.
        for process in (self._keepalived, self._haproxy):
            _end(process, signal.SIGKILL)

    def _run(self, name: str, command: list[str]) -> "subprocess.Popen[bytes]":
        environ = {"PATH": os.environ["PATH"], "FLUFFLE_STATS_BIND": "127.0.0.1", "FLUFFLE_N1": NODE}
        environ |= {"FLUFFLE_N2": f"{SUBNET}.2", "FLUFFLE_N3": f"{SUBNET}.3"}
        with (self._directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                self._network.command(self.name, command),
                env=environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def _end(process: "subprocess.Popen[bytes] | None", number: signal.Signals) -> None:
    if process is not None:
        os.killpg(process.pid, number)
        process.wait()


class Pair:
    """Both, and a client of the shared address."""

    def __init__(self, directory: Path) -> None:
        self._network = BalancerNetwork()
        self.balancers = [Balancer(index, self._network, directory) for index in range(2)]
        self.confirmed = 0

    async def connect(self) -> tuple[ClusterClient, float]:
        """A client, as soon as there is a balancer. Returns: it; how long that took, s."""
        since = time.monotonic()
        while True:
            assert time.monotonic() < since + LIMIT_S * patience(), self.logs()
            try:
                client = await ClusterClient.connect(SHARED, 5672, limit_s=0.5)
            except Lost:
                await asyncio.sleep(0.05)
            else:
                return client, time.monotonic() - since

    async def publish(self, client: ClusterClient) -> None:
        """Ten persistent messages, confirmed."""
        channel = await client.channel()
        await channel.ask(methods.QueueDeclare(queue="kept", durable=True))
        await channel.ask(methods.ConfirmSelect())
        done = asyncio.Event()
        channel.on_confirm = lambda tag, multiple, is_ack: done.set() if is_ack and tag == 10 else None
        for _ in range(10):
            channel.publish("", "kept", PERSISTENT, b"x")
        async with asyncio.timeout(LIMIT_S * patience()):
            await done.wait()
        self.confirmed += 10

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until it is."""
        deadline = time.monotonic() + LIMIT_S * patience()
        while not await asyncio.to_thread(is_so):
            assert time.monotonic() < deadline, f"{what}\n{self.logs()}"
            await asyncio.sleep(0.1)

    def logs(self) -> str:
        """The ends of all logs."""
        programs = ("haproxy", "keepalived")
        texts = [(each.name, name, each.log_text(name)) for each in self.balancers for name in programs]
        return "\n".join(f"--- {machine} {name}\n{text[-3000:]}" for machine, name, text in texts)

    def close(self) -> None:
        """End all."""
        for balancer in self.balancers:
            balancer.close()
        self._network.close()


async def story(pair: Pair) -> None:
    """HAProxy dies, the address moves and stays; then a machine dies, and it moves back. Nothing confirmed is lost."""
    first, second = pair.balancers
    first.start()
    await pair.until(first.has_address, "the first machine takes the address")
    second.start()
    client, start_s = await pair.connect()
    await pair.publish(client)
    await pair.until(lambda: "BACKUP" in second.states(), "the second machine waits")

    first.kill_haproxy()
    async with asyncio.timeout(LIMIT_S * patience()):
        while client.lost is None:
            await asyncio.sleep(0.01)
    client, killed_s = await pair.connect()
    assert second.has_address(), pair.logs()
    await pair.publish(client)
    await pair.until(lambda: not first.has_address(), "the first machine has given the address up")

    first.start_haproxy()
    await pair.until(lambda: first.states()[-1] == "BACKUP", "the first machine is well again")
    assert second.has_address(), "no connection is cut only because a balancer is back"
    assert not first.has_address()
    assert client.lost is None

    second.unplug()
    client, unplugged_s = await pair.connect()
    assert first.has_address(), pair.logs()
    await pair.publish(client)
    channel = await client.channel(2)
    found = await channel.ask(methods.QueueDeclare(queue="kept", passive=True))
    assert found.message_count == pair.confirmed == 30
    await client.leave()
    print(f"clients at {SHARED}: after the start {start_s:.1f} s, ", end="")
    print(f"HAProxy killed {killed_s:.1f} s, cable pulled {unplugged_s:.1f} s")


def main(directory: Path) -> int:
    """The command. Returns: 0; a failure raises."""
    settings = {
        "loopback_users.guest": "false",
        "proxy_protocol": "true",
        "proxy_protocol_sources.1": f"{SUBNET}.0/24",
    }
    pair = Pair(directory)
    try:
        with TemporaryNode(settings, listen=f"{NODE}:5672", management=f"{NODE}:15672"):
            asyncio.run(story(pair))
    finally:
        pair.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
