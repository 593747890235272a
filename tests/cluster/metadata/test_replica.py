"""Members of a Raft group, in memory and in virtual time."""

from node.broker.commands import Refused
from tests.sim.raft_world import World, parameter


def _group(*names: str, observers: tuple[str, ...] = (), seed: int = 1) -> World:
    world = World(seed, names, observers)
    world.form(names[0])
    assert world.run(5, lambda: world.up[names[0]].incarnation > 0)
    for name in (*names[1:], *observers):
        world.admit(name, names[0])
    assert world.run(20, world.is_settled), [
        (p.name, p.incarnation, p.is_joining, p.replica.applied_index, p.replica.leader)
        for p in world.up.values()
    ]
    return world


def test_a_group_of_one_answers_when_it_is_synced() -> None:
    world = _group("a")
    answers = world.submit("a", parameter(1))
    assert world.run(1, lambda: bool(answers))
    assert answers == [True]
    assert not world.up["a"].disk.jobs  # type: ignore[union-attr]


def test_three_members_agree() -> None:
    world = _group("a", "b", "c")
    for number, name in enumerate("abc"):
        answers = world.submit(name, parameter(number))
        begun = world.now
        assert world.run(1, lambda: bool(answers))  # noqa: B023
        assert answers == [True]
        assert world.now - begun < 0.05
    world.run(1)
    world.checks.at_rest()
    assert world.up["a"].replica.voters == {"a", "b", "c"}


def test_without_a_majority_commands_are_refused_at_once() -> None:
    world = _group("a", "b", "c")
    world.stop("b")
    world.stop("c")
    world.run(1)
    answers = world.submit("a", parameter(1))
    (refused,) = answers
    assert isinstance(refused, Refused)
    assert refused.text == "the cluster has no majority of its disk nodes: metadata cannot be changed"
