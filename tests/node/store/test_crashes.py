"""No crash loses what was called safe, and nothing comes back that was not there: many random histories.

FLUFFLE_CRASHES=5000 pytest -s tests/node/store/test_crashes.py          so many histories
FLUFFLE_CRASHES=seed:123 pytest -s tests/node/store/test_crashes.py      history 123 only
"""

import os
from collections.abc import Callable
from traceback import format_exc

from tests.node.store.store_world import World

HISTORIES = 150
"""About ten seconds."""

TURNS = 40
FAILURES_SHOWN_MAX = 5


def _seeds() -> range:
    wanted = os.environ.get("FLUFFLE_CRASHES", str(HISTORIES))
    if wanted.startswith("seed:"):
        seed = int(wanted.removeprefix("seed:"))
        return range(seed, seed + 1)
    return range(int(wanted))


def test_histories() -> None:
    """After each start, every message that was safe is there, once, in order, as it was; and nothing that must not."""
    _tell_all(lambda world: world.run(TURNS))


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

    _tell_all(history)


def _tell_all(tell: Callable[[World], None]) -> None:
    crashes = messages = 0
    failures: list[str] = []
    for seed in _seeds():
        world = World(seed)
        try:
            tell(world)
        except Exception:  # noqa: BLE001 - each history stands for itself
            failures.append(f"FLUFFLE_CRASHES=seed:{seed} pytest -s {__file__}\n{format_exc()}")
            if len(failures) == FAILURES_SHOWN_MAX:
                break
        crashes += world.crashes
        messages += world.messages
    print(f"\n{crashes} crashes, {messages} messages, {len(failures)} histories with something wrong")
    assert not failures, "\n".join(failures)
