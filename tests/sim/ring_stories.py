"""Stories of one mirrored queue that seeds come upon too seldom, told with whole brokers and simulated disks.

Each goes well, and does not without the rule that it is named after (`ring_rules`). Source: reliability §4.1-§4.7.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cluster.mirror.pacing import LAZY_S
from node.amqp.methods import BasicAck, BasicGet
from node.catalogue.commands import ChangeView, SetPolicy
from node.catalogue.mirrors.views import ActivateMirror, AddMirror, DropMirror, TookOver, ViewChange
from node.queue.queue import Queue
from tests.kit.disk_cluster import (
    PERSISTENT,
    DiskCluster,
    id_on,
    mirrored,
    proposed,
    publish,
    publisher_of,
    record_of,
)
from tests.kit.world import Client

ACK = [BasicAck(delivery_tag=1)]


def at_rest(cluster: DiskCluster) -> None:
    """I11, I12: the queue confirms, nothing is left over, and all copies are the same."""
    cluster.is_held = False
    cluster.settle()
    cluster.wait(5.0)
    nothing_is_damaged(cluster)
    view = cluster.view()
    assert (view.state, view.previous) == ("live", 0), view
    assert all(member.status == "alive" for member in view.members), view
    assert set(view.synced) == {member.id for member in view.members}, view
    assert view.master_node is not None
    publish(cluster, view.master_node, b"last")
    cluster.wait(2.0)
    nothing_is_damaged(cluster)
    replicator = cluster.replica(view.master_node).replicator
    assert replicator is not None, f"{view.master_node} does not act"
    for member in view.members:
        replica = cluster.replica(member.node)
        assert replica.id == member.id
        assert not replica.member.pending_bytes, f"{member.node} keeps payloads"
        if replica.follower is not None:
            copy = replica.follower.copy
            assert copy.held.ranges() == replicator.live.ranges(), f"{member.node} holds others"
            assert replica.follower.senders == replicator.senders
            assert copy.next_seq == replicator.next_seq


def nothing_is_damaged(cluster: DiskCluster) -> None:
    """Check that no peer sent nonsense, and that no copy had to be made anew for it."""
    for node in cluster:
        assert not node.faults
        assert not any("Giving up the copy" in text for text in node.events), node.events


def spread(nodes: tuple[str, ...], copies: tuple[str, ...]) -> DiskCluster:
    """`q` on some of the nodes only, its master on the first of them."""
    cluster = DiskCluster(*nodes)
    want_copies(cluster, *copies)
    cluster.declare_mirrored("q", *copies)
    return cluster


def want_copies(cluster: DiskCluster, *nodes: str) -> None:
    """A policy has the queue on these nodes."""
    wanted = {"ha-mode": "nodes", "ha-params": list(nodes), "ha-sync-mode": "automatic"}
    cluster.submit(SetPolicy("/", "ha", "^q", wanted))
    cluster.wait(3.0)


def change(cluster: DiskCluster, *changes: ViewChange) -> None:
    """Have changes committed, which nobody need have applied."""
    uid = record_of(cluster).uid
    cluster.log += [(ChangeView("/", "q", uid, each), "", 0, None) for each in changes]


def said(cluster: DiskCluster, node: str) -> Client:
    """A client that has published a message at a node."""
    client = publisher_of(cluster[node])
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.settle()
    return client


@contextmanager
def slow_fills() -> Iterator[list[Callable[[], None]]]:
    """Copies that are to be queues begin to be when a test calls what is in the list."""
    begun: list[Callable[[], None]] = []
    begin_with = Queue.begin_with
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Queue,
            "begin_with",
            lambda self, copy, on_done: begun.append(lambda: begin_with(self, copy, on_done)),
        )
        yield begun


# --- promotion and handover ---


def promoted_before_the_last_word_of_the_dead() -> None:
    """n2 dies, and what it said last n3 alone has: n1, which is to be master, hears it first."""
    cluster = mirrored("n1", "n2", "n3")
    cluster.transfer("q", "n2")
    cluster.wait(2.0)
    cluster.is_held = True
    said(cluster, "n2")
    cluster.hop("n2", "n3")
    cluster.crash("n2")
    at_rest(cluster)
    assert [body for body, _ in cluster.contents("n1")] == [b"1", b"last"]


def handed_over_before_it_began() -> None:
    """A master whose copy is still being made a queue hands over."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    with slow_fills() as fills:
        cluster.crash("n1")
        cluster.settle()
        assert cluster.view().master_node == "n2"
        cluster.transfer("q", "n3")
        cluster.settle()
    assert not cluster.replica("n3").is_acting
    fills.pop()()
    cluster.settle()
    assert cluster.replica("n3").is_acting
    at_rest(cluster)


def master_again_before_it_began() -> None:
    """A member that hands over before it began is master again when its heir dies."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    with slow_fills() as fills:
        cluster.crash("n1")
        cluster.settle()
        cluster.transfer("q", "n3")
        cluster.crash("n3")
        cluster.settle()
    assert cluster.view().master_node == "n2"
    assert not cluster.replica("n2").is_acting
    fills.pop()()
    cluster.settle()
    at_rest(cluster)


def handed_over_twice_at_once() -> None:
    """n1 hands over to n2, and n2 to n3, which has not heard what n1 said; then n2 dies, and nobody answers for n1."""
    cluster = mirrored("n1", "n2", "n3")
    cluster.cut_links.add(("n2", "n3"))
    said(cluster, "n1")
    cluster.transfer("q", "n2")
    cluster.wait(2.0)
    cluster.transfer("q", "n3")
    cluster.wait(2.0)
    cluster.cut_links.add(("n1", "n3"))
    cluster.crash("n2")
    cluster.settle()
    cluster.cut_links.clear()
    at_rest(cluster)


def took_over_in_an_earlier_mastership() -> None:
    """n2 has taken over from n1, and says so again, which comes when it waits for n1 once more."""
    cluster = mirrored("n1", "n2", "n3")
    cluster.is_held = True
    cluster.transfer("q", "n2")
    cluster.apply_all("n1", "n2", "n3")
    late = TookOver(cluster.view().since)
    cluster.is_held = False
    cluster.wait(2.0)
    cluster.transfer("q", "n1")
    cluster.wait(2.0)
    assert not cluster.view().previous
    cluster.is_held = True
    said(cluster, "n1")
    cluster.transfer("q", "n2")
    change(cluster, late)
    cluster.apply_all("n2", "n3")
    assert not cluster.replica("n2").is_acting
    at_rest(cluster)


def waits_for_nobody_but_itself() -> None:
    """n1 hands over to n2, which dies: n1 has said its last word, and is master at once."""
    cluster = mirrored("n1", "n2", "n3")
    cluster.is_held = True
    client = said(cluster, "n1")
    cluster.transfer("q", "n2")
    cluster.apply_all("n1")
    cluster.crash("n2")
    cluster.is_held = False
    cluster.settle()
    assert cluster.replica("n1").is_acting
    assert client.methods() == ACK
    at_rest(cluster)


def transferred_to_the_dead() -> None:
    """A proposal comes too late: who is to be master has died, and still counts as synchronised."""
    cluster = mirrored("n1", "n2", "n3")
    cluster.is_held = True
    cluster.crash("n3")
    cluster.transfer("q", "n3")
    at_rest(cluster)


# --- members that come and go ---


def handed_over_and_back() -> None:
    """n4 hands over to n1, whose right neighbour n2 alone has both words, and dies: n3 hears them in their order."""
    cluster = mirrored("n1", "n2", "n3", "n4")
    cluster.transfer("q", "n4")
    cluster.wait(2.0)
    cluster.cut_links.add(("n2", "n3"))
    said(cluster, "n4")
    cluster.transfer("q", "n1")
    cluster.settle()
    assert cluster.replica("n1").is_acting
    said(cluster, "n1")
    cluster.crash("n2")
    at_rest(cluster)


def _unacknowledged() -> DiskCluster:
    """n3 has handed over to n1. Its last word has come to all; n2 alone doesn't know that."""
    cluster = mirrored("n1", "n2", "n3")
    cluster.transfer("q", "n3")
    cluster.wait(2.0)
    former = cluster.view().master
    cluster.is_held = True
    cluster.transfer("q", "n1")
    cluster.apply_all("n1", "n2", "n3")
    cluster.hop("n3", "n1", "n2", "n3")
    cluster.cut_links.add(("n1", "n2"))
    cluster.hop("n3", "n1")
    cluster.is_held = False
    cluster.wait(2.0)
    assert cluster.replica("n2").member.origins[former].pending
    assert not cluster.replica("n1").member.origins[former].pending
    assert not cluster.view().previous
    return cluster


def added_beside_the_dead() -> None:
    """A mirror is added where somebody died whose last word is still going round."""
    cluster = _unacknowledged()
    cluster.crash("n3")
    cluster.settle()
    cluster.start("n4")
    cluster.wait(2.0)
    assert cluster.view().member_on("n4") is not None
    cluster.cut_links.clear()
    at_rest(cluster)


def died_while_another_one_joined() -> None:
    """A mirror is joining when its left neighbour dies, whose last word is still going round."""
    cluster = _unacknowledged()
    cluster.cut_links.add(("n3", "n4"))
    cluster.start("n4")
    cluster.wait(2.0)
    member = cluster.view().member_on("n4")
    assert member is not None
    assert member.status == "joining"
    cluster.crash("n3")
    cluster.wait(2.0)
    cluster.cut_links.clear()
    at_rest(cluster)


def added_on_a_node_that_is_no_more() -> None:
    """A proposal comes too late: the node that is to have a copy has died, in that incarnation."""
    cluster = mirrored("n1", "n2", "n3")
    incarnation = cluster["n3"].incarnation
    cluster.crash("n3")
    cluster.settle()
    cluster.is_held = True
    change(cluster, AddMirror("n3", incarnation))
    cluster.apply_all("n1", "n2")
    assert cluster.view().member_on("n3") is None
    at_rest(cluster)


def dropped_in_a_flush() -> None:
    """A master has its mirrors dropped, and dies before that is heard: theirs are the only copies."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    cluster.is_held = True
    mirrors = [DropMirror(id_on(cluster, node)) for node in ("n2", "n3")]
    cluster.crash("n1")
    change(cluster, *mirrors)
    at_rest(cluster)
    assert [body for body, _ in cluster.contents("n3")] == [b"1", b"last"]


def stable_in_a_flush() -> None:
    """n1 has handed over and stays alone: what was said to nobody else is not stable while the queue has no master."""
    cluster = mirrored("n1", "n2", "n3", sync="manual")
    publish(cluster, "n1", b"0")
    cluster.start("n4")
    cluster.wait(3.0)
    master, newcomer = id_on(cluster, "n1"), id_on(cluster, "n4")
    assert newcomer not in cluster.view().synced
    cluster.is_held = True
    client = said(cluster, "n1")
    cluster.transfer("q", "n2")
    for node in ("n2", "n3", "n4"):
        cluster.crash(node)
    while [member.id for member in cluster.view().members] != [master, newcomer]:
        assert cluster.apply("n1")
        cluster.settle()
    view = cluster.view()
    assert (view.state, client.methods()) == ("flushing", [])
    cluster.is_held = False
    cluster.settle()
    assert client.methods() == ACK
    at_rest(cluster)


# --- what was published, and what came in ---


def sent_again_and_not_everywhere() -> None:
    """A new master has what is sent again; that it is on the disk of the other mirror too is still waited for."""
    cluster = spread(("n1", "n2", "n3", "n4"), ("n1", "n2", "n3"))
    cluster["n3"].is_disk_held = True
    client = said(cluster, "n4")
    assert client.methods() == []
    cluster.crash("n1")
    cluster.wait(2.0)
    assert cluster.replica("n2").is_acting
    assert id_on(cluster, "n3") in cluster.view().synced
    assert client.methods() == []
    cluster["n3"].is_disk_held = False
    cluster.settle()
    assert client.methods() == ACK
    assert cluster.contents("n4") == [(b"1", True)]


def what_came_in_is_known_to_mirrors() -> None:
    """The answer to a publish is lost with the master: it is sent again, and there once."""
    _sent_again(("n1", "n2"))


def what_came_in_is_known_to_newcomers() -> None:
    """A publish that is sent again is there once, even if the new master joined after it first came."""
    _sent_again(("n1",))


def _sent_again(copies: tuple[str, ...]) -> None:
    cluster = spread(("n1", "n2", "n3"), copies)
    cluster.cut_links.add(("n1", "n3"))
    client = said(cluster, "n3")
    want_copies(cluster, "n1", "n2")
    assert len(cluster.view().synced) == 2
    assert client.methods() == []
    cluster.crash("n1")
    cluster.cut_links.clear()
    cluster.settle()
    assert client.methods() == ACK
    assert cluster.contents("n3") == [(b"1", True)]


def numbers_are_given_once() -> None:
    """S4: a new master goes on behind all that ever was in the queue, be it empty."""
    cluster = mirrored("n1", "n2")
    publish(cluster, "n1", b"1", b"2")
    assert len(cluster.contents("n1")) == 2
    cluster.wait(LAZY_S)
    cluster.crash("n1")
    cluster.settle()
    assert cluster.queue("n2").next_seq == 3
    at_rest(cluster)


def removed_before_it_came() -> None:
    """The messages that a synchronisation brings have been removed in between."""
    cluster = mirrored("n1", "n2", "n3")
    cluster.crash("n3")
    cluster.settle()
    publish(cluster, "n1", b"1", b"2", b"3")
    cluster.cut_links.add(("n1", "n3"))
    cluster.start("n3")
    cluster.wait(2.0)
    consumer = cluster["n1"].client()
    for tag in (1, 2):
        consumer.send(1, BasicGet(queue="q"))
        consumer.send(1, BasicAck(delivery_tag=tag))
        cluster.wait(LAZY_S)
    assert id_on(cluster, "n3") not in cluster.view().synced
    cluster.cut_links.clear()
    at_rest(cluster)


def told_after_it_heard_something() -> None:
    """A newcomer hears of what is published before it is told what there was, which it lacks."""
    cluster = mirrored("n1", "n2", sync="manual")
    publish(cluster, "n1", b"1", b"2")
    cluster.is_held = True
    cluster.start("n3")
    for _ in range(2):  # then somebody proposes that it gets a copy
        cluster.apply_all("n1", "n2", "n3")
    newcomer = id_on(cluster, "n3")
    cluster.hop("n2", "n3")
    assert proposed(cluster, ActivateMirror)
    said(cluster, "n1")
    cluster.hop("n1", "n2", "n3")
    master = cluster.view().master
    assert cluster.replica("n3").member.last_of(master) == cluster.replica("n1").member.last_of(master)
    cluster.is_held = False
    cluster.wait(3.0)
    view = cluster.view()
    assert view.member(newcomer) is not None
    assert newcomer not in view.synced
