"""A node that belongs to no cluster makes one only where it cannot stand beside the one that it belonged to."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from node.clustering import formation
from node.clustering.consent import Consent
from node.clustering.identity import NodeIdentity
from node.io.control import refused
from node.io.data_directory import DataDirectoryError
from node.store.directory import REMOVED_RAFT, STORE_FILE
from node.store.metadata_log import PATH as METADATA_LOG

TRIES: Final = 20
"""After so many searches the operator stops the node."""


class Stopped(Exception):
    """The node is told to stop."""


class Node:
    """The first of three configured nodes, the others of which are silent."""

    name = "n1@h"

    def __init__(self, data: Path, size_hint: int) -> None:
        nodes = [SimpleNamespace(name=f"n{number}@h", address=f"h:{number}") for number in (1, 2, 3)]
        options = SimpleNamespace(
            formation_nodes=nodes,
            formation_dns_hostname=None,
            formation_plugin=None,
            target_size_hint=size_hint,
            discovery_retry_limit=3,
            discovery_retry_interval_s=0.0,
        )
        self.config = SimpleNamespace(data_dir=str(data), cluster=options, node_name=self.name)
        self.roster = SimpleNamespace(identity=NodeIdentity(self.name, "id1", "disc"))
        self.links = SimpleNamespace(address="h:1")
        self.consent = Consent(lambda: 0.0)
        self.calls = self
        self.logger = logging.getLogger("test")
        self.process = SimpleNamespace(wait_is=lambda text: None)
        self.asked = 0
        self.made = 0

    async def ask(self, address: str, asked: object, seconds: float) -> object:
        self.asked += 1
        raise refused(f"{address}: no answer")

    async def or_given_up(self, waiting: Awaitable[Any]) -> Any:
        if self.asked >= 2 * TRIES:
            waiting.close()  # type: ignore[attr-defined]
            raise Stopped
        return await waiting

    async def create(self, _: object) -> None:
        self.made += 1

    def form(self) -> int:
        """Look for a cluster. Returns: how many were made. Raises: DataDirectoryError."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(formation, "create", self.create)
            with contextlib.suppress(Stopped):
                asyncio.run(formation.form(self))  # type: ignore[arg-type]
        return self.made


def test_a_node_that_lost_its_metadata_makes_no_cluster(tmp_path: Path) -> None:
    """A node without metadata makes no cluster if its messages say that it belonged to one."""
    (tmp_path / STORE_FILE).touch()
    with pytest.raises(DataDirectoryError, match="belonged to a cluster"):
        Node(tmp_path, 1).form()


@pytest.mark.parametrize("has", [METADATA_LOG, REMOVED_RAFT])
def test_a_node_that_belonged_to_none_may_make_one(tmp_path: Path, has: str) -> None:
    """A node may make a cluster if it has its own metadata or was taken out of its cluster."""
    (tmp_path / STORE_FILE).touch()
    (tmp_path / has).touch()
    assert Node(tmp_path, 1).form() == 1


def test_a_node_whose_disk_was_emptied_waits_for_the_others(tmp_path: Path) -> None:
    """Two of the three, itself counted, must say that they belong to no cluster."""
    assert Node(tmp_path, 3).form() == 0


def test_without_the_size_of_the_cluster_it_makes_another_one(tmp_path: Path) -> None:
    """As RabbitMQ does: by an empty disk it cannot know. docs/clustering.md says what to configure."""
    node = Node(tmp_path, 1)
    assert node.form() == 1
    assert node.asked == 2 * 3


def test_a_check_that_is_left_out_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formation, "_check_is_new", lambda data_dir: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_node_that_lost_its_metadata_makes_no_cluster(tmp_path)
