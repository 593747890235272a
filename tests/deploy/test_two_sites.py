"""The namespaces of deploy/two-sites: the sites reach each other until the link is cut, and when it is healed."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.kit.patience import wait_until
from tests.kit.server_process import ROOT

SCRIPT: Final = ROOT / "deploy" / "two-sites" / "sites"
LIMIT_S: Final = 60.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(
        not (shutil.which("ip") and shutil.which("iptables")), reason="ip or iptables is missing"
    ),
]


class Sites:
    """The script, with namespaces and data of this test's own."""

    def __init__(self, directory: Path) -> None:
        prefix = f"t{secrets.token_hex(2)}"
        self._environment = {**os.environ, "TWO_SITES_PREFIX": prefix, "TWO_SITES_DATA": str(directory)}

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command, which must end with that code, and return what it prints."""
        done = subprocess.run(
            [str(SCRIPT), *words],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}: {done.stdout}"
        return done.stdout

    def listen(self, node: str, address: str) -> "subprocess.Popen[bytes]":
        """Start something that listens at AMQP's port of a node."""
        command = [str(SCRIPT), "in", node, "python3", "-m", "http.server", "5672", "--bind", address]
        return subprocess.Popen(
            command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
        )


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    found = Sites(tmp_path)
    try:
        found.run("up")
        yield found
    finally:
        found.run("down")


def reach(status: str) -> list[str]:
    """Lines of a status about who reaches whom."""
    return [line for line in status.splitlines() if "reach" in line]


def test_the_link_is_cut_and_healed(sites: Sites) -> None:
    """Nodes of one site reach each other while the link is cut."""
    listeners = [sites.listen("a1", "10.81.1.1"), sites.listen("b1", "10.81.2.1")]
    both = ["a1 reaches b1", "b1 reaches a1"]
    try:
        wait_until(lambda: reach(sites.run("status")) == both)
        sites.run("cut")
        assert reach(sites.run("status")) == ["a1 does not reach b1", "b1 does not reach a1"]
        sites.run("in", "a2", "bash", "-c", "exec 3<> /dev/tcp/10.81.1.1/5672")
        sites.run("heal")
        assert reach(sites.run("status")) == both
        sites.run("loss", "1")
        sites.run("heal")
    finally:
        for listener in listeners:
            listener.terminate()
            listener.wait()


def test_a_wrong_command_says_what_there_is(tmp_path: Path) -> None:
    assert "heal" in Sites(tmp_path).run("nonsense", code=64)
