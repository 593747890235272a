"""The Makefile installs a node for those who try the broker, and all that tests need for those who work on it."""

import shutil
import subprocess

import pytest

from tests.kit.server_process import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def done_for(target: str) -> list[str]:
    """The commands for a target when nothing is installed yet."""
    told = subprocess.run(
        ["make", "--dry-run", "--what-if=pyproject.toml", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in told.stdout.splitlines() if " pip install " in line and "--editable" in line]


@pytest.mark.parametrize("target", ["up", "run"])
def test_who_tries_the_broker_gets_the_node_and_nothing_else(target: str) -> None:
    [command] = done_for(target)
    assert command.endswith(" --editable .")


def test_who_works_on_it_gets_all_that_tests_need() -> None:
    [command] = done_for("setup")
    assert command.endswith(" --editable '.[dev]'")
