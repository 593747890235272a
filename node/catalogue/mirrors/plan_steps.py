"""The steps of a plan, judged when they are applied: what a step does to a queue, or why it does nothing.

    TakePlanStep ─► is it done already? ─► do its conditions hold? ─► is it allowed? ─► a changed view, a placement

The judgement and the change are one command, so nothing can come between: no mirror can die, no other plan can act.
A copy is only given up where enough synchronised ones are left without it, whatever the plan believes. Pure.
Source: spark §3.4, §6.1, §6.2, §6.13.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from node.catalogue.commands import StepOutcome, TakePlanStep
from node.catalogue.mirrors.mirror_nodes import candidate_nodes, copies_wanted, suggested_nodes
from node.catalogue.mirrors.views import AddMirror, DropMirror, TransferMaster, View, ViewChange
from node.catalogue.policy import QueueSettings
from node.catalogue.records import ClusterMember, QueueRecord

_DONE: Final = StepOutcome("done")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a step.

    outcome: the result, provided that the change can be made.   change: of the view; None: none.
    placement: of the queue from now on.   is_first: the queue, which has no view, gets one of its home alone.
    """

    outcome: StepOutcome
    change: ViewChange | None
    placement: tuple[str, ...]
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class _Case:
    """A step and the queue that it is about.   synced: nodes with a synchronised copy that is there."""

    record: QueueRecord
    view: View
    command: TakePlanStep
    settings: QueueSettings
    members: Mapping[str, ClusterMember]
    synced: frozenset[str]

    def told(self, outcome: StepOutcome) -> Verdict:
        """Return the verdict that changes nothing."""
        return Verdict(outcome, None, self.record.placement)

    def stale(self, reason: str) -> Verdict:
        return self.told(StepOutcome("stale", reason))

    def waiting(self, reason: str) -> Verdict:
        return self.told(StepOutcome("waiting", reason))

    def skipped(self, reason: str) -> Verdict:
        return self.told(StepOutcome("skipped", reason))

    @property
    def placed(self) -> frozenset[str]:
        """The nodes that are to have a copy at present: those of the placement, or without one those of the ring."""
        return frozenset(self.record.placement) or frozenset(member.node for member in self.view.ring)


def judged(
    record: QueueRecord, command: TakePlanStep, settings: QueueSettings, members: Mapping[str, ClusterMember]
) -> Verdict:
    """Return the verdict on a step. The queue is the one that is meant; its plan has the lock."""
    view = record.view
    if view is None:
        return _alone(record, command, members)
    case = _Case(record, view, command, settings, members, synced_nodes(view))
    if view.state != "live":
        return case.waiting("the queue has no master now")
    match command.action:
        case "promote":
            return _promote(case)
        case "add_mirror":
            return _add(case)
        case "wait_synced":
            return _wait(case)
        case "drop_mirror":
            return _drop(case)


def synced_nodes(view: View) -> frozenset[str]:
    """Return the nodes that have a synchronised copy, the master's among them. Dead members never count."""
    return frozenset(member.node for member in view.ring if member.id in view.synced)


def epoch_of(record: QueueRecord, settings: QueueSettings) -> int:
    """Return the number by which plans know a queue's mastership, which rises with each new master.

    A queue that only a plan mirrors keeps the number from the time before its view, until its master changes.
    """
    is_plans = record.type != "quorum" and settings.ha_mode is None and bool(record.placement)
    return record.mastership if record.view is None or is_plans else record.view.since


def placement_to_keep(
    record: QueueRecord, settings: QueueSettings, members: Mapping[str, ClusterMember]
) -> tuple[str, ...]:
    """Return a queue's placement; empty once the policy alone wants these nodes and all copies are synchronised.

    It is also empty if the policy leaves no choice of nodes, once the copies on these are synchronised.
    """
    view = record.view
    if view is None or view.state != "live" or view.previous or view.master_node is None:
        return record.placement
    nodes = [member.node for member in view.ring]
    candidates = candidate_nodes(members.values(), record, nodes)
    placed = {node for node in record.placement if node in candidates}
    synced = synced_nodes(view)
    mirrors = [node for node in nodes if node != view.master_node]
    master, others = suggested_nodes(
        settings,
        replace(record, placement=()),
        view.master_node,
        mirrors,
        [node for node in mirrors if node in synced],
        candidates,
    )
    wanted = {master, *others}
    leaves_choice = record.type == "quorum" or settings.ha_mode in ("exactly", None)
    # A node that is down may come back, and would be chosen only because of the placement.
    is_said = placed == wanted or wanted.issuperset(record.placement) or not leaves_choice
    return () if is_said and placed & wanted <= synced else record.placement


# --- a queue without mirrors ---


def _alone(record: QueueRecord, command: TakePlanStep, members: Mapping[str, ClusterMember]) -> Verdict:
    """Return the verdict on a step for a queue without a view. To add a copy begins with a view of its home alone."""
    home, target = record.home, command.target
    if command.action == "drop_mirror":
        if command.source != home:
            return Verdict(StepOutcome("skipped", f"{command.source} has no copy"), None, record.placement)
        reason = f"{home} is the master"
    elif target == home:
        return Verdict(StepOutcome("skipped", f"{home} has the only copy"), None, record.placement)
    elif command.action != "add_mirror":
        reason = f"{target} has no synchronised copy"
    elif record.exclusive_owner is not None:
        reason = "it is exclusive"
    elif home not in members or not members[home].is_up:
        return Verdict(StepOutcome("waiting", "the queue has no master now"), None, record.placement)
    elif command.epoch not in (None, record.mastership):
        reason = f"the master has changed: epoch {command.epoch} is {record.mastership} now"
    elif command.master and command.master != home:
        reason = f"the master is {home}, not {command.master}"
    elif command.min_synced > 1 or not {home}.issuperset(command.synced):
        reason = "the queue has one copy"
    elif target not in candidate_nodes(members.values(), record, (home,)):
        reason = f"{target} is down, or takes no copies"
    else:
        started = StepOutcome("started", f"{home} begins a ring")
        return Verdict(started, None, tuple(sorted((home, target))), is_first=True)
    return Verdict(StepOutcome("stale", reason), None, record.placement)


# --- the actions ---


def _promote(case: _Case) -> Verdict:
    view, target = case.view, case.command.target
    if view.master_node == target:
        if view.previous:
            return case.told(StepOutcome("started", "the master before it is handing over"))
        return case.skipped(f"{target} is the master")
    problem = _broken(case, case.synced)
    if problem is not None:
        return case.stale(problem)
    heir = view.member_on(target)
    if heir is None or target not in case.synced:
        return case.stale(f"{target} has no synchronised copy")
    if case.members[target].is_draining:
        return case.stale(f"{target} is in maintenance mode")
    if view.previous:
        return case.waiting("the master before this one is handing over")
    return Verdict(_DONE, TransferMaster(view.master, heir.id), case.record.placement)


def _add(case: _Case) -> Verdict:
    view, target = case.view, case.command.target
    placement = tuple(sorted({*case.placed, target}))
    if view.member_on(target) is not None:
        # By the policy there might be one copy too many, or it might not be synchronised.
        return Verdict(StepOutcome("skipped", f"{target} has a copy"), None, placement)
    problem = _broken(case, case.synced) or _unwelcome(case, target)
    if problem is not None:
        return case.stale(problem)
    if view.previous:
        return case.waiting("the master before this one is handing over")
    return Verdict(_DONE, AddMirror(target, case.members[target].incarnation), placement)


def _unwelcome(case: _Case, target: str) -> str | None:
    """Return why a node can have no copy of the queue; None if it can."""
    record, settings = case.record, case.settings
    current = [member.node for member in case.view.ring]
    if record.type != "quorum" and settings.ha_mode is None and not record.placement:
        return "its policy wants no mirrors"  # those that it has are about to go
    names = settings.ha_params if settings.ha_mode == "nodes" and record.type != "quorum" else None
    if isinstance(names, tuple) and target not in names:
        return f"its policy names its nodes, and not {target}"
    if target not in candidate_nodes(case.members.values(), record, current):
        return f"{target} is down, or takes no copies"
    return None


def _wait(case: _Case) -> Verdict:
    view, target = case.view, case.command.target
    if target in case.synced:
        return case.skipped(f"the copy on {target} is synchronised")
    problem = _broken(case, case.synced)
    if problem is not None:
        return case.stale(problem)
    if view.member_on(target) is not None:
        return case.waiting(f"the copy on {target} is being synchronised")
    member = case.members.get(target)
    if target in case.record.placement and member is not None and member.is_up:
        return case.waiting(f"the copy on {target} begins anew")
    return case.stale(f"the copy on {target} is gone")


def _drop(case: _Case) -> Verdict:
    view, source = case.view, case.command.source
    member = view.member_on(source)
    if member is None:
        return case.skipped(f"{source} has no copy")
    left = case.synced - {source}
    problem = _broken(case, left)
    if problem is not None:
        return case.stale(problem)
    if member.id == view.master:
        return case.stale(f"{source} is the master")
    wanted = copies_wanted(case.settings, case.record, case.members.values())
    if len(left) < wanted:
        return case.stale(f"{len(left)} synchronised copies would be left, and the policy wants {wanted}")
    if view.previous:
        return case.waiting("the master before this one is handing over")
    return Verdict(_DONE, DropMirror(member.id), tuple(sorted(case.placed - {source})))


def _broken(case: _Case, left: Collection[str]) -> str | None:
    """Return the condition of a step that does not hold, or None.   left: nodes with a synchronised copy after it."""
    command, view = case.command, case.view
    epoch = epoch_of(case.record, case.settings)
    if command.epoch is not None and command.epoch != epoch:
        return f"the master has changed: epoch {command.epoch} is {epoch} now"
    if command.master and command.master != view.master_node:
        return f"the master is {view.master_node}, not {command.master}"
    missing = sorted(set(command.synced) - case.synced)
    if missing:
        return f"{missing[0]} has no synchronised copy"
    if len(left) < command.min_synced:
        would_be = "would be left" if command.action == "drop_mirror" else "are there"
        return f"{len(left)} synchronised copies {would_be}, and {command.min_synced} are needed"
    return None
