"""Queues in order, kept between requests."""

import asyncio

import pytest

from node.catalogue.commands import DeclareQueue, DeleteQueue, PutVhost
from node.management import queues_by_name as module
from node.management.queues_by_name import queues_by_name
from tests.kit.world import World


@pytest.fixture
def world() -> World:
    made = World()
    for name in ("b", "c", "a"):
        declare(made, name)
    return made


def declare(world: World, name: str, vhost: str = "/") -> None:
    world.submit(DeclareQueue(vhost, name, f"{vhost}{name}".ljust(32, "0")))


def names(world: World, *vhosts: str) -> list[str]:
    found = asyncio.run(queues_by_name(world.broker.catalogue, vhosts))
    return [f"{queue.vhost}{queue.name}" for queue in found]


def test_sorted_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(world, "/") == ["/a", "/b", "/c"]
    monkeypatch.setattr(module, "ordered", None)
    assert names(world, "/") == ["/a", "/b", "/c"]


def test_what_comes_and_goes_is_seen(world: World) -> None:
    assert names(world, "/") == ["/a", "/b", "/c"]
    declare(world, "aa")
    world.submit(DeleteQueue("/", "c"))
    assert names(world, "/") == ["/a", "/aa", "/b"]


def test_vhosts_one_behind_the_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.submit(PutVhost("v"))
    declare(world, "a", "v")
    assert names(world, "/", "v") == ["/a", "/b", "/c", "va"]
    monkeypatch.setattr(module, "VHOSTS_MAX", 1)
    assert names(world, "v", "/") == ["va", "/a", "/b", "/c"]
    assert names(world, "nope") == []
