"""A life begins once the cluster has answered; what cannot be known is asked for again, so and so often."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import pytest

from cluster.membership.membership import Membership, State
from cluster.membership.options import MembershipOptions
from cluster.metadata.raft_log import NO_MAJORITY, NO_OUTCOME, REPLACED
from node.catalogue.commands import Command, NodeUp, Refused, SetDraining
from node.catalogue.events import MemberDown
from node.catalogue.records import ClusterMember
from node.catalogue.replicated_log import NOT_WRITTEN
from node.clustering import life as life_module
from node.clustering.cluster import Cluster
from node.clustering.errors import GivenUp
from node.clustering.life import OUTCOMES_MAX, Life


class FakeCluster:
    """Answers what is submitted, in turn: `barriers` those that change nothing, `incarnations` those that come up."""

    def __init__(self) -> None:
        self.name, self.address = "n1@localhost", "localhost:1"
        self.identity = self.roster = self.links = self.turn = self.peers = self
        self.incarnation = 0
        self.node_id, self.type = "id-n1", "disc"
        self.metadata = self.log = self.process = self.broker_supervisor = self.voting = self
        self.logger = logging.getLogger("test")
        self.members: dict[str, Any] = {}
        self.membership = Membership(self.name, MembershipOptions(lease_s=2.0, heartbeat_s=0.25))
        self.is_giving_up = asyncio.Event()
        self.barriers: list[object] = []
        self.incarnations: list[int | Refused] = []
        self.submitted: list[type[Command[Any]]] = []
        self.waits: list[str] = []
        self.life = Life(cast(Cluster, self))

    def submit(self, command: Command[Any], on_applied: Callable[[Any], None]) -> None:
        self.submitted.append(type(command))
        answers = self.incarnations if isinstance(command, NodeUp) else self.barriers
        if answers:
            on_applied(answers.pop(0))

    async def or_given_up(self, waiting: Any) -> Any:
        return await self.life.or_given_up(waiting)

    async def ensure(self) -> None:
        pass

    check_membership = ensure

    def is_at(self, incarnation: int) -> None:
        self.incarnation = incarnation

    def membership_changed(self) -> None:
        pass

    members_changed = membership_changed

    def majority_reasons(self) -> list[str]:
        return []

    def wait_is(self, what: str) -> None:
        self.waits.append(what)

    @property
    def raft(self) -> "FakeCluster":
        return self

    def entered(self, incarnation: int) -> None:
        self.life.may_serve.set()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for between two tries."""
    whole = life_module.Waiting
    monkeypatch.setattr(life_module, "Waiting", lambda cluster: whole(cluster, retry_s=0.0))


def run(scene: Callable[[FakeCluster], Coroutine[Any, Any, None]]) -> FakeCluster:
    async def main() -> FakeCluster:
        cluster = FakeCluster()
        await scene(cluster)
        return cluster

    return asyncio.run(main())


@pytest.mark.parametrize("unknown", [NO_OUTCOME, REPLACED])
def test_catching_up_goes_on_when_an_answer_is_unknown(unknown: Refused) -> None:
    """The command of catching up changes nothing, so it is submitted again after an unknown answer."""

    async def scene(cluster: FakeCluster) -> None:
        cluster.barriers = [unknown, unknown, True]
        await cluster.life.catch_up()

    cluster = run(scene)
    assert cluster.submitted == [SetDraining] * 3
    assert cluster.waits == [f"waits for the cluster to agree: {unknown.text}"] * 2


def test_catching_up_ends_when_answers_stay_unknown() -> None:
    async def scene(cluster: FakeCluster) -> None:
        cluster.barriers = [NO_OUTCOME] * (OUTCOMES_MAX + 5)
        with pytest.raises(OSError, match="did not agree on a change of metadata in time"):
            await cluster.life.catch_up()

    assert len(run(scene).submitted) == OUTCOMES_MAX + 1


def test_a_majority_is_waited_for_as_long_as_it_takes() -> None:
    async def scene(cluster: FakeCluster) -> None:
        cluster.barriers = [NO_MAJORITY] * (3 * OUTCOMES_MAX) + [True]
        await cluster.life.catch_up()

    assert not run(scene).barriers


def test_who_does_not_reach_a_node_that_is_up_waits_until_it_does() -> None:
    async def scene(cluster: FakeCluster) -> None:
        other = ClusterMember("n2@localhost", "localhost:2", "id-n2", "disc", 7, True)
        cluster.membership.members_changed({other.name: other}, 1.0)
        cluster.incarnations = [3]
        begun = asyncio.ensure_future(cluster.life.begin())
        while len(cluster.waits) < 3:
            await asyncio.sleep(0)
        assert not cluster.submitted
        cluster.membership.applied([MemberDown(replace(other, is_up=False))], 2.0)
        assert await begun

    cluster = run(scene)
    assert cluster.submitted == [NodeUp]
    assert (
        cluster.waits[0]
        == "waits for links to all nodes that are up: no link to 'n2@localhost', or none back"
    )


def test_an_own_disk_that_is_broken_ends_it_at_once() -> None:
    async def scene(cluster: FakeCluster) -> None:
        cluster.barriers = [NOT_WRITTEN, True]
        with pytest.raises(OSError, match=NOT_WRITTEN.text):
            await cluster.life.catch_up()

    assert len(run(scene).submitted) == 1


def test_a_stop_ends_the_tries() -> None:
    async def scene(cluster: FakeCluster) -> None:
        cluster.barriers = [NO_OUTCOME]
        cluster.is_giving_up.set()
        with pytest.raises(GivenUp):
            await cluster.life.catch_up()

    assert not run(scene).barriers


@pytest.mark.parametrize("unknown", [NO_OUTCOME, REPLACED])
def test_a_life_that_may_have_begun_is_lost(unknown: Refused) -> None:
    """A life that may have begun counts as up for others, so another broker has to begin."""

    async def scene(cluster: FakeCluster) -> None:
        cluster.incarnations = [unknown, 7]
        assert not await cluster.life.begin()
        assert cluster.membership.state is State.OFF
        assert cluster.incarnation == 0
        assert await cluster.life.begin()
        assert cluster.incarnation == 7

    assert run(scene).submitted == [NodeUp] * 2


def test_lives_that_may_have_begun_end_as_well() -> None:
    """Each start has so many tries, whatever else is answered meanwhile."""

    async def scene(cluster: FakeCluster) -> None:
        cluster.barriers = [True] * (OUTCOMES_MAX + 1)
        cluster.incarnations = [NO_OUTCOME, 7] + [NO_OUTCOME] * (OUTCOMES_MAX + 1)
        assert not await cluster.life.begin()
        assert await cluster.life.begin()
        cluster.membership.stopped(life_module.boottime())
        for _ in range(OUTCOMES_MAX):
            await cluster.life.catch_up()
            assert not await cluster.life.begin()
        with pytest.raises(OSError, match="did not agree"):
            await cluster.life.begin()
        cluster.incarnations = [NO_OUTCOME]
        assert not await cluster.life.begin(), "the next start has its own"

    run(scene)
