"""deploy/docker-compose.yml as its users start it, from a copy of the repository, on ports of our own.

Beside it stands one file more for the test: a user for its clients, each node's HTTP API on loopback, and a small disk
for the last node where this process may mount one.
"""

import asyncio
import base64
import csv
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from tests.chaos.cluster import ChaosCluster
from tests.chaos.containers.engine import compose_command
from tests.kit.network import HOST, NAMES, Place
from tests.kit.patience import patience
from tests.kit.ports import free_ports
from tests.kit.server_process import ROOT

LIMIT_S: Final = 60.0
"""Anything may take this long; only a failing test waits so long."""
FILES: Final = ("pyproject.toml", "README.md", "LICENSE", ".dockerignore")
FOLDERS: Final = ("node", "cluster", "spark_ops", "deploy")
USER: Final = "guest"
CONFIG: Final = f"""\
default_user = {USER}
default_pass = {USER}
loopback_users.{USER} = false
"""
CHECKED: Final = "n2"
"""The health of this service is looked at."""
UNCHECKED_S: Final = 30
"""The engine looks at the health of other nodes so seldom: each time it starts a process in the container."""
DISK_MIB: Final = 256
SHIPPED_NETWORK: Final = "172.30.72."
"""Addresses between HAProxy and nodes begin with this in deploy/."""
LABEL: Final = "com.docker.compose"


OTHER_PORTS = (
    "FLUFFLE_MQTT_PORT",
    "FLUFFLE_MQTTS_PORT",
    "FLUFFLE_WEB_MQTT_PORT",
    "FLUFFLE_STOMP_PORT",
    "FLUFFLE_STOMPS_PORT",
    "FLUFFLE_WEB_STOMP_PORT",
)
"""Ports that docker-compose.yml publishes, and that nobody uses here."""


class StackFailed(AssertionError):
    """The containers do not do what they must."""


class Stack:
    """The containers of one project.

    directory: for a copy of the repository; made and removed by who calls.   client: of the engine.
    environ: variables by which tools find the engine, and of docker-compose.yml.
    front: where HAProxy accepts AMQP.   has_small_disk: whether the last node has one.
    has_memory_limits: whether the engine keeps containers to `mem_limit`.
    """

    def __init__(self, directory: Path, client: Any, environ: Mapping[str, str]) -> None:
        amqp, http, stats, *own = free_ports(6)
        others = dict(zip(OTHER_PORTS, map(str, free_ports(len(OTHER_PORTS))), strict=True))
        self.front = (HOST, amqp)
        self.disk = directory / "disk"
        self.has_small_disk = False
        self._directory = directory
        self._client = client
        self._project = f"fluffle{os.getpid()}"
        self._http, self._stats = http, stats
        self._own = dict(zip(NAMES, own, strict=True))
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            "FLUFFLE_IMAGE": f"{self._project}:test",
            "FLUFFLE_SPARK_OPS_IMAGE": f"{self._project}-spark-ops:test",
            "FLUFFLE_AMQP_PORT": str(amqp),
            "FLUFFLE_HTTP_PORT": str(http),
            "FLUFFLE_STATS_PORT": str(stats),
            **others,
            "FLUFFLE_NOFILE": "16384",
            "FLUFFLE_MEMORY": "512m",
            "FLUFFLE_CPUS": "1",
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_DOCKER_CLI_BUILD": "0",
            "COMPOSE_HTTP_TIMEOUT": "300",
            **environ,
        }
        self.has_memory_limits = bool(client.info()["MemoryLimit"])
        # What the load asks of a cluster: where it is, and what its clients may be told.
        place = Place("somewhere", HOST, amqp, "", "", http)
        self.cluster: Any = SimpleNamespace(
            kind="fluffle", nodes=[SimpleNamespace(place=place)] * len(NAMES), expected=ChaosCluster.expected
        )

    # --- the life of it ---

    def prepare(self) -> None:
        """Copy what the image is made of, collect its packages, write what the test adds."""
        for name in FILES:
            shutil.copy(ROOT / name, self._directory)
        ignored = shutil.ignore_patterns("__pycache__", "secrets", "*.whl")
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self._directory / name, ignore=ignored)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
        self._collect_packages(wanted)
        _run(["sh", str(self._directory / "deploy" / "make-secrets.sh")])
        self._move_network()
        balancer = self._directory / "deploy" / "haproxy.cfg"
        # As its own comment says, for the profile `ram`. Whoever is not there is down, for HAProxy.
        balancer.write_text(balancer.read_text().replace("# server ram1 ", "server ram1 "))
        (self._directory / "test.conf").write_text(CONFIG)
        (self._directory / "test.conf").chmod(0o644)
        self.disk.mkdir()
        options = f"size={DISK_MIB}m,uid=999,gid=999,mode=0750"
        mount = ["mount", "-t", "tmpfs", "-o", options, "fluffle-test", str(self.disk)]
        self.has_small_disk = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        # What the image of spark-ops has beside Python's packages comes from Debian.
        services: dict[str, dict[str, Any]] = {"collect": {"build": {"network": "host"}}}
        config = f"{self._directory}/test.conf:/etc/fluffle/conf.d/95-test.conf:ro"
        services["ram1"] = {"volumes": [config], "healthcheck": {"interval": f"{UNCHECKED_S}s"}}
        for name, port in self._own.items():
            volumes = [config]
            if name == NAMES[-1] and self.has_small_disk:
                volumes.append(f"{self.disk}:/var/lib/fluffle")
            services[name] = {"ports": [f"{HOST}:{port}:15672"], "volumes": volumes}
            if name != CHECKED:
                services[name]["healthcheck"] = {"interval": f"{UNCHECKED_S}s"}
        (self._directory / "test.yml").write_text(json.dumps({"services": services}))

    def _move_network(self) -> None:
        """Give the network between HAProxy and nodes addresses that this machine does not route elsewhere.

        A bridge that another engine left behind would get the answers else, and nobody would hear them.
        """
        routed = {line.split()[1] for line in Path("/proc/net/route").read_text().splitlines()[1:]}
        for third in range(72, 256):
            prefix = f"172.30.{third}."
            # As /proc/net/route writes it: the bytes of the network's address, backwards.
            if f"00{third:02X}1EAC" not in routed:
                break
        else:
            raise StackFailed("all networks from 172.30.72.0/24 to 172.30.255.0/24 are in use")
        for name in ("docker-compose.yml", "fluffle.conf"):
            path = self._directory / "deploy" / name
            text = path.read_text()
            assert SHIPPED_NETWORK in text
            path.write_text(text.replace(SHIPPED_NETWORK, prefix))

    def _collect_packages(self, wanted: Sequence[str]) -> None:
        wheels = self._directory / "deploy" / "wheels"
        _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(wheels), *wanted])

    def build(self) -> None:
        """Make the image of a node. Raises: StackFailed."""
        self.compose("build", NAMES[0])

    def build_spark_ops(self) -> None:
        """Make the image of spark-ops. Raises: StackFailed."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        self._collect_packages(project["optional-dependencies"]["spark"])
        self.compose("--profile", "spark-ops", "build", "collect")

    def up(self) -> None:
        """Start all. Raises: StackFailed."""
        self.compose("up", "-d", "--no-build")

    def down(self) -> None:
        """Remove the containers, their volumes and networks, and the images."""
        try:
            self.compose("down", "-v", "--timeout", "10", "--rmi", "local")
            for image in self._client.images.list(filters={"reference": f"{self._project}*"}):
                self._client.images.remove(image.id, force=True)
        finally:
            self.release_disk()

    def remove(self, service: str, profile: str = "") -> None:
        """Stop a container and remove it with its data, as if its machine will not come back. Raises: StackFailed."""
        self.compose(*_profile(profile), "stop", service)
        self.compose(*_profile(profile), "rm", "-f", service)
        if service == NAMES[-1] and self.has_small_disk:
            for path in self.disk.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        else:
            self._client.volumes.get(f"{self._project}_{service}-data").remove()

    def add(self, service: str, profile: str = "") -> None:
        """Start one more. Raises: StackFailed."""
        self.compose(*_profile(profile), "up", "-d", "--no-build", "--no-deps", service)

    def release_disk(self) -> None:
        """Let go of what is mounted in the directory."""
        if self.has_small_disk:
            _run(["umount", "-l", str(self.disk)])

    def compose(self, *arguments: str, codes: Sequence[int] = (0,)) -> str:
        """Run the tool.   codes: with which it may end. Returns: its output. Raises: StackFailed."""
        command = [
            *compose_command(),
            "-p",
            self._project,
            "-f",
            f"{self._directory}/deploy/docker-compose.yml",
        ]
        return _run([*command, "-f", f"{self._directory}/test.yml", *arguments], self._environ, codes)

    # --- its parts ---

    def container(self, service: str) -> Any:
        """The container of a service, as the engine has it now."""
        labels = [f"{LABEL}.project={self._project}", f"{LABEL}.service={service}"]
        (found,) = self._client.containers.list(all=True, filters={"label": labels})
        return found

    def network(self, name: str) -> Any:
        """A network of the compose file."""
        labels = [f"{LABEL}.project={self._project}", f"{LABEL}.network={name}"]
        (found,) = self._client.networks.list(filters={"label": labels})
        return found

    def run(self, service: str, *command: str) -> str:
        """Run a command in a container, as the node's user. Returns: its output. Raises: StackFailed."""
        code, output = self.container(service).exec_run(list(command))
        if code != 0:
            raise StackFailed(f"{service}: {' '.join(command)} ends with {code}: {output.decode()[-2000:]}")
        return str(output.decode())

    def ask(self, path: str, *, node: str | None = None, method: str = "GET", body: object = None) -> Any:
        """The HTTP API of a node, or of any behind HAProxy. Raises: OSError."""
        port = self._http if node is None else self._own[node]
        request = urllib.request.Request(f"http://{HOST}:{port}{path}", method=method)
        word = base64.b64encode(f"{USER}:{USER}".encode()).decode()
        request.add_header("authorization", f"Basic {word}")
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, data, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def is_ready(self, node: str) -> bool:
        """Whether a node says that clients may come."""
        try:
            self.ask("/health/ready", node=node)
        except OSError:
            return False
        return True

    def states(self) -> dict[str, str]:
        """Return the states in which HAProxy sees the nodes; empty: it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._stats}/stats;csv", timeout=10) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        rows = csv.DictReader(text.removeprefix("# ").splitlines())
        return {
            row["svname"]: row["status"] for row in rows if (row["pxname"], row["type"]) == ("brokers", "2")
        }

    def up_nodes(self) -> set[str]:
        """The nodes to which HAProxy sends clients."""
        return {name for name, state in self.states().items() if state.startswith("UP")}

    def log_ends(self) -> str:
        """The last lines of each container."""
        labels = [f"{LABEL}.project={self._project}"]
        containers = self._client.containers.list(all=True, filters={"label": labels})
        return "".join(
            f"--- {each.name}\n{each.logs(tail=25).decode(errors='replace')}" for each in containers
        )

    # --- waiting ---

    async def until(self, condition: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> float:
        """Wait for something. Returns: for how long, in s. Raises: StackFailed."""
        since = time.monotonic()
        while not await asyncio.to_thread(condition):
            if time.monotonic() > since + limit_s * patience():
                ends = await asyncio.to_thread(self.log_ends)
                raise StackFailed(f"not so after {limit_s:.0f} s: {what}; {self.states()}\n{ends}")
            await asyncio.sleep(0.1)
        return time.monotonic() - since

    async def await_whole(self, names: Sequence[str] = NAMES) -> float:
        """Wait until HAProxy has these nodes and no others, and each has a complete copy of all queues.

        Raises: StackFailed.
        """
        return await self.until(lambda: self._is_whole(names), "all nodes and copies are there")

    async def await_up(self, *names: str) -> float:
        """Wait until HAProxy sends clients to just these nodes. Raises: StackFailed."""
        return await self.until(lambda: self.up_nodes() == set(names), f"{names} are up")

    def _is_whole(self, names: Sequence[str]) -> bool:
        if self.up_nodes() != set(names):
            return False
        try:
            nodes = self.ask("/api/nodes")
            rings = self.ask("/api/mirroring/rings")
        except OSError:
            return False
        are_running = sum(node["running"] for node in nodes) == len(names)
        return are_running and all(ring["danger"] == 3 and ring["complete"] == len(names) for ring in rings)

    @property
    def balancer(self) -> str:
        """The address from which HAProxy comes to the nodes."""
        networks = self.container("haproxy").attrs["NetworkSettings"]["Networks"]
        (address,) = (each["IPAddress"] for each in networks.values())
        return str(address)

    def master(self, queue: str) -> str:
        """The service whose node has the queue's master."""
        name = self.ask(f"/api/mirroring/rings/%2F/{queue}")["master"]
        return str(name).partition("@")[2].partition(".")[0]


def _profile(name: str) -> list[str]:
    return ["--profile", name] if name else []


def _run(
    command: Sequence[str], environ: Mapping[str, str] | None = None, codes: Sequence[int] = (0,)
) -> str:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise StackFailed(
            f"{' '.join(command)} ends with {done.returncode}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return done.stdout
