"""Two balancers that share an address: HAProxy dies on one, then the other machine does."""

import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from tests.deploy.failover import KEEPALIVED
from tests.kit.haproxy import PROGRAM as HAPROXY
from tests.kit.network import has_namespaces, in_namespace
from tests.kit.server_process import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not has_namespaces(), reason="network namespaces cannot be made here"
    ),
    pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed"),
    pytest.mark.skipif(KEEPALIVED is None, reason="keepalived is not installed"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]


def test_the_address_moves_to_the_other_balancer() -> None:
    """Clients come back by the same address, and no confirmed message is lost."""
    # Keepalived runs no script that others than root could replace, so not one below /tmp.
    with tempfile.TemporaryDirectory(prefix="fluffle-balancers-", dir="/run") as directory:
        os.chmod(directory, 0o755)
        done = subprocess.run(
            in_namespace([sys.executable, "-m", "tests.deploy.failover", directory]),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stdout
    print(done.stdout)
