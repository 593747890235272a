"""A policy reconciler leaves nodes alone whose message disks are stuck, and forgives at once what is mended."""

from dataclasses import replace

from cluster.mirror.policy_reconciler import PolicyReconciler
from node.catalogue.mirrors.views import RingMember, TransferMaster, created
from tests.cluster.mirror.reconciler_world import ALL, World, member, queue


def _mirror(world: World) -> RingMember:
    return next(each for each in world.view().ring if each.node == "b")


def _stuck(world: World, *nodes_: str) -> None:
    for reconciler in world.reconcilers.values():
        reconciler.disks_changed(frozenset(nodes_))


def test_a_node_whose_disk_is_stuck_gets_no_mirror_until_it_goes_on() -> None:
    """However long that is; and then at once, whatever back-off there was."""
    world = World()
    world.set_policy(ALL)
    world.add(queue(), "bc")
    world.run(1)
    for _ in range(4):  # the back-off is as long as 80 s now
        world.reconcilers["a"].evict("uid-q", _mirror(world), world.now)
        world.run(82)
        assert world.shape() == "A|BC"
    world.reconcilers["a"].evict("uid-q", _mirror(world), world.now)
    _stuck(world, "b")
    world.run(400)
    assert world.shape() == "A|C"
    _stuck(world)
    world.run(2)
    assert world.shape() == "A|BC"


def test_masters_leave_a_node_whose_disk_is_stuck() -> None:
    world = World()
    world.set_policy(ALL)
    world.add(queue(), "bc")
    world.run(1)
    _stuck(world, "a")
    world.run(2)
    assert world.view().master_node != "a"


def test_a_stuck_disk_gets_no_masters() -> None:
    reconciler = PolicyReconciler("a")
    reconciler.members_changed([member("a"), member("b")])
    view = created(0, [("a", 1), ("b", 1)])
    reconciler.see(replace(queue(), view=view), ALL)
    reconciler.disks_changed(frozenset("b"))
    reconciler.stop()
    assert reconciler.look(0.0) == []
    reconciler.disks_changed(frozenset())
    assert [each.change for each in reconciler.look(1.0)] == [TransferMaster(1, 2)]


def test_a_link_that_is_back_ends_the_back_off() -> None:
    world = World()
    world.set_policy(ALL)
    world.add(queue(), "bc")
    world.run(1)
    for back_off_s in (10, 20, 40):
        world.reconcilers["a"].evict("uid-q", _mirror(world), world.now)
        world.run(back_off_s + 2)
    world.reconcilers["a"].evict("uid-q", _mirror(world), world.now)
    world.run(5)
    assert world.shape() == "A|C"
    world.reconcilers["a"].healed("b")
    world.run(2)
    assert world.shape() == "A|BC"
