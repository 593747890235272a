"""The message disk of one node of a cluster fails or hangs: it costs that node, and nobody else anything."""

from collections.abc import Iterator

import pika
import pytest

from node.cli.start import EX_IOERR
from tests.kit.cluster_processes import MemberProcess, cluster_processes, until
from tests.kit.faulty_disk import FaultyDisk, NoCompiler
from tests.node.process.test_mirrored_processes import ALL, fill, ring
from tests.node.process.test_processes import channel_to

pytestmark = pytest.mark.slow

FOLDERS = ("journal", "queues", "messages")


@pytest.fixture
def nodes() -> Iterator[tuple[list[MemberProcess], FaultyDisk]]:
    """Three nodes with a mirrored queue `ha` whose master is on the first, and the disk of that node."""
    with cluster_processes() as cluster:
        try:
            disk = FaultyDisk(cluster.directory, cluster.directory / "n1")
        except NoCompiler as error:
            pytest.skip(str(error))
        formed = cluster.formed("n1", "n2", "n3", environments={"n1": disk.environment})
        formed[0].ask("set_policy", vhost="/", name="ha", pattern="^ha", definition=ALL, apply_to="queues")
        fill(formed[0], "ha")
        yield formed, disk


def publish(node: MemberProcess, queue: str) -> None:
    channel = channel_to(node)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"after", pika.BasicProperties(delivery_mode=2))
    channel.connection.close()


@pytest.mark.parametrize("is_master", [True, False])
def test_a_node_whose_disk_fails_ends_and_the_others_go_on(
    nodes: tuple[list[MemberProcess], FaultyDisk], is_master: bool
) -> None:
    """B7: one sync that fails, once, and all is well again on that disk."""
    (first, second, third), disk = nodes
    if not is_master:
        first.ask("drain")
        until(lambda: ring(second)["master"] != first.name, "the master has moved")
    disk.fail("sync", *FOLDERS, once=True)
    publish(second, "ha")
    assert first.wait() == EX_IOERR
    assert first.log_text().count("Message store failed") == 1
    until(lambda: ring(second)["master"] in (second.name, third.name), "another node is master")
    publish(third, "ha")
    channel = channel_to(second)
    channel.queue_declare("single", durable=True)
    channel.connection.close()
    publish(third, "single")
    [ha] = [row for row in second.ask("list_queues", vhost="/")["queues"] if row["name"] == "ha"]
    assert ha["messages"] == 12, "nothing is lost, and nothing there twice"
    first.start()
    until(lambda: len(ring(second)["ring"]) == 3, "it has a copy again")


def test_a_node_whose_disk_hangs_stops_within_a_bound(nodes: tuple[list[MemberProcess], FaultyDisk]) -> None:
    """A node whose disk hangs tells what it did not write, and does not call that safe."""
    (first, second, _), disk = nodes
    disk.hang("sync", *FOLDERS)
    channel_to(second).basic_publish("", "ha", b"hangs", pika.BasicProperties(delivery_mode=2))
    assert first.stop() == EX_IOERR
    assert "does not answer" in first.log_text()
    until(lambda: ring(second)["master"] != first.name, "another node is master")
    publish(second, "ha")
