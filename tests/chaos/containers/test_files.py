"""The files of deploy/ without an engine: what both versions of compose read, what a node and a balancer agree on."""

import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from node.config.load import StartOptions, load_config
from tests.kit.network import HOST, NAMES
from tests.kit.ports import free_ports
from tests.kit.server_process import ROOT

DEPLOY: Final = ROOT / "deploy"
FILE: Final = DEPLOY / "docker-compose.yml"
SERVERS: Final = (*NAMES, "witness", "ram1")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file, with its anchors resolved and its variables as they stand there."""
    return dict(yaml.safe_load(FILE.read_text()))


def test_one_file_for_both_versions(compose: dict[str, Any]) -> None:
    """Version 2 warns of `version` and knows what version 1 does not; limits stand in one place only."""
    assert set(compose) == {"x-node", "services", "networks", "volumes", "secrets"}
    for service in compose["services"].values():
        assert not {"deploy", "develop", "container_name"} & set(service)
    text = FILE.read_text()
    assert not re.search(r"\$\{\w+:?\+|!reset|!override|^include:", text)


def test_nodes_are_shut_in(compose: dict[str, Any]) -> None:
    for name in SERVERS:
        service = compose["services"][name]
        assert service["read_only"]
        assert service["init"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert {"mem_limit", "cpus", "pids_limit", "ulimits", "logging"} <= set(service)
        assert service["restart"] == "unless-stopped"
        assert "ports" not in service
    assert compose["networks"]["cluster"] == {"internal": True}
    assert all(port.startswith(("${FLUFFLE_BIND:-127.0.0.1}:", "127.0.0.1:")) for port in _ports(compose))


def _ports(compose: dict[str, Any]) -> list[str]:
    return [port for service in compose["services"].values() for port in service.get("ports", ())]


def test_names_are_those_that_nodes_look_for(compose: dict[str, Any]) -> None:
    """Peers go by names of the inner network."""
    listed = compose["x-node"]["environment"]["FLUFFLE_CLUSTER_NODES"]
    assert listed == "${FLUFFLE_CLUSTER_NODES:-" + ",".join(f"rabbit@{name}.cluster" for name in NAMES) + "}"
    for name in SERVERS:
        service = compose["services"][name]
        assert service["environment"]["RABBITMQ_NODENAME"] == f"rabbit@{name}.cluster"
        assert service["networks"]["cluster"]["aliases"] == [f"{name}.cluster"]


class Files:
    """A container's file system, as far as the configuration reads it."""

    FOUND: Final[dict[str, Path | bytes]] = {
        "/etc/fluffle/fluffle.conf": DEPLOY / "fluffle.conf",
        "/etc/fluffle/conf.d/90-password.conf": b"default_pass = secret/-_=\n",
        "/run/fluffle/cluster_secret": b"0123456789abcdef\n",
    }

    def read(self, path: str) -> bytes | None:
        """None: there is no such file."""
        found = self.FOUND.get(path)
        return found.read_bytes() if isinstance(found, Path) else found

    def expand(self, pattern: str) -> list[str]:
        """The files of a directory."""
        return [path for path in self.FOUND if str(Path(path).parent) == pattern]

    def readable(self, path: str) -> bool:
        """Whether the node could read the file."""
        return path in self.FOUND

    def is_private(self, path: str) -> bool:
        """Whether its mode keeps others out."""
        return path.startswith("/run/fluffle/")


def test_a_node_takes_the_configuration(compose: dict[str, Any]) -> None:
    """A node takes the configuration of the compose file and believes HAProxy's address only."""
    environ = {**compose["services"]["n1"]["environment"], "FLUFFLE_CLUSTER_NODES": ""}
    config = load_config(StartOptions(), environ, Files(), hostname="n1")
    assert config.node_name == "rabbit@n1.cluster"
    assert config.seed.user == "fluffle"
    (source,) = config.network.proxy_protocol_sources
    address = compose["services"]["haproxy"]["networks"]["front"]["ipv4_address"]
    assert str(source) == f"{address}/32"
    (pool,) = compose["networks"]["front"]["ipam"]["config"]
    assert pool["subnet"].rpartition(".")[0] == address.rpartition(".")[0]


@pytest.mark.parametrize("profile", ["", "witness", "ram", "spark-ops", "monitoring"])
@pytest.mark.parametrize("command", [["docker-compose"], ["docker", "compose"]])
def test_compose_reads_the_file(profile: str, command: list[str], tmp_path: Path) -> None:
    """`config -q` needs no engine."""
    asked = shutil.which(command[0]) and subprocess.run(
        [*command, "version"], capture_output=True, check=False
    )
    if not asked or asked.returncode != 0:
        pytest.skip(f"{' '.join(command)} is not installed")
    deploy = tmp_path / "deploy"
    shutil.copytree(DEPLOY, deploy, ignore=shutil.ignore_patterns("secrets"))
    subprocess.run(["sh", str(deploy / "make-secrets.sh")], check=True)
    profiles = ["--profile", profile] if profile else []
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    read = subprocess.run(
        [*command, "-f", str(deploy / FILE.name), *profiles, "config", "-q"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (read.returncode, read.stderr) == (0, "")


def test_secrets_are_made_once(tmp_path: Path) -> None:
    """Others are kept out by the directory; what is there is not changed."""
    deploy = tmp_path / "deploy"
    deploy.mkdir()
    script = shutil.copy(DEPLOY / "make-secrets.sh", deploy)
    seen = []
    for _ in range(2):
        subprocess.run(["sh", script], check=True)
        seen.append({path.name: path.read_text() for path in (deploy / "secrets").iterdir()})
    assert seen[0] == seen[1]
    assert (deploy / "secrets").stat().st_mode & 0o777 == 0o700
    assert len(seen[0]["cluster_secret"].strip()) == 32
    assert re.fullmatch(r"default_pass = [\w=-]{32}\n", seen[0]["password.conf"])
    assert len(seen[0]["grafana_password"].strip()) == 32


class Answers(http.server.BaseHTTPRequestHandler):
    """A node that is ready on /health/ready, or not."""

    is_ready = True

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200 if self.is_ready and self.path == "/health/ready" else 503)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def node_port() -> Iterator[int]:
    """Give the port at which a node with these answers listens."""
    with http.server.HTTPServer((HOST, 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def _healthcheck(port: int) -> int:
    command = [sys.executable, "-I", "-S", str(DEPLOY / "healthcheck.py"), str(port)]
    return subprocess.run(command, capture_output=True, check=False).returncode


@pytest.mark.parametrize(("is_ready", "code"), [(True, 0), (False, 1)])
def test_the_healthcheck_tells(
    node_port: int, is_ready: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answers, "is_ready", is_ready)
    assert _healthcheck(node_port) == code


def test_the_healthcheck_tells_that_nobody_is_there() -> None:
    assert _healthcheck(free_ports(1)[0]) == 1
