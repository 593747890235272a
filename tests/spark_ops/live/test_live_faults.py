"""Faults of three live nodes are told by `health --follow` beside them: the right finding, node and severity.

The faults here are injected at the same time. `python -m tests.spark_ops.live` injects these and others one after the
other, at the default pace of telemetry, and prints the seconds until each was told; it takes half an hour.
"""

from pathlib import Path

import pytest

from spark_ops.jobs.engine import EngineError, packages
from tests.kit.faulty_disk import can_build
from tests.spark_ops.live import faults
from tests.spark_ops.live.site import QUICK, live_site

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_an_alarm_a_slow_disk_and_a_wrong_clock_are_told(tmp_path: Path) -> None:
    try:
        packages("pyarrow", "numpy")
    except EngineError as error:
        pytest.skip(str(error))
    if not can_build():
        pytest.skip("there is no gcc")
    with live_site(tmp_path, QUICK) as site:
        told = faults.told_of(site, faults.AT_ONCE)
    for each in told:
        print(f"{each.seconds:5.0f} s  {each.finding['id']}")
