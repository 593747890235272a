"""A short form of `make cluster-faults`: some faults of each family. Times don't decide anything here.

The links go through proxies on loopback, or, where this process may make them, through network namespaces.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.cluster_faults import Episode, all_kinds, deck
from tests.chaos.ledger import Ledger, gap_in
from tests.kit.network import ProxyNetwork, has_namespaces
from tests.kit.server_process import ROOT

pytestmark = pytest.mark.slow


def test_faults_under_load(tmp_path: Path) -> None:
    """No confirmed message is lost, nothing hangs, all nodes agree (reliability §5.3)."""
    kinds = ("kill", "isolate", "stop-app")
    network = ProxyNetwork()
    episode = Episode(tmp_path, network, "short", kinds)
    try:
        outcome = asyncio.run(episode.run(0, scale=0.3, calm_s=0.5, load=0.4, settle_s=0))
    finally:
        episode.close()
        network.close()
    assert not outcome.count.problems, "\n".join(outcome.count.problems)
    assert outcome.count.confirmed > 100
    assert len(outcome.rows) == len(kinds)


@pytest.mark.skipif(
    os.geteuid() != 0 or not has_namespaces(), reason="network namespaces cannot be made here"
)
def test_faults_in_namespaces() -> None:
    """The faults of clusters run in namespaces too, with links that the kernel cuts."""
    command = [sys.executable, "-m", "tests.chaos.cluster_faults", "--network", "namespaces"]
    command += ["--rounds", "1", "--kinds", "pair-reset", "--scale", "0.3", "--load", "0.4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- the instruments themselves ---


def test_every_kind_comes_before_any_comes_again() -> None:
    kinds = all_kinds()
    dealt = deck("1", 2 * len(kinds), kinds)
    assert sorted(dealt[: len(kinds)]) == sorted(dealt[len(kinds) :]) == sorted(kinds)
    assert dealt == deck("1", 2 * len(kinds), kinds)


def test_the_longest_gap() -> None:
    assert gap_in([0.5, 1.5, 2.0], 1.0, 4.0) == 2.0
    assert gap_in([], 1.0, 4.0) == 3.0
    ledger = Ledger()
    times = {(0, 1): [1.0, 2.0, 3.0], (1, 2): [], (1, 1): [1.5, 3.0]}
    assert ledger.longest_gap(times, {2}, 1.0, 3.0) == 1.5
