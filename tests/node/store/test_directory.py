"""A data directory belongs to the node that claimed it, and keeps its format."""

import json
from random import Random

import pytest

from node.store.directory import (
    DirectoryOfAnotherNode,
    Identity,
    NotAStore,
    StoreError,
    claim,
    read_identity,
)
from node.store.records import NewerFormat
from tests.kit.disk import SimulatedDisk


def disk_with(**files: bytes) -> SimulatedDisk:
    """A disk with these files in the data directory."""
    disk = SimulatedDisk()
    for name, content in files.items():
        disk.write(name.replace("__", "."), content)
    return disk


def test_a_new_directory_becomes_the_nodes() -> None:
    """A new directory is claimed by a node, and a second claim finds the same identity."""
    disk = SimulatedDisk()
    assert read_identity(disk) is None
    assert claim(disk, "rabbit@a") == Identity(1, "rabbit@a", 16384)
    assert json.loads(disk.content("store.json")) == {
        "format": 1,
        "node": "rabbit@a",
        "segment_entries": 16384,
    }
    assert disk.names("") == ["journal", "messages", "queues", "store.json"]
    assert claim(disk, "rabbit@a") == read_identity(disk)


def test_what_a_store_was_made_with_stays() -> None:
    """The segment size that a store was made with stays, as a message's segment follows from it."""
    disk = SimulatedDisk()
    claim(disk, "rabbit@a", 2048)
    assert claim(disk, "rabbit@a", 4096).segment_entries == 2048


def test_it_is_not_given_to_another_node() -> None:
    """Both names are said."""
    disk = SimulatedDisk()
    claim(disk, "rabbit@a")
    before = disk.content("store.json")
    with pytest.raises(DirectoryOfAnotherNode, match="belongs to node rabbit@a, and this is rabbit@b"):
        claim(disk, "rabbit@b")
    assert disk.content("store.json") == before


def test_a_newer_format_is_not_touched() -> None:
    """A directory of a newer format is refused with that number and left as it is."""
    disk = disk_with(store__json=b'{"format": 2, "node": "rabbit@a", "more": true}')
    with pytest.raises(NewerFormat, match="has format 2, written by a later version; this one knows up to 1"):
        claim(disk, "rabbit@a")
    assert disk.names("") == ["store.json"]


def test_what_is_not_known_in_it_does_not_matter() -> None:
    """A later version of the same format may say more."""
    disk = disk_with(store__json=b'{"format": 1, "node": "rabbit@a", "more": true}')
    assert claim(disk, "rabbit@a") == Identity(1, "rabbit@a", 16384)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"format": "1", "node": "rabbit@a"}',
        b'{"format": true, "node": "rabbit@a"}',
        b'{"format": 0, "node": "rabbit@a"}',
        b'{"format": 1}',
        b'{"format": 1, "node": 5}',
        b'{"format": 1, "node": "rabbit@a", "segment_entries": 0}',
        b'{"format": 1, "node": "rabbit@a", "segment_entries": "many"}',
    ],
)
def test_a_damaged_file(content: bytes) -> None:
    """Whatever is in it."""
    with pytest.raises(NotAStore, match=r"store\.json is damaged"):
        claim(disk_with(store__json=content), "rabbit@a")


def test_a_store_that_has_lost_its_file() -> None:
    """A store that has lost its file may be anybody's, and is refused."""
    disk = disk_with(metadata__log=b"x")
    disk.write("queues/1/0.idx", b"x")
    with pytest.raises(StoreError, match=r"store.json is missing, but metadata.log, queues are there"):
        claim(disk, "rabbit@a")


def test_a_directory_with_something_else_in_it() -> None:
    """RabbitMQ's, say. Not all of a long list is shown."""
    disk = SimulatedDisk()
    for name in ("DECISION_TAB.LOG", "msg_stores", "quorum", "a", "b", "c"):
        disk.write(name, b"x")
    with pytest.raises(
        NotAStore, match=r"something else than a store \(DECISION_TAB.LOG, a, b, c, msg_stores, …\)"
    ):
        claim(disk, "rabbit@a")


def test_what_an_operator_may_have_put_there() -> None:
    """Before the first start: logs, the configuration, the lock of this very start."""
    names = ("lock", "lost+found/x", "log/a", "node.log", "fluffle.conf", ".keep", "store.json.new")
    disk = SimulatedDisk()
    for name in names:
        disk.write(name, b"x")
    claim(disk, "rabbit@a")
    assert read_identity(disk) == Identity(1, "rabbit@a", 16384)


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_in_the_first_start(seed: int) -> None:
    """Whenever it comes, the next start goes on."""
    random = Random(seed)
    disk = SimulatedDisk()
    claim(disk, "rabbit@a")
    left = disk.crash(random)
    assert read_identity(left) == Identity(1, "rabbit@a", 16384)
    claim(left, "rabbit@a")
    assert left.names("") == ["journal", "messages", "queues", "store.json"]
