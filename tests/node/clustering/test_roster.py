"""A node knows itself and the members from its file at first, from the metadata once it has them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from node.app import ClusterLog
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import NodeUp, PutMember, RemoveMember
from node.clustering.identity import NodeIdentity, read_identity, writing
from node.clustering.requests import Applicant
from node.clustering.roster import Roster, own_identity
from node.config.config import Config
from node.io.data_directory import DataDirectoryError
from tests.kit.disk import SimulatedDisk

N1, N2, N3 = (Applicant(f"n{i}@h", f"h:{i}", f"id{i}", "disc") for i in (1, 2, 3))
OF_OLD = NodeIdentity("n1@h", "id1", "disc", "the-cluster", (N1, N2))


class Node:
    """A roster, and its metadata once they are `joined`. `told`: how often others were to hear of a change."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.told = 0
        self.catalogue = Catalogue()
        self.roster = Roster(OF_OLD, self.disk, self._introduce, self._spawn)

    def _introduce(self) -> None:
        self.told += 1

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(coroutine)

    def join(self, *members: Applicant) -> None:
        for each in members:
            self.catalogue.apply(PutMember(each.name, each.address, each.node_id, each.type))
        self.roster.joined(cast(ClusterLog, self))

    async def settle(self) -> None:
        """Have the disk do what it was given, and those who wait for it go on."""
        await asyncio.sleep(0)
        self.disk.settle()
        await self.roster.quiet_disk()


def story(scene: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await scene(Node())

    asyncio.run(main())


def test_until_it_is_current_a_member_of_old_may_still_be_one() -> None:
    async def scene(node: Node) -> None:
        assert list(node.roster.known_members()) == [N1.name, N2.name]
        node.join(N1, N3)
        assert set(node.roster.members) == {N1.name, N3.name}
        assert set(node.roster.known_members()) == {N1.name, N2.name, N3.name}
        assert not node.roster.is_current
        node.roster.is_at(7)
        assert node.roster.is_current
        assert node.told == 1
        assert set(node.roster.known_members()) == {N1.name, N3.name}

    story(scene)


def test_the_members_are_those_of_the_snapshot_that_took_the_metadatas_place() -> None:
    async def scene(node: Node) -> None:
        node.join(N1, N2)
        node.catalogue = Catalogue()
        node.catalogue.apply(PutMember(*N3._replace(type="ram")))
        assert set(node.roster.members) == {N3.name}

    story(scene)


def test_the_file_says_who_the_members_are_and_is_written_only_for_news() -> None:
    async def scene(node: Node) -> None:
        node.roster.remember()
        assert not node.disk.pending_bytes, "no metadata, no news"
        node.join(N1, N2, N3)
        node.roster.is_at(1)
        node.roster.remember()
        await node.settle()
        found = read_identity(node.disk)
        assert found is not None
        assert found.members == (N1, N2, N3) == node.roster.identity.members
        node.catalogue.apply(NodeUp(N2.name, N2.node_id, N2.address))
        node.roster.remember()
        await asyncio.sleep(0)
        assert not node.disk.pending_bytes
        node.catalogue.apply(RemoveMember(N3.name))
        node.roster.remember()
        await node.settle()
        assert read_identity(node.disk) == node.roster.identity == OF_OLD

    story(scene)


def test_a_cluster_that_is_about_to_let_us_in_is_let_in() -> None:
    async def scene(node: Node) -> None:
        node.roster.joining("another")
        assert node.roster.cluster_id == "another"
        node.join(N1)
        assert node.roster.cluster_id == "the-cluster"

    story(scene)


def test_a_data_directory_knows_its_node() -> None:
    disk = SimulatedDisk()
    config = Config(node_name="n1@h", data_dir="/somewhere", cluster_name="c")
    new = own_identity(disk, config)
    assert (new.name, new.is_member) == ("n1@h", False)
    disk.run(writing(OF_OLD))
    assert own_identity(disk, config) == OF_OLD
    with pytest.raises(DataDirectoryError, match="belongs to node n1@h, and this is n2@h"):
        own_identity(disk, Config(node_name="n2@h", data_dir="/somewhere", cluster_name="c"))
