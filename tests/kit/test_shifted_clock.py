"""The time of day of a process is wrong by what a test says; its monotonic clock is right."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit.faulty_disk import NoCompiler
from tests.kit.shifted_clock import ShiftedClock

pytestmark = pytest.mark.slow

PROGRAM = """
import datetime, sys, time
for line in sys.stdin:
    print(time.time(), datetime.datetime.now(datetime.UTC).timestamp(), time.monotonic(), flush=True)
"""
NEAR_S = 60.0
"""The process may be slow to answer; errors of the clock are an hour and more."""


def test_the_time_of_day_is_wrong_and_the_monotonic_clock_right(tmp_path: Path) -> None:
    try:
        clock = ShiftedClock(tmp_path)
    except NoCompiler as error:
        pytest.skip(str(error))
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=clock.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for error_s in (0.0, 3600.0, -86_400.0, 0.0):
            clock.shift(error_s)
            process.stdin.write("\n")
            process.stdin.flush()
            told, other, monotonic = map(float, process.stdout.readline().split())
            assert abs(told - time.time() - error_s) < NEAR_S
            assert abs(other - time.time() - error_s) < NEAR_S
            assert abs(monotonic - time.monotonic()) < NEAR_S
        process.stdin.close()
