"""The leader renews leases and declares nodes down; nobody else does."""

from collections.abc import Mapping
from itertools import pairwise

import pytest

from cluster.membership.outputs import Output, Parted, Pause, Submit
from node.catalogue.commands import NodeDown, RenewLeases
from node.catalogue.events import LeasesRenewed, MemberDown, MemberUp
from tests.kit.scene import BOOTED_S, OPTIONS, SELF, Scene, downs, member, of, renewals


def leading(*others: str) -> Scene:
    """n1 leads, and its first entry was applied; the others follow it."""
    scene = Scene.up(*others, leader=None)
    scene.node.leader_changed(SELF, scene.now)
    scene.answer(scene.take())
    return scene


def beaten(scene: Scene, seconds: float, *alive: str) -> list[NodeDown]:
    """Whom the leader wants to declare down in this time."""
    return downs(scene.lead(seconds, *alive))


def test_who_froze_before_the_election_is_not_given_another_lease() -> None:
    """A lease that former leaders renewed is over a lease after it was applied here, whenever this node was elected."""
    scene = Scene.up("n2", "n3", leader="n2")
    scene.apply(LeasesRenewed((("n2", 2, 50.0), (SELF, 1, scene.now), ("n3", 3, 7.0))))
    for _ in range(6):
        scene.wait(0.25)
        scene.hear("n3")
    scene.node.leader_changed(SELF, scene.now)
    scene.answer(scene.take())
    left_s = OPTIONS.expiry_s - 1.5
    assert beaten(scene, left_s - 0.3, "n3") == []
    assert beaten(scene, 0.6, "n3") == [NodeDown("n2", 2)]


# --- renewing ---


def test_a_leader_renews_what_it_heard() -> None:
    scene = Scene.up("n2", "n3", leader=None)
    scene.node.leader_changed(SELF, scene.now)
    scene.took(Submit(RenewLeases(((SELF, 1, scene.now),))))
    scene.hear("n2", sent_s=77.0)
    scene.take()
    scene.apply(LeasesRenewed(((SELF, 1, scene.now),)))
    outputs = scene.wait(0.05)
    assert renewals(outputs) == [RenewLeases(((SELF, 1, scene.now), ("n2", 2, 77.0)))]


def test_at_most_four_renewals_a_lease() -> None:
    scene = leading("n2", "n3")
    scene.lead(1.0, "n2", "n3")
    started_s = scene.now
    times = [command.sent[0][2] for command in renewals(scene.lead(5.0, "n2", "n3"))]
    assert len(times) == pytest.approx(10, abs=1)
    assert all(later - earlier >= OPTIONS.renewal_s for earlier, later in pairwise(times))
    assert times[0] - started_s <= OPTIONS.renewal_s


def test_only_what_is_new_is_renewed() -> None:
    scene = leading("n2", "n3")
    scene.lead(1.0, "n2", "n3")
    for command in renewals(scene.lead(2.0, "n2"))[1:]:
        assert {name for name, _, _ in command.sent} == {SELF, "n2"}


def test_unanswered_renewals_do_not_pile_up() -> None:
    """No majority: at most one a second is on its way, each of which the log refuses after five."""
    scene = Scene.up("n2", "n3", leader=None)
    scene.node.leader_changed(SELF, scene.now)
    assert len(renewals(scene.wait(10.0, "n2", "n3") + scene.take())) <= 11


def test_followers_of_others_are_not_renewed() -> None:
    scene = leading("n2", "n3")
    for _ in range(4):
        scene.hear("n2", leader="n3")
        scene.hear("n3", leader=None)
        for command in renewals(scene.lead(0.25)):
            assert {name for name, _, _ in command.sent} == {SELF}


def test_a_declared_down_incarnation_is_not_renewed() -> None:
    scene = leading("n2", "n3")
    scene.apply(MemberDown(member("n2", 2)))
    for command in renewals(scene.lead(2.0, "n2", "n3")):
        assert "n2" not in {name for name, _, _ in command.sent}
    scene.apply(MemberUp(member("n2", 5)))
    for command in renewals(scene.lead(2.0, "n2", "n3")):
        assert "n2" not in {name for name, _, _ in command.sent}


def test_who_waited_long_is_renewed_at_once() -> None:
    """After a partition, as after an election, a paused node need not wait for the next regular renewal."""
    scene = leading("n2", "n3")
    scene.lead(2.0, "n2", "n3")
    scene.lead(2.0, "n3")
    scene.hear("n2")
    commands = renewals([*scene.take(), *scene.wait(0.1)])
    assert [name for command in commands for name, _, _ in command.sent].count("n2") == 1


def test_followers_propose_nothing() -> None:
    scene = Scene.up("n2", "n3")
    scene.node.link_down("n3", is_gone=True, now=scene.now)
    assert of(Submit, scene.wait(20.0, "n2")) == []


def test_a_leader_alone_renews_nothing() -> None:
    """Each renewal is an entry that every disk node syncs: one node needs none."""
    scene = Scene.up(leader=SELF)
    assert scene.wait(10.0) == []


# --- declaring down for silence ---


def test_silence_for_longer_than_a_lease() -> None:
    """reliability §4.2: now - last_HB_received > T_lease * (1 + rho) + margin."""
    scene = leading("n2", "n3")
    scene.lead(10.0, "n2", "n3")
    assert beaten(scene, 2.5, "n3") == []
    assert beaten(scene, 0.25, "n3") == [NodeDown("n2", 2)]


def test_it_is_declared_down_when_its_time_is_over_not_a_heartbeat_later() -> None:
    scene = leading("n2", "n3")
    scene.lead(3.0, "n2", "n3")
    heard_s = scene.now
    while not downs(scene.lead(0.01, "n3")):
        scene.hear("n3")
    assert OPTIONS.expiry_s <= scene.now - heard_s <= OPTIONS.expiry_s + 0.02


def test_a_new_leader_waits_for_what_former_leaders_renewed() -> None:
    """reliability §4.2: it doesn't hear n2 itself; who led before it did, and that was applied here."""
    scene = Scene.up("n2", "n3", leader="n3")
    scene.node.link_down("n2", is_gone=False, now=scene.now)
    for _ in range(40):
        scene.apply(LeasesRenewed((("n3", 3, 7.0), (SELF, 1, scene.now), ("n2", 2, 9.0))))
        scene.wait(0.25, "n3")
    renewed_s = scene.now - 0.25
    scene.node.leader_changed(SELF, scene.now)
    outputs = scene.take()
    assert downs(outputs) == []
    scene.wait(0.5, "n3")
    scene.answer(outputs)
    assert beaten(scene, renewed_s + OPTIONS.expiry_s - scene.now - 0.05, "n3") == []
    assert beaten(scene, 0.3, "n3") == [NodeDown("n2", 2)]


def test_a_new_leader_declares_nobody_down_before_its_first_entry() -> None:
    """Only then all is applied here that former leaders renewed."""
    scene = Scene.up("n2", "n3", leader="n3")
    scene.wait(10.0, "n3")
    scene.node.leader_changed(SELF, scene.now)
    outputs = scene.take()
    assert downs(outputs) == []
    assert downs(scene.wait(2.0, "n3")) == []
    scene.apply(LeasesRenewed((("n3", 3, 7.0), (SELF, 1, scene.now), ("n2", 2, 9.0))))
    scene.answer(outputs)
    assert beaten(scene, OPTIONS.expiry_s - 0.1, "n3") == [], "this one was still on its way"
    assert beaten(scene, 0.3, "n3") == [NodeDown("n2", 2)]


def test_a_leader_whose_entries_are_not_committed_declares_nobody_down() -> None:
    """reliability §4.7 S19: isolated with the queues' masters. It pauses; the others will declare it down."""
    scene = leading("n2", "n3")
    scene.lead(2.0, "n2", "n3")
    scene.node.majority_changed(False, scene.now)
    outputs = scene.wait(10.0)
    assert downs(outputs) == []
    assert of(Pause, outputs) == [Pause("no majority of the cluster's disk nodes can be reached")]


def test_s20_a_frozen_leader_declares_nobody_down_when_it_wakes() -> None:
    """A leader that wakes has still to read what the others said, and may not lead any more."""
    for frozen_s in (1.9, 60.0):
        scene = leading("n2", "n3")
        scene.lead(3.0, "n2", "n3")
        scene.now += frozen_s
        assert beaten(scene, 2.0) == []
        assert beaten(scene, 5.0, "n2", "n3") == []


def test_a_node_that_follows_nobody_is_paused_already() -> None:
    """A node that follows nobody can't apply renewals, so nothing is gained by waiting for it."""
    scene = leading("n2", "n3")
    scene.lead(3.0, "n2", "n3")
    found = []
    for _ in range(11):
        scene.hear("n2", leader=None)
        found += beaten(scene, 0.25, "n3")
    assert found == [NodeDown("n2", 2)]


def test_a_node_that_has_just_come_up_has_time() -> None:
    scene = leading("n2", "n3")
    scene.lead(3.0, "n2", "n3")
    scene.apply(MemberUp(member("n3", 9)))
    assert beaten(scene, 2.5, "n2") == []
    assert beaten(scene, 0.25, "n2") == [NodeDown("n3", 9)]


def test_proposed_again_if_it_gets_lost() -> None:
    scene = leading("n2", "n3")
    assert len(beaten(scene, 2.75, "n3")) == 1
    assert beaten(scene, 1.75, "n3") == []
    assert len(beaten(scene, 0.25, "n3")) == 1
    scene.apply(MemberDown(member("n2", 2)))
    assert beaten(scene, 10.0, "n3") == []


# --- declaring down by proof ---


def test_proof_needs_no_wait() -> None:
    """docs/internals/links.md, "Leases": the link is reset, and its host refuses another."""
    scene = leading("n2", "n3")
    scene.node.link_down("n2", is_gone=True, now=scene.now)
    assert downs(scene.take()) == [NodeDown("n2", 2)]


def test_a_reset_is_no_proof() -> None:
    scene = leading("n2", "n3")
    scene.node.link_down("n2", is_gone=False, now=scene.now)
    assert beaten(scene, 2.0, "n3") == []


def test_proof_is_kept_for_when_we_lead() -> None:
    """The leader dies: who is elected knows that already."""
    scene = Scene.up("n2", "n3", leader="n2")
    scene.node.link_down("n2", is_gone=True, now=scene.now)
    scene.node.leader_changed(None, scene.now)
    scene.took()
    scene.now += 0.5
    scene.node.leader_changed(SELF, scene.now)
    assert downs(scene.take()) == [NodeDown("n2", 2)]


def test_proof_concerns_the_process_that_was_linked() -> None:
    """reliability §4.7 S9: the same name is up again by the time its old link is found to be dead."""
    scene = leading("n2", "n3")
    scene.apply(MemberUp(member("n2", 9)))
    scene.node.link_down("n2", is_gone=True, now=scene.now)
    assert beaten(scene, 2.0, "n3") == []


def test_proof_counts_for_an_incarnation_that_was_told_by_heartbeat() -> None:
    scene = leading("n2", "n3")
    scene.apply(MemberDown(member("n2", 2)))
    scene.node.link_up("n2", 0, scene.now)
    scene.apply(MemberUp(member("n2", 9)))
    scene.hear("n2", incarnation=9)
    scene.node.link_down("n2", is_gone=True, now=scene.now)
    assert downs(scene.take()) == [NodeDown("n2", 9)]


def test_proof_that_turns_out_wrong() -> None:
    """A host may refuse for another reason than a dead node, as a firewall or a full backlog."""
    scene = Scene.up("n2", "n3", leader="n3")
    scene.node.link_down("n2", is_gone=True, now=scene.now)
    scene.node.link_up("n2", 2, scene.now)
    scene.hear("n2")
    scene.node.leader_changed(SELF, scene.now)
    assert downs(scene.take()) == []


def test_proof_of_who_is_down_anyway() -> None:
    """A clean stop: it has submitted its own NodeDown, then ended."""
    scene = leading("n2", "n3")
    scene.apply(MemberDown(member("n2", 2)))
    scene.node.link_down("n2", is_gone=True, now=scene.now)
    assert beaten(scene, 10.0, "n3") == []


def test_a_leader_that_is_off_knows_that_its_former_self_is_gone() -> None:
    scene = Scene()
    scene.node.members_changed({SELF: member(SELF, 1), "n2": member("n2", 2)}, scene.now)
    scene.node.link_up("n2", 2, scene.now)
    scene.node.leader_changed(SELF, scene.now)
    assert of(Submit, scene.take()) == [
        Submit(RenewLeases(((SELF, 0, scene.now),))),
        Submit(NodeDown(SELF, 1)),
    ]


def test_a_leader_that_is_off_does_its_duty() -> None:
    """stop_app ends the broker, not the node's part in Raft."""
    scene = leading("n2", "n3")
    scene.node.stopped(scene.now)
    scene.apply(MemberDown(member(SELF, 1)))
    scene.take()
    assert beaten(scene, 2.5, "n3") == []
    assert beaten(scene, 0.5, "n3") == [NodeDown("n2", 2)]


def test_times_of_others_are_never_compared_with_ours() -> None:
    scene = leading("n2", "n3")
    for number in range(40):
        scene.hear("n2", sent_s=number * 0.1)
        scene.hear("n3", sent_s=BOOTED_S * 1000 + number)
        assert beaten(scene, 0.25) == []


# --- nodes that do not hear each other ---


def parted(scene: Scene, seconds: float, hears: Mapping[str, tuple[str, ...]]) -> list[Output]:
    """Whom the leader wants out in this time, and why.   hears: the others, with whom each of them hears."""
    found: list[Output] = []
    for _ in range(round(seconds / OPTIONS.heartbeat_s)):
        for name, others in hears.items():
            scene.hear(name, reachable=(SELF, *others))
        outputs = scene.lead(OPTIONS.heartbeat_s)
        found += [item for item in outputs if isinstance(item, Parted) or downs([item])]
    return found


def test_one_of_two_nodes_that_do_not_hear_each_other_goes() -> None:
    scene = leading("n2", "n3")
    assert parted(scene, OPTIONS.parting_s - 1.0, {"n2": (), "n3": ()}) == []
    found = parted(scene, 1.5, {"n2": (), "n3": ()})
    assert found == [Parted("n3", "n2"), Submit(NodeDown("n3", 3))]


def test_one_way_is_enough() -> None:
    scene = leading("n2", "n3")
    assert parted(scene, OPTIONS.parting_s + 0.5, {"n2": ("n3",), "n3": ()})[0] == Parted("n3", "n2")


def test_who_hears_the_other_again_in_time_stays() -> None:
    scene = leading("n2", "n3")
    for _ in range(3):
        assert parted(scene, OPTIONS.parting_s - 1.0, {"n2": (), "n3": ()}) == []
        assert parted(scene, 0.5, {"n2": ("n3",), "n3": ("n2",)}) == []


def test_the_one_that_most_do_not_hear_goes() -> None:
    scene = leading("n2", "n3", "n4")
    hears = {"n2": (), "n3": ("n4",), "n4": ("n3",)}
    assert parted(scene, OPTIONS.parting_s + 0.5, hears)[-1] == Submit(NodeDown("n2", 2))
    scene.apply(MemberDown(member("n2", 2)))
    assert parted(scene, 2 * OPTIONS.parting_s, {"n3": ("n4",), "n4": ("n3",)}) == []


def test_only_the_leader_parts_nodes_and_not_for_what_it_slept_through() -> None:
    scene = leading("n2", "n3")
    parted(scene, 2.0, {"n2": (), "n3": ()})
    scene.now += 3 * OPTIONS.parting_s
    assert not [item for item in parted(scene, 5.0, {"n2": (), "n3": ()}) if isinstance(item, Parted)]
    scene = Scene.up("n2", "n3", "n4")
    assert parted(scene, 2 * OPTIONS.parting_s, {"n2": ("n4",), "n3": (), "n4": ("n2",)}) == []


def test_a_node_says_who_is_up_and_out_of_its_reach() -> None:
    scene = leading("n2", "n3")
    scene.hear("n2", reachable=(SELF, "n3"))
    scene.hear("n3", reachable=("n2",))
    assert scene.node.unreached == ["n3"], "it does not hear us"
    scene.hear("n3", reachable=(SELF, "n2"))
    assert scene.node.unreached == []
    scene.node.link_down("n2", is_gone=False, now=scene.now)
    assert scene.node.unreached == ["n2"]
    scene.apply(MemberDown(member("n2", 2)))
    assert scene.node.unreached == []
