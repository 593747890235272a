"""Tools read the queues of a node in a cluster from its metadata; the rest is in tests/node/cli/test_store.py."""

from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import DeclareQueue, PutVhost
from node.store.inspection import cluster_metadata, unknown_metadata
from tests.kit.disk import SimulatedDisk


def test_only_durable_queues_of_the_node_are_looked_for() -> None:
    catalogue = Catalogue()
    for command in (
        PutVhost("/"),
        DeclareQueue("/", "here", "1", durable=True, home="a@h"),
        DeclareQueue("/", "there", "2", durable=True, home="b@h"),
        DeclareQueue("/", "transient", "3", home="a@h"),
    ):
        catalogue.apply(command)
    metadata = cluster_metadata(catalogue, "a@h")
    assert list(metadata.queues) == ["1"]
    assert metadata.is_readable
    assert metadata.is_whole


def test_without_metadata_queues_are_their_directories() -> None:
    metadata = unknown_metadata(SimulatedDisk(), [])
    assert metadata.queues == {}
    assert not metadata.is_readable
