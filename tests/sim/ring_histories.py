"""Histories that seeds come upon too seldom: each is right, and each is wrong with the bug that it is named after.

Source: reliability §4.7.
"""

from collections.abc import Callable

from node.broker.views import ActivateMirror, AddMirror, DropMirror, EraseMirror, TookOver, TransferMaster
from tests.sim.ring_checks import Violation
from tests.sim.ring_mirror import Leader
from tests.sim.ring_plan import Plan, Stats
from tests.sim.ring_world import World


def _world(copies: int = 3, nodes: int = 3, **plan: object) -> World:
    """Some of the nodes have a copy; node n1 is the master, its member has id 1, n2's 2, n3's 3."""
    world = _new_world(copies, nodes, **plan)
    world.run(50.0)
    return world


def _new_world(copies: int = 3, nodes: int = 3, **plan: object) -> World:
    names = [f"n{number}" for number in range(1, nodes + 1)]
    return World(0, Plan(names, copies, keeps_copies=False, **plan), Stats())  # type: ignore[arg-type]


def _leader(world: World, name: str) -> Leader | None:
    group = world.processes[name].group
    return None if group is None else group.leader


def _publish(world: World, name: str, count: int = 1) -> None:
    process = world.processes[name]
    process.front.publish(count, True)
    process.end_turn()


def _finish(world: World, master: str) -> None:
    """All is mended; the queue goes on, and all copies are the same."""
    world.is_over = True
    for way in list(world.stuck):
        world.mend(way)
    _publish(world, master)
    world.run(world.now + 1500.0)
    if _leader(world, master) is None:
        raise Violation(f"I11: {master} does not act")
    world.checks.at_rest()


def handed_over_before_it_began() -> None:
    """A master whose copy is still being made a queue hands over, by a proposal that comes late."""
    world = _world(fill=(30.0, 30.0))
    world.change(TransferMaster(1, 2))
    world.run(world.now + 100.0)
    assert _leader(world, "n2") is not None
    world.crash("n2", power_loss=False)
    world.run(world.now + 500.0, lambda: world.view.master == 1)
    world.change(TransferMaster(1, 3))
    world.run(world.now + 20.0)
    assert world.view.master == 3
    assert _leader(world, "n1") is None
    _finish(world, "n3")


def master_again_before_it_began() -> None:
    """The same, and whom it handed over to dies: it is master again."""
    world = _world(fill=(100.0, 100.0))
    world.crash("n1", power_loss=False)
    world.run(world.now + 500.0, lambda: world.view.master == 2)
    world.run(world.now + 10.0)
    world.change(TransferMaster(2, 3))
    world.crash("n3", power_loss=False)
    world.run(world.now + 80.0, lambda: world.view.master == 2)
    assert world.view.master == 2
    assert _leader(world, "n2") is None
    _finish(world, "n2")


def took_over_in_an_earlier_mastership() -> None:
    """n2 has taken over from n1, and says so again, which comes when it waits for n1 once more."""
    world = _world()
    world.change(TransferMaster(1, 2))
    late = TookOver(world.view.since)
    world.run(world.now + 50.0)
    world.change(TransferMaster(2, 1))
    world.run(world.now + 50.0)
    world.pause(world.processes["n1"])
    world.change(TransferMaster(1, 2))
    world.change(late)
    world.run(world.now + 20.0)
    world.resume(world.processes["n1"])
    _finish(world, "n2")


def _without(world: World, late: str, *dead: str) -> None:
    """A node counts as up and begins when others are dead."""
    process = world.processes[late]
    process.is_booted = True  # so that it doesn't when its time comes
    world.run(50.0)
    for name in dead:
        world.crash(name, power_loss=False)
    world.run(world.now + 100.0)
    process.is_booted = False
    world.resume(process, is_boot=True)


def began_late_beside_a_new_neighbour() -> None:
    """A master begins when its right neighbour is dead; the next one waits for what it has to tell: nothing."""
    world = _new_world()
    _without(world, "n1", "n2")
    _finish(world, "n1")


def began_late_and_alone() -> None:
    """A mirror begins when both others are dead, and has nobody to hear from what they said, which is nothing."""
    world = _new_world()
    _without(world, "n3", "n1", "n2")
    _finish(world, "n3")


def handed_over_twice_at_once() -> None:
    """n1 hands over to n2, and n2 to n3 before n3 has heard what n1 said; then n2 dies, and nobody answers for n1."""
    world = _world(link=(0.5, 0.6))
    world.cut("n2", "n3")
    _publish(world, "n1", 3)
    world.run(world.now + 5.0)
    world.change(TransferMaster(1, 2))
    world.run(world.now + 60.0)
    world.change(TransferMaster(2, 3))
    world.run(world.now + 60.0)
    world.cut("n1", "n3")
    world.crash("n2", power_loss=False)
    world.run(world.now + 200.0)
    world.mend(("n1", "n3"))
    world.run(world.now + 200.0)
    master = world.view.master_node
    assert master is not None
    _finish(world, master)


def dropped_in_a_flush() -> None:
    """A master has a mirror dropped, and dies before that is heard."""
    world = _world()
    master = world.processes["n1"].key
    world.crash("n1", power_loss=False)
    world.node_down(master)
    world.change(DropMirror(2))
    world.run(world.now + 200.0)
    _finish(world, "n2")


def confirmed_before_it_counted() -> None:
    """A mirror lacks nothing and waits for its disk: from then on nothing is confirmed without it."""
    world = _world(2)
    disk = world.disks["n3"]
    _publish(world, "n1", 2)
    world.run(world.now + 50.0)
    disk.is_stuck = True
    world.change(AddMirror("n3", world.up["n3"]))
    world.run(world.now + 50.0)
    process = world.processes["n3"]
    group = process.group
    assert group is not None
    assert group.follower is not None
    assert group.follower.owed == {}
    written = disk.written
    _publish(world, "n1")
    world.run(world.now + 50.0)
    disk.sync(written)
    group.on_synced()
    process.end_turn()
    world.run(world.now + 50.0)
    world.free_disk(disk)
    _finish(world, "n1")


def lost_and_sent_again() -> None:
    """A mirror is promoted that knows of a publish and lacks it; the publish is sent again."""
    world = _world(1, may_lose=True, is_survivable=False, syncs_by_itself=False)
    world.disks["n1"].is_stuck = True
    _publish(world, "n3")
    world.run(world.now + 20.0)
    world.change(AddMirror("n2", world.up["n2"]))
    world.run(world.now + 50.0)
    world.crash("n1", power_loss=True)
    world.run(world.now + 300.0)
    _finish(world, "n2")


def removed_before_it_came() -> None:
    """What a synchronisation brings has been removed in between."""
    world = _world(2, chunk=2, eager_acks=0.0)
    world.processes["n1"].front.consume()
    _publish(world, "n1", 4)
    world.run(world.now + 50.0)
    world.cut("n1", "n3")
    world.change(AddMirror("n3", world.up["n3"]))
    world.run(world.now + 50.0)
    process = world.processes["n1"]
    process.front.settle(2, is_ack=True)
    process.end_turn()
    world.run(world.now + 50.0)
    _finish(world, "n1")


def handed_over_and_back() -> None:
    """n4 hands over to n1, whose right neighbour n2 lacks both words, and dies: n3 hears them in their order."""
    world = _world(4, 4, link=(0.5, 0.6))
    _hand_over(world, 1, 4)
    world.cut("n2", "n3")
    _hand_over(world, 4, 1)
    _publish(world, "n1")
    world.run(world.now + 20.0)
    world.crash("n2", power_loss=False)
    world.run(world.now + 80.0)
    _finish(world, "n1")


def stable_in_a_flush() -> None:
    """n1 has handed over and stays alone: what was said to nobody else is not stable while the queue has no master."""
    world = _world(3, 4, lost_proposals=1.0, syncs_by_itself=False)
    _publish(world, "n1")
    world.change(AddMirror("n4", world.up["n4"]))
    joined = world.view.version
    world.run(world.now + 20.0)
    world.change(ActivateMirror(joined))
    world.cut("n2", "n3")
    world.run(world.now + 20.0)
    _publish(world, "n1")
    world.change(TransferMaster(1, 2))
    world.run(world.now + 30.0)
    for name in ("n2", "n3", "n4"):
        world.crash(name, power_loss=False)
    world.run(world.now + 100.0)
    for dead in (2, 3, joined):
        world.change(EraseMirror(dead, 1))
        world.run(world.now + 30.0)
    _finish(world, "n1")


def a_joiner_on_the_left() -> None:
    """Who has been parted from its left neighbour doesn't count as knowing less than a joiner that knows nothing."""
    world = _world(3, 4)
    _hand_over(world, 1, 2)
    _hand_over(world, 2, 1)
    world.cut("n3", "n4")
    world.change(AddMirror("n4", world.up["n4"]))
    world.run(world.now + 30.0)
    world.checks.prefixes()
    _finish(world, "n1")


def _hand_over(world: World, master: int, to: int) -> None:
    """All know of it at the end."""
    world.change(TransferMaster(master, to))
    world.run(world.now + 60.0)


def _unacknowledged(world: World) -> None:
    """n3 has handed over to n1. Its last word has come to all; n2 alone doesn't know that."""
    _hand_over(world, 1, 3)
    world.change(TransferMaster(3, 1))
    world.run(world.now + 20.0, lambda: _leader(world, "n1") is not None)
    world.cut("n1", "n2")
    world.run(world.now + 40.0)
    assert not world.view.previous
    group = world.processes["n2"].group
    assert group is not None
    assert group.member.origins[3].pending


def added_beside_the_dead() -> None:
    """A mirror is added where somebody died whose last word is still going round."""
    world = _world(3, 4, link=(0.5, 0.6))
    _unacknowledged(world)
    world.crash("n3", power_loss=False)
    world.run(world.now + 80.0)
    world.change(AddMirror("n4", world.up["n4"]))
    world.run(world.now + 60.0)
    _finish(world, "n1")


def died_while_another_one_joined() -> None:
    """A mirror is joining when its left neighbour dies, whose last word is still going round."""
    world = _world(3, 4, link=(0.5, 0.6), lease=1000.0)
    _unacknowledged(world)
    world.pause(world.processes["n4"])
    world.change(AddMirror("n4", world.up["n4"]))
    world.run(world.now + 20.0)
    world.crash("n3", power_loss=False)
    world.run(world.now + 80.0)
    world.resume(world.processes["n4"])
    world.run(world.now + 60.0)
    _finish(world, "n1")


HISTORIES: dict[str, Callable[[], None]] = {
    "no word unbegun": handed_over_before_it_began,
    "drop while flushing": dropped_in_a_flush,
    "counts late": confirmed_before_it_counted,
    "lossy table": lost_and_sent_again,
    "mirror takes all": removed_before_it_came,
    "took over early": handed_over_twice_at_once,
    "took over late": took_over_in_an_earlier_mastership,
    "not taken up again": master_again_before_it_began,
    "begins silently": began_late_beside_a_new_neighbour,
    "late and alone": began_late_and_alone,
    "by origin": handed_over_and_back,
    "confirm flushing": stable_in_a_flush,
    "no edges": a_joiner_on_the_left,
    "hear all": a_joiner_on_the_left,
    "newcomer before owner": added_beside_the_dead,
    "keep joining": died_while_another_one_joined,
}
