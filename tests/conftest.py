"""For all tests: fresh seeds that are told and kept, and a note of each failure for whoever may look once more."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import reruns, seeds


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Examples of Hypothesis follow from the number of this run, too; in CI they are always the same ones."""
    if getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(seeds.BASE)
    if not os.environ.get("CI"):  # where Hypothesis does so by itself
        settings.register_profile("busy machine", deadline=None)
        settings.load_profile("busy machine")
    seeds.keep()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"fresh seeds of this run: FLUFFLE_SEED={seeds.BASE}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    _note(report, is_spark=item.get_closest_marker("spark") is not None)
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note(report)


def pytest_sessionfinish(exitstatus: int) -> None:
    if path := os.environ.get(reruns.VARIABLE):
        reruns.note_end(path, int(exitstatus))


def _note(report: pytest.CollectReport | pytest.TestReport, *, is_spark: bool = False) -> None:
    path = os.environ.get(reruns.VARIABLE)
    if path and report.failed:
        reruns.note(path, reruns.Failure(report.nodeid, str(report.longrepr), is_spark=is_spark))
