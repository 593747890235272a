"""Steps of plans in the catalogue: what they do, and what they are refused for (spark §3.4, §6.1, §6.2, §6.13)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.catalogue.catalogue import Catalogue
from node.catalogue.command_codec import decode_command, encode_command
from node.catalogue.commands import (
    ChangeView,
    Command,
    DeclareQueue,
    NodeDown,
    Refused,
    RestoreQueue,
    SetDraining,
    SetPolicy,
    StepOutcome,
    TakePlanLock,
    TakePlanStep,
)
from node.catalogue.events import ViewChanged
from node.catalogue.mirrors import plan_steps
from node.catalogue.mirrors.mirror_nodes import copies_wanted
from node.catalogue.mirrors.views import (
    ActivateMirror,
    AddMirror,
    DropMirror,
    EraseMirror,
    MirrorSynced,
    TookOver,
    TransferMaster,
    Unmirror,
    ViewChange,
)
from node.catalogue.policy import queue_settings
from node.catalogue.records import Json
from node.catalogue.snapshot import snapshot
from tests.node.catalogue.mirrors.catalogue_cluster import CatalogueCluster, up

A, B, C, D = NODES = ("a@h", "b@h", "c@h", "d@h")


class Cluster(CatalogueCluster):
    """Four nodes, a queue with copies on some of them, and the plan p, which has the lock."""

    def __init__(self, *copies: str, mode: str = "exactly", params: Json = 2, sync: str = "manual") -> None:
        super().__init__(*NODES)
        self.mirrored(mode, params, sync)
        home, *mirrors = copies or (A, B)
        self.do(DeclareQueue("/", "q", "1", durable=True, home=home, mirrors=tuple(mirrors)))
        self.do(TakePlanLock("p", "o", 0, 1000))
        self.catalogue.take_events()

    def do(self, command: Command[Any]) -> Any:
        result = self.catalogue.apply(decode_command(encode_command(command)))
        assert not isinstance(result, Refused), (command, result)
        return result

    def mirrored(self, mode: str, params: Json, sync: str = "manual", **others: Json) -> None:
        definition: dict[str, Json] = {"ha-mode": mode, "ha-sync-mode": sync, **others}
        if params is not None:
            definition["ha-params"] = params
        self.do(SetPolicy("/", "ha", ".*", definition))

    def down(self, name: str) -> None:
        self.do(NodeDown(name, self.catalogue.members[name].incarnation))

    def view_change(self, *changes: ViewChange) -> None:
        for change in changes:
            self.do(ChangeView("/", "q", "1", change))

    def step(self, action: str, node: str, **others: Any) -> StepOutcome:
        """A step about a node. What is not given of `pre` is as it is."""
        target, source = ("", node) if action == "drop_mirror" else (node, "")
        named = {"epoch": self.view.since, "master": self.view.master_node or "", **others}
        made: Any = action
        command = TakePlanStep("p", "s1", 10, made, "/", "q", "1", source, target, **named)
        outcome = self.do(command)
        assert isinstance(outcome, StepOutcome)
        return outcome

    def synchronise(self, node: str) -> None:
        member = self.view.member_on(node)
        assert member is not None
        if member.status == "joining":
            self.view_change(ActivateMirror(member.id))
        self.view_change(MirrorSynced(member.id))

    def erase(self, node: str) -> None:
        """All that a dead copy had to say has gone round."""
        [member] = [each for each in self.view.members if each.node == node and each.status == "dead"]
        self.view_change(EraseMirror(member.id, self.view.owner_of(member.id)))

    @property
    def synced(self) -> frozenset[str]:
        return plan_steps.synced_nodes(self.view)


# --- what is done ---


def test_a_copy_moves() -> None:
    """The placement holds what the plan wants until the policy wants the same by itself."""
    cluster = Cluster()
    assert cluster.step("add_mirror", C) == StepOutcome("done")
    assert (cluster.nodes, cluster.queue.placement) == ([A, B, C], (A, B, C))
    assert cluster.step("wait_synced", C).state == "waiting"
    assert cluster.step("drop_mirror", B).state == "stale"
    cluster.synchronise(C)
    assert cluster.step("wait_synced", C).state == "skipped"
    assert cluster.queue.placement == (A, B, C)
    cluster.catalogue.take_events()
    assert cluster.step("drop_mirror", B, min_synced=2, synced=(A, B, C)) == StepOutcome("done")
    assert (cluster.nodes, cluster.queue.placement) == ([A, C], ())
    [event] = cluster.catalogue.take_events()
    assert isinstance(event, ViewChanged)
    assert event.cause == "plan:p:s1"
    assert cluster.step("drop_mirror", B).state == "skipped"


def test_a_master_moves() -> None:
    cluster = Cluster()
    epoch = cluster.view.since
    assert cluster.step("promote", B, synced=(B,), min_synced=2) == StepOutcome("done")
    assert (cluster.view.master_node, cluster.queue.home) == (B, B)
    assert cluster.step("promote", B, epoch=epoch, master=A).state == "started"
    for action, node in (("promote", A), ("add_mirror", C)):
        assert cluster.step(action, node).state == "waiting"
    cluster.view_change(TookOver(cluster.view.since))
    assert cluster.step("promote", B, epoch=epoch, master=A).state == "skipped"


def test_who_has_a_copy_that_the_policy_may_take_away_keeps_it() -> None:
    """A queue with one copy too many: the plan says which one is to stay."""
    cluster = Cluster(A, B, C, params=2)
    assert cluster.step("add_mirror", C).state == "skipped"
    assert cluster.queue.placement == (A, B, C)
    assert cluster.step("drop_mirror", B, min_synced=2).state == "done"
    assert (cluster.nodes, cluster.queue.placement) == ([A, C], ())


def test_a_copy_that_is_there_but_not_synchronised() -> None:
    """A copy stays placed until it is synchronised: with ha-sync-mode manual nobody else would do so."""
    cluster = Cluster(mode="all", params=None)
    assert [cluster.step("add_mirror", node).state for node in (C, D)] == ["done", "done"]
    assert cluster.step("add_mirror", C).state == "skipped"
    assert cluster.queue.placement == NODES
    cluster.synchronise(C)
    assert cluster.queue.placement == NODES
    cluster.synchronise(D)
    assert cluster.queue.placement == ()


@pytest.mark.parametrize(("mode", "params"), [("all", None), ("exactly", 3), ("nodes", [A, B, C])])
def test_a_placement_of_less_than_the_policy_wants_ends(mode: str, params: Json) -> None:
    """Nodes that the policy would choose anyway need no placement: it would stay for ever, as no step comes that makes
    of it what the policy wants.
    """
    cluster = Cluster(A, mode=mode, params=params)
    cluster.view_change(AddMirror(B, cluster.catalogue.members[B].incarnation))
    assert cluster.step("add_mirror", B).state == "skipped"
    assert cluster.queue.placement == (A, B)
    cluster.synchronise(B)
    assert (cluster.nodes, cluster.queue.placement) == ([A, B], ())


def test_a_node_that_the_policy_has_no_choice_of_is_not_placed() -> None:
    """A copy goes that the policy has no place for, whatever a plan says; the placement must not wait for it."""
    cluster = Cluster(A, B, C, mode="nodes", params=[A, B])
    assert cluster.step("add_mirror", B).state == "skipped"
    assert cluster.queue.placement == ()


def test_a_plan_goes_on_when_the_new_copy_has_to_begin_anew() -> None:
    cluster = Cluster()
    cluster.step("add_mirror", C)
    [joining] = [member for member in cluster.view.ring if member.node == C]
    cluster.view_change(DropMirror(joining.id))
    assert cluster.step("wait_synced", C).state == "waiting"
    cluster.down(C)
    assert cluster.step("wait_synced", C).state == "stale"


def test_a_placement_ends_with_its_node() -> None:
    """The new copy dies: what is left is what the policy wants, and when the node returns it gets no copy."""
    cluster = Cluster()
    cluster.step("add_mirror", C)
    cluster.synchronise(C)
    cluster.down(C)
    cluster.erase(C)
    assert (cluster.nodes, cluster.queue.placement) == ([A, B], ())
    assert cluster.step("wait_synced", C).state == "stale"


def test_the_node_that_was_to_lose_its_copy_dies() -> None:
    cluster = Cluster()
    cluster.step("add_mirror", C)
    cluster.view_change(ActivateMirror(cluster.view.version))
    cluster.down(B)
    assert cluster.step("drop_mirror", B).state == "skipped"
    cluster.erase(B)
    assert cluster.queue.placement == (A, B, C)  # the new copy is still to be synchronised
    cluster.synchronise(C)
    assert cluster.queue.placement == ()


def test_another_policy_ends_a_placement() -> None:
    cluster = Cluster()
    cluster.step("add_mirror", C)
    cluster.mirrored("exactly", 2, "automatic")
    assert cluster.queue.placement == (A, B, C)
    cluster.catalogue.take_events()
    cluster.mirrored("exactly", 3)
    assert cluster.queue.placement == ()
    changes = [each for each in cluster.catalogue.take_events() if isinstance(each, ViewChanged)]
    assert [each.after.placement for each in changes] == [()]
    assert changes[0].after == cluster.queue


def test_a_snapshot_has_the_placement() -> None:
    cluster = Cluster()
    cluster.step("add_mirror", C)
    copy = Catalogue()
    for command in snapshot(cluster.catalogue, whole=True):
        copy.apply(decode_command(encode_command(command)))
    assert copy.queue("/", "q") == cluster.queue


def test_a_snapshot_of_an_older_version_has_none() -> None:
    line = encode_command(RestoreQueue(Cluster().queue)).decode()
    assert ',"placement":[]' in line
    read = decode_command(line.replace(',"placement":[]', "").encode())
    assert read == RestoreQueue(Cluster().queue)


# --- what is refused ---


@pytest.mark.parametrize(
    ("action", "node", "pre", "reason"),
    [
        ("promote", B, {"epoch": 99}, "the master has changed: epoch 99 is 2 now"),
        ("promote", B, {"master": B}, "the master is a@h, not b@h"),
        ("promote", B, {"synced": (B, C)}, "c@h has no synchronised copy"),
        ("promote", B, {"min_synced": 3}, "2 synchronised copies are there, and 3 are needed"),
        ("promote", C, {}, "c@h has no synchronised copy"),
        ("add_mirror", C, {"epoch": 1}, "the master has changed: epoch 1 is 2 now"),
        ("add_mirror", C, {"min_synced": 3}, "2 synchronised copies are there, and 3 are needed"),
        ("add_mirror", "x@h", {}, "x@h is down, or takes no copies"),
        ("wait_synced", C, {}, "the copy on c@h is gone"),
        ("drop_mirror", A, {"min_synced": 0}, "a@h is the master"),
        ("drop_mirror", B, {}, "1 synchronised copies would be left, and the policy wants 2"),
        ("drop_mirror", B, {"min_synced": 2}, "1 synchronised copies would be left, and 2 are needed"),
    ],
)
def test_what_is_not_so(action: str, node: str, pre: dict[str, Any], reason: str) -> None:
    """§6.13: refused, and nothing is changed."""
    cluster = Cluster()
    before = cluster.queue
    assert cluster.step(action, node, **pre) == StepOutcome("stale", reason)
    assert cluster.queue == before
    assert cluster.catalogue.take_events() == []


def test_what_a_policy_forbids() -> None:
    named = Cluster(mode="nodes", params=[A, B])
    assert named.step("add_mirror", C).reason == "its policy names its nodes, and not c@h"
    plain = Cluster()
    plain.do(SetPolicy("/", "ha", ".*", {"max-length": 5}))
    assert plain.step("add_mirror", C).reason == "its policy wants no mirrors"
    assert plain.step("drop_mirror", B).state == "done"


def test_nodes_in_maintenance_mode() -> None:
    cluster = Cluster()
    cluster.do(SetDraining(C, True))
    assert cluster.step("add_mirror", C).reason == "c@h is down, or takes no copies"
    cluster.do(SetDraining(B, True))
    assert cluster.step("promote", B).reason == "b@h is in maintenance mode"


def test_a_dead_copy_counts_no_more_though_it_is_not_erased() -> None:
    """Between check and act a mirror dies: the command finds that out."""
    cluster = Cluster(A, B, C, params=2)
    cluster.down(C)
    assert cluster.step("drop_mirror", B).state == "stale"
    assert cluster.step("drop_mirror", C).state == "skipped"
    assert cluster.step("add_mirror", D).state == "done"


def test_without_a_master() -> None:
    cluster = Cluster()
    cluster.down(A)
    assert cluster.step("promote", B, epoch=2, master=A).state == "waiting"
    cluster.erase(A)
    assert cluster.view.master_node == B
    assert cluster.step("add_mirror", C, epoch=2, master=A).state == "stale"


def test_the_lock_and_the_queue() -> None:
    cluster = Cluster()
    given = TakePlanStep("p", "s1", 10, "promote", "/", "q", "1", "", B)
    assert cluster.do(replace(given, plan="other")).state == "locked"
    assert cluster.do(replace(given, now_ms=1000)).state == "locked"
    assert cluster.do(replace(given, uid="2")).state == "missing"
    assert cluster.do(replace(given, name="r")).state == "missing"
    assert cluster.do(replace(given, vhost="none")).state == "missing"
    assert cluster.do(given).state == "done"


def test_what_is_not_mirrored() -> None:
    cluster = Cluster()
    cluster.do(SetPolicy("/", "ha", ".*", {"max-length": 5}))
    cluster.do(DeclareQueue("/", "r", "2", home=A))
    command = TakePlanStep("p", "s1", 10, "promote", "/", "r", "2", "", B)
    assert cluster.do(command) == StepOutcome("stale", f"{B} has no synchronised copy")


class Alone(Cluster):
    """The cluster with a queue that no policy mirrors, with its master on A."""

    def __init__(self) -> None:
        CatalogueCluster.__init__(self, *NODES)
        self.do(DeclareQueue("/", "q", "1", durable=True, home=A))
        self.do(TakePlanLock("p", "o", 0, 1000))
        self.catalogue.take_events()

    def step(self, action: str, node: str, **others: Any) -> StepOutcome:
        """As for other queues, but they always have a view."""
        view, made = self.queue.view, action
        master = self.queue.home if view is None else view.master_node or ""
        pre = {"epoch": self.queue.mastership, "master": master, **others}
        target, source = ("", node) if action == "drop_mirror" else (node, "")
        outcome = self.do(TakePlanStep("p", "s1", 10, made, "/", "q", "1", source, target, **pre))  # type: ignore[arg-type]
        assert isinstance(outcome, StepOutcome)
        return outcome


def test_the_only_copy_moves() -> None:
    """The plan's steps have the epoch of the time before the queue was mirrored, until its master changes."""
    cluster = Alone()
    epoch = cluster.queue.mastership
    given = queue_settings(cluster.queue.arguments, cluster.catalogue.effective_policy(cluster.queue))
    assert cluster.step("add_mirror", B).state == "started"
    assert (cluster.nodes, cluster.queue.placement) == ([A], (A, B))
    assert cluster.view.since > epoch
    [event] = cluster.catalogue.take_events()
    assert isinstance(event, ViewChanged)
    assert (event.before.view, event.cause) == (None, "plan:p:s1")
    assert cluster.step("add_mirror", B, epoch=epoch) == StepOutcome("done")
    assert cluster.step("wait_synced", B, epoch=epoch).state == "waiting"
    assert cluster.step("promote", B, epoch=epoch).state == "stale"
    assert plan_steps.epoch_of(cluster.queue, given) == epoch
    cluster.synchronise(B)
    assert cluster.step("promote", B, epoch=epoch, synced=(B,)) == StepOutcome("done")
    assert cluster.step("drop_mirror", A, epoch=epoch).state == "stale"
    cluster.view_change(TookOver(cluster.view.since))
    assert cluster.step("drop_mirror", A, synced=(B,)) == StepOutcome("done")
    assert (cluster.nodes, cluster.queue.placement) == ([B], ())
    cluster.erase(A)
    cluster.view_change(Unmirror(cluster.view.master, cluster.view.version))
    assert (cluster.queue.view, cluster.queue.home) == (None, B)
    for action, node in (("add_mirror", B), ("wait_synced", B), ("promote", B), ("drop_mirror", A)):
        assert cluster.step(action, node, epoch=epoch, master=A).state == "skipped"


def test_a_ring_for_a_plan_ends_when_the_new_copy_is_given_up_or_lost() -> None:
    for is_lost in (False, True):
        cluster = Alone()
        cluster.step("add_mirror", B)
        cluster.step("add_mirror", B)
        if is_lost:
            cluster.synchronise(B)
            cluster.down(B)
            cluster.erase(B)
        else:
            assert cluster.step("drop_mirror", B) == StepOutcome("done")
        assert (cluster.nodes, cluster.queue.placement) == ([A], ())


@pytest.mark.parametrize(
    ("node", "pre"),
    [
        (B, {"epoch": 99}),
        (B, {"master": C}),
        (B, {"synced": (A, B)}),
        (B, {"min_synced": 2}),
        ("e@h", {}),
    ],
)
def test_an_only_copy_that_is_not_as_the_plan_says(node: str, pre: dict[str, Any]) -> None:
    cluster = Alone()
    assert cluster.step("add_mirror", node, **pre).state == "stale"
    assert cluster.queue.view is None
    assert not cluster.catalogue.take_events()


def test_an_only_copy_on_a_node_that_is_down_waits() -> None:
    cluster = Alone()
    cluster.down(A)
    assert cluster.step("add_mirror", B).state == "waiting"


# --- properties ---

_STEPS = st.tuples(
    st.sampled_from(["promote", "add_mirror", "wait_synced", "drop_mirror"]),
    st.sampled_from(NODES),
    st.integers(0, 4),
)
_EVENTS = st.one_of(
    st.tuples(st.just("down"), st.sampled_from(NODES)),
    st.tuples(st.just("up"), st.sampled_from(NODES)),
    st.tuples(st.just("policy"), st.sampled_from([1, 2, 3])),
    st.tuples(st.just("all"), st.none()),
    st.tuples(st.just("ring"), st.integers(0, 9)),
    st.tuples(st.just("drop"), st.integers(0, 9)),
)


def _ring_does(cluster: Cluster, roll: int) -> None:
    """Apply one of the changes that copies can make by themselves, chosen by `roll`."""
    view = cluster.view
    changes: list[ViewChange] = [ActivateMirror(each.id) for each in view.ring if each.status == "joining"]
    changes += [
        MirrorSynced(each.id) for each in view.ring if each.status == "alive" and each.id not in view.synced
    ]
    changes += [
        EraseMirror(each.id, view.owner_of(each.id)) for each in view.members if each.status == "dead"
    ]
    changes += [TookOver(view.since)] if view.previous else []
    if changes:
        cluster.catalogue.apply(ChangeView("/", "q", "1", changes[roll % len(changes)]))


def _happens(cluster: Cluster, event: tuple[str, Any]) -> None:
    members = cluster.catalogue.members
    match event:
        case "down", name:
            if members[name].is_up:
                cluster.down(name)
        case "up", name:
            if not members[name].is_up:
                cluster.do(up(name))
        case "policy", count:
            cluster.mirrored("exactly", count)
        case "all", _:
            cluster.mirrored("all", None)
        case "ring", roll:
            _ring_does(cluster, roll)
        case "drop", roll:
            member = cluster.view.members[roll % len(cluster.view.members)] if cluster.view.members else None
            if member is not None:
                cluster.catalogue.apply(ChangeView("/", "q", "1", DropMirror(member.id)))


@settings(max_examples=400, deadline=None)
@given(st.lists(_STEPS | _EVENTS, max_size=30))
def test_no_step_takes_a_copy_that_is_needed(history: list[tuple[Any, ...]]) -> None:
    """spark §6.1, §6.2, §6.14: whatever happens in between, and whatever the plan believes."""
    cluster = Cluster()
    for each in history:
        if cluster.catalogue.queue("/", "q") is None:
            return
        if len(each) == 2:
            _happens(cluster, each)
            continue
        action, node, min_synced = each
        before, view = cluster.synced, cluster.view
        outcome = cluster.step(action, node, min_synced=min_synced)
        after = cluster.synced
        record = cluster.queue
        given = queue_settings(record.arguments, cluster.catalogue.effective_policy(record))
        wanted = copies_wanted(given, record, cluster.catalogue.members.values())
        assert before - after <= ({node} if action == "drop_mirror" else set())
        assert len(after) >= min(len(before), max(wanted, min_synced))
        if outcome.state != "done":
            assert cluster.view is view
        if cluster.view.master != view.master:
            assert action == "promote"
            assert node in before


def _end_view(cluster: Cluster) -> None:
    """Let the reconciler end the view of a queue with one copy that no plan wants mirrored any more."""
    view = cluster.queue.view
    if view is not None and view.state == "live" and len(view.members) == 1 and not cluster.queue.placement:
        cluster.catalogue.apply(ChangeView("/", "q", "1", Unmirror(view.master, view.version)))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add_mirror", "wait_synced", "promote", "drop_mirror"]), st.sampled_from(NODES)
        )
        | st.tuples(st.sampled_from(["down", "up"]), st.sampled_from(NODES))
        | st.tuples(st.just("ring"), st.integers(0, 9)),
        max_size=30,
    )
)
def test_no_step_takes_the_only_copy(history: list[tuple[Any, Any]]) -> None:
    """spark §6.1, §6.2: of a queue that no policy mirrors, whatever happens in between."""
    cluster = Alone()
    for action, about in history:
        if cluster.catalogue.queue("/", "q") is None:
            return
        view = cluster.queue.view
        if action in ("down", "up", "ring"):
            if action != "ring" or view is not None:
                _happens(cluster, (action, about))
        else:
            before = frozenset({cluster.queue.home}) if view is None else plan_steps.synced_nodes(view)
            cluster.step(action, about)
            after = cluster.queue.view
            left = frozenset({cluster.queue.home}) if after is None else plan_steps.synced_nodes(after)
            assert before - left <= ({about} if action == "drop_mirror" else set())
            assert left or not before
        if cluster.catalogue.queue("/", "q") is not None:
            _end_view(cluster)
            assert cluster.queue.view is not None or not cluster.queue.placement


@settings(max_examples=200, deadline=None)
@given(st.lists(_EVENTS, max_size=12), _STEPS)
def test_a_step_that_is_sent_twice_is_made_once(
    history: list[tuple[str, Any]], step: tuple[str, str, int]
) -> None:
    """spark §6.7, §6.13: an answer that was lost does no harm."""
    cluster = Cluster(A, B, C)
    for event in history:
        _happens(cluster, event)
        if cluster.catalogue.queue("/", "q") is None:
            return
    action, node, min_synced = step
    pre = {"epoch": cluster.view.since, "master": cluster.view.master_node or "", "min_synced": min_synced}
    first = cluster.step(action, node, **pre)
    once = cluster.queue
    second = cluster.step(action, node, **pre)
    assert cluster.queue == once
    if first.state == "done":
        assert second.state in ("skipped", "started")
    else:
        assert second == first


def test_the_judgement_is_what_makes_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The property above fails with a catalogue that believes the plan."""
    monkeypatch.setattr(plan_steps, "copies_wanted", lambda *_: 1)
    cluster = Cluster()
    assert cluster.step("drop_mirror", B, min_synced=1).state == "done"
    assert cluster.synced == {A}


def test_a_drop_of_the_policys_is_of_the_view_that_was_seen() -> None:
    """The policy takes one copy, a plan another one: both had been one too many, but not together."""
    cluster = Cluster(A, B, C, params=2)
    seen = cluster.view
    third = seen.member_on(C)
    assert third is not None
    assert cluster.step("drop_mirror", B).state == "done"
    late = cluster.catalogue.apply(ChangeView("/", "q", "1", DropMirror(third.id, seen.version)))
    assert isinstance(late, Refused)
    assert cluster.synced == {A, C}


def test_a_transfer_and_an_addition_of_others() -> None:
    """The next step of a plan is judged by the view as others have changed it meanwhile."""
    cluster = Cluster()
    heir = cluster.view.member_on(B)
    assert heir is not None
    epoch = cluster.view.since
    cluster.view_change(TransferMaster(cluster.view.master, heir.id), TookOver(cluster.view.version + 1))
    assert cluster.step("promote", A, epoch=epoch).state == "stale"
    cluster.view_change(AddMirror(C, cluster.catalogue.members[C].incarnation))
    assert cluster.step("add_mirror", C, epoch=epoch).state == "skipped"
