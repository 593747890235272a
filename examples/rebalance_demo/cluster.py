"""Three nodes on this machine with telemetry on, and their HTTP API."""

import base64
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

CONFIG = """\
cluster_name = rebalance-demo
telemetry.enabled = true
telemetry.interval = 5000
"""
READY_S = 120.0


class DemoCluster:
    """`fluffle cluster` in a process of its own; management is 10000 above the AMQP ports."""

    def __init__(self, folder: Path, *, nodes: int = 3) -> None:
        self.folder = folder
        self.ports = free_ports(nodes)
        self.telemetry = [folder / "cluster" / f"n{number}" / "telemetry" for number in range(1, nodes + 1)]
        self._log = folder / "cluster.log"
        (folder / "demo.conf").write_text(CONFIG)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "node", "cluster"),
                    *("--nodes", str(nodes), "--base-port", str(self.ports[0])),
                    *("--data", str(folder / "cluster"), "--config", str(folder / "demo.conf")),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours: the load stops before the nodes
            )

    @property
    def url(self) -> str:
        """The URL of the first node's HTTP API, with user and password."""
        return f"http://guest:guest@127.0.0.1:{self.ports[0] + 10_000}"

    def pid(self, name: str) -> int:
        """Return the process id of a node. Raises: RuntimeError if it does not run."""
        data = str(self.folder / "cluster" / name).encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().split(b"\0")
                if b"--data" in words and data in words and b"--name" in words:
                    return int(path.parent.name)
        raise RuntimeError(f"there is no node {name}")

    def await_ready(self) -> None:
        """Until all nodes are up and know each other. Raises: RuntimeError."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            try:
                nodes = self.call("GET", "/nodes")
                if len(nodes) == len(self.ports) and all(node.get("running") for node in nodes):
                    for port in self.ports:
                        socket.create_connection(("127.0.0.1", port), 2).close()
                    return
            except (OSError, RuntimeError, http.client.HTTPException):
                pass
            time.sleep(0.5)
        raise RuntimeError(f"the cluster did not start; see {self._log}")

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the HTTP API. Raises: RuntimeError for an answer that is no success; OSError."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[0] + 10_000, timeout=30)
        try:
            head = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
            text = None if body is None else json.dumps(body)
            connection.request(method, f"/api{path}", text, {**head, "Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:200]!r}")
        return json.loads(data) if data.strip() else None

    def mirror(self, pattern: str, copies: int) -> None:
        """A policy: so many copies of each queue that matches."""
        definition = {"ha-mode": "exactly", "ha-params": copies, "ha-sync-mode": "automatic"}
        body = {"pattern": pattern, "definition": definition, "apply-to": "queues"}
        self.call("PUT", f"/policies/{quote('/', safe='')}/demo", body)

    def queues(self) -> list[dict[str, Any]]:
        """All queues, with their masters and synchronised mirrors."""
        found: list[dict[str, Any]] = self.call("GET", "/queues")
        return found

    def stop(self) -> None:
        """Stop the nodes in good order."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


def free_ports(count: int) -> list[int]:
    """Ports in a row that are free, also 10000 (management) and 20000 (peers) higher. Raises: RuntimeError."""
    for base in range(25_700, 35_000, 10):
        wanted = [base + place + more for place in range(count) for more in (0, 10_000, 20_000)]
        if all(_is_free(port) for port in wanted):
            return [base + place for place in range(count)]
    raise RuntimeError("there are no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def short(node: str) -> str:
    """`n1` of `n1@localhost`."""
    return re.sub("@.*", "", node)
