"""Frames between mirrors that are too large, or make no sense; and how much may be under way at a node."""

import pytest

from cluster.errors import Malformed
from cluster.gm_ring import member, parts
from cluster.gm_ring.wire import encode_packet
from cluster.mirror import packet_queue, replica, replicator
from node.amqp.methods import BasicAck
from node.catalogue.commands import DeleteQueue
from tests.kit.cluster import RING
from tests.kit.disk_cluster import (
    PERSISTENT,
    frames_to,
    id_on,
    mirrored,
    publish,
    publisher_of,
    record_of,
)


def test_l3_nonsense_of_a_node_is_a_fault_of_that_node_only() -> None:
    """reliability §1.1 L3: whatever goes wrong with a mirror, the master goes on; and the other way round."""
    cluster = mirrored("n1", "n2", "n3")
    uid = record_of(cluster).uid
    ids = [member.id for member in cluster.view().members]
    side = encode_packet(uid, ids[1], ids[0], b"\xff\xff")
    cluster["n2"].mirrors.receive("n1", [b"\xff" + side])
    cluster["n1"].mirrors.receive("n2", [side])
    assert [node for node, _ in cluster["n2"].faults] == ["n1"]
    assert [node for node, _ in cluster["n1"].faults] == ["n2"]
    assert cluster.replica("n1").is_acting


def test_nonsense_takes_nothing_else_with_it() -> None:
    """A bad packet does not take others in the same read with it, whose queues would have a gap for ever."""
    cluster = mirrored("n1", "n2", "n3")
    uid = record_of(cluster).uid
    ids = [member.id for member in cluster.view().members]
    side = encode_packet(uid, ids[1], ids[0], b"\xff\xff")
    cluster.is_held = True
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.hop("n1", "n2", "n3")
    *_, back = frames_to(cluster, "n1")
    cluster["n1"].mirrors.receive("n3", [b"\xff", side + back.removeprefix(RING)])
    cluster["n1"].turn()
    assert client.methods() == [BasicAck(delivery_tag=1)]
    assert len(cluster["n1"].faults) == 1


def test_who_passes_on_nonsense_is_not_to_blame_for_it() -> None:
    """n3 hears from n2 what n1 has said. It can't be n1's mirror any more as it is, but nobody has to start anew."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    before = id_on(cluster, "n3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster.replica("n3").follower, "deliver", _refuse)
        publish(cluster, "n1", b"2")
    cluster.advance(3.0)
    assert [node.faults for node in cluster] == [[], [], []]
    assert any("cannot do what n1 said" in event for event in cluster["n3"].events)
    assert cluster.view().member(before) is None
    assert len(cluster.view().synced) == 3


def _refuse(origin: int, first: int, payloads: object) -> None:
    raise Malformed("an operation of no kind")


def test_no_frame_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much waits: a new right neighbour is told all of it at once."""
    monkeypatch.setattr(parts, "PART_MAX_BYTES", 3000)
    monkeypatch.setattr(member, "PART_MAX_BYTES", 3000)
    monkeypatch.setattr(replicator, "BATCH_BYTES", 3000)
    monkeypatch.setattr(packet_queue, "FRAME_MAX_BYTES", 3000)
    cluster = mirrored("n1", "n2", "n3")
    cluster.is_held = True
    client = publisher_of(cluster["n1"])
    for _ in range(3):
        client.publish(1, "q", *(b"x" * 1000 for _ in range(10)), properties=PERSISTENT)
        cluster["n1"].turn()
    assert max(map(len, frames_to(cluster, "n2"))) < 4500
    cluster.crash("n2")
    cluster.apply_all("n1", "n3")
    frames = frames_to(cluster, "n3")
    assert len(frames) >= 10
    assert max(map(len, frames)) < 4500
    cluster.is_held = False
    cluster.settle()
    assert client.methods()[-1] == BasicAck(delivery_tag=30, multiple=True)


def test_too_much_under_way_at_a_node_holds_up_its_publishers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its queues has less than a queue may have."""
    monkeypatch.setattr(replica, "NODE_BYTES", 5000)
    cluster = mirrored("n1", "n2", "n3")
    cluster.declare_mirrored("q2", "n1", "n2", "n3")
    cluster.is_held = True
    client = publisher_of(cluster["n1"])
    for name in ("q", "q2"):
        client.publish(1, name, *(b"x" * 1000 for _ in range(3)), properties=PERSISTENT)
        cluster["n1"].turn()
    replicators = [cluster.replica("n1", name).replicator for name in ("q", "q2")]
    assert [each is not None and each.is_congested for each in replicators] == [True, True]
    cluster.is_held = False
    cluster.settle()
    assert [each is not None and each.is_congested for each in replicators] == [False, False]
    assert cluster["n1"].mirrors.own_bytes == 0
    cluster.submit(DeleteQueue("/", "q"))
    cluster.settle()
    assert cluster["n1"].mirrors.own_bytes == 0
