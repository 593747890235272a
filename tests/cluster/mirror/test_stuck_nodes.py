"""A caretaker leaves nodes alone whose message disks are stuck, and forgives at once what is mended."""

from dataclasses import replace

from cluster.mirror.caretaker import Caretaker
from node.catalogue.mirrors.views import RingMember, TransferMaster, created
from tests.cluster.mirror.caretaker_world import ALL, World, member, queue


def _mirror(world: World) -> RingMember:
    return next(each for each in world.view().ring if each.node == "b")


def _stuck(world: World, *nodes_: str) -> None:
    for caretaker in world.caretakers.values():
        caretaker.disks_changed(frozenset(nodes_))


def test_a_node_whose_disk_is_stuck_gets_no_mirror_until_it_goes_on() -> None:
    """However long that is; and then at once, whatever back-off there was."""
    world = World()
    world.set_policy(ALL)
    world.add(queue(), "bc")
    world.run(1)
    for _ in range(4):  # the back-off is as long as 80 s now
        world.caretakers["a"].evict("uid-q", _mirror(world), world.now)
        world.run(82)
        assert world.shape() == "A|BC"
    world.caretakers["a"].evict("uid-q", _mirror(world), world.now)
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
    caretaker = Caretaker("a")
    caretaker.members_changed([member("a"), member("b")])
    view = created(0, [("a", 1), ("b", 1)])
    caretaker.see(replace(queue(), view=view), ALL)
    caretaker.disks_changed(frozenset("b"))
    caretaker.stop()
    assert caretaker.look(0.0) == []
    caretaker.disks_changed(frozenset())
    assert [each.change for each in caretaker.look(1.0)] == [TransferMaster(1, 2)]


def test_a_link_that_is_back_ends_the_back_off() -> None:
    world = World()
    world.set_policy(ALL)
    world.add(queue(), "bc")
    world.run(1)
    for back_off_s in (10, 20, 40):
        world.caretakers["a"].evict("uid-q", _mirror(world), world.now)
        world.run(back_off_s + 2)
    world.caretakers["a"].evict("uid-q", _mirror(world), world.now)
    world.run(5)
    assert world.shape() == "A|C"
    world.caretakers["a"].healed("b")
    world.run(2)
    assert world.shape() == "A|BC"
