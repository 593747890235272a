"""Nodes that prove to each other who they are, each a process of its own.

Source: reliability §2.5; docs/internals/links.md, "Two streams in each direction".
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.cluster_processes import (
    ClusterProcesses,
    MemberProcess,
    cluster_processes,
    until,
    until_running,
)
from tests.kit.server_process import ROOT

pytestmark = pytest.mark.real

SECRET = "a secret of the cluster's nodes"


@pytest.fixture
def cluster() -> Iterator[ClusterProcesses]:
    with cluster_processes() as processes:
        yield processes


def with_secret(node: MemberProcess, secret: str) -> None:
    path = node.directory / f"{node.name}.secret"
    path.touch(0o600)
    path.write_text(secret)
    node.configure({"cluster.secret_file": str(path)})


def make_certificates(directory: Path, *nodes: MemberProcess) -> None:
    names = [node.name for node in nodes]
    command = [sys.executable, "-m", "node", "certs", "--out", str(directory), "--", *names]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def with_certificate(node: MemberProcess, directory: Path, name: str = "") -> None:
    files = {
        "cacertfile": "ca.pem",
        "certfile": f"{name or node.name}.pem",
        "keyfile": f"{name or node.name}.key",
    }
    node.configure({f"cluster.ssl_options.{key}": f"{directory}/{file}" for key, file in files.items()})


def form(nodes: list[MemberProcess], strangers: list[MemberProcess]) -> None:
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


def test_a_secret(cluster: ClusterProcesses) -> None:
    nodes, stranger = [cluster.make(name) for name in ("n1", "n2", "n3")], cluster.make("n4")
    for node in nodes:
        with_secret(node, SECRET)
    with_secret(stranger, "what a stranger believes to be it")
    form(nodes, [stranger])
    until(
        lambda: "refuses: the nodes have different cluster secrets" in stranger.log_text(), "it is told why"
    )
    until(
        lambda: any(
            "refused a link from 127.0.0.1: the nodes have different" in node.log_text() for node in nodes
        ),
        "the others' operator is told too",
    )
    assert [each["name"] for each in nodes[0].ask("list_members")["members"]] == [node.name for node in nodes]
    assert all(SECRET not in node.log_text() for node in nodes)


def test_the_first_of_the_list_makes_no_cluster_beside_one_that_refuses_it(cluster: ClusterProcesses) -> None:
    first, second = cluster.make("n1"), cluster.make("n2")
    with_secret(second, SECRET)
    form([second], [])
    with_secret(first, "another one, by mistake")
    with first.config_path.open("a") as file:
        file.write("cluster_formation.discovery_retry_limit = 1\n")
    first.formation = f"{first.seed},{second.seed}"
    first.launch()
    until(lambda: "refuses: the nodes have different cluster secrets" in first.log_text(), "it is told why")
    time.sleep(2)
    assert first.ask("status")["is_booting"]
    assert first.ask("list_members")["members"] == []


def test_certificates(cluster: ClusterProcesses) -> None:
    nodes = [cluster.make(name) for name in ("n1", "n2", "n3")]
    foreign, another_name, bare = (cluster.make(name) for name in ("n4", "n5", "n6"))
    make_certificates(cluster.directory / "certs", *nodes)
    make_certificates(cluster.directory / "foreign", foreign)
    for node in nodes:
        with_certificate(node, cluster.directory / "certs")
    with_certificate(foreign, cluster.directory / "foreign")
    with_certificate(another_name, cluster.directory / "certs", nodes[1].name)
    form(nodes, [foreign, another_name, bare])
    until(
        lambda: "its certificate is not valid: " in foreign.log_text(),
        "another authority's certificate is refused",
    )
    until(lambda: "refuses: " in another_name.log_text(), "another node's certificate is refused")
    until(lambda: "waiting for another node" in bare.log_text(), "who has none does not get in")
    assert [each["name"] for each in nodes[0].ask("list_members")["members"]] == [node.name for node in nodes]
