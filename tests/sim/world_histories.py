"""Histories of the simulation of everything: what seeds come upon too seldom, each of which finds one of the bugs.

Source: reliability §5.2 (mutation audit).
"""

from collections.abc import Callable
from typing import Final

from cluster.gm_ring.messages import Activity, Item
from cluster.gm_ring.wire import encode_packet
from node.amqp.methods import QueueDeclare
from node.store.disk import Read
from tests.sim.mirror_checks import replica_of
from tests.sim.mirror_clients import Getter
from tests.sim.mirror_world import Violation
from tests.sim.world_copies import ids_on_disk
from tests.sim.world_story import FIVE, PARTED_S, SCRUBBED_S, Story


def rot_on_a_mirror() -> None:
    """Rot on a mirror's disk hurts nobody, and its node has another copy soon all the same."""
    story = Story()
    a, b, _ = story.roles()
    story.move_master(a)
    story.fill(60)
    story.page_all()
    story.flip(b, story.files(b, "/1.idx")[0])
    story.world.run(SCRUBBED_S)
    story.settle()
    story.check_disks()
    story.end()


def rot_on_who_takes_over() -> None:
    """A mirror becomes master of messages that its disk cannot read, and others can: nothing overtakes those."""
    story = Story(names=FIVE)
    a, b, c, _, leader = story.roles()
    story.mirror_on(a, b, c)
    for size in (40, 90) * 8:
        story.fill(1, size)
    story.page_all()
    consumer = story.consumer(a, 1, "slow")
    story.wait(lambda: sum(each.consumed_at is not None for each in story.ledger.messages) > 2)
    story.dismiss(consumer)
    story.world.run(1.0)
    heir = story.world.nodes[next(each.node for each in story.view.members if each.node != a.name)]
    story.wipe(heir, story.files(heir, "/0.idx")[0])
    story.end_for_good(a)
    story.watch(lambda: story.master is heir)
    story.cut(heir, leader)  # so it takes a moment until yet another one is master
    seen: list[int] = []
    consumer = story.consumer(heir, 0, "no_ack", lambda message: seen.append(message.id))
    story.cut(heir, leader, is_cut=False)
    story.world.run(5.0)
    if seen != sorted(seen):
        raise Violation(f"what is delivered is overtaken: {seen}")
    story.dismiss(consumer)
    story.end()


def total_restart_with_a_damaged_copy() -> None:
    """All nodes are killed, and what the last master had is damaged."""
    story = Story()
    a = story.roles()[0]
    story.move_master(a)
    story.fill(60)
    story.page_all()
    for node in story.world.alive:
        story.world.crash(node.name, power=False)
    story.flip(a, story.files(a, "/1.idx")[0])
    for name in story.names:
        story.world.start(name)
    story.settle()
    story.end()


def total_restart_with_a_copy_that_rots_when_it_was_read() -> None:
    """All nodes are killed, and what the last master has rots after its node has found that nothing is missing."""
    story = Story()
    a, b, c = story.roles()
    story.move_master(a)
    story.fill(60)
    story.page_all()
    for node in story.world.alive:
        story.world.crash(node.name, power=False)
    story.world.start(a.name)
    story.world.start(b.name)
    story.wait(lambda: bool(story.view.offers) and bool(a.entered))
    story.flip(a, story.files(a, "/1.idx")[0])
    story.world.start(c.name)
    story.wait(lambda: story.view.state == "live")
    story.end()


def a_neighbour_says_nonsense() -> None:
    """A mirror hears what cannot be and leaves the ring: it never comes back as the same member, with nothing."""
    story = Story()
    a, b, _ = story.roles()
    story.move_master(a)
    story.fill(5)
    view = story.view
    member = view.member_on(b.name)
    assert member is not None
    left = view.member(view.left_of(member.id))
    assert left is not None
    gap = Activity(view.version, member.edge, [Item(left.id, 1000, [], 1000, -1)])
    b.mirrors.receive(left.node, [encode_packet(story.record.uid, left.id, member.id, gap)])
    story.world.run(5.0)
    story.settle()
    story.check_disks()
    story.end()


def nobody_removes_a_dead_mirror() -> None:
    """A dead mirror stays in the log, as nobody can tell it that all is known: nothing is confirmed meanwhile."""
    story = Story(names=FIVE)
    a, b, c, _, leader = story.roles()
    story.mirror_on(a, b, c)
    _, dead, owner = story.ring()
    client = story.publisher(a)
    story.cut(owner, leader)
    story.end_for_good(dead)
    story.wait(lambda: any(member.status == "dead" for member in story.view.members), 3.0)
    client.give(5)
    story.world.run(0.3)
    story.check_disks()
    story.end()


def last_word_of_a_master_that_is_cut_off() -> None:
    """A master hands over what nobody hears, and dies: its publisher was not told that all is well."""
    story = Story()
    a, b, leader = story.roles()
    story.move_master(a)
    client = story.publisher(a)
    story.cut(a, b)
    story.cut(a, leader)
    client.give(5)
    story.world.run(0.1)
    story.transfer(b)
    story.wait(lambda: a.log.catalogue.queue("/", "plain") == story.record)
    story.world.run(0.1)
    story.end_for_good(a)
    story.wait(lambda: story.master is not a and story.view.state == "live")
    story.end()


def one_publish_while_mirrors_are_parted() -> None:
    """One of two mirrors goes that do not hear each other, before one of their nodes has to."""
    story = Story(names=FIVE)
    a, b, c, *_ = story.roles()
    story.mirror_on(a, b, c)
    client = story.publisher(a)
    story.part(b, c)
    client.give(1)
    story.wait(lambda: not client.unconfirmed, PARTED_S)
    story.end()


def master_that_lacks_messages() -> None:
    """A master that lacks messages hands over all the same, and the new master has its last word at once."""
    story = Story(names=FIVE)
    a, b, c, *_ = story.roles()
    story.mirror_on(a, b, c)
    story.fill(5)
    heir = story.ring()[-1]
    replicator = replica_of(a, story.record).replicator
    assert replicator is not None
    replicator.live.add(range(100, 103))  # which no queue and no client has
    story.damage(a)
    story.transfer(heir)
    story.wait(lambda: story.master is heir and story.is_steady, 5.0)
    story.end()


def message_file_gone_on_a_mirror() -> None:
    """A node that notices a missing file has another copy soon, of which nothing is in that file: it need not end."""
    story = Story()
    a, b, _ = story.roles()
    story.move_master(a)
    story.fill(3, 400)
    process = b.process
    story.lose(b, story.files(b, ".rdq")[-1])
    story.world.run(SCRUBBED_S)
    story.settle()
    story.fill(3, 400)
    story.check_disks()
    if b.process != process:
        raise Violation(f"{b.name} has ended, and need not have")
    story.end()


def message_file_gone_that_nobody_has_read() -> None:
    """A node that gets another copy before it has noticed a missing file ends, instead of writing on to it."""
    story = Story()
    a, b, _ = story.roles()
    story.mirror_on(a, b)
    story.move_master(a)
    story.fill(3, 400)
    story.lose(b, story.files(b, ".rdq")[-1])
    story.mirror_on(a)
    story.settle()
    story.mirror_on(a, b)
    story.settle()
    story.check_disks()
    story.end()


def short_of_memory_while_a_mirror_takes_over() -> None:
    """A mirror reads what its disk has in a segment, and is told to put more into the same one."""
    story = Story()
    a, b, _ = story.roles()
    story.move_master(a)
    for size in (40, 90) * 4:
        story.fill(1, size)
    story.page_out()
    consumer = story.consumer(a, 1, "slow")
    story.wait(lambda: sum(each.consumed_at is not None for each in story.ledger.messages) > 2)
    story.dismiss(consumer)  # of unequal sizes: it has to be read what is left
    story.fill(3)
    story.hang_disk(b)
    story.transfer(b)
    story.wait(lambda: replica_of(b, story.record).is_filling, 3.0)
    b.pager.sample(0, b.broker.local_queues)
    b.busy()
    story.world.run(0.1)
    story.hang_disk(b, is_hung=False)
    story.settle()
    story.end()


def last_copy_becomes_a_queue_when_the_policy_has_gone() -> None:
    """A master dies and the only mirror, whose disk is slow to say what is left, is to be mirrored no more."""
    story = Story()
    a, b, _ = story.roles()
    story.mirror_on(a, b)
    for size in (40, 90) * 4:
        story.fill(1, size)
    story.page_out()
    consumer = story.consumer(a, 1, "slow")
    story.wait(lambda: sum(each.consumed_at is not None for each in story.ledger.messages) > 2)
    story.dismiss(consumer)  # of unequal sizes: it has to be read what is left
    story.world.run(1.0)
    story.hang_disk(b)
    story.end_for_good(a)
    story.wait(lambda: replica_of(b, story.record).is_filling)
    story.set_policy({"max-length": 100_000})
    story.world.run(2.0)
    story.hang_disk(b, is_hung=False)
    story.wait(lambda: story.record.view is None)
    story.end()


def mirrors_go_while_a_disk_hangs() -> None:
    """A queue has no mirrors any more, and its only disk has not yet written what was published."""
    story = Story()
    a = story.roles()[0]
    story.move_master(a)
    client = story.publisher(a)
    story.hang_disk(a)
    client.give(5)
    story.world.run(0.1)
    story.set_policy({"max-length": 100_000})
    story.wait(lambda: story.record.view is None, 9.0)
    story.world.run(0.1)
    story.check_disks()
    story.end()


def publisher_that_hears_nothing() -> None:
    """Messages published by way of a node that hears no answers come in once, whoever is master meanwhile."""
    story = Story(names=FIVE)
    a, b, c, d, _ = story.roles()
    story.mirror_on(a, b)
    client = story.publisher(d)
    story.cut(a, d)
    client.give(5)
    story.world.run(0.5)
    story.mirror_on(a, c)
    story.end_for_good(a)
    story.wait(lambda: story.master is c and story.view.state == "live")
    story.world.run(5.0)
    story.end()


def deliveries_of_a_former_master() -> None:
    """Deliveries that a master had sent arrive when it is master again, after another one sent the same."""
    story = Story()
    a, b, leader = story.roles()
    story.mirror_on(a, leader)
    story.consumer(b, 1, "slow")
    story.cut(a, b)
    story.fill(60)
    story.world.run(0.2)
    story.move_master(leader)
    story.world.run(3.0)
    story.move_master(a)
    story.cut(a, b, is_cut=False)
    story.world.run(5.0)
    story.end()


def master_dies_while_its_mirrors_are_parted() -> None:
    """A dead master's last words do not go round among parted mirrors: one of them goes, and the other one goes on."""
    story = Story(names=FIVE)
    a, b, c, d, leader = story.roles()
    story.mirror_on(a, b, c)
    story.part(b, c)
    story.end_for_good(a)
    story.wait(lambda: a.name not in {member.node for member in story.view.ring})
    story.check_served(d, leader)
    story.end()


def last_word_that_never_comes() -> None:
    """A master hands over to one that does not hear its last word: that one gives up, and all goes on."""
    story = Story(names=FIVE)
    a, b, c, d, leader = story.roles()
    story.mirror_on(a, b, c)
    _, between, heir = story.ring()
    story.part(between, heir)
    story.transfer(heir)
    story.check_served(d, leader)
    story.end()


def last_word_that_comes_too_late() -> None:
    """A chosen master has declined, and hears neither that this was granted nor, until then, the last word."""
    story = Story(names=FIVE)
    a, b, c, _, leader = story.roles()
    story.mirror_on(a, b, c)
    _, between, heir = story.ring()
    story.part(between, heir)
    story.transfer(heir)
    replica = replica_of(heir, story.record)
    since = story.view.since
    story.watch(lambda: replica._watch._declined == since)
    story.cut(leader, heir)
    story.wait(lambda: story.master is a, 1.0)
    story.cut(between, heir, is_cut=False)
    story.cut(heir, between, is_cut=False)
    end = story.world.now + 3.0
    while story.world.now < end:
        story.world.run(0.05)
        if replica.is_acting and story.master is a:
            raise Violation(f"{heir.name} acts as master, which it has declined to be, beside {a.name}")
    story.end()


def lost_messages_that_nobody_asks_for() -> None:
    """Messages that have rotted on the only disk are counted no more."""
    story = Story({"ha-mode": "exactly", "ha-params": 1})
    a = story.master
    story.fill(60)
    story.page_all()
    story.end_for_good(a)  # what it finds when it starts is known by pages only
    story.world.start(a.name)
    story.settle()
    story.page_out()
    story.flip(a, story.files(a, "/2.idx")[0])
    story.world.run(SCRUBBED_S)
    story.end()


def one_read_that_the_disk_refuses() -> None:
    """The only copy is read again a moment later, and nothing is lost."""
    story = Story({"ha-mode": "exactly", "ha-params": 1})
    a = story.master
    story.fill(60)
    story.page_all()
    story.page_out()
    for path in story.files(a, ".idx"):
        a.disk.fail(Read, path)
    story.consumer(a, 0, "no_ack")
    story.world.run(10.0)
    story.end()


def slow_last_word() -> None:
    """A master moves while the other one has not heard everything yet."""
    story = Story(names=FIVE)
    a, b, c, *_ = story.roles()
    story.mirror_on(a, b, c)
    client = story.publisher(a)
    story.world.links.slow[a.name, b.name] = story.world.links.slow[a.name, c.name] = 1.0
    client.give(5)
    story.transfer(b)
    story.settle()
    story.end()


def question_to_a_former_master() -> None:
    """A question to a master that moved before it heard the question gets an answer all the same."""
    story = Story(names=FIVE)
    a, b, _, d, _ = story.roles()
    story.mirror_on(a, b)
    getter = Getter(story.world, story.ledger, "getter", "plain")
    getter.nodes = frozenset({d.name})
    story.cut(d, a)
    getter.begin()
    story.wait(lambda: bool(getter.asked))
    getter.is_quiet = True
    story.move_master(b)
    story.wait(lambda: not getter.asked)
    getter.finish()
    story.end()


def leader_with_a_stuck_disk() -> None:
    """The leader of the metadata can write nothing any more: another one leads, and all goes on."""
    story = Story()
    a, b, leader = story.roles()
    leader.raft_disk_state.is_hung = True
    leader.disks_changed()
    story.check_declares(a)
    story.check_served(a, b)
    story.wait(lambda: not leader.raft.is_leader)  # its own clients' declares are answered only then
    story.end()


def mirror_that_hears_of_its_queue_late() -> None:
    """Packets that come before the log says that there is such a queue are heard when it does."""
    story = Story()
    a, b, leader = story.roles()
    story.mirror_on(a, b)  # so another queue's ring has no way by the leader, either
    story.cut(leader, b)
    client = story.publisher(a, "late")
    story.ask(a, QueueDeclare(queue="late", durable=True))
    story.watch(lambda: a.log.catalogue.queue("/", "late") is not None)
    story.queues.append("late")
    client.give(5)
    story.world.run(0.1)
    story.cut(leader, b, is_cut=False)
    story.wait(lambda: not client.unconfirmed, 5.0)
    story.end()


def mirror_that_was_away() -> None:
    """A node has a mirror again, and nothing of what the one before had: that is done with long ago."""
    story = Story(names=FIVE)
    a, b, c, *_ = story.roles()
    story.mirror_on(a, b)
    story.fill(40)
    story.page_all()
    story.mirror_on(a, c)
    consumer = story.consumer(a, 0, "no_ack")
    story.world.run(5.0)
    story.dismiss(consumer)
    story.mirror_on(a, b)
    story.fill(5)
    for node in story.world.alive:
        story.world.crash(node.name, power=False)
    for name in story.names:
        story.world.start(name)
    story.settle()
    story.move_master(b)
    ids = {message.id for message in story.ledger.messages if message.consumed_at is None}
    found = ids_on_disk(b.disk.clone().crash(story.random), story.record, story.record.copy)
    if found - ids:
        raise Violation(f"what was done with is back: {sorted(found - ids)}")
    story.end()


def all_copies_are_cut_off_while_a_node_stops() -> None:
    """A node that stops waits for its master to move. It reads in the log that all who have the queue count as dead."""
    story = Story(names=FIVE)
    a, b, *others = story.roles()
    story.mirror_on(a, b)
    story.fill(5)
    story.page_all()
    story.part(a, b)
    for other in others:
        story.part(a, other)
        story.part(b, other)
    story.world.run(1.0)
    a.stop()
    story.wait(lambda: story.view.state == "down")
    for other in others:
        story.cut(a, other, is_cut=False)
        story.cut(other, a, is_cut=False)
    story.watch(lambda: a.log.catalogue.queue("/", "plain") == story.record)
    if not a.has_broker:
        raise Violation("it had stopped before")
    story.world.run(2.0)
    story.check_disks()


def mirrors_go_before_publishes_come_again() -> None:
    """A master dies after a delivery of which its mirror has not heard, and the mirror is soon the only copy wanted."""
    story = Story(names=FIVE)
    a, b, c, *_ = story.roles()
    story.mirror_on(a, b)
    story.consumer(c, 1, "slow")
    client = story.publisher(c)
    story.part(a, b)
    client.give(5)
    story.watch(lambda: any(message.seen for message in story.ledger.messages))
    story.cut(c, b)
    story.end_for_good(a)
    story.set_policy({"max-length": 100_000})
    story.wait(lambda: story.record.view is None)
    story.cut(c, b, is_cut=False)
    story.wait(lambda: not client.unconfirmed)
    story.end()


def full_disk_that_hangs() -> None:
    """A mirror's disk is full, and publishers wait; then it hangs, and cannot notice that there is room."""
    story = Story()
    a, b, c = story.roles()
    story.move_master(c)
    story.fill(3)
    a.disk_state.is_full = True
    a.disks_changed()
    client = story.publisher(b)
    client.give(3)
    story.wait(lambda: b.broker.alarms.is_on)
    story.hang_disk(a)
    a.disk_state.is_full = False
    a.disks_changed()
    story.wait(lambda: not b.broker.alarms.is_on)
    story.check_served(b, c)
    story.end()


HISTORIES: Final[dict[str, Callable[[], None]]] = {
    "findings ignored": rot_on_a_mirror,
    "unreadable at promotion is gone": rot_on_who_takes_over,
    "loss is not told": total_restart_with_a_damaged_copy,
    "others are not asked": total_restart_with_a_copy_that_rots_when_it_was_read,
    "lost joins again": a_neighbour_says_nonsense,
    "lost is safe": last_word_of_a_master_that_is_cut_off,
    "unmirrored is safe": mirrors_go_while_a_disk_hangs,
    "inventory without senders": publisher_that_hears_nothing,
    "confirm unsettled": nobody_removes_a_dead_mirror,
    "flush unwatched": master_dies_while_its_mirrors_are_parted,
    "last word awaited for ever": last_word_that_never_comes,
    "declines and begins": last_word_that_comes_too_late,
    "not counted anew": lost_messages_that_nobody_asks_for,
    "judgement ignored": total_restart_with_a_damaged_copy,
    "read errors stay": one_read_that_the_disk_refuses,
    "handover not awaited": slow_last_word,
    "questions forgotten": question_to_a_former_master,
    "stuck leader stays": leader_with_a_stuck_disk,
    "early for new queues forgotten": mirror_that_hears_of_its_queue_late,
    "copy stays on disk": mirror_that_was_away,
    "stale mastership": deliveries_of_a_former_master,
    "idle unwatched": one_publish_while_mirrors_are_parted,
    "damaged says nothing": master_that_lacks_messages,
    "damaged files grow": message_file_gone_on_a_mirror,
    "files that are gone grow": message_file_gone_that_nobody_has_read,
    "own death drops": all_copies_are_cut_off_while_a_node_stops,
    "sent again to one copy is new": mirrors_go_before_publishes_come_again,
    "copy goes with its view": last_copy_becomes_a_queue_when_the_policy_has_gone,
    "space of a stuck disk counts": full_disk_that_hangs,
    "pages while it fills": short_of_memory_while_a_mirror_takes_over,
}
"""By the bug that each of them finds."""
