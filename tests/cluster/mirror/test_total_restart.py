"""All nodes of a mirrored queue were killed at once, and the disk of one has lost something: reliability §4.10."""

from collections.abc import Callable

import pytest

from node.catalogue.commands import ClearPolicy, RemoveMember
from node.catalogue.mirrors.views import stored_uid
from node.store.disk import RemoveTree
from tests.kit.disk import SimulatedDisk
from tests.kit.disk_cluster import PERSISTENT, DiskCluster, mirrored, publish, record_of

BODIES = [b"%d" % number for number in range(1, 41)]
WHOLE = [(body, True) for body in BODIES]

NODES = ("n1", "n2", "n3")


def all_killed() -> DiskCluster:
    """`q` had its master on n1. Some of its messages are in segments, as n1's disk was read before."""
    cluster = mirrored(*NODES)
    publish(cluster, "n1", *BODIES[:20])
    kill_all(cluster)
    start(cluster, *NODES)
    assert cluster.view().master_node == "n1"
    publish(cluster, "n1", *BODIES[20:])
    cluster.advance(2.0)
    assert len(cluster.view().synced) == 3
    kill_all(cluster)
    return cluster


def kill_all(cluster: DiskCluster) -> None:
    for node in NODES:
        cluster.crash(node, is_noticed=False)


def start(cluster: DiskCluster, *nodes: str) -> None:
    """The first one learns that all others are dead."""
    for node in nodes:
        cluster.start(node)
        for other in NODES:
            if other not in cluster.nodes:
                cluster.declare_dead(other)
        cluster.settle()
    cluster.advance(1.0)


def damage(cluster: DiskCluster, how: str, node: str = "n1") -> None:
    DAMAGES[how](cluster.disks[node])


def _journal(disk: SimulatedDisk) -> str:
    return f"journal/{disk.names('journal')[-1]}"


def _segment(disk: SimulatedDisk) -> str:
    return next(path for path in disk.paths() if path.startswith("queues/"))


def _flip_in(find: Callable[[SimulatedDisk], str], part: float) -> Callable[[SimulatedDisk], None]:
    def flip(disk: SimulatedDisk) -> None:
        path = find(disk)
        disk.flip_bit(path, int(disk.size(path) * part) - 3)

    return flip


def _cut(find: Callable[[SimulatedDisk], str], count: int) -> Callable[[SimulatedDisk], None]:
    def cut(disk: SimulatedDisk) -> None:
        path = find(disk)
        disk.write(path, disk.content(path)[:-count])

    return cut


def _remove(*paths: str) -> Callable[[SimulatedDisk], None]:
    return lambda disk: disk.run([RemoveTree(path) for path in paths]) and None


DAMAGES: dict[str, Callable[[SimulatedDisk], None]] = {
    "a byte in the middle of the journal": _flip_in(_journal, 0.5),
    "a byte at the end of the journal": _flip_in(_journal, 1.0),
    "the end of the journal": _cut(_journal, 30),
    "most of the journal": lambda disk: disk.write(_journal(disk), disk.content(_journal(disk))[:50]),
    "all of the journal": lambda disk: disk.run([RemoveTree(_journal(disk))]) and None,
    "a byte in a segment": _flip_in(_segment, 0.5),
    "the end of a segment": _cut(_segment, 30),
    "a segment": lambda disk: disk.run([RemoveTree(_segment(disk))]) and None,
    "the folders": _remove("journal", "queues", "messages"),
    "all but the metadata": _remove("journal", "queues", "messages", "store.json", "synced.log"),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_another_copy_is_taken(how: str) -> None:
    """B3: whatever n1's disk has lost, the others have it."""
    cluster = all_killed()
    damage(cluster, how)
    start(cluster, *NODES)
    assert cluster.view().state == "live"
    assert cluster.view().master_node != "n1"
    assert cluster.contents("n1") == WHOLE


@pytest.mark.parametrize("how", DAMAGES)
def test_it_is_waited_for(how: str) -> None:
    """Alone the damaged one is not taken, however long it is there, nor after another start; a whole one is."""
    cluster = all_killed()
    damage(cluster, how)
    start(cluster, "n1")
    cluster.advance(60.0)
    assert cluster.view().state == "down"
    cluster.crash("n1")
    start(cluster, "n1")
    cluster.advance(60.0)
    assert cluster.view().state == "down"
    start(cluster, "n2")
    cluster.advance(35.0)
    assert cluster.view().master_node == "n2"
    assert cluster.contents("n1") == WHOLE


def test_where_nothing_is_lost_the_last_master_is_preferred() -> None:
    cluster = all_killed()
    start(cluster, "n3", "n2")
    assert cluster.view().state == "down"
    start(cluster, "n1")
    assert cluster.view().master_node == "n1"
    assert cluster.contents("n3") == WHOLE


def test_all_are_damaged() -> None:
    """The best of damaged copies is taken when no other can come."""
    cluster = all_killed()
    damage(cluster, "the folders", "n1")
    damage(cluster, "the end of the journal", "n2")
    start(cluster, "n1", "n2")
    cluster.advance(60.0)
    assert cluster.view().state == "down"
    cluster.submit(RemoveMember("n3"))
    cluster.advance(1.0)
    assert cluster.view().master_node == "n2"
    found = cluster.contents("n1")
    assert 20 <= len(found) < 40
    assert found == WHOLE[: len(found)]


def test_an_append_that_was_never_synced_is_no_loss() -> None:
    """The power goes in the middle of a batch: what it leaves of that was never confirmed."""
    cluster = all_killed()
    start(cluster, *NODES)
    for node in cluster:
        node.is_disk_held = True
    client = cluster["n1"].client()
    client.publish(1, "q", b"x" * 200, properties=PERSISTENT)
    cluster.settle()
    for node in cluster:
        node.disk.execute()
    kill_all(cluster)
    for disk in cluster.disks.values():
        _cut(_journal, 30)(disk)
    start(cluster, "n2")
    cluster.advance(35.0)
    assert cluster.view().master_node == "n2"
    assert cluster.contents("n2") == WHOLE


def kept_beside_n1() -> DiskCluster:
    """`q` went on with the copy of n1, and its new mirror on n2 lacks everything; n3 is not there."""
    cluster = mirrored(*NODES, sync="manual")
    publish(cluster, "n1", *BODIES)
    cluster.advance(2.0)
    kill_all(cluster)
    start(cluster, "n1", "n2")
    cluster.advance(35.0)
    view = cluster.view()
    assert (view.master_node, [member.node for member in view.ring]) == ("n1", ["n1", "n2"])
    assert view.synced == (view.master,)
    assert dict(view.kept).keys() == {"n2", "n3"}
    return cluster


def stored_on(cluster: DiskCluster, node: str) -> set[str]:
    """The uids of the copies on a node's disk."""
    return set(cluster[node].disk.names("queues"))


def test_the_other_copies_stay_until_a_mirror_is_synchronised() -> None:
    """Other copies stay, also on a node that starts again, until a mirror is synchronised; then they go."""
    cluster = kept_beside_n1()
    uid = record_of(cluster).uid
    kept = {node: stored_uid(uid, copy) for node, copy in cluster.view().kept}
    cluster.crash("n2")
    start(cluster, "n3", "n2")
    for node in ("n2", "n3"):
        assert kept[node] in stored_on(cluster, node)
        assert len(cluster.view().ring) == 3
    cluster["n1"].mirrors.sync(record_of(cluster), is_on=True)
    cluster.advance(5.0)
    assert len(cluster.view().synced) == 3
    for node in ("n2", "n3"):
        cluster[node].page_out()
        cluster.advance(1.0)
        assert kept[node] not in stored_on(cluster, node)
        assert cluster[node].mirrors._recovered == {}
    assert cluster.contents("n2") == WHOLE


def test_the_other_copies_come_back_when_the_one_that_was_taken_is_forgotten() -> None:
    """Other copies come back when the taken one is forgotten. While its node may come back that is waited for."""
    cluster = kept_beside_n1()
    cluster.crash("n1")
    cluster.advance(60.0)
    assert (cluster.view().state, cluster.view().recoverable) == ("down", ("n1",))
    cluster.submit(RemoveMember("n1"))
    cluster.advance(40.0)
    assert cluster.view().master_node == "n2"
    assert cluster.contents("n2") == WHOLE


def test_the_one_that_was_taken_comes_back_before_the_others() -> None:
    """The copy that was taken has what was confirmed since, and comes back before the others."""
    cluster = kept_beside_n1()
    publish(cluster, "n1", b"41")
    cluster.crash("n1")
    start(cluster, "n1")
    assert cluster.view().master_node == "n1"
    assert dict(cluster.view().kept).keys() == {"n2", "n3"}
    assert cluster.contents("n2") == [*WHOLE, (b"41", True)]


def test_the_other_copies_go_when_the_queue_is_mirrored_no_more() -> None:
    cluster = kept_beside_n1()
    cluster.submit(ClearPolicy("/", "ha"))
    cluster.advance(10.0)
    record = next(iter(cluster)).broker.catalogue.queue("/", "q")
    assert record is not None
    assert record.view is None
    assert cluster["n2"].mirrors._recovered == {}
    assert stored_on(cluster, "n2") == set()
