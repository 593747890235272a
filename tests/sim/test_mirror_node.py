"""The lives of a simulated node: what one leaves behind changes nothing in the next.

Handlers of a killed broker wait for ever, and Python's collector closes them whenever it likes. If that reached the
broker which runs by then, a seed would say another thing each time.
"""

from typing import Any

import pytest

from tests.sim.mirror_world import MirrorWorld
from tests.sim.world import World


@pytest.mark.parametrize("kind", [MirrorWorld, World])
def test_a_killed_broker_wakes_no_later_one(kind: type[Any]) -> None:
    world = kind(1)
    for name in world.names:
        world.start(name)
    assert world.run_until(lambda: len(world.serving) == len(world.names), 30.0)
    node = world.nodes["n1"]
    killed = node.broker
    world.crash("n1", power=False)
    world.start("n1")
    assert world.run_until(lambda: len(world.serving) == len(world.names), 30.0)
    assert world.run_until(lambda: not node._is_turn_coming, 30.0)
    drawn = world.random.getstate()
    killed.wake()
    assert not node._is_turn_coming
    assert world.random.getstate() == drawn
    node.broker.wake()
    assert node._is_turn_coming
