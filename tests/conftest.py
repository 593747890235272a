"""For all tests: fresh seeds that are told and kept, and the gates (tests/gates.py).

`--gate fast` leaves the tests of that gate, and holds them to what they promise: no sleeping, sockets or processes.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import gates, seeds
from tests.watch import Watch

watch = Watch()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gate", choices=tuple(gates.LANES), help="only the tests of this gate")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Examples of Hypothesis follow from the number of this run, too; in CI they are always the same ones."""
    if getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(seeds.BASE)
    if not os.environ.get("CI"):  # where Hypothesis does so by itself
        settings.register_profile("busy machine", deadline=None)
        settings.load_profile("busy machine")
    seeds.keep()
    if config.option.gate == "fast":
        watch.begin()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of the gate that is asked for."""
    if config.option.gate is None:
        return
    others = [item for item in items if _gate_of(item) != config.option.gate]
    items[:] = [item for item in items if _gate_of(item) == config.option.gate]
    config.hook.pytest_deselected(items=others)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    watch.look_at(may=item.nodeid.startswith(gates.SMOKE))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Fail a test of the fast gate that does what only the others may."""
    result = yield
    assert not watch.seen, f"mark this test `real`: {', '.join(sorted(watch.seen))}"
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"fresh seeds of this run: FLUFFLE_SEED={seeds.BASE}")


def _gate_of(item: pytest.Item) -> gates.Gate:
    return gates.gate_of(item.nodeid.partition("::")[0], {marker.name for marker in item.iter_markers()})
