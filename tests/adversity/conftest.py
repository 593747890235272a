"""Fixtures: a node of one's own for each attack."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tests.adversity.siege import Siege
from tests.kit.node_process import NodeProcess, TemporaryNode


@pytest.fixture
def start_node() -> Iterator[Callable[..., NodeProcess]]:
    """Start nodes with `NodeProcess`'s arguments. At the end each must still be there, and stop when it is asked to.

    A traceback in the log is a bug of ours, whatever the client did.
    """
    started: list[NodeProcess] = []

    def start(
        settings: Mapping[str, str] | None = None,
        *,
        file_limit: int | None = None,
        plugins: Sequence[str] = (),
    ) -> NodeProcess:
        started.append(TemporaryNode(settings, file_limit=file_limit, plugins=plugins))
        return started[-1]

    yield start
    codes = [node.stop() for node in started]
    for node, code in zip(started, codes, strict=True):
        log = node.log_text()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]
        assert code == 0, log[-4000:]


@pytest.fixture
def node(start_node: Callable[..., NodeProcess]) -> NodeProcess:
    """A node with default settings."""
    return start_node()


@pytest.fixture
def siege(node: NodeProcess) -> Callable[..., Siege]:
    """Begin an attack on `node`: `with siege(peak_mib=…):`."""

    def begin(**limits: float) -> Siege:
        return Siege(node, **limits)  # type: ignore[arg-type]

    return begin
