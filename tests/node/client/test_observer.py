"""Several observers are told of each event in turn."""

from node.client.observer import Observer, Observers
from tests.kit.world import Diary, World


def test_several_are_told_in_turn() -> None:
    first, second = Diary(), Diary()
    world = World()
    world.broker.observer = Observers(first, Observer(), second)
    world.client().lose()
    assert first.entries == second.entries == ["accepted", "opened", "closed abruptly"]


def test_every_hook_is_passed_on() -> None:
    told: list[str] = []
    hooks = [name for name in vars(Observer) if not name.startswith("_")]
    listener = Observer()
    for name in hooks:
        setattr(listener, name, lambda *what, name=name, **named: told.append(name))
    observers = Observers(listener)
    for name in hooks:
        getattr(observers, name)()
    assert told == hooks
