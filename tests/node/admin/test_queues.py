"""Queues deleted and purged without permissions (management §3.2)."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from node.admin import queues
from node.admin.admin import Admin, AdminError
from node.admin.queues import delete_queue, purge_queue
from node.amqp.methods import BasicConsume, QueueDeclare
from node.config.load import StartOptions, load_config
from node.queue.live_queue import Asked
from tests.kit.world import World


class NoFiles:
    def read(self, path: str) -> bytes | None:
        return None

    def expand(self, pattern: str) -> list[str]:
        return []

    def is_private(self, path: str) -> bool:
        return True

    def readable(self, path: str) -> bool:
        return True


@pytest.fixture
def world() -> World:
    made = World()
    client = made.client()
    client.ask(1, QueueDeclare(queue="q"))
    client.publish(1, "q", b"1", b"2")
    made.settle()
    return made


@pytest.fixture
def admin(world: World, tmp_path: Path) -> Admin:
    config = load_config(StartOptions("n", str(tmp_path)), {}, NoFiles(), hostname="localhost")
    return Admin(world.broker, config, logging.getLogger("test"), "ctl")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 10))


def refused(work: Coroutine[Any, Any, Any]) -> tuple[str, object]:
    with pytest.raises(AdminError) as caught:
        run(work)
    return caught.value.kind, caught.value.reason


def test_a_queue_is_deleted_with_its_messages(world: World, admin: Admin) -> None:
    assert run(delete_queue(admin, "/", "q")) == 2
    assert not world.queue_names


def test_a_queue_that_is_not_empty_can_be_spared(world: World, admin: Admin) -> None:
    reason = "queue 'q' in vhost '/' not empty"
    assert refused(delete_queue(admin, "/", "q", if_empty=True)) == ("invalid", reason)
    assert world.queue_names == {"q"}


def test_a_queue_that_is_used_can_be_spared(world: World, admin: Admin) -> None:
    world.client().send(1, BasicConsume(queue="q"))
    world.settle()
    reason = "queue 'q' in vhost '/' in use"
    assert refused(delete_queue(admin, "/", "q", if_unused=True)) == ("invalid", reason)


def test_a_queue_is_purged(world: World, admin: Admin) -> None:
    assert run(purge_queue(admin, "/", "q")) == 2
    assert run(purge_queue(admin, "/", "q")) == 0
    assert world.queue_names == {"q"}


def test_nothing_can_be_done_to_what_is_not_there(admin: Admin) -> None:
    assert refused(delete_queue(admin, "/", "nope")) == ("not_found", "no queue 'nope' in vhost '/'")
    assert refused(purge_queue(admin, "v", "q")) == ("not_found", ["no_such_vhost", "v"])


def test_a_queue_whose_node_is_down_is_out_of_reach(world: World, admin: Admin) -> None:
    del world.broker.vhosts["/"].queues["q"]
    kind, reason = refused(purge_queue(admin, "/", "q"))
    assert kind == "unavailable"
    assert "is down or inaccessible" in str(reason)


class Asking:
    """A queue that calls back later, or never."""

    def __init__(self, later: "Callable[[Callable[[Any], None]], None]") -> None:
        self._later = later
        self.is_closed = False

    def purge(self) -> Asked[int]:
        try:
            answer: int = yield self._later
            return answer
        finally:
            self.is_closed = True


@pytest.fixture
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "WAIT_S", 0.01)


def test_another_node_is_waited_for(world: World, admin: Admin) -> None:
    asking = Asking(lambda on_done: asyncio.get_running_loop().call_soon(on_done, 7) and None)
    world.broker.vhosts["/"].queues["q"] = asking  # type: ignore[assignment]
    assert run(purge_queue(admin, "/", "q")) == 7


@pytest.mark.usefixtures("_short_wait")
def test_the_wait_has_an_end(world: World, admin: Admin) -> None:
    asking = Asking(lambda on_done: None)
    world.broker.vhosts["/"].queues["q"] = asking  # type: ignore[assignment]
    assert refused(purge_queue(admin, "/", "q")) == ("unavailable", "no answer within 0.01 s")
    assert asking.is_closed
