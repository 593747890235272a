"""For all tests: fresh seeds that are told and kept, and the fast gate (tests/gates.py).

`--fast` leaves the tests of the fast gate, and holds them to what they promise: no sleeping, sockets or processes.
"""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import gates
from tests.kit import seeds
from tests.watch import Watch

watch = Watch()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only the tests of the fast gate")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Examples of Hypothesis follow from the number of this run, too; in CI they are always the same ones."""
    if getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(seeds.BASE)
    if not os.environ.get("CI"):  # where Hypothesis does so by itself
        settings.register_profile("busy machine", deadline=None)
        settings.load_profile("busy machine")
    seeds.keep()
    if config.option.fast:
        watch.begin()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of the fast gate, if that is asked for."""
    if config.option.fast:
        config.hook.pytest_deselected(items=[item for item in items if not _is_fast(item)])
        items[:] = filter(_is_fast, items)


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over modules and collected tests, which stay: thousands in the larger lanes."""
    gc.collect()
    gc.freeze()


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


def _is_fast(item: pytest.Item) -> bool:
    return gates.is_fast(item.nodeid.partition("::")[0], {marker.name for marker in item.iter_markers()})
