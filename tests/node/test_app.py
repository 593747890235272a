"""The composition root: what a process is set to before its broker runs."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.amqp.methods import ExchangeDeclare, QueueBind
from node.app import GC_THRESHOLDS
from tests.kit.amqp_client import Connection
from tests.kit.fluffle_server import FluffleServer

LOOKED_AT_MAX = 50_000
"""Objects that Python's search for cycles may look at in one go: some 10 ms, for which nobody is served."""
KEPT = 1_200_000


@pytest.fixture
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("_thresholds")
def test_a_flood_that_stays_does_not_make_the_search_for_cycles_long() -> None:
    """A message for very many queues leaves a run in each: a million of them, made in a moment."""
    looked_at: list[int] = []

    def begun(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"]:
            looked_at.append(sum(len(gc.get_objects(young)) for young in range(info["generation"] + 1)))

    gc.callbacks.append(begun)
    try:
        kept = [[number] for number in range(KEPT)]
    finally:
        gc.callbacks.remove(begun)
    assert len(kept) == KEPT
    assert 0 < max(looked_at) <= LOOKED_AT_MAX


@pytest.mark.real
def test_a_plugin_stays_enabled_without_its_name_in_the_file(tmp_path: Path) -> None:
    """An exchange of its type is in the catalogue, so a node that starts needs it, whatever its file says."""
    server = FluffleServer({}, tmp_path, plugins=("rabbitmq_sharding", "rabbitmq_shovel"))
    try:
        channel = Connection(server).channel(1)
        channel.call(ExchangeDeclare, exchange="e", type="x-modulus-hash", durable=True)
        channel.declare("q", durable=True)
        channel.call(QueueBind, queue="q", exchange="e")
    finally:
        server.stop()
    (tmp_path / "enabled_plugins").unlink()
    server = FluffleServer({}, tmp_path)
    try:
        channel = Connection(server).channel(1)
        channel.publish("e", "k", b"m")
        assert channel.wait_get("q").body == b"m"
        channel.call(ExchangeDeclare, exchange="f", type="x-modulus-hash")
    finally:
        server.stop()
