"""Nodes that prove to each other who they are, each a process of its own.

Source: reliability §2.5; docs/internals/links.md, "Two streams in each direction".
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adversity.node_process import ROOT
from tests.node.process.processes import Process, Processes, until, until_running

pytestmark = pytest.mark.real

SECRET = "a secret of the cluster's nodes"


@pytest.fixture
def cluster() -> Iterator[Processes]:
    with tempfile.TemporaryDirectory(prefix="fluffle-security-") as path:
        processes = Processes(Path(path))
        try:
            yield processes
        finally:
            processes.close()


def configure(node: Process, *lines: str) -> None:
    path = node.directory / f"{node.name}.conf"
    path.write_text("".join(f"{line}\n" for line in lines))
    node.extra = ["--config", str(path)]


def with_secret(node: Process, secret: str) -> None:
    path = node.directory / f"{node.name}.secret"
    path.touch(0o600)
    path.write_text(secret)
    configure(node, f"cluster.secret_file = {path}")


def make_certificates(directory: Path, *nodes: Process) -> None:
    names = [node.name for node in nodes]
    command = [sys.executable, "-m", "node", "certs", "--out", str(directory), "--", *names]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def with_certificate(node: Process, directory: Path, name: str = "") -> None:
    files = {
        "cacertfile": "ca.pem",
        "certfile": f"{name or node.name}.pem",
        "keyfile": f"{name or node.name}.key",
    }
    configure(node, *(f"cluster.ssl_options.{key} = {directory}/{file}" for key, file in files.items()))


def form(nodes: list[Process], strangers: list[Process]) -> None:
    """The nodes become a cluster; the strangers try to join it, and go on trying."""
    for node in [*nodes, *strangers]:
        node.formation = ",".join(each.seed for each in nodes)
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_ready()
    for node in nodes:
        until_running(node, nodes)
    for node in strangers:
        node.launch()


def test_a_secret(cluster: Processes) -> None:
    nodes, stranger = [cluster.make(name) for name in ("n1", "n2", "n3")], cluster.make("n4")
    for node in nodes:
        with_secret(node, SECRET)
    with_secret(stranger, "what a stranger believes to be it")
    form(nodes, [stranger])
    until(lambda: "refuses: the nodes have different cluster secrets" in stranger.log, "it is told why")
    until(
        lambda: any("refused a link from 127.0.0.1: the nodes have different" in node.log for node in nodes),
        "the others' operator is told too",
    )
    assert [each["name"] for each in nodes[0].ask("list_members")["members"]] == [node.name for node in nodes]
    assert all(SECRET not in node.log for node in nodes)


def test_the_first_of_the_list_makes_no_cluster_beside_one_that_refuses_it(cluster: Processes) -> None:
    first, second = cluster.make("n1"), cluster.make("n2")
    with_secret(second, SECRET)
    form([second], [])
    with_secret(first, "another one, by mistake")
    with Path(first.extra[1]).open("a") as file:
        file.write("cluster_formation.discovery_retry_limit = 1\n")
    first.formation = f"{first.seed},{second.seed}"
    first.launch()
    until(lambda: "refuses: the nodes have different cluster secrets" in first.log, "it is told why")
    time.sleep(2)
    assert first.ask("status")["is_booting"]
    assert first.ask("list_members")["members"] == []


def test_certificates(cluster: Processes) -> None:
    nodes = [cluster.make(name) for name in ("n1", "n2", "n3")]
    foreign, another_name, bare = (cluster.make(name) for name in ("n4", "n5", "n6"))
    make_certificates(cluster.directory / "certs", *nodes)
    make_certificates(cluster.directory / "foreign", foreign)
    for node in nodes:
        with_certificate(node, cluster.directory / "certs")
    with_certificate(foreign, cluster.directory / "foreign")
    with_certificate(another_name, cluster.directory / "certs", nodes[1].name)
    form(nodes, [foreign, another_name, bare])
    until(lambda: "CERTIFICATE_VERIFY_FAILED" in foreign.log, "another authority's certificate is refused")
    until(lambda: "refuses: " in another_name.log, "another node's certificate is refused")
    until(lambda: "waiting for another node" in bare.log, "who has none does not get in")
    assert [each["name"] for each in nodes[0].ask("list_members")["members"]] == [node.name for node in nodes]
