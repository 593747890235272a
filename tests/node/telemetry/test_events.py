"""Events: what becomes one, and what it says."""

from dataclasses import replace
from typing import Any

import pytest

from cluster.mirror.mirror_events import mirror_events, sync_begun, sync_ended
from node.broker.broker import Broker
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import PlanAction, SetPolicy, TakePlanLock, TakePlanStep
from node.catalogue.events import MemberDown, MemberUp, QueueCreated, ViewChanged
from node.catalogue.mirrors.views import (
    AddMirror,
    DropMirror,
    EraseMirror,
    MirrorSynced,
    TransferMaster,
    View,
    ViewChange,
    changed,
    created,
    died,
)
from node.catalogue.records import ClusterMember, QueueRecord
from node.client.observer import MirrorEvent
from node.client.settings import BrokerSettings
from node.telemetry.events import EventObserver
from spark_ops.telemetry.schema import EVENTS
from tests.kit.cluster import Cluster


class Told:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.soon = 0
        self.observer = EventObserver("a@h", self.events.append, self._soon)
        self.broker = Broker(BrokerSettings(), entropy=bytes, catalogue=Catalogue())
        self.observer.begin(self.broker)

    def _soon(self) -> None:
        self.soon += 1

    def view(self, before: View, after: View, wanted: int = 2) -> list[dict[str, Any]]:
        """Return what is told when a queue's view changes so."""
        records = [QueueRecord("/", "q", "0" * 32, view=view) for view in (before, after)]
        for event in mirror_events(records[0], records[1], wanted):
            self.observer.mirror_event(event)
        self.observer.release()
        taken, self.events[:] = list(self.events), []
        return taken


@pytest.fixture
def told() -> Told:
    return Told()


THREE = created(0, [("a@h", 1), ("b@h", 2), ("c@h", 3)])


def without_master(view: View, *, may_lose: bool = False) -> View:
    after = died(view, (view.master,), may_lose=may_lose)
    dead = next(member.id for member in after.members if member.status == "dead")
    erased = changed(after, EraseMirror(dead, after.owner_of(dead)))
    assert erased is not None
    return erased


def test_a_failover(told: Told) -> None:
    """spark §2.5: from whom to whom, why, and whether messages may be lost."""
    flushing = died(THREE, (THREE.master,), may_lose=False)
    assert told.view(THREE, flushing) == []
    dead = next(member.id for member in flushing.members if member.status == "dead")
    after = changed(flushing, EraseMirror(dead, flushing.owner_of(dead)))
    assert after is not None
    (event,) = told.view(flushing, after)
    assert (event["event"], event["cause"], event["unsynced_promotion"]) == ("failover", "crash", False)
    assert (event["vhost"], event["queue"], event["to_node"]) == ("/", "q", "b@h")


def test_a_failover_that_may_lose_messages(told: Told) -> None:
    """Told by a second line, which becomes part of the event."""
    unsynced = View(THREE.version, THREE.members, THREE.master, (THREE.master,), since=THREE.since)
    flushing = died(unsynced, (unsynced.master,), may_lose=True)
    (event,) = told.view(flushing, without_master(unsynced, may_lose=True))
    assert (event["event"], event["unsynced_promotion"]) == ("failover", True)
    assert told.soon == 1


def test_a_handover(told: Told) -> None:
    """By a plan, if the broker says so."""
    after = changed(THREE, TransferMaster(THREE.master, THREE.members[1].id))
    assert after is not None
    (event,) = told.view(THREE, after)
    assert (event["event"], event["from_node"], event["to_node"]) == ("promotion", "a@h", "b@h")
    assert event["cause"] is None
    line = MirrorEvent("info", "transfer", "/", "q", "…", "b@h", "a@h", cause="plan:sha256:1:s2")
    told.observer.mirror_event(line)
    assert told.events[-1]["cause"] == "plan:sha256:1:s2"


def test_synchronisations(told: Told) -> None:
    """Begun, done, given up; its end is told by the view that has the mirror among the synchronised."""
    record = QueueRecord("/", "q", "0" * 32, view=THREE)
    for line in [*sync_begun(record, 10, 4096, "b@h"), sync_ended(record, "cancelled")]:
        told.observer.mirror_event(line)
    told.observer.mirror_event(sync_ended(record, "complete"))
    assert [event["event"] for event in told.events] == ["sync_start", "sync_abort"]
    told.events.clear()
    unsynced = View(THREE.version, THREE.members, THREE.master, THREE.synced[:2], since=THREE.since)
    after = changed(unsynced, MirrorSynced(THREE.members[2].id))
    assert after is not None
    assert [(event["event"], event["to_node"]) for event in told.view(unsynced, after)] == [
        ("sync_done", "c@h")
    ]


def test_members_and_alarms(told: Told) -> None:
    """Each node tells of the others; of alarms only its own."""
    member = ClusterMember("b@h", "b:1", "id", is_up=True)
    told.observer.changed(MemberUp(member))
    told.observer.changed(MemberDown(member))
    told.observer.alarm_set("a@h", "memory")
    told.observer.alarm_set("b@h", "memory")
    told.observer.alarm_cleared("a@h", "memory", is_last=True)
    assert [event["event"] for event in told.events] == [
        "view_change",
        "view_change",
        "alarm_set",
        "alarm_clear",
    ]
    assert all(event["event"] in EVENTS for event in told.events)


def test_what_moves_copies_makes_the_topology_new(told: Told) -> None:
    """A change of a view makes the topology new, and nothing does before the broker runs."""
    record = QueueRecord("/", "q", "0" * 32)
    assert not told.observer.is_topology_new
    told.observer.changed(ViewChanged(record, record))
    assert told.observer.is_topology_new
    early = EventObserver("a@h", told.events.append, lambda: None)
    early.changed(QueueCreated(record))
    early.changed(MemberUp(ClusterMember("b@h", "b:1", "id", is_up=True)))
    assert not early.is_topology_new
    assert told.events == []


# --- steps of plans ---


def by_plan(before: View, change: ViewChange) -> ViewChanged:
    """A change of a view by a step of a plan."""
    after = changed(before, change)
    assert after is not None
    records = [QueueRecord("/", "q", "0" * 32, view=view) for view in (before, after)]
    return ViewChanged(records[0], records[1], "plan:sha256-1:s2")


def test_steps_of_plans(told: Told) -> None:
    """spark §2.5: a copy that comes, a copy that goes, and a master that moves, with the plan and the step."""
    two = created(0, [("a@h", 1), ("b@h", 2)])
    told.observer.changed(by_plan(two, AddMirror("c@h", 3)))
    told.observer.changed(by_plan(THREE, DropMirror(THREE.members[2].id)))
    assert told.events == [
        {
            "event": "plan_step_done",
            "cause": "plan:sha256-1:s2",
            "vhost": "/",
            "queue": "q",
            "to_node": "c@h",
            "detail": {"action": "add_mirror"},
        },
        {
            "event": "plan_step_done",
            "cause": "plan:sha256-1:s2",
            "vhost": "/",
            "queue": "q",
            "from_node": "c@h",
            "detail": {"action": "drop_mirror"},
        },
    ]
    assert {event["event"] for event in told.events} <= set(EVENTS)


def test_a_step_is_told_by_the_node_of_the_master_alone(told: Told) -> None:
    """The new master tells that it was promoted."""
    step = by_plan(THREE, TransferMaster(THREE.master, THREE.members[1].id))
    told.observer.changed(step)
    assert told.events == []
    others: list[dict[str, Any]] = []
    heir = EventObserver("b@h", others.append, lambda: None)
    heir.begin(told.broker)
    heir.changed(step)
    (event,) = others
    assert (event["event"], event["from_node"], event["to_node"]) == ("plan_step_done", "a@h", "b@h")
    assert event["detail"] == {"action": "promote"}
    assert step.after.view is not None
    assert event["epoch_after"] == step.after.view.since


def test_changes_that_no_plan_made_are_no_steps(told: Told) -> None:
    """A change by the policy, and a step that only changed the wish where copies should be."""
    step = by_plan(THREE, DropMirror(THREE.members[2].id))
    told.observer.changed(ViewChanged(step.before, step.after))
    told.observer.changed(ViewChanged(step.before, replace(step.before, placement=("a@h",)), step.cause))
    assert told.events == []
    assert told.observer.is_topology_new


def test_each_step_of_a_plan_is_told_once_in_a_cluster() -> None:
    """Every node applies the step, and the cluster's telemetry has one event of it."""
    cluster = Cluster("n1", "n2", "n3")
    cluster.submit(SetPolicy("/", "ha", "q", {"ha-mode": "exactly", "ha-params": 2}))
    cluster.declare_mirrored("q", "n1", "n2")
    events: list[tuple[str, dict[str, Any]]] = []
    for node in cluster:
        broker, own = node.broker, node.broker.settings.node_name
        watch = EventObserver(own, lambda event, own=own: events.append((own, event)), lambda: None)
        watch.begin(broker)
        broker.observer = watch
    record = cluster["n1"].broker.catalogue.queue("/", "q")
    assert record is not None
    cluster.submit(TakePlanLock("sha256-1", "me", 0, 60_000))

    def step(number: int, action: PlanAction, source: str = "", target: str = "") -> None:
        cluster.submit(
            TakePlanStep("sha256-1", f"s{number}", 1, action, "/", "q", record.uid, source, target)
        )
        cluster.settle()

    step(1, "add_mirror", target="n3")
    step(2, "wait_synced", target="n3")
    step(3, "drop_mirror", source="n2")
    step(4, "promote", target="n3")
    told = [
        (own, event["cause"], event["detail"]["action"]) for own, event in events if "step" in event["event"]
    ]
    assert told == [
        ("n1", "plan:sha256-1:s1", "add_mirror"),
        ("n1", "plan:sha256-1:s3", "drop_mirror"),
        ("n3", "plan:sha256-1:s4", "promote"),
    ]
