"""The watch of a ring puts right what would hold up a queue for ever: cut links, with a master, without, and while one
hands over; and disks that hang. Source: reliability §4.9; docs/mirrors.md.
"""

from itertools import combinations

import pytest

from cluster.mirror.slow_mirrors import LAST_S
from node.amqp.methods import BasicAck
from node.catalogue.commands import SetDraining
from node.catalogue.mirrors.views import DeclineMaster, TransferMaster
from tests.kit.disk_cluster import (
    PERSISTENT,
    DiskCluster,
    id_on,
    mirrored,
    proposed,
    publish,
    publisher_of,
)
from tests.kit.world import Client

EVICTED_S = 13.0
"""A mirror is dropped 10 s after it stopped to pass something on, as far as is known at looks that are 1 s apart."""

HANDED_BACK_S = 24.0
"""A mirror that was to be master declines after 10 s; then the ring is looked at anew."""


def bodies(cluster: DiskCluster, node: str) -> list[bytes]:
    """Return the bodies that a client gets, in order."""
    return [body for body, _ in cluster.contents(node)]


def is_confirmed(cluster: DiskCluster, client: Client, seconds: float) -> bool:
    """Whether a client's only publish is confirmed in time."""
    methods: list[object] = []

    def has_answer() -> bool:
        methods.extend(client.methods())
        return bool(methods)

    cluster.wait(seconds, has_answer)
    return methods == [BasicAck(delivery_tag=1)]


# --- with a master ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", list(combinations(("n1", "n2", "n3"), 2)))
@pytest.mark.parametrize("idle_s", [0.0, 100.0])
def test_a_cut_link_of_a_queue_that_is_idle(cut: tuple[str, str], idle_s: float) -> None:
    """One publish, and then nothing more, is enough to notice."""
    cluster = mirrored("n1", "n2", "n3")
    cluster.cut(*cut)
    cluster.wait(idle_s)
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"1", properties=PERSISTENT)
    assert is_confirmed(cluster, client, EVICTED_S)
    assert len(cluster.view().ring) == 2


def test_a_cut_link_of_a_queue_with_a_publish_now_and_then() -> None:
    cluster = mirrored("n1", "n2", "n3")
    cluster.cut("n2", "n3")
    client = publisher_of(cluster["n1"])
    answers: list[object] = []
    for number in range(13):
        client.publish(1, "q", b"%d" % number, properties=PERSISTENT)
        cluster.wait(1.0)
        answers += client.methods()
    assert answers == [BasicAck(delivery_tag=12, multiple=True), BasicAck(delivery_tag=13)]


def test_who_is_idle_is_not_looked_at() -> None:
    """Each second each queue that is not as it should be is looked at, and no other."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    cluster.wait(2.0)
    assert [list(node.mirrors._needing_attention) for node in cluster] == [[], [], []]


# --- while a master hands over ----------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["n2", "n3"])
@pytest.mark.parametrize("cut", list(combinations(("n1", "n2", "n3"), 2)))
@pytest.mark.parametrize("client_on", ["n1", "n2", "n3"])
def test_a_master_moves_while_a_link_is_cut(cut: tuple[str, str], to: str, client_on: str) -> None:
    """Whichever link it is, one copy goes and the queue goes on."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    client = publisher_of(cluster[client_on])
    cluster.cut(*cut)
    cluster.transfer("q", to)
    client.publish(1, "q", b"2", properties=PERSISTENT)
    is_reached = client_on not in cut
    if is_reached:
        assert is_confirmed(cluster, client, HANDED_BACK_S)
    else:
        cluster.wait(HANDED_BACK_S)
    cluster.wait(60.0)
    view = cluster.view()
    assert (view.state, view.previous, len(view.synced)) == ("live", 0, 2)
    assert view.master_node is not None
    assert bodies(cluster, view.master_node)[:1] == [b"1"]
    cluster.cut_links.clear()
    cluster.wait(60.0)
    assert len(cluster.view().synced) == 3


def test_who_declines_does_not_begin_when_the_last_word_comes_after_all() -> None:
    """A heir that declined does not begin, as the other one may be master again: there are never two masters."""
    cluster = mirrored("n1", "n2", "n3")
    cluster.cut("n2", "n3")
    cluster.transfer("q", "n3")
    heir = cluster.replica("n3")
    cluster.wait(9.0)
    cluster.is_held = True
    cluster.wait(2.0)
    assert proposed(cluster, DeclineMaster)
    cluster.cut_links.clear()
    cluster.hop("n1", "n2", "n3")
    assert heir.view.master == heir.id
    assert heir.replicator is None
    cluster.is_held = False
    cluster.settle()
    assert cluster.view().master_node == "n1"
    publish(cluster, "n2", b"1")
    assert bodies(cluster, "n3") == [b"1"]


def test_a_node_that_drains_waits_until_others_act_and_asks_again_later() -> None:
    """A draining node's masters have moved when new ones have begun. A mirror that could not is spared for a while."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    cluster.cut("n2", "n3")
    cluster.cut("n1", "n3")
    cluster.submit(SetDraining("n1", is_draining=True))
    cluster.wait(1.0)
    if cluster.view().master_node == "n3":
        assert cluster["n1"].mirrors.moving == 1
    cluster.wait(60.0, lambda: cluster["n1"].mirrors.moving == 0)
    view = cluster.view()
    assert (view.master_node, view.previous) == ("n2", 0)
    assert len(proposed(cluster, TransferMaster)) <= 3


def test_two_copies_that_do_not_reach_each_other() -> None:
    """The master stays, and waits for the only other copy, but not for ever: then it goes on alone."""
    cluster = mirrored("n1", "n2")
    publish(cluster, "n1", b"1")
    cluster.cut("n1", "n2")
    cluster.transfer("q", "n2")
    cluster.wait(12.0)
    assert cluster.view().master_node == "n1"
    assert any("stays the leader" in event for event in cluster["n1"].events)
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"2", properties=PERSISTENT)
    assert not is_confirmed(cluster, client, 5.0)
    assert any("Waiting for mirror" in event for event in cluster["n1"].events)
    assert is_confirmed(cluster, client, LAST_S)
    cluster.cut_links.clear()
    cluster.wait(LAST_S, lambda: len(cluster.view().synced) == 2)
    assert len(cluster.view().synced) == 2, "it comes back once the link is there"
    assert bodies(cluster, "n1") == [b"1", b"2"]


# --- while there is no master -----------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [("n1", "n2", "n3"), ("n1", "n2", "n3", "n4")])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_cut_link_when_the_master_dies(nodes: tuple[str, ...], at: int) -> None:
    """A dead master's last word does not go round across a cut link among the others: one of them goes."""
    pairs = list(combinations(nodes[1:], 2))
    cluster = mirrored(*nodes)
    publish(cluster, "n1", b"1")
    cluster.cut(*pairs[at % len(pairs)])
    cluster.crash("n1")
    cluster.settle()
    cluster.wait(EVICTED_S + 3.0, lambda: cluster.view().state == "live")
    view = cluster.view()
    assert view.state == "live"
    assert view.master_node is not None
    publish_at = publisher_of(cluster[view.master_node])
    publish_at.publish(1, "q", b"2", properties=PERSISTENT)
    assert is_confirmed(cluster, publish_at, EVICTED_S)
    assert bodies(cluster, view.master_node) == [b"1", b"2"]


def test_the_only_synchronised_copy_is_waited_for_when_the_master_dies() -> None:
    """n2 answers for the dead master and lacks a message, which n1 has; they do not reach each other."""
    cluster = mirrored("n1", "n2", "n3", sync="manual")
    publish(cluster, "n1", b"1")
    cluster.crash("n2")
    cluster.settle()
    cluster.start("n2")
    cluster.wait(2.0)
    cluster.transfer("q", "n3")
    cluster.wait(2.0)
    cluster.cut("n1", "n2")
    cluster.crash("n3")
    cluster.settle()
    view = cluster.view()
    assert view.owner_of(view.members[1].id) == id_on(cluster, "n2")
    cluster.wait(60.0)
    assert cluster.view().state == "flushing"
    assert any("Waiting for mirror" in event for event in cluster["n2"].events)
    cluster.cut_links.clear()
    cluster.wait(5.0)
    assert cluster.view().master_node == "n1"
    assert bodies(cluster, "n1") == [b"1"]


@pytest.mark.parametrize("cut", [("n2", "n3"), ("n3", "n4"), ("n2", "n4")])
def test_a_cut_link_when_the_master_dies_while_it_hands_over(cut: tuple[str, str]) -> None:
    """The view has a master, which waits until all that the dead one said has gone round."""
    cluster = mirrored("n1", "n2", "n3", "n4")
    publish(cluster, "n1", b"1")
    cluster.cut(*cut)
    cluster.is_held = True
    cluster.transfer("q", "n3")
    cluster.apply_all("n1", "n2", "n3", "n4")
    cluster.crash("n1")
    cluster.is_held = False
    cluster.settle()
    cluster.wait(40.0)
    view = cluster.view()
    assert (view.state, view.previous) == ("live", 0)
    assert view.master_node is not None
    assert bodies(cluster, view.master_node) == [b"1"]
    client = publisher_of(cluster[view.master_node])
    client.publish(1, "q", b"2", properties=PERSISTENT)
    assert is_confirmed(cluster, client, EVICTED_S)


# --- disks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", ["n2", "n3"])
def test_a_mirror_whose_disk_hangs_goes(node: str) -> None:
    cluster = mirrored("n1", "n2", "n3")
    cluster[node].is_disk_held = True
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"1", properties=PERSISTENT)
    assert is_confirmed(cluster, client, EVICTED_S)
    assert cluster.view().member_on(node) is None
    assert any("Dropping queue mirror" in event and "to its disk" in event for event in cluster["n1"].events)
    cluster.wait(60.0)
    assert id_on(cluster, node) not in cluster.view().synced, (
        "its node has a new copy, which its disk has not"
    )
    publish(cluster, "n1", b"2")
    cluster[node].is_disk_held = False
    cluster.wait(5.0)
    assert len(cluster.view().synced) == 3


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n1", "n2", "n3")])
def test_the_disks_of_all_mirrors_hang(nodes: tuple[str, ...]) -> None:
    """None of them is better than the others: publishers wait; the log says for whom; then the master is alone."""
    cluster = mirrored(*nodes)
    for node in nodes[1:]:
        cluster[node].is_disk_held = True
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"1", properties=PERSISTENT)
    assert not is_confirmed(cluster, client, LAST_S - 1.0)
    told = [event for event in cluster["n1"].events if "Waiting for mirror" in event]
    assert len(told) == len(nodes) - 1
    assert is_confirmed(cluster, client, 5.0)


def test_the_disks_of_all_mirrors_hang_for_a_while() -> None:
    """Mirrors whose disks all hang for a while keep their copies."""
    cluster = mirrored("n1", "n2", "n3")
    for node in ("n2", "n3"):
        cluster[node].is_disk_held = True
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"1", properties=PERSISTENT)
    assert not is_confirmed(cluster, client, LAST_S - 5.0)
    for node in ("n2", "n3"):
        cluster[node].is_disk_held = False
    cluster.settle()
    assert is_confirmed(cluster, client, 0.0) or client.methods() == [BasicAck(delivery_tag=1)]
    assert len(cluster.view().synced) == 3


def test_the_policy_may_be_to_wait_for_disks() -> None:
    cluster = mirrored("n1", "n2", "n3", **{"ha-slow-mirror": "block"})
    cluster["n3"].is_disk_held = True
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"1", properties=PERSISTENT)
    assert not is_confirmed(cluster, client, 30.0)
    assert sum("Waiting for mirror" in event for event in cluster["n1"].events) == 1


def test_a_disk_that_is_slow_but_gets_on_is_left_alone() -> None:
    cluster = mirrored("n1", "n2", "n3")
    client = publisher_of(cluster["n1"])
    for number in range(8):
        cluster["n2"].is_disk_held = True
        client.publish(1, "q", b"%d" % number, properties=PERSISTENT)
        cluster.wait(6.0)
        cluster["n2"].is_disk_held = False
        cluster.settle()
    assert len(cluster.view().synced) == 3


def test_a_master_whose_disk_hangs_hands_over() -> None:
    """After that it is a mirror whose disk hangs."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    cluster["n1"].is_disk_held = True
    client = publisher_of(cluster["n3"])
    client.publish(1, "q", b"2", properties=PERSISTENT)
    assert is_confirmed(cluster, client, 2 * EVICTED_S)
    view = cluster.view()
    assert view.master_node in ("n2", "n3")
    assert view.member_on("n1") is None
    assert any("for its disk" in event for event in cluster["n1"].events)
    assert bodies(cluster, "n3") == [b"1", b"2"]


def test_a_master_alone_waits_for_its_disk() -> None:
    cluster = mirrored("n1", "n2")
    cluster.crash("n2")
    cluster.settle()
    cluster["n1"].is_disk_held = True
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"1", properties=PERSISTENT)
    assert not is_confirmed(cluster, client, 30.0)
    assert sum("for its disk" in event for event in cluster["n1"].events) == 1


def test_all_disks_hang() -> None:
    """No copy is better than another: nobody goes, and nothing is confirmed."""
    cluster = mirrored("n1", "n2", "n3")
    for node in cluster:
        node.is_disk_held = True
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"1", properties=PERSISTENT)
    assert not is_confirmed(cluster, client, 60.0)
    assert len(cluster.view().ring) == 3
    assert cluster.view().master_node == "n1"
    for node in cluster:
        node.is_disk_held = False
    assert is_confirmed(cluster, client, 1.0)
