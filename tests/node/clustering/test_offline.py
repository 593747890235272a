"""The files of a node that does not run say who is still a member, and to which cluster the node belongs."""

import dataclasses
from pathlib import Path
from typing import Any, Final

import pytest

from node.catalogue.commands import PutMember, SetGlobalParameter
from node.clustering import metadata, offline
from node.clustering.identity import CLUSTER_ID, NodeIdentity, read_identity, writing
from node.clustering.requests import Applicant
from node.io.disk import FileDisk, ReadOnlyDisk

MEMBERS: Final = tuple(
    Applicant(f"n{number}@h", f"h:{number}", f"id{number}", "disc") for number in (1, 2, 3)
)
OWN, *OTHERS = (member.name for member in MEMBERS)
FORMER: Final = "the-cluster"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of n1, a member of a cluster of three."""
    disk = FileDisk.open(str(tmp_path / "raft"))
    commands = [SetGlobalParameter(CLUSTER_ID, FORMER), *(PutMember(*member) for member in MEMBERS)]
    metadata.create(disk, OWN, commands)
    disk.run(writing(NodeIdentity(OWN, "id1", "disc", FORMER, MEMBERS)))
    disk.close()
    return tmp_path


def ids(data: Path) -> tuple[str, str, object]:
    """Return the cluster's id and its former id in the identity, and the id in the metadata."""
    identity = read_identity(ReadOnlyDisk(str(data / "raft")))
    catalogue = offline.read_catalogue(str(data))
    assert identity is not None
    assert catalogue is not None
    return identity.cluster_id, identity.former_cluster_id, catalogue.global_parameter(CLUSTER_ID)


def forget(data: Path, *nodes: str) -> None:
    for node in nodes:
        offline.forget_offline(str(data), OWN, node)


def test_the_cluster_stays_the_same_while_it_has_another_member(data: Path) -> None:
    forget(data, OTHERS[0])
    assert ids(data) == (FORMER, "", FORMER)


def test_a_node_that_forgot_all_others_is_another_cluster(data: Path) -> None:
    """The others may come back as a majority of their own."""
    forget(data, *OTHERS)
    cluster_id, former, parameter = ids(data)
    assert (former, parameter) == (FORMER, cluster_id)
    assert cluster_id not in ("", FORMER)


def test_an_id_that_stays_is_found(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former majority would run beside the node under the id of the same cluster."""

    def replaced(identity: NodeIdentity, **changes: Any) -> NodeIdentity:
        return dataclasses.replace(identity, members=changes.get("members", identity.members))

    monkeypatch.setattr(offline, "replace", replaced)
    with pytest.raises(AssertionError):
        test_a_node_that_forgot_all_others_is_another_cluster(data)
