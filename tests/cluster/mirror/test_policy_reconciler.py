"""The reconciler: reliability §2.2 (policies), §4.1, §4.9; amqp-behaviour §9.3, §9.7."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from cluster.mirror.policy_reconciler import KEPT_S, LOOKS_MAX, PolicyReconciler, is_mirrored
from cluster.mirror.proposals import OUTSTANDING_MAX
from node.catalogue.mirrors.views import (
    AddMirror,
    DropMirror,
    OfferCopy,
    RingMember,
    TookOver,
    TransferMaster,
    Unmirror,
    View,
    changed,
    created,
    died,
)
from node.catalogue.policy import QueueSettings
from tests.cluster.mirror.reconciler_world import ALL, PLAIN, World, exactly, member, nodes, queue


def test_change_policy() -> None:
    """change_policy: none -> all -> nodes[A,B] -> nodes[A,C] -> cleared -> nodes[B,C]: the last moves the master."""
    world = World()
    world.add(queue())
    for settings, shape in [
        (PLAIN, "-"),
        (ALL, "A|BC"),
        (nodes("a", "b"), "A|B"),
        (nodes("a", "c"), "A|C"),
        (PLAIN, "-"),
        (nodes("b", "c"), "B|C"),
    ]:
        world.set_policy(settings)
        world.run(3)
        assert world.shape() == shape
    assert world.records["uid-q"].home == "b"


def test_change_cluster() -> None:
    """change_cluster: exactly 4 on 3 nodes, then D and E join, then D stops."""
    world = World()
    world.add(queue(), "bc")
    world.set_policy(exactly(4))
    world.run(2)
    assert world.shape() == "A|BC"
    world.up("d")
    world.up("e")
    world.run(2)
    assert world.shape() in ("A|BCD", "A|BCE")
    gone, other = world.shape()[-1], "DE".replace(world.shape()[-1], "")
    world.down(gone.lower())
    world.run(2)
    assert world.shape() == f"A|BC{other}"


def test_a_node_that_joins_gets_a_mirror_of_a_queue_on_all_nodes() -> None:
    world = World("ab")
    world.add(queue(), "b")
    world.set_policy(ALL)
    world.up("c")
    world.run(1)
    assert world.shape() == "A|BC"


def test_a_policy_on_a_single_node_gives_a_view_of_one() -> None:
    world = World("a")
    world.add(queue())
    world.set_policy(exactly(1))
    world.run(1)
    assert world.shape() == "A|"


def test_witnesses_get_none_and_ram_nodes_do() -> None:
    world = World()
    world.put_member(replace(world.members["b"], type="witness"))
    world.put_member(replace(world.members["c"], type="ram"))
    world.add(queue())
    world.set_policy(ALL)
    world.run(2)
    assert world.shape() == "A|C"


def test_exclusive_queues_are_never_mirrored() -> None:
    assert not is_mirrored(queue(exclusive_owner="x"), ALL)
    world = World()
    world.add(queue(exclusive_owner="x"))
    world.set_policy(ALL)
    world.run(2)
    assert world.shape() == "-"
    assert world.proposed == 0


def test_a_quorum_queue_has_three_copies_whatever_the_policy_says() -> None:
    world = World("abcd")
    world.add(queue(type="quorum"))
    world.set_policy(PLAIN)
    world.run(2)
    assert len(world.view().ring) == 3


def test_nodes_policy_should_pick_master_from_its_params() -> None:
    """The master never moves to an unsynchronised node even if the policy names only that."""
    world = World(sync=0.0)
    world.add(queue())
    world.set_policy(nodes("b"))
    world.run(5)
    assert world.shape() == "A|b"
    world.sync = 1.0
    world.run(2)
    assert world.shape() == "B|"


def test_a_policy_that_shrinks_away_the_master_keeps_it_until_another_is_synchronised() -> None:
    """S15."""
    world = World(sync=0.0)
    world.add(queue(), "b")
    world.set_policy(nodes("c"))
    world.run(5)
    assert world.shape() == "A|Bc"  # automatic: B stays while C has not got everything
    world.sync = 1.0
    world.run(3)
    assert world.shape() == "C|"
    assert sum(isinstance(change, TransferMaster) for change in world.applied) == 1


def test_with_manual_synchronisation_mirrors_follow_the_policy_at_once() -> None:
    world = World(sync=0.0)
    world.add(queue(), "b")
    world.set_policy(nodes("a", "c", sync_mode="manual"))
    world.run(2)
    assert world.shape() == "A|c"
    assert "Dropping queue mirror on node b" in world.reasons


def test_rapid_change() -> None:
    """rapid_change, W13: the policy flips 100 times, and the last one counts."""
    world = World("abcd", loss=0.2, sync=0.3, delay_s_max=0.5)
    world.add(queue())
    policies = [ALL, nodes("a", "b"), exactly(2), PLAIN, nodes("c", "d", sync_mode="manual")]
    for at in range(100):
        world.set_policy(policies[at % len(policies)])
        world.run(0.3)
    world.run(30)
    world.loss, world.sync = 0.0, 1.0
    world.run(30)
    assert world.is_in_shape(world.records["uid-q"])
    proposed = world.proposed
    world.run(30)
    assert world.proposed == proposed, "it goes on though nothing is left to do"


@pytest.mark.parametrize("seed", range(60))
def test_random_policy(seed: int) -> None:
    """random_policy, failing_random_policies: whatever happens in between, the last policy's shape is reached."""
    random = Random(seed)
    world = World("abcde", seed, loss=0.3, sync=random.choice([0.05, 0.5, 1.0]), delay_s_max=1.5)
    names = ["q", "r", "s"]
    for name in names:
        world.add(queue(name, random.choice("abcde")), ())
    for _ in range(40):
        _disturb(world, random)
        world.run(random.random() * 2)
    for name, known in list(world.members.items()):
        if not known.is_up and random.random() < 0.7:
            world.up(name)
    world.loss, world.sync = 0.1, 0.5
    world.run(60)
    for record in world.records.values():
        assert world.is_in_shape(record), (seed, world.settings, world.shape(record.name), record.view)
    if not any(known.is_draining for known in world.members.values()):
        return
    for record in world.records.values():
        if record.view is not None and world.members[record.home].is_draining:
            assert not any(
                each.id in record.view.synced and not world.members[each.node].is_draining
                for each in record.view.ring
            )


def _disturb(world: World, random: Random) -> None:
    policies = [
        PLAIN,
        ALL,
        exactly(1),
        exactly(2),
        exactly(3),
        exactly(2, "manual"),
        nodes("a"),
        nodes("b", "c"),
    ]
    policies += [nodes("d", "e", sync_mode="manual"), nodes("e", "nobody")]
    name = random.choice(world.names)
    match random.randrange(6):
        case 0 | 1 | 2:
            world.set_policy(random.choice(policies))
        case 3 if world.members[name].is_up and _is_survivable(world, name):
            world.down(name)
        case 4:
            world.drain(name, is_draining=random.random() < 0.5)
        case _ if not world.members[name].is_up:
            world.up(name)


def _is_survivable(world: World, name: str) -> bool:
    for record in world.records.values():
        view = record.view
        if view is None:
            if record.home == name:
                return False
        elif not any(
            each.id in view.synced and each.node != name and each.status == "alive" for each in view.members
        ):
            return False
    return True


# --- pace -------------------------------------------------------------------------------------------------


def test_a_proposal_is_repeated_when_no_view_shows_it_and_ever_more_rarely() -> None:
    world = World(loss=1.0)
    world.add(queue())
    world.set_policy(ALL)
    world.run(0.9)
    assert world.proposed == 1
    world.run(0.4)
    assert world.proposed == 2
    world.run(60)
    assert 8 <= world.proposed <= 12
    assert world.reconcilers["a"].next_look(world.now) is not None


def _lone(count: int, settings: QueueSettings, *, mirrors: str = "") -> PolicyReconciler:
    reconciler = PolicyReconciler("a")
    reconciler.members_changed([member("a"), member("b"), member("c")])
    for at in range(count):
        record = queue(f"q{at}")
        view = created(0, [(node, 1) for node in ("a", *mirrors)])
        reconciler.see(replace(record, view=view), settings)
    return reconciler


def test_ten_thousand_queues_are_looked_at_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The change of a member costs no look at all, and each look is at so many queues only."""
    reconciler = _lone(10_000, exactly(2), mirrors="b")
    looks = 0
    while (time := reconciler.next_look(0.0)) is not None and time <= 0.0:
        assert reconciler.look(0.0) == []
        looks += 1
    assert looks >= 10_000 // LOOKS_MAX
    looked_at: list[str] = []
    step = PolicyReconciler._step

    def counted(self: PolicyReconciler, charge: Any) -> Any:
        looked_at.append(charge.record.uid)
        return step(self, charge)

    monkeypatch.setattr(PolicyReconciler, "_step", counted)
    reconciler.members_changed([member("a"), member("b"), member("c"), member("d")])
    assert looked_at == []
    reconciler.look(0.0)
    assert len(set(looked_at)) == len(looked_at) == LOOKS_MAX
    assert reconciler.next_look(0.0) == 0.0


def test_only_so_many_proposals_of_a_node_are_on_their_way() -> None:
    reconciler = _lone(1000, ALL, mirrors="b")
    made = []
    for _ in range(20):
        made += reconciler.look(0.0)
    assert len(made) == OUTSTANDING_MAX
    assert all(isinstance(each.change, AddMirror) for each in made)
    time = reconciler.next_look(0.0)
    assert time == pytest.approx(1.0)
    # Those that come through make room for others at once.
    first = made[0]
    record = replace(queue(first.name), view=created(0, [("a", 1), ("b", 1), ("c", 1)]))
    reconciler.see(record, ALL)
    assert reconciler.next_look(0.0) == 0.0
    assert len(reconciler.look(0.0)) == 1


def test_what_is_pending_is_repeated_though_there_is_no_room_for_more() -> None:
    reconciler = _lone(1000, ALL, mirrors="b")
    for _ in range(20):
        reconciler.look(0.0)
    reconciler.members_changed([member("a"), member("b"), member("c"), member("d")])
    assert len(reconciler.look(1.5)) == OUTSTANDING_MAX


def test_a_node_that_hears_of_other_nodes_queues_does_nothing() -> None:
    reconciler = PolicyReconciler("b")
    reconciler.members_changed([member("a"), member("b")])
    reconciler.see(replace(queue(), view=created(0, [("a", 1), ("b", 1)])), PLAIN)
    reconciler.see(queue("r"), ALL)
    assert reconciler.next_look(0.0) is None
    assert reconciler.look(0.0) == []


# --- taking over ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_early", [True, False])
def test_a_master_that_has_heard_the_last_word_takes_over(is_early: bool) -> None:
    reconciler = PolicyReconciler("b")
    reconciler.members_changed([member("a"), member("b")])
    view = created(0, [("a", 1), ("b", 1)])
    moved = changed(view, TransferMaster(1, 2))
    reconciler.see(replace(queue(), view=view), ALL)
    if is_early:
        reconciler.heard_handover("uid-q")
    reconciler.see(replace(queue(), view=moved), ALL)
    if not is_early:
        assert reconciler.look(0.0) == []
        reconciler.heard_handover("uid-q")
    assert [each.change for each in reconciler.look(0.0)] == [TookOver(moved.since)]


def test_what_was_heard_counts_for_one_mastership() -> None:
    reconciler = PolicyReconciler("b")
    reconciler.members_changed([member("a"), member("b")])
    view = created(0, [("a", 1), ("b", 1)])
    reconciler.heard_handover("uid-q")
    reconciler.see(replace(queue(), view=view), ALL)
    reconciler.see(replace(queue(), view=changed(view, TransferMaster(1, 2))), ALL)
    assert reconciler.look(0.0) == []


# --- maintenance mode, and the end ------------------------------------------------------------------------


def test_a_node_in_maintenance_mode_hands_its_masters_over() -> None:
    """§9.7: to synchronised mirrors on nodes that are in no such mode; copies stay, and nothing comes back."""
    world = World()
    world.set_policy(ALL)
    world.add(queue(), "bc")
    world.drain("b")
    world.drain("a")
    world.run(2)
    assert world.shape() == "C|AB"
    world.drain("a", is_draining=False)
    world.run(2)
    assert world.shape() == "C|AB"


def test_unmirrored_and_unsynchronised_queues_stay_on_a_node_in_maintenance_mode() -> None:
    world = World(sync=0.0)
    world.add(queue("plain"))
    world.drain("a")
    world.run(2)
    assert world.shape("plain") == "-"
    world.set_policy(ALL)
    world.run(2)
    assert world.shape("plain") == "A|bc"
    assert world.reconcilers["a"].moving == 0


def test_masters_are_spread_when_a_node_drains() -> None:
    world = World()
    world.set_policy(ALL)
    for at in range(40):
        world.add(queue(f"q{at}"), "bc")
    world.run(1)
    world.drain("a")
    world.step()
    world.reconcilers["a"].look(world.now)
    world.run(3)
    masters = [world.shape(f"q{at}")[0] for at in range(40)]
    assert set(masters) == {"B", "C"}
    assert min(masters.count("B"), masters.count("C")) >= 8


def test_no_master_moves_to_a_node_in_maintenance_mode_though_the_policy_names_it() -> None:
    world = World()
    world.add(queue(), "b")
    world.drain("b")
    world.set_policy(nodes("b"))
    world.run(2)
    assert world.shape() == "A|B"


def test_masters_leave_a_node_that_stops_and_do_not_return() -> None:
    world = World()
    world.set_policy(nodes("a"))
    world.add(queue(), "b")
    world.reconcilers["a"].stop()
    assert world.reconcilers["a"].moving == 0  # it has not heard of the queue
    world.run(5)
    assert world.shape() in ("A|", "A|B", "A|BC")
    transfers = [change for change in world.applied if isinstance(change, TransferMaster)]
    assert len(transfers) == 2, "away once, back by the policy, and no more"


# --- slow mirrors -----------------------------------------------------------------------------------------


def _mirrors(view: View) -> dict[str, RingMember]:
    return {each.node: each for each in view.ring}


def test_a_mirror_that_was_evicted_comes_back_after_ten_seconds_then_twenty() -> None:
    """§4.9: back-off rejoin, 10 s doubling."""
    world = World()
    world.set_policy(ALL)
    world.add(queue(), "bc")
    world.run(1)
    for back_off_s in (10, 20, 40, 80, 160, 300, 300):
        world.reconcilers["a"].evict("uid-q", _mirrors(world.view())["b"], world.now)
        world.run(back_off_s - 2)
        assert world.shape() == "A|C"
        world.run(4)
        assert world.shape() == "A|BC"
    world.run(310)
    world.reconcilers["a"].evict("uid-q", _mirrors(world.view())["b"], world.now)
    world.run(12)
    assert world.shape() == "A|BC"


def test_another_node_takes_the_place_of_an_evicted_mirror() -> None:
    world = World()
    world.set_policy(exactly(2))
    world.add(queue(), "b")
    world.run(1)
    world.reconcilers["a"].evict("uid-q", _mirrors(world.view())["b"], world.now)
    world.run(2)
    assert world.shape() == "A|C"
    world.run(60)
    assert world.shape() == "A|C"


def test_evictions_at_the_same_time_count_once_and_a_restart_is_forgiven() -> None:
    reconciler = _lone(100, ALL, mirrors="bc")
    for at in range(100):
        reconciler.evict(f"uid-q{at}", RingMember(2, "b", 1, "alive", 3), 0.0)
    assert reconciler.back_off_of("b", 0.0) == 10.0
    drops = reconciler.look(0.0)
    assert [each.change for each in drops] == [DropMirror(2)] * 100
    reconciler.members_changed([member("a"), member("b", 9), member("c")])
    assert reconciler.back_off_of("b", 0.0) == 0.0


def test_evicting_nobody_is_harmless() -> None:
    reconciler = _lone(1, ALL, mirrors="bc")
    reconciler.evict("uid-q0", RingMember(99, "b", 1, "alive", 99), 0.0)
    reconciler.evict("uid-other", RingMember(1, "d", 1, "alive", 1), 0.0)
    reconciler.forget("uid-other")
    reconciler.heard_handover("uid-other")
    assert reconciler.look(0.0) == []


# --- plans ---


def placed(world: World, *nodes_: str) -> None:
    """A plan wants copies there."""
    world._put(replace(world.records["uid-q"], placement=nodes_))


def test_a_placement_is_followed() -> None:
    """spark §3.4: what a plan wants beside what the policy says, and nothing that the policy wants is given up."""
    world = World("abcd")
    world.set_policy(exactly(2, "manual"))
    world.add(queue(), "b")
    world.run(1)
    placed(world, "a", "b", "c")
    world.run(2)
    assert world.shape() == "A|BC"
    placed(world, "a", "c")
    world.run(2)
    assert world.shape() == "A|C"
    placed(world)
    world.run(2)
    assert world.shape() == "A|C"


def test_a_placement_mirrors_a_queue_of_which_no_policy_wants_mirrors() -> None:
    """spark §3.4: while a plan moves the only copy; the queue has a view for that time only, on the node it is then."""
    world = World("abcd")
    world.add(queue())
    world.run(1)
    assert world.records["uid-q"].view is None
    placed(world, "a", "c")
    world.run(3)
    assert world.shape() == "A|C"
    placed(world)
    world.run(3)
    assert world.records["uid-q"].view is None


def test_a_placed_copy_is_made_again() -> None:
    world = World("abcd")
    world.set_policy(exactly(2))
    world.add(queue(), "b")
    placed(world, "a", "b", "c")
    world.run(2)
    world.down("c")
    world.run(2)
    assert world.shape() == "A|B"
    world.up("c")
    world.run(2)
    assert world.shape() == "A|BC"


def test_a_copy_is_only_given_up_when_the_others_have_all() -> None:
    """A copy is only given up when the others have all messages, also with ha-sync-mode manual."""
    world = World("abcd", sync=0.0)
    world.set_policy(exactly(2, "manual"))
    world.add(queue(), "b")
    placed(world, "a", "c")
    world.run(3)
    assert world.shape() == "A|Bc"
    world.sync = 1.0
    world.run(2)
    assert world.shape() == "A|C"


def test_what_is_one_too_many_is_dropped_in_the_view_that_was_seen() -> None:
    """Meanwhile another one may have gone: then this one is not one too many."""
    reconciler = PolicyReconciler("a")
    reconciler.members_changed([member(name, at) for at, name in enumerate("abc", 1)])
    view = created(0, [("a", 1), ("b", 2), ("c", 3)])
    reconciler.see(queue(view=view, ring_version=view.version), exactly(2))
    [proposal] = reconciler.look(0.0)
    assert proposal.change == DropMirror(3, view.version)
    without = changed(view, DropMirror(2))
    assert without is not None
    assert changed(without, proposal.change) is None


def test_a_copy_that_is_to_become_a_queue_is_not_unmirrored() -> None:
    """A copy that would go with its view is not unmirrored before it is a queue; in another view it may not be."""
    acting: set[str] = set()
    reconciler = PolicyReconciler("a", acting.__contains__)
    reconciler.members_changed([member("a")])
    record = queue(view=created(0, [("a", 1)]))
    reconciler.see(record, PLAIN)
    assert reconciler.look(0.0) == []
    acting.add(record.uid)
    reconciler.see(record, PLAIN)
    assert record.view is not None
    assert [each.change for each in reconciler.look(0.0)] == [Unmirror(1, record.view.version)]


# --- masters that can't stay ------------------------------------------------------------------------------


def test_a_master_whose_copy_is_damaged_moves_also_to_a_node_that_drains() -> None:
    reconciler = _lone(1, ALL, mirrors="b")
    reconciler.members_changed([member("a"), member("b", is_draining=True), member("c")])
    reconciler.hand_over("uid-q0", "has unreadable messages")
    changes = [(each.change, each.reason) for each in reconciler.look(0.0)]
    assert changes == [
        (TransferMaster(1, 2), "Migrating queue leader to node b: the copy here has unreadable messages")
    ]


def test_who_declined_is_not_asked_again_at_once() -> None:
    """A member that declined is not asked again at once, or the queue would have no master most of the time."""
    reconciler = _lone(1, ALL, mirrors="b")
    reconciler.shun(RingMember(2, "b", 1, "alive", 3), 0.0)
    reconciler.hand_over("uid-q0", "has waited 10 s for its disk")
    assert TransferMaster(1, 2) not in [each.change for each in reconciler.look(0.0)]
    assert TransferMaster(1, 2) in [
        each.change for now in (10.0, 11.0, 12.0) for each in reconciler.look(now)
    ]


def test_a_queue_counts_as_moving_until_the_next_master_acts() -> None:
    reconciler = _lone(1, ALL, mirrors="b")
    view = created(0, [("a", 1), ("b", 1)])
    moved = changed(view, TransferMaster(1, 2))
    assert moved is not None
    reconciler.see(replace(queue("q0"), view=moved), ALL)
    assert reconciler.moving == 1
    reconciler.see(replace(queue("q0"), view=changed(moved, TookOver(moved.since))), ALL)
    assert reconciler.moving == 0
    reconciler.see(replace(queue("q0"), view=moved), ALL)
    reconciler.forget("uid-q0")
    assert reconciler.moving == 0


# --- copies that were not taken ---------------------------------------------------------------------------


def came_back(*up: str) -> PolicyReconciler:
    """The policy reconciler of a, which has the master of a queue that went on alone with its copy; b and c had one,
    too.
    """
    view = died(created(0, [("a", 1), ("b", 2), ("c", 3)]), [1, 2, 3], may_lose=False)
    for at, node in enumerate("abc", 4):
        after = changed(view, OfferCopy(node, at, 9, True))
        assert after is not None
        view = after
    reconciler = PolicyReconciler("a")
    reconciler.members_changed(
        replace(member(node, at), is_up=node in up) for at, node in enumerate("abc", 4)
    )
    reconciler.see(replace(queue(), view=view), nodes("a"))
    assert reconciler.look(0.0) == []
    return reconciler


def test_nodes_that_may_have_what_cannot_be_read_get_mirrors() -> None:
    """Though the policy names only the master's; for a while, and anew when there is something else."""
    reconciler = came_back("a", "b", "c")
    assert reconciler.awaits_kept("uid-q", 1.0)
    [proposal] = reconciler.look(1.0)
    assert proposal.change == AddMirror("b", 5)
    assert reconciler.awaits_kept("uid-q", 0.9 + KEPT_S)
    assert not reconciler.awaits_kept("uid-q", 1.0 + KEPT_S)
    assert reconciler.look(1.0 + KEPT_S) == []
    assert reconciler.awaits_kept("uid-q", 2.0 + KEPT_S)


def test_one_that_is_down_is_waited_for() -> None:
    reconciler = came_back("a", "b")
    for now in range(0, int(5 * KEPT_S), 10):
        assert reconciler.awaits_kept("uid-q", float(now))
    reconciler.members_changed(member(node, at) for at, node in enumerate("abc", 4))
    assert reconciler.awaits_kept("uid-q", 6 * KEPT_S - 20)
    assert not reconciler.awaits_kept("uid-q", 6 * KEPT_S)


def test_nobody_is_waited_for_who_has_nothing() -> None:
    """The queue did not come back, its others are gone from the cluster, or an older version does not say."""
    reconciler = came_back("a", "b", "c")
    assert not reconciler.awaits_kept("uid-other", 0.0)
    assert not reconciler.is_waiting("uid-other")
    reconciler.members_changed([member("a", 4)])
    assert not reconciler.awaits_kept("uid-q", 0.0)
    reconciler = came_back("a", "b", "c")
    record = reconciler._charges["uid-q"].record
    assert record.view is not None
    reconciler.see(replace(record, view=replace(record.view, common=0)), nodes("a"))
    assert not reconciler.awaits_kept("uid-q", 0.0)
