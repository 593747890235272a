"""The file that says who a node is in the cluster."""

import json
from typing import Any

import pytest

from node.clustering.identity import FILE, IdentityUnreadable, NodeIdentity, read_identity, writing
from node.clustering.requests import Applicant
from node.store.disk import Append
from tests.kit.disk import SimulatedDisk

IDENTITY = NodeIdentity(
    "n1@h",
    "abc",
    "disc",
    "c1",
    (Applicant("n1@h", "h:1", "abc", "disc"), Applicant("n2@h", "h:2", "d", "ram")),
)


def test_it_is_read_as_it_was_written() -> None:
    disk = SimulatedDisk()
    assert read_identity(disk) is None
    disk.run(writing(IDENTITY))
    assert read_identity(disk) == IDENTITY
    other = NodeIdentity("n1@h", "abc", "witness")
    disk.run(writing(other))
    assert read_identity(disk) == other
    assert not other.is_member


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"name": 7},
        {"node_id": None},
        {"type": "disk"},
        {"members": {}},
        {"members": [3]},
        {"members": [{"name": "n2@h"}]},
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    disk = SimulatedDisk()
    content = {"format": 1, "name": "n", "node_id": "i", "type": "disc", "cluster_id": "", "members": []}
    disk.run([Append(FILE, [json.dumps({**content, **change}).encode()])])
    with pytest.raises(IdentityUnreadable, match=r"node\.json"):
        read_identity(disk)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b'{"format": 1}'])
def test_damage_is_refused(content: bytes) -> None:
    disk = SimulatedDisk()
    disk.run([Append(FILE, [content])])
    with pytest.raises(IdentityUnreadable):
        read_identity(disk)
