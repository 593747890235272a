"""A replica takes the roles of a node in one mirrored queue: who is promoted with what, and when confirms go out.

Whole brokers with disks. Rows of reliability §1.1 and §2.2; §4.3-§4.8.
"""

from collections.abc import Callable
from typing import Any

import pytest

from cluster.mirror import replicator
from cluster.mirror.replicator import Replicator
from node.amqp.methods import BasicAck, BasicConsume, BasicGet, BasicNack, BasicQos
from node.catalogue.commands import RemoveMember, SetPolicy
from node.catalogue.mirrors.views import DropMirror, EraseMirror, GiveUp, MirrorSynced, TookOver
from node.queue.queue import Queue
from tests.kit.disk_cluster import (
    PERSISTENT,
    DiskCluster,
    id_on,
    mirrored,
    proposed,
    publish,
    publisher_of,
    with_a_mirror_that_lacks,
)

# --- promotion --------------------------------------------------------------------------------------------


def test_l1_an_unsynchronised_mirror_is_not_promoted() -> None:
    """§1.1 L1, §2.2 promote_on_failure: the queue waits for its master, and nothing is lost."""
    cluster = with_a_mirror_that_lacks(10)
    cluster.crash("n1")
    cluster.settle()
    view = cluster.view()
    assert (view.state, view.recoverable) == ("down", ("n1",))
    cluster.start("n1")
    cluster.advance(1.0)
    assert [body for body, _ in cluster.contents("n2")] == [b"%d" % number for number in range(1, 11)]


def test_l1_promotion_of_an_unsynchronised_mirror_where_the_policy_says_always() -> None:
    """§1.1 L1, §2.2 promote_on_failure: `always`: 0 messages. The log says what that means."""
    cluster = with_a_mirror_that_lacks(10, **{"ha-promote-on-failure": "always"})
    cluster.crash("n1")
    cluster.settle()
    assert cluster.contents("n2") == []
    assert any("data_loss_possible" in text for text in cluster["n2"].events)
    assert cluster.queue("n2").next_seq == 11, "numbers are never given twice (S4)"


@pytest.mark.parametrize("is_synced", [True, False])
def test_who_lacks_something_believes_no_front_end_that_it_has_a_publish(is_synced: bool) -> None:
    """§4.4: a front end sends again what was not answered. A copy that lacks messages may have been told of publishes
    that it lacks: they are taken in again.
    """
    policy = {"ha-promote-on-failure": "always"}
    cluster = mirrored("n1", "n2", "n3", sync="manual", **policy)
    client = publisher_of(cluster["n3"])
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=1)]
    if not is_synced:
        cluster.crash("n2")
        cluster.settle()
        cluster.start("n2")
        cluster.advance(1.0)
        cluster.change_view("q", lambda view: DropMirror(id_on(cluster, "n3")))
        assert cluster.replica("n2").follower is not None
    incarnation = cluster["n3"].incarnation
    cluster.is_held = True
    client.publish(1, "q", b"2", properties=PERSISTENT)
    cluster.hop("n3", "n1")
    cluster.hop("n1", "n2")
    follower = cluster.replica("n2").follower
    assert follower is not None
    assert follower.senders[incarnation] == 2
    cluster.is_held = False
    cluster.crash("n1")
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=2)]
    bodies = [body for body, _ in cluster.contents("n3")]
    assert bodies == ([b"1", b"2"] if is_synced else [b"2", b"2"]), "twice is the lesser evil"


def test_d1_what_was_acknowledged_may_come_to_life_again() -> None:
    """§1.1 D1: an acknowledgement that no mirror heard of; the message is redelivered, no other one is lost."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n3", b"1", b"2")
    consumer = cluster["n1"].client()
    consumer.send(1, BasicGet(queue="q"))
    assert consumer.bodies() == [b"1"]
    cluster.is_held = True
    consumer.send(1, BasicAck(delivery_tag=1))
    cluster["n1"].turn()
    assert cluster.queue("n1").unacked_count == 0
    cluster.is_held = False
    cluster.crash("n1")
    cluster.settle()
    assert cluster.contents("n3") == [(b"1", True), (b"2", True)]


def test_d2_all_that_a_promoted_mirror_has_counts_as_delivered() -> None:
    """§1.1 D2; what comes after that doesn't."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n3", b"1", b"2")
    consumer = cluster["n3"].client()
    consumer.send(1, BasicQos(prefetch_count=1))
    consumer.send(1, BasicConsume(queue="q"))
    assert consumer.bodies() == [b"1"]
    consumer.lose()
    cluster.crash("n1")
    cluster.settle()
    publish(cluster, "n3", b"3")
    assert cluster.contents("n3") == [(b"1", True), (b"2", True), (b"3", False)]


def test_w4_a_death_while_another_one_changes_the_master() -> None:
    """§1.1 W4: n1 dies, n2 has asked for its erasure and dies, too, before that is heard of everywhere."""
    cluster = mirrored("n1", "n2", "n3", "n4")
    publish(cluster, "n4", b"1", b"2")
    cluster.is_held = True
    cluster.crash("n1")
    cluster.apply_all("n2", "n3", "n4")
    cluster.hop("n4", "n2", "n3", "n4", "n2")
    assert len(proposed(cluster, EraseMirror)) == 1
    cluster.apply_all("n2")
    assert cluster.replica("n2").is_acting
    cluster.crash("n2")
    cluster.is_held = False
    cluster.settle()
    view = cluster.view()
    assert (view.state, view.master_node) == ("live", "n3")
    assert [member.node for member in view.members] == ["n3", "n4"]
    assert [body for body, _ in cluster.contents("n4")] == [b"1", b"2"]


# --- who acts ---------------------------------------------------------------------------------------------


def test_the_next_master_begins_with_the_last_word_of_the_one_before() -> None:
    """§4.1 transfer: not with the view; until then who asks it waits."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n3", b"1")
    cluster.is_held = True
    cluster.transfer("q", "n3")
    cluster.apply_all("n3")
    replica = cluster.replica("n3")
    assert replica.is_master
    assert not replica.is_acting
    cluster.apply_all("n1", "n2")
    assert not cluster.replica("n1").is_acting
    cluster.hop("n1", "n2", "n3")
    assert cluster.replica("n3").is_acting
    assert cluster.queue("n3").backlog.count == 1


def test_a_master_has_taken_over_when_its_first_broadcast_has_come_round() -> None:
    """`TookOver` is not asked for when it begins: some may still have to hear the last word of the one before."""
    cluster = mirrored("n1", "n2", "n3")
    cluster.is_held = True
    cluster.transfer("q", "n3")
    cluster.apply_all("n1", "n2", "n3")
    cluster.hop("n1", "n2", "n3")
    assert cluster.replica("n3").is_acting
    cluster.advance(2.0)
    assert proposed(cluster, TookOver) == []
    cluster.hop("n3", "n1", "n2")
    assert proposed(cluster, TookOver) == []
    cluster.hop("n2", "n3")
    assert len(proposed(cluster, TookOver)) == 1
    cluster.is_held = False
    cluster.settle()
    assert cluster.view().previous == 0


def test_another_view_does_not_make_it_sooner() -> None:
    """A master has to hear its own broadcast before it has taken over, also while somebody else dies."""
    cluster = mirrored("n1", "n2", "n3", "n4")
    cluster.is_held = True
    cluster.transfer("q", "n3")
    cluster.apply_all("n1", "n2", "n3")
    cluster.hop("n1", "n2", "n3")
    assert cluster.replica("n3").is_acting
    cluster.crash("n4")
    cluster.apply_all("n1", "n2", "n3")
    cluster.advance(2.0)
    assert proposed(cluster, TookOver) == []
    cluster.is_held = False
    cluster.settle()
    assert len(proposed(cluster, TookOver)) == 1


def test_a_master_that_is_it_again_before_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that hands over before it has begun, to one that dies, has only itself to wait for."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    filled: list[Callable[[], None]] = []
    begin_with = Queue.begin_with
    monkeypatch.setattr(
        Queue,
        "begin_with",
        lambda self, copy, on_done: filled.append(lambda: begin_with(self, copy, on_done)),
    )
    cluster.crash("n1")
    cluster.settle()
    assert cluster.view().master_node == "n2"
    cluster.transfer("q", "n3")
    cluster.settle()
    cluster.crash("n3")
    cluster.settle()
    assert cluster.view().master_node == "n2"
    for _ in range(2):
        assert not cluster.replica("n2").is_acting
        filled.pop()()
        cluster.settle()
    assert cluster.replica("n2").is_acting
    assert [body for body, _ in cluster.contents("n2")] == [b"1"]


def test_each_mastership_tells_the_unsynchronised_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that is master again tells the unsynchronised anew what there is."""
    cluster = mirrored("n1", "n2", "n3", sync="manual")
    publish(cluster, "n1", b"1")
    cluster.crash("n3")
    cluster.settle()
    told: list[tuple[str, int]] = []
    send_inventory = Replicator.send_inventory

    def noted(self: Replicator, member: int) -> None:
        told.append((self._host._broker.settings.node_name, member))  # type: ignore[attr-defined]
        send_inventory(self, member)

    monkeypatch.setattr(Replicator, "send_inventory", noted)
    cluster.start("n3")
    cluster.advance(1.0)
    for node in ("n2", "n1"):
        cluster.transfer("q", node)
        cluster.advance(1.0)
    newcomer = id_on(cluster, "n3")
    assert told == [("n1", newcomer), ("n2", newcomer), ("n1", newcomer)]


def test_former_master_answers_those_who_waited_for_it() -> None:
    """§2.2 confirms_survive_policy: what is under way when it hands over is confirmed by it, not nacked."""
    cluster = mirrored("n1", "n2")
    client = publisher_of(cluster["n1"])
    cluster.is_held = True
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.settle()
    cluster.transfer("q", "n2")
    cluster.apply_all("n1", "n2")
    assert client.methods() == []
    cluster.is_held = False
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=1)]
    assert cluster.queue("n2").backlog.count == 1, "and it is there once"


def test_former_master_remembers_what_front_ends_published() -> None:
    """§4.4: it may become master again, and what was not answered comes again."""
    cluster = mirrored("n1", "n2", "n3")
    client = publisher_of(cluster["n3"])
    cluster.is_held = True
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.hop("n3", "n1", "n2", "n3")
    cluster.transfer("q", "n2")
    cluster.apply_all("n1", "n2", "n3")
    cluster.crash("n2")
    cluster.is_held = False
    cluster.settle()
    assert cluster.view().master_node == "n1"
    assert client.methods() == [BasicAck(delivery_tag=1)]
    assert [body for body, _ in cluster.contents("n3")] == [b"1"]


def test_front_ends_that_are_gone_are_forgotten_everywhere() -> None:
    """Front ends that are gone never publish again, so they are forgotten: another publisher is another incarnation."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n3", b"1")
    incarnation = cluster["n3"].incarnation
    replicator_, follower = cluster.replica("n1").replicator, cluster.replica("n2").follower
    assert replicator_ is not None
    assert follower is not None
    assert replicator_.senders[incarnation] == follower.senders[incarnation] == 1
    cluster.crash("n3")
    cluster.settle()
    assert replicator_.senders == follower.senders == {}


def test_a_master_that_is_lost_does_nothing_any_more() -> None:
    """§1.1 L8: what it would do by a timer, it must not: its messages are another node's."""
    cluster = DiskCluster("n1", "n2", "n3")
    policy: dict[str, Any] = {
        "ha-mode": "all",
        "message-ttl": 60_000,
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "dead",
    }
    cluster.submit(SetPolicy("/", "ha", "^q", policy))
    cluster.declare("n3", "dead", durable=True)
    cluster.declare_mirrored("q", "n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    cluster.cut_off.add("n1")
    cluster.declare_dead("n1")
    cluster.settle()
    cluster.cut_off.clear()
    cluster.settle()
    assert list(cluster["n1"].broker.local_queues) == []
    cluster.advance(70.0)
    assert [body for body, _ in cluster.contents("n3", "dead")] == [b"1"]


@pytest.mark.parametrize("slow", ["n2", "n3"])
@pytest.mark.parametrize("policy", ["evict", "block"])
def test_w9_slow_mirrors(slow: str, policy: str) -> None:
    """§1.1 W9, §4.9: a mirror that does not pass on what it gets for ten seconds is asked for, found and dropped; or
    waited for, if the policy is that.
    """
    cluster = mirrored("n1", "n2", "n3", **{"ha-slow-mirror": policy})
    client = publisher_of(cluster["n1"])
    cluster.frozen.add(slow)
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.advance(8.0)
    assert client.methods() == []
    cluster.advance(10.0)
    told = [text for text in cluster["n1"].events if slow in text]
    if policy == "evict":
        assert client.methods() == [BasicAck(delivery_tag=1)]
        assert cluster.view().member_on(slow) is None
        assert "Dropping queue mirror" in told[0]
    else:
        assert client.methods() == []
        assert "Waiting for mirror" in told[0]
    cluster.frozen.clear()
    cluster.advance(30.0)
    assert len(cluster.view().synced) == 3
    assert policy == "evict" or client.methods() == [BasicAck(delivery_tag=1)]


def test_w9_publishers_go_on_when_the_ring_does_or_the_master_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """§1.1 W9: no permanent flow."""
    monkeypatch.setattr(replicator, "CONGESTED_BYTES", 1000)
    cluster = mirrored("n1", "n2", "n3")
    client = cluster["n1"].client()
    for end in ("the ring goes on", "it moves"):
        cluster.is_held = True
        for _ in range(2):
            client.publish(1, "q", b"x" * 2000)
            cluster.settle()
        assert client.connection.throttle.holds
        if end == "it moves":
            cluster.transfer("q", "n2")
        cluster.is_held = False
        cluster.settle()
        assert not client.connection.throttle.holds
    cluster.advance(1.0)
    assert len(cluster.contents("n3")) == 4


def test_l2_a_transfer_never_empties_the_queue() -> None:
    """§1.1 L2: the master moves and its node leaves the cluster at once."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n3", b"1", b"2")
    cluster.is_held = True
    cluster.transfer("q", "n2")
    cluster.apply_all("n1", "n2", "n3")
    cluster.crash("n1")
    cluster.is_held = False
    cluster.submit(RemoveMember("n1"))
    view = cluster.view()
    assert (view.state, view.master_node, view.previous) == ("live", "n2", 0)
    assert [body for body, _ in cluster.contents("n3")] == [b"1", b"2"]


# --- confirms ---------------------------------------------------------------------------------------------


def test_nothing_is_confirmed_while_a_dead_synchronised_mirror_is_not_erased() -> None:
    """Nothing is confirmed while a dead mirror without the message may bring the queue back: `View.is_settled`."""
    cluster = mirrored("n1", "n2", "n3")
    client = publisher_of(cluster["n1"])
    cluster.is_held = True
    cluster.crash("n3")
    for node in ("n1", "n2"):
        cluster.apply(node)
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.hop("n1", "n2", "n1", "n2", "n1")
    replica = cluster.replica("n1")
    assert replica.member.last_of(replica.id) == replica._confirmed == replica._durable
    assert client.methods() == [], "though all members have it on their disks"
    assert len(proposed(cluster, EraseMirror)) == 1
    cluster.apply_all("n1")
    assert client.methods() == [BasicAck(delivery_tag=1)]


def test_a_dead_unsynchronised_mirror_holds_up_nobody() -> None:
    """A dead unsynchronised mirror holds up nobody, as its disk counts for nothing."""
    cluster = with_a_mirror_that_lacks(2)
    client = publisher_of(cluster["n1"])
    cluster.is_held = True
    cluster.crash("n2")
    cluster.apply_all("n1")
    client.publish(1, "q", b"3", properties=PERSISTENT)
    assert client.methods() == [BasicAck(delivery_tag=1)]


def test_l7_alone_is_who_is_alone_in_a_view() -> None:
    """§1.1 L7: nobody answers; that is no reason to believe that nobody is there."""
    cluster = mirrored("n1", "n2", "n3")
    client = publisher_of(cluster["n1"])
    cluster.cut_off.add("n1")
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.advance(60.0)
    assert client.methods() == []
    cluster.cut_off.clear()
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=1)]


def test_l8_a_second_master_confirms_nothing() -> None:
    """§1.1 L8: the others have given up on it, and it doesn't know."""
    cluster = mirrored("n1", "n2", "n3")
    old, new = publisher_of(cluster["n1"]), publisher_of(cluster["n2"])
    cluster.cut_off.add("n1")
    cluster.declare_dead("n1")
    cluster.settle()
    old.publish(1, "q", b"old", properties=PERSISTENT)
    new.publish(1, "q", b"new", properties=PERSISTENT)
    cluster.settle()
    assert old.methods() == []
    assert new.methods() == [BasicAck(delivery_tag=1)]
    assert cluster.queue("n1").backlog.count == cluster.queue("n2").backlog.count == 1
    cluster.cut_off.clear()
    cluster.settle()
    assert [type(method) for method in old.methods()] == [BasicNack], "nobody knows what became of it"
    assert cluster.contents("n3") == [(b"new", False)]


@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")])
def test_l9_who_learns_of_its_own_death_keeps_what_the_queue_comes_back_from(order: tuple[str, str]) -> None:
    """§1.1 L9: both were cut off and read in the log, while their brokers run, that the queue is down."""
    cluster = mirrored("n1", "n2", **{"ha-mode": "nodes", "ha-params": ["n1", "n2"]})
    cluster.start("n3")
    publish(cluster, "n1", b"1", b"2")
    for node in ("n1", "n2"):  # then the master's are in segments, too
        cluster.crash(node)
        cluster.start(node)
        cluster.advance(2.0)
        cluster[node].page_out()
    assert cluster.view().master_node == "n1"
    stored = {node: cluster[node].disk.names("queues") for node in order}
    cluster.cut_off |= {"n1", "n2"}
    for node in order:
        cluster.declare_dead(node)
    cluster.settle()
    cluster.cut_off.clear()
    cluster.advance(5.0)
    assert cluster.view().state == "down"
    for node in order:
        assert list(cluster[node].broker.local_queues) == []
        assert cluster[node].disk.names("queues") == stored[node] != []
        cluster.crash(node, is_noticed=False)
        cluster.start(node)
    cluster.advance(40.0)
    assert [body for body, _ in cluster.contents("n3")] == [b"1", b"2"]


def test_l9_who_learns_of_its_own_death_drops_its_copy_once_the_queue_goes_on_without_it() -> None:
    """A copy may be what the queue comes back from until its dead node is erased; then it is dropped."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    cluster["n3"].page_out()
    cluster.cut_off.add("n3")
    cluster.is_held = True
    cluster.declare_dead("n3")
    cluster.apply_all("n1", "n2")
    cluster.cut_off.clear()
    assert cluster.apply("n3")
    cluster["n3"].turn()
    assert cluster["n3"].disk.names("queues") != []
    cluster.is_held = False
    cluster.advance(2.0)
    assert cluster["n3"].disk.names("queues") == []


@pytest.mark.parametrize("confirm", ["all", "master"])
def test_ha_confirm(confirm: str) -> None:
    """`ha-confirm: master`: the disks of mirrors are not waited for; a change of the policy counts at once."""
    cluster = mirrored("n1", "n2", **{"ha-confirm": confirm})
    client = publisher_of(cluster["n1"])
    cluster["n2"].is_disk_held = True
    client.publish(1, "q", b"1", properties=PERSISTENT)
    assert client.methods() == ([] if confirm == "all" else [BasicAck(delivery_tag=1)])
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-confirm": "master"}))
    client.publish(1, "q", b"2", properties=PERSISTENT)
    methods = client.methods()
    assert isinstance(methods[-1], BasicAck)
    assert methods[-1].delivery_tag == 2


def test_disk_that_breaks_is_never_called_safe() -> None:
    """L5: the master's node ends when its own disk has broken; who waits hears from the next master, and no nack."""
    cluster = mirrored("n1", "n2")
    client = publisher_of(cluster["n1"])
    cluster["n1"].disk.fail_sync()
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.settle()
    assert client.methods() == []
    remote = publisher_of(cluster["n2"])
    remote.publish(1, "q", b"2", properties=PERSISTENT)
    cluster.settle()
    assert remote.methods() == []
    cluster.crash("n1")
    cluster.advance(2.0)
    assert remote.methods() == [BasicAck(delivery_tag=1)]


def test_synchronised_mirror_whose_disk_breaks_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """§4.5: it would hold up all confirms. What it asks for may be lost."""
    cluster = mirrored("n1", "n2", "n3")
    client = publisher_of(cluster["n1"])
    replica = cluster.replica("n2")
    lost: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(replica, "propose", lost.append)
        cluster["n2"].disk.fail_sync()
        client.publish(1, "q", b"1", properties=PERSISTENT)
        cluster.settle()
    assert lost == [GiveUp(replica.id)]
    assert client.methods() == []
    cluster.advance(2.0)
    assert cluster.view().member(replica.id) is None
    assert client.methods() == [BasicAck(delivery_tag=1)]


def test_mirror_whose_disk_breaks_is_never_synchronised() -> None:
    """§4.5: what it lacks it may have in memory; that is not enough."""
    cluster = with_a_mirror_that_lacks(3)
    cluster["n2"].disk.fail_sync()
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    cluster.advance(3.0)
    assert proposed(cluster, MirrorSynced) == []
    publish(cluster, "n1", b"4")


def test_what_a_former_master_has_not_written_is_waited_for() -> None:
    """§4.4, I8: a confirm means that every synchronised copy's disk has the message, be it a former master's."""
    cluster = mirrored("n1", "n2", "n3")
    client = publisher_of(cluster["n3"])
    cluster["n1"].is_disk_held = True
    client.publish(1, "q", b"1", properties=PERSISTENT)
    assert client.methods() == []
    cluster.transfer("q", "n2")
    cluster.advance(2.0)
    assert cluster.view().master_node == "n2"
    assert not cluster.view().previous
    assert client.methods() == []
    cluster["n1"].is_disk_held = False
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=1)]


def test_what_a_master_of_a_moment_has_not_written_is_waited_for() -> None:
    """The mastership goes from n1 to n2 and on to n3 before anything is on the disk of n2."""
    cluster = mirrored("n1", "n2", "n3")
    client = publisher_of(cluster["n3"])
    cluster["n2"].is_disk_held = True
    client.publish(1, "q", b"1", properties=PERSISTENT)
    for node in ("n2", "n3"):
        cluster.transfer("q", node)
        cluster.advance(2.0)
    assert cluster.view().master_node == "n3"
    assert client.methods() == []
    cluster["n2"].is_disk_held = False
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=1)]
