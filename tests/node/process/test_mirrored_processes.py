"""Mirrored queues of real processes, as operators see them: reliability §2.2, §4.10; management §2.5."""

from collections.abc import Iterator
from typing import Any

import pika
import pytest

from tests.kit.cluster_processes import MemberProcess, cluster_processes, until
from tests.node.process.test_processes import channel_to

pytestmark = pytest.mark.slow

ALL = '{"ha-mode":"all"}'


@pytest.fixture
def nodes() -> Iterator[list[MemberProcess]]:
    """Three nodes with a mirrored queue `ha` whose master is on the first; it has ten messages."""
    with cluster_processes() as cluster:
        formed = cluster.formed("n1", "n2", "n3")
        formed[0].ask("set_policy", vhost="/", name="ha", pattern="^ha", definition=ALL, apply_to="queues")
        fill(formed[0], "ha")
        yield formed


def fill(node: MemberProcess, queue: str) -> None:
    channel = channel_to(node)
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=True)
    for number in range(10):
        channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2))
    channel.connection.close()


def ring(node: MemberProcess, queue: str = "ha") -> dict[str, Any]:
    rings = node.ask("list_rings", vhost="/")["rings"]
    found: dict[str, Any] = next(each for each in rings if each["name"] == queue)
    return found


def test_a_clean_stop_hands_over_and_the_copy_of_who_was_away_is_synchronised_on_demand(
    nodes: list[MemberProcess],
) -> None:
    """promote_on_shutdown's good case, and L9."""
    first, second, third = nodes
    assert ring(third)["ring"] == [node.name for node in nodes]
    assert first.stop() == 0
    until(lambda: len(ring(second)["ring"]) == 2, "the first one is erased")
    found = ring(second)
    assert found["master"] in (second.name, third.name)
    assert len(found["synchronised"]) == 1
    first.start()
    until(lambda: len(ring(second)["ring"]) == 3, "the first one has a copy again")
    assert first.name not in ring(second)["synchronised"]
    assert "Discarded 1 former copies of queues" in first.log_text()
    assert second.ask("sync_queue", vhost="/", queue="ha") == {}
    until(lambda: first.name in ring(second)["synchronised"], "it has all")
    assert second.ask("cancel_sync_queue", vhost="/", queue="ha") == {"is_syncing": False}
    [row] = first.ask("list_queues", vhost="/")["queues"]
    assert (row["messages"], row["state"], row["policy"]) == (10, "running", "ha")
    assert len(row["synchronised_slave_pids"]) == 2


def test_rebalance_and_drain_move_masters(nodes: list[MemberProcess]) -> None:
    first = nodes[0]
    for queue in ("ha2", "ha3"):
        fill(first, queue)
    everything = {"type": "all", "vhost_pattern": ".*", "queue_pattern": ".*"}
    rows = nodes[1].ask("rebalance", **everything)["nodes"]
    assert rows == [{"node": node.name, "classic": 1, "quorum": 0} for node in nodes]
    until(lambda: "All queue masters are balanced" in nodes[1].log_text(), "the log says so")
    first.ask("drain", timeout_s=70)
    masters = {ring(nodes[2], queue)["master"] for queue in ("ha", "ha2", "ha3")}
    assert first.name not in masters
    done = "Leadership transfer for local classic mirrored queues is complete"
    until(lambda: done in first.log_text(), "the log says so")


def test_after_a_power_cut_the_queue_is_there_with_all_that_was_confirmed(nodes: list[MemberProcess]) -> None:
    """reliability §4.10 b."""
    for node in nodes:
        node.kill()
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_ready()
    until(lambda: ring(nodes[0])["state"] == "live", "the queue is back", timeout_s=60)
    channel = channel_to(nodes[1])
    until(lambda: channel.queue_declare("ha", passive=True).method.message_count == 10, "its messages are")
    bodies = [channel.basic_get("ha", auto_ack=True)[2] for _ in range(10)]
    assert bodies == [b"%d" % number for number in range(10)]
