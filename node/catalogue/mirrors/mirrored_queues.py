"""Changes of the views of mirrored queues: by commands, and when nodes go down or are forgotten.

This is the part of the catalogue between `Topology`, where the queues are, and `Members`, which knows which nodes are
up; `views` has the rules of each change. Each change appends what it did to the catalogue's events.

A queue that is down stays, as a node may bring its messages back, unless none can: it is transient, or the
nodes with a copy to bring are forgotten. Then it is deleted, like an unmirrored one in the same place.

Source: reliability §4.1, §4.6, §4.10; amqp-behaviour §9.3.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from node.amqp.constants import ReplyCode
from node.catalogue.commands import (
    ChangeView,
    DeclareQueue,
    DeleteQueue,
    Refused,
    StartMirroring,
    StepOutcome,
    TakePlanStep,
)
from node.catalogue.events import Event, ViewChanged
from node.catalogue.members import Members
from node.catalogue.mirrors.plan_steps import judged, placement_to_keep
from node.catalogue.mirrors.views import (
    AddMirror,
    OfferCopy,
    Unmirror,
    View,
    ViewChange,
    changed,
    created,
    died,
    forgotten,
    withdrawn,
)
from node.catalogue.policy import EffectivePolicy, QueueSettings, queue_settings
from node.catalogue.records import ClusterMember, QueueRecord
from node.catalogue.topology import Topology

_VIEW_CHANGED: Final = Refused(ReplyCode.PRECONDITION_FAILED, "view changed")


class MirroredQueues:
    """The handlers of commands about mirrored queues of all vhosts.

    `topologies` and `events` are the catalogue's own.
    """

    def __init__(self, topologies: Mapping[str, Topology], members: Members, events: list[Event]) -> None:
        self._topologies = topologies
        self._members = members
        self._events = events

    # --- commands -----------------------------------------------------------------------------------------

    def first_view(self, command: DeclareQueue, effective: EffectivePolicy) -> View | None:
        """Return the view that a new queue begins with; None: it is not mirrored.

        The declaring node chose among the nodes that were up then; those that went down are left out. If the home
        is among these, the first of the mirrors is master.
        """
        is_wanted = command.mirrors or command.type == "quorum" or "ha-mode" in effective.definition
        if not is_wanted or command.exclusive_owner is not None:
            return None
        wanted = dict.fromkeys((command.home, *command.mirrors))
        found = map(self._members.by_name.get, wanted)
        nodes = [(member.name, member.incarnation) for member in found if member and _may_have_copy(member)]
        return created(0, nodes) if nodes else None

    def start(self, command: StartMirroring) -> View | Refused:
        """Give an unmirrored queue its first view, of its home alone, and return it.

        Refused (406) when it is mirrored, exclusive or another one than `uid`, or when its home is down or a witness.
        """
        topology = self._topologies.get(command.vhost)
        queue = None if topology is None else topology.queues.get(command.name)
        if topology is None or queue is None or queue.uid != command.uid:
            return _VIEW_CHANGED
        home = self._members.by_name.get(queue.home)
        is_possible = queue.view is None and queue.exclusive_owner is None
        if not is_possible or home is None or not _may_have_copy(home):
            return _VIEW_CHANGED
        view = created(queue.ring_version, [(home.name, home.incarnation)], queue.copy)
        self._put(topology, queue, view)
        return view

    def change(self, command: ChangeView) -> View | Refused:
        """Make a change of a queue's view and return the view; a queue that no node can bring back is deleted.

        Refused (406) when the change cannot be made, or not any more.
        """
        topology = self._topologies.get(command.vhost)
        queue = None if topology is None else topology.queues.get(command.name)
        if topology is None or queue is None or queue.uid != command.uid or queue.view is None:
            return _VIEW_CHANGED
        view = changed(queue.view, command.change) if self._is_of_now(command.change) else None
        if view is None:
            return _VIEW_CHANGED
        if isinstance(command.change, Unmirror):
            copy = view.members[0].copy
            after = replace(queue, view=None, ring_version=view.version, copy=copy, placement=())
            self._record(topology, queue, after)
        elif _is_over(queue, view):
            topology.delete_queue(DeleteQueue(queue.vhost, queue.name, queue.uid))
        else:
            self._put(topology, queue, view)
        return view

    def take_step(self, command: TakePlanStep) -> StepOutcome:
        """Judge a step of a plan and make it if all its conditions hold.

        The caller has checked that the plan has the lock.
        """
        topology = self._topologies.get(command.vhost)
        queue = None if topology is None else topology.queues.get(command.name)
        if topology is None or queue is None or queue.uid != command.uid:
            return StepOutcome("missing", "there is no such queue")
        verdict = judged(queue, command, self._settings(topology, queue), self._members.by_name)
        view = queue.view
        if verdict.is_first:
            home = self._members.by_name[queue.home]
            # Its epoch is none that the queue ever had.
            version = max(queue.ring_version, queue.mastership)
            view = created(version, [(home.name, home.incarnation)], queue.copy)
        if view is None or (verdict.change is None and verdict.placement == queue.placement):
            return verdict.outcome
        if verdict.change is not None:
            changed_view = changed(view, verdict.change)
            if changed_view is None:
                return StepOutcome("waiting", "the view of the queue is changing")
            view = changed_view
        queue_after = replace(queue, placement=verdict.placement)
        self._put(topology, queue, view, queue_after, f"plan:{command.plan}:{command.step}")
        return verdict.outcome

    def _is_of_now(self, change: ViewChange) -> bool:
        """True if the node that is to have a copy, or to bring one, is up as the incarnation that is meant."""
        if not isinstance(change, AddMirror | OfferCopy):
            return True
        member = self._members.by_name.get(change.node)
        return member is not None and _may_have_copy(member) and member.incarnation == change.incarnation

    # --- nodes that go ------------------------------------------------------------------------------------

    def lose(self, gone: ClusterMember, *, is_clean: bool) -> list[QueueRecord]:
        """Take the copies on a node that is down out of the views of their queues.

        is_clean: as in `NodeDown`.   Returns: the queues that no node can bring back, for the caller to delete.
        """

        def without(topology: Topology, queue: QueueRecord, view: View) -> View | None:
            member = view.member_on(gone.name)
            if member is None:
                return withdrawn(view, gone.name)
            assert member.incarnation == gone.incarnation, "all members are on nodes that are up"
            may_lose = member.id == view.master and _may_lose(topology, queue, is_clean=is_clean)
            return died(view, (member.id,), may_lose=may_lose)

        return list(self._change_all(without))

    def forget(self, name: str) -> list[QueueRecord]:
        """Take a node out of the views, which is down and no member any more.   Returns: as `lose`."""
        return list(self._change_all(lambda topology, queue, view: forgotten(view, name)))

    def _change_all(
        self, change: Callable[[Topology, QueueRecord, View], View | None]
    ) -> Iterator[QueueRecord]:
        """Give each mirrored queue the view that `change` returns (None: no change); yield those that are lost."""
        for topology in self._topologies.values():
            mirrored = [(queue, queue.view) for queue in topology.queues.values() if queue.view is not None]
            for queue, view in mirrored:
                after = change(topology, queue, view)
                if after is None:
                    continue
                if _is_over(queue, after):
                    yield queue
                else:
                    self._put(topology, queue, after)

    def _put(
        self,
        topology: Topology,
        queue: QueueRecord,
        view: View,
        base: QueueRecord | None = None,
        cause: str = "",
    ) -> None:
        """Give a queue another view.   base: the record with its other changes.   cause: as in `ViewChanged`."""
        home, mastership = view.master_node or queue.home, queue.mastership
        if queue.view is not None and view.since != queue.view.since:
            mastership = view.since
        after = replace(base or queue, view=view, ring_version=view.version, home=home, mastership=mastership)
        if after.placement:
            kept = placement_to_keep(after, self._settings(topology, queue), self._members.by_name)
            after = replace(after, placement=kept)
        self._record(topology, queue, after, cause)

    def _record(self, topology: Topology, before: QueueRecord, after: QueueRecord, cause: str = "") -> None:
        topology.queues[after.name] = after
        if after != before:
            self._events.append(ViewChanged(before, after, cause))

    def _settings(self, topology: Topology, queue: QueueRecord) -> QueueSettings:
        return queue_settings(queue.arguments, topology.effective_policy("queue", queue.name))


def _may_have_copy(member: ClusterMember) -> bool:
    return member.is_up and member.type != "witness"


def _may_lose(topology: Topology, queue: QueueRecord, *, is_clean: bool) -> bool:
    """True if the queue's policy wants a copy promoted that is not synchronised (§9.3).

    At a clean end that takes both keys, as there RabbitMQ's default for failures is `always`.
    """
    effective = topology.effective_policy("queue", queue.name)
    settings = queue_settings(queue.arguments, effective)
    if is_clean:
        is_forbidden = effective.definition.get("ha-promote-on-failure") == "when-synced"
        return settings.ha_promote_on_shutdown == "always" and not is_forbidden
    return settings.ha_promote_on_failure == "always"


def _is_over(queue: QueueRecord, view: View) -> bool:
    """True if no node can bring the queue back."""
    if view.state == "live":
        return False
    if view.state == "down":
        return not queue.durable or not view.recoverable
    heirs = [member for member in view.ring if member.id in view.synced]
    return not view.recoverable and not view.may_lose and not heirs
