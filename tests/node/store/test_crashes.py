"""No crash loses what was called safe, and nothing comes back that was not there: many random histories.

Told by the environment which ones:
    FLUFFLE_CRASHES=5000        the first 5000 histories of each kind
    FLUFFLE_CRASHES=5000-9000   others
    FLUFFLE_CRASHES=seed:123    history 123, for instance one that went wrong
"""

import os
from collections.abc import Callable
from contextlib import nullcontext
from traceback import format_exc

import pytest

from tests.node.store.store_world import World, small_parts

HISTORIES = 250
DAMAGED_HISTORIES = 50
"""Together about ten seconds."""

TURNS = 40
FAILURES_SHOWN_MAX = 5


@pytest.mark.slow
def test_histories() -> None:
    """After each start, every message that was safe is there, once, in order, as it was; and nothing that must not."""
    _tell_all(HISTORIES, lambda world: world.run(TURNS))


@pytest.mark.slow
def test_damage() -> None:
    """A damaged file costs nothing but what it spoke of, and the node goes on."""

    def history(world: World) -> None:
        for _ in range(3):
            for _ in range(TURNS // 4):
                if not world.store.is_broken:
                    world.turn()
            if not world.store.is_broken:
                world.damage()
        world.end()

    _tell_all(DAMAGED_HISTORIES, history)


def _tell_all(count: int, tell: Callable[[World], None]) -> None:
    """Tell histories, or those that the environment wants, and say which ones went wrong."""
    crashes = messages = safe = lost = 0
    failures: list[str] = []
    for seed in _seeds(count):
        world = World(seed)
        try:
            with small_parts() if seed % 2 else nullcontext():
                tell(world)
        except Exception:  # noqa: BLE001 - each history stands for itself
            failures.append(f"FLUFFLE_CRASHES=seed:{seed} pytest -s {__file__}\n{format_exc()}")
            if len(failures) == FAILURES_SHOWN_MAX:
                break
        crashes += world.crashes
        messages += world.messages
        safe += world.safe
        lost += world.lost
    print(f"\n{crashes:,} crashes, {messages:,} messages; safe ones looked for: {safe:,}, lost: {lost}")
    assert not failures, "\n".join(failures)


def _seeds(count: int) -> range:
    wanted = os.environ.get("FLUFFLE_CRASHES", str(count))
    if wanted.startswith("seed:"):
        seed = int(wanted.removeprefix("seed:"))
        return range(seed, seed + 1)
    first, _, behind = wanted.rpartition("-")
    return range(int(first or 0), int(behind))
