"""The broker as operators and the cluster want it: with a broker that is nothing but a mark."""

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from node.app import Node
from node.clustering.errors import GivenUp
from node.process import supervisor
from node.process.supervisor import Supervisor


class Ring:
    """A ring refers to itself, as brokers do."""

    def __init__(self) -> None:
        self.itself = self


class Script:
    """Starts and stops nodes for a supervisor, and records what became of them."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.failures: list[Exception] = []
        self.waits: asyncio.Event | None = None
        self.is_disk_hung = False
        self.lives_lost = 0
        self.was_over: list[bool] = []
        self.supervisor = Supervisor(self.begin, self.end, logging.getLogger("test"), self.fault)

    async def begin(self) -> Node | None:
        self.said.append("begin")
        self.was_over.append(self.supervisor.is_over)
        if self.lives_lost:
            self.lives_lost -= 1
            self.supervisor.restart()
            return None
        if self.failures:
            raise self.failures.pop(0)
        if self.waits is not None:
            stop = asyncio.ensure_future(self.supervisor.is_giving_up.wait())
            go = asyncio.ensure_future(self.waits.wait())
            await asyncio.wait((stop, go), return_when=asyncio.FIRST_COMPLETED)
            if not go.done():
                self.said.append("given up")
                raise GivenUp
        return cast(Node, Ring())

    async def end(self, node: Node) -> bool:
        self.said.append("end")
        return not self.is_disk_hung

    def fault(self) -> None:
        self.said.append("fault")

    async def settled(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


def play(story: Callable[[Script, Supervisor], Awaitable[Any]]) -> list[str]:
    async def main() -> list[str]:
        script = Script()
        await story(script, script.supervisor)
        await script.supervisor.close()
        return script.said

    return asyncio.run(main())


def test_who_is_declared_down_while_it_starts_begins_another_broker_that_may_serve() -> None:
    """The cluster lets nobody serve who is over, so the second one would wait for ever."""

    async def story(script: Script, supervisor: Supervisor) -> None:
        script.lives_lost = 2
        await supervisor.start()
        assert supervisor.node is not None
        assert not supervisor.is_over
        assert script.was_over == [False, False, False]

    assert play(story) == ["begin", "begin", "begin", "end"]


def test_who_was_held_begins_anew_even_if_let_go_at_once() -> None:
    """A broker that was held begins anew: its clients were sent away, and its listeners closed."""

    async def story(script: Script, supervisor: Supervisor) -> None:
        await supervisor.start()
        supervisor.hold()
        supervisor.release()
        await script.settled()
        assert supervisor.node is not None

    assert play(story) == ["begin", "end", "begin", "end"]


def test_nothing_is_left_of_a_broker_that_has_ended() -> None:
    """A node that pauses again and again would hold all its former brokers until Python looks for cycles."""

    async def story(script: Script, supervisor: Supervisor) -> None:
        await supervisor.start()
        former = weakref.ref(cast(Ring, supervisor.node))
        supervisor.hold()
        supervisor.release()
        await script.settled()
        assert supervisor.node is not None
        assert former() is None

    assert play(story) == ["begin", "end", "begin", "end"]


def test_start_and_stop_as_often_as_one_likes() -> None:
    async def story(script: Script, supervisor: Supervisor) -> None:
        await supervisor.start()
        await supervisor.start()
        assert supervisor.node is not None
        assert await supervisor.stop()
        await supervisor.stop()
        assert supervisor.node is None
        await supervisor.start()

    assert play(story) == ["begin", "end", "begin", "end"]


def test_the_cluster_holds_it_and_lets_it_run_again() -> None:
    async def story(script: Script, supervisor: Supervisor) -> None:
        await supervisor.start()
        supervisor.hold()
        await script.settled()
        assert supervisor.node is None
        await supervisor.start()
        assert supervisor.node is None
        supervisor.release()
        await script.settled()
        assert supervisor.node is not None

    assert play(story) == ["begin", "end", "begin", "end"]


def test_held_and_stopped_it_does_not_run_when_it_is_released() -> None:
    async def story(script: Script, supervisor: Supervisor) -> None:
        await supervisor.start()
        supervisor.hold()
        await script.settled()
        await supervisor.stop()
        supervisor.release()
        await script.settled()

    assert play(story) == ["begin", "end"]


def test_a_restart_is_one_restart() -> None:
    async def story(script: Script, supervisor: Supervisor) -> None:
        await supervisor.start()
        supervisor.restart()
        supervisor.restart()
        await script.settled()
        assert supervisor.node is not None

    assert play(story) == ["begin", "end", "begin", "end"]


def test_after_a_broker_whose_disk_hangs_none_is_begun() -> None:
    """A broker whose disk hangs has the files until the process ends, so no other is begun."""

    async def story(script: Script, supervisor: Supervisor) -> None:
        await supervisor.start()
        script.is_disk_hung = True
        supervisor.restart()
        await script.settled()
        assert not supervisor.is_written

    assert play(story) == ["begin", "end", "fault"]


def test_a_start_that_waits_is_ended_by_a_stop() -> None:
    async def story(script: Script, supervisor: Supervisor) -> None:
        script.waits = asyncio.Event()
        starting = asyncio.create_task(supervisor.start())
        await script.settled()
        assert supervisor.is_booting
        await supervisor.stop()
        with pytest.raises(GivenUp):
            await starting
        script.waits.set()
        await supervisor.start()
        assert supervisor.node is not None

    assert play(story) == ["begin", "given up", "begin", "end"]


def test_a_start_that_fails_is_told_to_the_operator_and_not_tried_again() -> None:
    async def story(script: Script, supervisor: Supervisor) -> None:
        script.failures = [OSError("the port is in use")]
        with pytest.raises(OSError, match="in use"):
            await supervisor.start()
        await script.settled()
        assert not supervisor.is_wanted

    assert play(story) == ["begin"]


def test_a_restart_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RETRY_S", 0)

    async def story(script: Script, supervisor: Supervisor) -> None:
        await supervisor.start()
        script.failures = [OSError("the port is in use")] * 2
        supervisor.restart()
        await script.settled()
        assert supervisor.node is not None

    assert play(story) == ["begin", "end", "begin", "begin", "begin", "end"]


def test_who_waits_for_the_start_is_told() -> None:
    async def story(script: Script, supervisor: Supervisor) -> None:
        waiting = asyncio.create_task(supervisor.await_start())
        await script.settled()
        assert not waiting.done()
        await supervisor.start()
        await waiting
        await supervisor.stop()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(supervisor.await_start(), 0.01)

    assert play(story) == ["begin", "end"]
