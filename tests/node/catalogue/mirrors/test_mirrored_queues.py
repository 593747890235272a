"""Views in the catalogue: commands about them, and what nodes that come and go make of them."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.amqp.constants import ReplyCode
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    Bind,
    ChangeView,
    Command,
    DeclareQueue,
    DeleteQueue,
    NodeDown,
    PutMember,
    Refused,
    RemoveMember,
    RestoreQueue,
    SetPolicy,
    StartMirroring,
)
from node.catalogue.durable_part import declaration, durable_changes
from node.catalogue.events import (
    BindingRemoved,
    Event,
    MemberDown,
    MemberRemoved,
    MemberUp,
    ParameterChanged,
    PolicyChanged,
    QueueCreated,
    QueueDeleted,
    ViewChanged,
)
from node.catalogue.mirrors.views import (
    ActivateMirror,
    AddMirror,
    DeclineMaster,
    DropMirror,
    EraseMirror,
    GiveUp,
    MirrorSynced,
    OfferCopy,
    Revive,
    TookOver,
    TransferMaster,
    Unmirror,
    View,
    ViewChange,
)
from node.catalogue.records import Json, MemberType, QueueRecord
from node.catalogue.snapshot import everything, snapshot
from tests.node.catalogue.mirrors.catalogue_cluster import CatalogueCluster, up

A, B, C, D = "a@host", "b@host", "c@host", "d@host"
WITNESS = "w@host"


class Cluster(CatalogueCluster):
    """Takes note of events."""

    def join(self, name: str, type_: MemberType = "disc") -> None:
        super().join(name, "witness" if name == WITNESS else type_)

    def refused(self, command: Command[Any]) -> None:
        """Apply what is refused, as too late or never possible; it changes nothing."""
        before = list(map(repr, snapshot(self.catalogue, whole=True)))
        self.take()
        result = self.catalogue.apply(command)
        assert result == Refused(ReplyCode.PRECONDITION_FAILED, "view changed")
        assert list(map(repr, snapshot(self.catalogue, whole=True))) == before
        assert self.take() == []

    def declare(self, *mirrors: str, home: str = A, durable: bool = True, **others: Any) -> QueueRecord:
        """Declare the queue q, of uid 1."""
        command = DeclareQueue("/", "q", "1", durable=durable, home=home, mirrors=mirrors, **others)
        return self.do(command).queue

    def change(self, *changes: ViewChange) -> View:
        """Change the view of q; each change is one event."""
        view = None
        for change in changes:
            before = self.queue
            self.take()
            view = self.do(ChangeView("/", "q", "1", change))
            events = self.take()
            if self.catalogue.queue("/", "q") is not None:
                assert events == [ViewChanged(before, self.queue)]
        assert view is not None
        return view

    def down(self, name: str, *, is_clean: bool = False) -> list[Event]:
        member = self.catalogue.members[name]
        self.take()
        assert self.do(NodeDown(name, member.incarnation, is_clean)) is True
        return self.take()

    def up(self, name: str) -> int:
        return self.do(up(name))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(A, B, C)


# --- declare ----------------------------------------------------------------------------------------------


def test_declare_with_mirrors(cluster: Cluster) -> None:
    """amqp-behaviour §9.3 "created in sync": home first; the record that the event brings has the view."""
    queue = cluster.declare(C, B, home=B)
    assert cluster.nodes == [B, C]
    assert cluster.view.synced == (1, 2)
    assert [member.incarnation for member in cluster.view.members] == [2, 3]
    assert (queue.home, queue.ring_version) == (B, cluster.view.version)
    assert cluster.take() == [QueueCreated(queue)]


def test_declare_without_mirrors(cluster: Cluster) -> None:
    queue = cluster.declare()
    assert (queue.view, queue.ring_version, queue.home) == (None, 0, A)


def test_mirrors_that_are_down_when_it_is_applied(cluster: Cluster) -> None:
    """A node that is down, or that cannot have one, gets no copy; if the home is, the first mirror is master."""
    cluster.down(B)
    cluster.declare(B, C, "nobody@host")
    assert cluster.nodes == [A, C]
    cluster.do(DeleteQueue("/", "q"))
    queue = cluster.declare(C, A, home=B)
    assert cluster.nodes == [C, A]
    assert queue.home == C


def test_a_witness_gets_no_copy() -> None:
    cluster = Cluster(A, WITNESS)
    cluster.declare(WITNESS)
    assert cluster.nodes == [A]
    cluster.refused(ChangeView("/", "q", "1", AddMirror(WITNESS, 2)))


def test_clean_up_exclusive_queues(cluster: Cluster) -> None:
    """reliability §2.2: never mirrored; gone with its node."""
    cluster.policy(ha_mode="all")
    queue = cluster.declare(B, durable=False, exclusive_owner="c1")
    assert queue.view is None
    cluster.refused(StartMirroring("/", "q", "1"))
    events = cluster.down(A)
    assert [type(event) for event in events] == [MemberDown, QueueDeleted]


@pytest.mark.parametrize("keys", [{"ha_mode": "exactly", "ha_params": 1}, {"ha_mode": "all"}])
def test_a_view_of_one(cluster: Cluster, keys: dict[str, Json]) -> None:
    """A policy mirrors the queue, if only on one node."""
    cluster.policy(**keys)
    cluster.declare()
    assert cluster.nodes == [A]
    cluster.take()
    cluster.down(A)
    assert (cluster.view.state, cluster.view.recoverable) == ("down", (A,))


def test_a_quorum_queue(cluster: Cluster) -> None:
    cluster.declare(B, C, type="quorum")
    assert cluster.nodes == [A, B, C]
    cluster.do(DeleteQueue("/", "q"))
    cluster.declare(type="quorum")
    assert cluster.nodes == [A]


def test_a_node_by_itself() -> None:
    """Without a cluster policies are accepted, and nothing is mirrored."""
    cluster = Cluster()
    cluster.policy(ha_mode="all")
    assert cluster.declare(home="rabbit@here").view is None
    cluster.refused(StartMirroring("/", "q", "1"))
    cluster.do(DeleteQueue("/", "q"))
    assert cluster.declare(B, home="rabbit@here", type="quorum").view is None


def test_redeclared(cluster: Cluster) -> None:
    """reliability §1.1 W14: another queue of the name has nothing to do with the first one's copies."""
    cluster.declare(B, C)
    view = cluster.view
    assert cluster.do(DeclareQueue("/", "q", "2", durable=True, home=C, mirrors=(A,))).created is False
    assert cluster.view is view
    cluster.do(DeleteQueue("/", "q", "1"))
    cluster.do(DeclareQueue("/", "q", "2", durable=True, home=A, mirrors=(B,)))
    cluster.take()
    cluster.refused(ChangeView("/", "q", "1", DropMirror(2)))


# --- changes ----------------------------------------------------------------------------------------------


def test_join_and_leave(cluster: Cluster) -> None:
    """Routes do not change by that: nobody who publishes need look again."""
    cluster.declare(B)
    version = cluster.catalogue.version
    id_ = cluster.change(AddMirror(C, 3)).version
    cluster.change(ActivateMirror(id_), MirrorSynced(id_))
    view = cluster.change(DropMirror(2), EraseMirror(2, id_))
    assert view == cluster.view
    assert cluster.nodes == [A, C]
    assert cluster.queue.ring_version == view.version
    assert cluster.catalogue.version == version


def test_an_incarnation_that_is_not_there(cluster: Cluster) -> None:
    """reliability §4.7 S1: no ghost joins: a former incarnation, one that is down, a node that nobody knows."""
    cluster.declare(B)
    cluster.take()
    cluster.refused(ChangeView("/", "q", "1", AddMirror(C, 2)))
    cluster.refused(ChangeView("/", "q", "1", AddMirror(D, 1)))
    cluster.down(C)
    cluster.refused(ChangeView("/", "q", "1", AddMirror(C, 3)))


def test_what_cannot_be_changed(cluster: Cluster) -> None:
    """A queue that is not mirrored or not there, another queue of the name, a change that came too late."""
    cluster.do(DeclareQueue("/", "plain", "1", home=A))
    cluster.declare(B)
    cluster.take()
    for command in (
        ChangeView("/", "plain", "1", DropMirror(1)),
        ChangeView("/", "nope", "1", DropMirror(1)),
        ChangeView("nope", "q", "1", DropMirror(2)),
        ChangeView("/", "q", "2", DropMirror(2)),
        ChangeView("/", "q", "1", DropMirror(9)),
        ChangeView("/", "q", "1", TookOver(1)),
        StartMirroring("/", "q", "1"),
        StartMirroring("/", "plain", "2"),
        StartMirroring("/", "nope", "1"),
        StartMirroring("nope", "q", "1"),
    ):
        cluster.refused(command)


def test_transfer(cluster: Cluster) -> None:
    """reliability §1.1 L2, §2.2 change_policy: the queue lives elsewhere in one change; routes change by that."""
    cluster.declare(B)
    version = cluster.catalogue.version
    cluster.change(TransferMaster(1, 2))
    assert cluster.queue.home == B
    assert cluster.catalogue.version == version + 1
    cluster.change(TookOver(cluster.view.since))
    assert cluster.catalogue.version == version + 1


def test_start_and_end(cluster: Cluster) -> None:
    """change_policy: none → all → cleared → all: versions and ids never come again."""
    plain = cluster.declare()
    cluster.take()
    first = cluster.do(StartMirroring("/", "q", "1"))
    (event,) = cluster.take()
    assert event == ViewChanged(plain, cluster.queue)
    assert isinstance(event, ViewChanged)
    assert not event.is_move, "who uses the queue need not know"
    cluster.change(Unmirror(first.master))
    assert (cluster.queue.view, cluster.queue.ring_version, cluster.queue.home) == (None, first.version, A)
    again = cluster.do(StartMirroring("/", "q", "1"))
    assert again.version > first.version
    assert again.master > first.master


def test_what_is_on_disk_keeps_its_name(cluster: Cluster) -> None:
    """The first master's when mirroring starts, that of whoever is alone when it ends, and when it starts again."""
    cluster.declare()
    first = cluster.do(StartMirroring("/", "q", "1"))
    assert first.members[0].copy == 0
    joined = cluster.change(AddMirror(B, 2)).version
    cluster.change(ActivateMirror(joined), MirrorSynced(joined), TransferMaster(1, joined))
    cluster.change(TookOver(cluster.view.since))
    cluster.change(DropMirror(1), EraseMirror(1, joined), Unmirror(joined))
    assert (cluster.queue.view, cluster.queue.home, cluster.queue.copy) == (None, B, joined)
    again = cluster.do(StartMirroring("/", "q", "1"))
    assert (again.members[0].node, again.members[0].copy) == (B, joined)


def test_a_mastership_has_its_own_number(cluster: Cluster) -> None:
    """A mastership's number rises with each master, also over times without mirrors; 0 if the queue never moved."""
    cluster.declare(B)
    assert cluster.queue.mastership == 0
    cluster.change(TransferMaster(1, 2))
    cluster.change(TookOver(cluster.view.since))
    moved = cluster.queue.mastership
    assert moved == cluster.view.since
    cluster.change(DropMirror(1), EraseMirror(1, 2), Unmirror(2))
    cluster.do(StartMirroring("/", "q", "1"))
    assert cluster.queue.mastership == moved
    joined = cluster.change(AddMirror(A, 1)).version
    cluster.change(ActivateMirror(joined), MirrorSynced(joined), TransferMaster(cluster.view.master, joined))
    assert cluster.queue.mastership > moved


def test_mirroring_does_not_start_where_the_home_is_down(cluster: Cluster) -> None:
    cluster.declare()
    cluster.down(A)
    cluster.refused(StartMirroring("/", "q", "1"))


# --- nodes go ---------------------------------------------------------------------------------------------


def test_a_mirrors_node_goes(cluster: Cluster) -> None:
    """Views change before the node does, so that who sees it go sees nothing that is on it."""
    cluster.declare(B, C)
    before = cluster.queue
    version = cluster.catalogue.version
    events = cluster.down(B)
    assert events[0] == ViewChanged(before, cluster.queue)
    assert [type(event) for event in events] == [ViewChanged, MemberDown]
    assert cluster.nodes == [A, C]
    assert cluster.queue.home == A
    assert cluster.catalogue.version == version + 1, "as a node went"


def test_the_masters_node_goes(cluster: Cluster) -> None:
    """The home stays until all that the dead master had to say has gone round; then the queue lives elsewhere."""
    cluster.declare(B, C)
    cluster.down(A)
    assert (cluster.view.state, cluster.queue.home) == ("flushing", A)
    version = cluster.catalogue.version
    cluster.change(EraseMirror(1, 2))
    assert (cluster.view.state, cluster.queue.home) == ("live", B)
    assert cluster.catalogue.version == version + 1


def test_a_node_comes_back(cluster: Cluster) -> None:
    """reliability §4.0, §4.7 S9: a former incarnation that counts as up goes first; its copy does not come back."""
    cluster.declare(B, C)
    cluster.take()
    assert cluster.up(B) == 4
    assert [type(event) for event in cluster.take()] == [ViewChanged, MemberDown, MemberUp]
    assert cluster.nodes == [A, C]
    cluster.change(EraseMirror(2, 3))
    id_ = cluster.change(AddMirror(B, 4)).version
    assert cluster.view.synced == (1, 3)
    cluster.change(ActivateMirror(id_))


def test_unmirrored_queues_go_as_before(cluster: Cluster) -> None:
    """amqp-behaviour §9.1: of a node's queues those that are not mirrored, if transient."""
    cluster.do(DeclareQueue("/", "transient", "2", home=A))
    cluster.do(DeclareQueue("/", "durable", "3", durable=True, home=A))
    cluster.declare(B, durable=False)
    events = cluster.down(A)
    assert [type(event) for event in events] == [ViewChanged, MemberDown, QueueDeleted]
    assert {queue.name for queue in cluster.catalogue.queues("/")} == {"q", "durable"}


def unsynchronised_on_b(cluster: Cluster, *, durable: bool = True) -> None:
    """q has its master on A, member 1, and an unsynchronised copy on B, member 2."""
    cluster.declare(durable=durable)
    if cluster.queue.view is None:
        cluster.do(StartMirroring("/", "q", "1"))
    joined = cluster.change(AddMirror(B, 2)).version
    cluster.change(ActivateMirror(joined))
    assert (cluster.view.master, joined) == (1, 2)


@pytest.mark.parametrize(
    ("keys", "is_clean", "state"),
    [
        ({}, False, "down"),
        ({}, True, "down"),
        ({"ha_promote_on_failure": "when-synced"}, False, "down"),
        ({"ha_promote_on_failure": "always"}, False, "live"),
        ({"ha_promote_on_failure": "always"}, True, "down"),
        ({"ha_promote_on_shutdown": "always"}, True, "live"),
        ({"ha_promote_on_shutdown": "always"}, False, "down"),
    ],
)
def test_promote_on_failure_and_on_shutdown(
    cluster: Cluster, keys: dict[str, Json], is_clean: bool, state: str
) -> None:
    """reliability §2.2 promote_on_failure, promote_on_shutdown: by the queue's policy at the time."""
    unsynchronised_on_b(cluster)
    cluster.policy(ha_mode="all", **keys)
    cluster.down(A, is_clean=is_clean)
    cluster.change(EraseMirror(1, 2))
    assert cluster.view.state == state
    assert cluster.queue.home == (B if state == "live" else A)
    assert cluster.view.recoverable == (() if state == "live" else (A,))


def test_a_transient_queue_that_nobody_may_inherit(cluster: Cluster) -> None:
    """No disk can bring it back: it is deleted, with its bindings, when it would go down."""
    unsynchronised_on_b(cluster, durable=False)
    cluster.do(Bind("/", "amq.fanout", "queue", "q", ""))
    cluster.down(A)
    before = cluster.queue
    assert cluster.do(ChangeView("/", "q", "1", EraseMirror(1, 2))).state == "down"
    (unbound, deleted) = cluster.take()
    assert isinstance(unbound, BindingRemoved)
    assert deleted == QueueDeleted(before)
    assert cluster.catalogue.queue("/", "q") is None


def test_the_last_copy_of_a_transient_queue(cluster: Cluster) -> None:
    """The node first, as with unmirrored ones."""
    cluster.declare(B, durable=False)
    cluster.down(B)
    before = cluster.queue
    events = cluster.down(A)
    assert [type(event) for event in events] == [MemberDown, QueueDeleted]
    assert events[1] == QueueDeleted(before)


# --- down and back ----------------------------------------------------------------------------------------


def all_down(cluster: Cluster) -> None:
    """q, with its master on A, had synchronised copies everywhere."""
    cluster.declare(B, C)
    for name in (A, B, C):
        cluster.down(name)
    assert (cluster.view.state, cluster.view.recoverable) == ("down", (A, B, C))


def test_the_old_master_brings_it_back(cluster: Cluster) -> None:
    """reliability §4.10."""
    all_down(cluster)
    incarnation = cluster.up(A)
    version = cluster.catalogue.version
    cluster.change(OfferCopy(A, incarnation, 10))
    assert (cluster.view.state, cluster.queue.home, cluster.nodes) == ("live", A, [A])
    assert cluster.catalogue.version == version + 1


def test_an_offer_that_came_too_late(cluster: Cluster) -> None:
    """The node is down again: nothing is revived there. What it had offered is withdrawn."""
    all_down(cluster)
    incarnation = cluster.up(A)
    cluster.down(A)
    cluster.refused(ChangeView("/", "q", "1", OfferCopy(A, incarnation, 10)))
    other = cluster.up(C)
    cluster.change(OfferCopy(C, other, 10))
    assert cluster.view.offers == ((C, other, 10),)
    events = cluster.down(C)
    assert [type(event) for event in events] == [ViewChanged, MemberDown]
    assert cluster.view.offers == ()
    cluster.refused(ChangeView("/", "q", "1", Revive(cluster.view.version)))


def test_forget_promotes_offline_follower(cluster: Cluster) -> None:
    """reliability §2.5 as the offline tool does it: all count as down, the last master is forgotten: C has all."""
    all_down(cluster)
    incarnation = cluster.up(C)
    cluster.change(OfferCopy(C, incarnation, 10))
    for name in (B, A):
        assert cluster.view.state == "down"
        cluster.do(RemoveMember(name))
        assert [type(event) for event in cluster.take()] == [ViewChanged, MemberRemoved]
    assert (cluster.view.state, cluster.queue.home) == ("live", C)


def test_forget_removes(cluster: Cluster) -> None:
    """reliability §2.5 forget_removes_things, forget_offline_removes_things: when no node can bring it back."""
    cluster.declare(B)
    cluster.do(Bind("/", "amq.fanout", "queue", "q", ""))
    cluster.do(DeclareQueue("/", "plain", "2", durable=True, home=A))
    cluster.down(B)
    cluster.change(EraseMirror(2, 1))
    cluster.down(A)
    assert cluster.view.recoverable == (A,)
    cluster.do(RemoveMember(B))
    assert [type(event) for event in cluster.take()] == [MemberRemoved]
    cluster.do(RemoveMember(A))
    names = [type(event).__name__ for event in cluster.take()]
    assert names == ["BindingRemoved", "QueueDeleted", "QueueDeleted", "MemberRemoved"]
    assert not cluster.catalogue.queues("/")


def test_forget_a_node_that_is_up(cluster: Cluster) -> None:
    """A forgotten node goes down first; a mirrored queue lives on elsewhere."""
    cluster.declare(B)
    cluster.do(DeclareQueue("/", "plain", "2", durable=True, home=A))
    cluster.take()
    cluster.do(RemoveMember(A))
    names = [type(event).__name__ for event in cluster.take()]
    assert names == ["ViewChanged", "MemberDown", "ViewChanged", "QueueDeleted", "MemberRemoved"]
    assert (cluster.view.state, cluster.view.recoverable) == ("flushing", (B,))
    cluster.change(EraseMirror(1, 2))
    assert cluster.queue.home == B


def test_forgotten_while_only_unsynchronised_copies_are_left(cluster: Cluster) -> None:
    """A queue with unsynchronised copies only is deleted when its node is forgotten; always: the copy left is taken."""
    unsynchronised_on_b(cluster)
    cluster.do(RemoveMember(A))
    assert cluster.catalogue.queue("/", "q") is None

    other = Cluster(A, B, C)
    unsynchronised_on_b(other)
    other.policy(ha_mode="all", ha_promote_on_failure="always")
    other.do(RemoveMember(A))
    other.change(EraseMirror(1, 2))
    assert (other.view.state, other.queue.home) == ("live", B)


def test_forgotten_while_a_copy_became_synchronised(cluster: Cluster) -> None:
    """reliability §4.7 S13 and forget_cluster_node at once: what survived counts."""
    unsynchronised_on_b(cluster)
    cluster.down(A)
    cluster.change(MirrorSynced(2))
    cluster.do(RemoveMember(A))
    cluster.change(EraseMirror(1, 2))
    assert (cluster.view.state, cluster.queue.home) == ("live", B)


# --- other nodes and disks --------------------------------------------------------------------------------


def test_a_node_that_is_behind_gets_the_same_views(cluster: Cluster) -> None:
    """Live, without a master, down with offers, mirrored no more, not mirrored although a policy wants it."""
    cluster.do(DeclareQueue("/", "never", "5", durable=True, home=A))
    cluster.do(DeclareQueue("/", "plain", "6", home=B))
    cluster.do(StartMirroring("/", "plain", "6"))
    ended = cluster.catalogue.queue("/", "plain")
    assert ended is not None
    assert ended.view is not None
    cluster.do(ChangeView("/", "plain", "6", Unmirror(ended.view.master)))
    cluster.do(DeclareQueue("/", "live", "7", home=B, mirrors=(C, A)))
    cluster.do(DeclareQueue("/", "lost", "8", durable=True, home=A))
    cluster.do(StartMirroring("/", "lost", "8"))
    cluster.declare(B, C)
    cluster.policy(ha_mode="all")
    cluster.down(A)
    commands = list(snapshot(cluster.catalogue, whole=True))
    rebuilt = Catalogue()
    for command in commands:
        assert not isinstance(rebuilt.apply(command), Refused)
    assert list(rebuilt.queues("/")) == list(cluster.catalogue.queues("/"))
    assert list(map(repr, snapshot(rebuilt, whole=True))) == list(map(repr, commands))
    for queue in rebuilt.queues("/"):
        assert rebuilt.effective_policy(queue) == cluster.catalogue.effective_policy(queue)
    created = [event.queue for event in everything(rebuilt) if isinstance(event, QueueCreated)]
    assert created == list(cluster.catalogue.queues("/"))
    change = NodeDown(C, 3)
    assert rebuilt.apply(change) == cluster.catalogue.apply(change)
    assert list(rebuilt.queues("/")) == list(cluster.catalogue.queues("/"))


def test_put_back(cluster: Cluster) -> None:
    """RestoreQueue: as it was; in the place of another one of the name; refused without its vhost."""
    queue = cluster.declare(B)
    other = Cluster()
    other.do(RestoreQueue(queue))
    assert other.take() == [QueueCreated(queue)]
    other.do(RestoreQueue(queue))
    assert [type(event) for event in other.take()] == [QueueDeleted, QueueCreated]
    assert isinstance(Catalogue().apply(RestoreQueue(queue)), Refused)


def test_what_a_lone_node_keeps(cluster: Cluster) -> None:
    """A lone node's log and definitions know of no copies, as no node outside the cluster has any."""
    queue = cluster.declare(B)
    assert declaration(queue) == DeclareQueue("/", "q", "1", durable=True, home=A)
    assert declaration(queue) in list(snapshot(cluster.catalogue))
    lone = Cluster()
    for command in (StartMirroring("/", "q", "1"), ChangeView("/", "q", "1", DropMirror(2))):
        result = lone.catalogue.apply(command)
        assert durable_changes(command, result, lone.take(), lone.catalogue) == []


def test_a_policy_changes_no_view_by_itself(cluster: Cluster) -> None:
    """reliability §1.1 W13: the master's node makes of it what is to be done, a change at a time."""
    cluster.declare(B)
    view = cluster.view
    cluster.do(SetPolicy("/", "p", "^q", {"ha-mode": "nodes", "ha-params": [C]}))
    found = [type(event) for event in cluster.take() if not isinstance(event, QueueCreated)]
    assert found == [ParameterChanged, PolicyChanged]
    assert cluster.view is view


# --- anything in any order --------------------------------------------------------------------------------

_names = st.sampled_from([A, B, C, D])
_queues = st.sampled_from(["q", "q", "r"])
_uids = st.just("1")
_numbers = st.integers(0, 5)


@dataclass(frozen=True)
class Aim:
    """A command that fits what is there more often than chance would have it."""

    kind: int
    queue: str
    node: str
    one: int
    two: int

    def command(self, catalogue: Catalogue) -> Command[Any]:
        """Return the command that this random step stands for, given the catalogue's present state."""
        queue = catalogue.queue("/", self.queue)
        node = catalogue.member(self.node)
        incarnation = 0 if node is None else node.incarnation - (self.one == 0)
        if self.kind == 0:
            return NodeDown(self.node, incarnation, self.two > 2)
        view = None if queue is None else queue.view
        if view is None:
            return StartMirroring("/", self.queue, "1")
        ids = [member.id for member in view.members] or [0]
        one, two = ids[self.one % len(ids)], ids[self.two % len(ids)]
        owner = view.owner_of(one) if view.members else 0
        changes: list[ViewChange] = [
            AddMirror(self.node, incarnation),
            ActivateMirror(one),
            MirrorSynced(one),
            DropMirror(one),
            EraseMirror(one, owner),
            TransferMaster(view.master, two),
            TookOver(view.since),
            OfferCopy(self.node, incarnation, self.two),
            Revive(view.version),
            Unmirror(view.master),
            GiveUp(one),
            DropMirror(one, view.version),
            DeclineMaster(view.master, view.since),
        ]
        return ChangeView("/", self.queue, "1", changes[self.kind % len(changes)])


_aims = st.builds(Aim, st.integers(0, 13), _queues, _names, _numbers, _numbers)
_commands: st.SearchStrategy[Command[Any]] = st.one_of(
    st.builds(
        DeclareQueue,
        st.just("/"),
        _queues,
        _uids,
        durable=st.booleans(),
        exclusive_owner=st.sampled_from([None, None, None, "c1"]),
        type=st.sampled_from(["classic", "classic", "quorum"]),
        home=_names,
        mirrors=st.lists(_names, max_size=3).map(tuple),
    ),
    st.builds(DeleteQueue, st.just("/"), _queues),
    _names.map(up),
    _names.map(up),
    st.builds(RemoveMember, _names),
    _names.map(lambda name: PutMember(name, f"{name}:1", f"id of {name}")),
    st.sampled_from(["always", "when-synced"]).map(
        lambda when: SetPolicy("/", "p", "q", {"ha-mode": "all", "ha-promote-on-failure": when})
    ),
)


def check(catalogue: Catalogue) -> None:
    """Check the invariants of each mirrored queue, which hold whatever happened."""
    for queue in catalogue.queues("/"):
        view = queue.view
        if view is None:
            continue
        assert queue.exclusive_owner is None
        assert queue.ring_version == view.version
        assert queue.home == (view.master_node or queue.home)
        for member in view.ring:
            node = catalogue.member(member.node)
            assert node is not None
            assert (node.is_up, node.incarnation) == (True, member.incarnation)
        for name, incarnation, _ in view.offers:
            node = catalogue.member(name)
            assert node is not None
            assert (node.is_up, node.incarnation) == (True, incarnation)
        if view.state == "down":
            assert queue.durable
            assert view.recoverable
        assert set(view.recoverable) <= catalogue.members.keys()


@settings(max_examples=150, deadline=None)
@given(st.lists(_commands | _aims | _aims | _aims, max_size=80))
def test_whatever_happens(steps: list[Command[Any] | Aim]) -> None:
    """All copies are on nodes that are up; nobody waits for a copy that cannot come; a node that is behind gets the
    same views; the events tell of each step.
    """
    cluster = Cluster(A, B, C, D)
    told: dict[str, QueueRecord] = {}
    for step in steps:
        version = cluster.catalogue.version
        cluster.catalogue.apply(step.command(cluster.catalogue) if isinstance(step, Aim) else step)
        events = cluster.take()
        for event in events:
            if isinstance(event, QueueCreated):
                told[event.queue.name] = event.queue
            elif isinstance(event, ViewChanged):
                assert told[event.before.name] == event.before
                told[event.after.name] = event.after
            elif isinstance(event, QueueDeleted):
                assert told.pop(event.queue.name) == event.queue
        assert told == {queue.name: queue for queue in cluster.catalogue.queues("/")}
        if any(isinstance(event, ViewChanged) and event.is_move for event in events):
            assert cluster.catalogue.version > version
        check(cluster.catalogue)
    rebuilt = Catalogue()
    for command in snapshot(cluster.catalogue, whole=True):
        assert not isinstance(rebuilt.apply(command), Refused)
    assert list(rebuilt.queues("/")) == list(cluster.catalogue.queues("/"))
