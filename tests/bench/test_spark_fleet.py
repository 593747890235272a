"""The cost of a command is that of all its processes."""

import pytest

from bench.spark_fleet import cost_of

pytestmark = [pytest.mark.real, pytest.mark.slow]

WORK = "sum(range(4 * 10**7))"


def test_a_command_that_computes() -> None:
    cost = cost_of("timeit", "-n", "1", "-r", "1", WORK)
    assert cost.code == 0
    assert cost.cpu_s > 0.1
    assert cost.memory_bytes > 5_000_000
    assert "1 loop" in cost.output


def test_a_command_whose_child_computes() -> None:
    child = f"subprocess.run([sys.executable, '-c', {WORK!r}])"
    cost = cost_of("timeit", "-n", "1", "-r", "1", "-s", "import subprocess, sys", child)
    assert cost.code == 0, cost.output
    assert cost.cpu_s > 0.1


def test_a_command_that_fails() -> None:
    cost = cost_of("no_such_module_of_ours")
    assert cost.code == 1
    assert "no_such_module_of_ours" in cost.output
