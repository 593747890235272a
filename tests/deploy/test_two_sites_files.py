"""The containers of deploy/two-sites without an engine: what nodes, balancers and links of both sites agree on.

And `sites` without namespaces: how it starts and stops nodes.
"""

import os
import re
import subprocess
from pathlib import Path
from shutil import copy
from typing import Any, Final

import pytest
import yaml

from tests.kit.config import load
from tests.kit.server_process import ROOT

FOLDER: Final = ROOT / "deploy" / "two-sites"
SITES: Final = ("a", "b")
OTHER: Final = {"a": "b", "b": "a"}
SECRET: Final = {"/run/fluffle/cluster_secret": "0123456789abcdef"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file, with its anchors resolved and its variables as they stand there."""
    return dict(yaml.safe_load((FOLDER / "docker-compose.yml").read_text()))


def nodes(site: str) -> list[str]:
    return [f"{site}{number}" for number in (1, 2, 3)]


@pytest.mark.parametrize("site", SITES)
def test_nodes_of_a_site_look_for_each_other_on_their_inner_network(
    compose: dict[str, Any], site: str
) -> None:
    wanted = ",".join(f"rabbit@{name}.cluster" for name in nodes(site))
    for name in nodes(site):
        service = compose["services"][name]
        assert service["environment"]["FLUFFLE_CLUSTER_NODES"] == wanted
        assert service["environment"]["RABBITMQ_NODENAME"] == f"rabbit@{name}.cluster"
        assert service["networks"][f"cluster-{site}"]["aliases"] == [f"{name}.cluster"]
        assert not {f"cluster-{OTHER[site]}", f"front-{OTHER[site]}"} & set(service["networks"])
        assert {each["source"][-2:] for each in service["secrets"]} == {f"_{site}"}
        assert service["read_only"]
        assert "ports" not in service
    assert compose["networks"][f"cluster-{site}"] == {"internal": True}


@pytest.mark.parametrize("site", SITES)
def test_a_site_has_its_own_name_and_believes_its_own_balancer(compose: dict[str, Any], site: str) -> None:
    text = (FOLDER / f"site-{site}.conf").read_text()
    config = load(text, files=SECRET)
    assert not config.unused
    assert f"cluster_name = site-{site}\n" in text
    networks = compose["services"][f"haproxy-{site}"]["networks"]
    address = networks[f"front-{site}"]["ipv4_address"]
    assert f"proxy_protocol_sources.1 = {address}/32\n" in text
    (pool,) = compose["networks"][f"front-{site}"]["ipam"]["config"]
    assert pool["subnet"].rpartition(".")[0] == address.rpartition(".")[0]
    places = compose["services"][f"haproxy-{site}"]["environment"]
    for number, name in enumerate(nodes(site), 1):
        # Not by a name that the network of links has, too: the nodes do not believe headers from there.
        assert places[f"FLUFFLE_N{number}"] == f"{name}.front"
        assert compose["services"][name]["networks"][f"front-{site}"]["aliases"] == [f"{name}.front"]


def test_links_go_to_the_balancer_of_the_other_site(compose: dict[str, Any]) -> None:
    assert "@site-$there.link" in (FOLDER / "federate.sh").read_text()
    for site in SITES:
        assert compose["services"][f"haproxy-{site}"]["networks"]["link"]["aliases"] == [f"site-{site}.link"]
        assert all("link" in compose["services"][name]["networks"] for name in nodes(site))


def test_all_ports_are_for_this_machine(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert len(ports) == 2 * len(SITES)
    assert all(port.startswith("${FLUFFLE_BIND:-127.0.0.1}:") for port in ports)
    assert len(set(ports)) == len(ports)


def test_secrets_of_the_sites_differ_and_are_made_once(compose: dict[str, Any], tmp_path: Path) -> None:
    script = copy(FOLDER / "make-secrets.sh", tmp_path)
    seen = []
    for _ in range(2):
        subprocess.run(["sh", script], check=True)
        seen.append({path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()})
    assert seen[0] == seen[1]
    assert len(set(seen[0].values())) == len(seen[0]) == 3 * len(SITES)
    named = {each["file"].removeprefix("./secrets/") for each in compose["secrets"].values()}
    assert named <= seen[0].keys()
    # They stand in URIs.
    assert all(re.fullmatch(r"[\w-]{32}\n", seen[0][f"link_password-{site}"]) for site in SITES)


def test_both_sites_get_users_policies_and_links(tmp_path: Path) -> None:
    """The commands of `federate.sh`, with a program in the place of compose that notes them."""
    for name in ("federate.sh", "make-secrets.sh"):
        copy(FOLDER / name, tmp_path)
    subprocess.run(["sh", str(tmp_path / "make-secrets.sh")], check=True)
    note = tmp_path / "compose"
    note.write_text(f'#!/bin/sh\nshift 4\necho "$@" >> {tmp_path}/noted\n')
    note.chmod(0o755)
    subprocess.run(
        ["sh", str(tmp_path / "federate.sh"), r"site\."],
        env={"PATH": "/usr/bin:/bin", "COMPOSE": str(note)},
        check=True,
    )
    lines = (tmp_path / "noted").read_text().splitlines()
    for site, there in OTHER.items():
        own = [line.removeprefix(f"{site}1 fluffle ") for line in lines if line.startswith(f"{site}1 ")]
        password = (tmp_path / "secrets" / f"link_password-{site}").read_text().strip()
        upstream = (tmp_path / "secrets" / f"link_password-{there}").read_text().strip()
        assert f"ctl add_user link-from-{there} {password}" in own
        assert f"ctl set_permissions link-from-{there} " + " ".join([r"^(site\.|federation: )"] * 3) in own
        (parameter,) = [line for line in own if "set_parameter" in line]
        assert f'"uri": "amqp://link-from-{site}:{upstream}@site-{there}.link?heartbeat=5"' in parameter
        policies = [line for line in own if "set_policy" in line]
        assert ["--priority=-1" in line for line in policies] == [True, False, False]
        assert lines.index(f"{there}1 fluffle {policies[0]}") < lines.index(f"{site}1 fluffle {parameter}")


# --- sites, whose `ip` and nodes are programs of the test ---

NODE: Final = """#!/bin/sh
# It says at once what has "ready" in it, and is ready a little later.
echo "the user exists already: the node is not ready"
data=$5
(sleep 1; touch "$data.was_ready"; echo "fluffle: node $3 ready, amqp on somewhere") &
{trap}
while :; do sleep 0.1; done
"""
"""A node that goes on until it is ended.   trap: what it does with SIGTERM."""


class Nodes:
    """The script, with a directory for what it starts."""

    def __init__(self, directory: Path, trap: str = "") -> None:
        programs = directory / "bin"
        programs.mkdir()
        for name, text in (
            # ip netns exec NAMESPACE COMMAND
            ("ip", '#!/bin/sh\n[ "$2" = exec ] || exit 0\nshift 3\nexec "$@"\n'),
            ("fluffle", NODE.replace("{trap}", trap)),
        ):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.data = directory / "data"
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TWO_SITES_DATA": str(self.data),
            "TWO_SITES_STOP_S": "1",
            "FLUFFLE": str(programs / "fluffle"),
        }

    def run(self, *words: str) -> str:
        """Run a command, which must go well, and return what it prints."""
        done = subprocess.run(
            [str(FOLDER / "sites"), *words],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def pids(self) -> list[int]:
        """Return the processes of the nodes."""
        return [int(path.read_text()) for path in self.data.glob("*.pid")]


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has asked for its exit code has."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    return re.search(r"^State:\s*[ZX]", status, re.MULTILINE) is not None


@pytest.mark.slow
def test_start_returns_when_all_nodes_say_that_they_are_ready(tmp_path: Path) -> None:
    """A log with "ready" in another word is not enough."""
    script = Nodes(tmp_path)
    try:
        script.run("start")
        ready = sorted(path.stem for path in script.data.glob("*.was_ready"))
        assert ready == sorted(nodes("a") + nodes("b"))
    finally:
        pids = script.pids()
        script.run("down")
    assert len(pids) == len(ready)
    assert all(map(is_gone, pids))


@pytest.mark.slow
def test_a_node_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    script = Nodes(tmp_path, trap="trap '' TERM")
    script.run("start")
    pids = script.pids()
    told = script.run("down")
    assert "a1 has not ended within 1 s, and is killed" in told
    assert not script.pids()
    assert all(map(is_gone, pids))


@pytest.mark.slow
def test_what_a_node_said_before_it_was_killed_stays(tmp_path: Path) -> None:
    script = Nodes(tmp_path)
    script.data.mkdir()
    (script.data / "a1.out").write_text("the last words of a node\n")
    try:
        script.run("start")
    finally:
        script.run("down")
    assert (script.data / "a1.log").read_text() == "the last words of a node\n"
    assert "the last words" not in (script.data / "a1.out").read_text()
