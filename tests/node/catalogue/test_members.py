"""Nodes of the cluster in the catalogue (reliability §4.0, §2.5; amqp-behaviour §9.1)."""

import pytest

from node.amqp.constants import ReplyCode
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    Bind,
    Command,
    DeclareExchange,
    DeclareQueue,
    NodeDown,
    NodeUp,
    PutMember,
    PutVhost,
    Refused,
    RemoveMember,
    RenewLeases,
    SetDraining,
)
from node.catalogue.events import (
    BindingRemoved,
    Event,
    ExchangeDeleted,
    LeasesRenewed,
    MemberDown,
    MemberPut,
    MemberRemoved,
    MemberUp,
    QueueDeleted,
)
from node.catalogue.records import ClusterMember
from node.catalogue.snapshot import everything, snapshot

A, B = "a@host", "b@host"


def put(name: str) -> PutMember:
    return PutMember(name, f"{name}:1", f"id of {name}")


def up(name: str) -> NodeUp:
    return NodeUp(name, f"id of {name}", f"{name}:2")


@pytest.fixture
def catalogue() -> Catalogue:
    """A vhost and two nodes that are up, as incarnations 1 and 2."""
    catalogue = Catalogue()
    for command in (PutVhost("/"), put(A), put(B), up(A), up(B)):
        assert not isinstance(catalogue.apply(command), Refused)
    catalogue.take_events()
    return catalogue


def events_of(catalogue: Catalogue, command: Command[object]) -> list[Event]:
    catalogue.apply(command)
    return catalogue.take_events()


def test_a_node_joins_once() -> None:
    catalogue = Catalogue()
    assert catalogue.apply(put(A)) is True
    member = ClusterMember(A, f"{A}:1", f"id of {A}")
    assert catalogue.take_events() == [MemberPut(member)]
    assert catalogue.apply(put(A)) is False
    assert catalogue.take_events() == []
    assert catalogue.member(A) == member
    assert catalogue.apply(PutMember(A, "elsewhere:1", f"id of {A}", "ram")) is False
    assert catalogue.take_events() == [MemberPut(ClusterMember(A, "elsewhere:1", f"id of {A}", "ram"))]


def test_two_nodes_with_one_name(catalogue: Catalogue) -> None:
    """Another data directory under a known name is refused: at joining and at every start."""
    for command in (PutMember(A, "x:1", "another id"), NodeUp(A, "another id", "x:1")):
        refused = catalogue.apply(command)
        assert isinstance(refused, Refused)
        assert refused.code is ReplyCode.PRECONDITION_FAILED
        assert f"node '{A}' is a member of the cluster with another data directory" in refused.text
    assert catalogue.take_events() == []


def test_a_stranger_cannot_come_up(catalogue: Catalogue) -> None:
    refused = catalogue.apply(NodeUp("c@host", "c", "c:1"))
    assert refused == Refused(ReplyCode.NOT_FOUND, "node 'c@host' is not a member of the cluster")


def test_incarnations_rise_over_all_nodes(catalogue: Catalogue) -> None:
    """No two starts of whichever nodes have the same number (S9)."""
    assert catalogue.apply(NodeDown(A, 1)) is True
    assert catalogue.apply(up(A)) == 3
    assert catalogue.apply(up(B)) == 4
    assert catalogue.member(A) == ClusterMember(A, f"{A}:2", f"id of {A}", "disc", 3, is_up=True)


def test_a_start_ends_the_former_incarnation(catalogue: Catalogue) -> None:
    """The node was killed and is back before anybody noticed: what was transient on it is gone."""
    catalogue.apply(DeclareQueue("/", "transient", "1", home=A))
    catalogue.take_events()
    down, deleted, back = events_of(catalogue, up(A))
    assert isinstance(down, MemberDown)
    assert down.member.incarnation == 1
    assert isinstance(deleted, QueueDeleted)
    assert isinstance(back, MemberUp)
    assert back.member.incarnation == 3


def test_down_is_said_of_one_incarnation(catalogue: Catalogue) -> None:
    """A late word about a former incarnation, or a second one about this, changes nothing (S1)."""
    assert catalogue.apply(NodeDown(A, 7)) is False
    assert catalogue.apply(NodeDown("c@host", 1)) is False
    assert catalogue.take_events() == []
    assert catalogue.apply(NodeDown(A, 1)) is True
    catalogue.take_events()
    assert catalogue.apply(NodeDown(A, 1)) is False
    assert catalogue.take_events() == []


def test_section_9_1_transient_queues_go_with_their_node(catalogue: Catalogue) -> None:
    """Non-durable and exclusive ones with their bindings; durable ones, and those of other nodes, stay."""
    catalogue.apply(DeclareExchange("/", "x", "fanout", durable=True))
    for name, durable, home, owner in (
        ("transient", False, A, None),
        ("exclusive", False, A, f"{A}.1"),
        ("durable", True, A, None),
        ("other", False, B, None),
    ):
        catalogue.apply(DeclareQueue("/", name, name, durable=durable, home=home, exclusive_owner=owner))
        catalogue.apply(Bind("/", "x", "queue", name, ""))
    catalogue.take_events()
    events = events_of(catalogue, NodeDown(A, 1))
    assert [type(event) for event in events] == [
        MemberDown,
        *[BindingRemoved, QueueDeleted] * 2,
    ]
    assert sorted(queue.name for queue in catalogue.queues("/")) == ["durable", "other"]
    assert sorted(binding.destination for binding in catalogue.bindings_from("/", "x")) == [
        "durable",
        "other",
    ]


def test_section_7_6_transient_exchanges_live_as_long_as_one_node(catalogue: Catalogue) -> None:
    catalogue.apply(DeclareExchange("/", "kept", "fanout", durable=True))
    catalogue.apply(DeclareExchange("/", "passing", "fanout"))
    catalogue.apply(NodeDown(A, 1))
    catalogue.apply(up(A))
    assert catalogue.exchange("/", "passing") is not None, "b has been up all the time"
    catalogue.apply(NodeDown(A, 3))
    catalogue.apply(NodeDown(B, 2))
    catalogue.take_events()
    gone, back = events_of(catalogue, up(B))
    assert isinstance(gone, ExchangeDeleted)
    assert isinstance(back, MemberUp)
    assert catalogue.exchange("/", "passing") is None
    assert catalogue.exchange("/", "kept") is not None


def test_section_2_5_forget_removes_things(catalogue: Catalogue) -> None:
    """The queues of a node that is forgotten go with it, durable or not (§9.1)."""
    catalogue.apply(DeclareQueue("/", "lost", "1", durable=True, home=A))
    catalogue.apply(DeclareQueue("/", "kept", "2", durable=True, home=B))
    catalogue.take_events()
    events = events_of(catalogue, RemoveMember(A))
    assert [type(event) for event in events] == [MemberDown, QueueDeleted, MemberRemoved]
    assert [queue.name for queue in catalogue.queues("/")] == ["kept"]
    assert catalogue.member(A) is None
    assert catalogue.apply(RemoveMember(A)) is False


def test_draining(catalogue: Catalogue) -> None:
    assert catalogue.apply(SetDraining(A, True)) is True
    (put_event,) = catalogue.take_events()
    assert isinstance(put_event, MemberPut)
    assert put_event.member.is_draining
    assert catalogue.apply(SetDraining(A, True)) is True
    assert catalogue.take_events() == []
    assert catalogue.apply(SetDraining("c@host", True)) is False


def test_leases_are_only_told(catalogue: Catalogue) -> None:
    """Renewed leases cause an event and leave the catalogue's version, so that no route cache is emptied."""
    version = catalogue.version
    sent = ((A, 1, 12.5), (B, 2, 1e9))
    assert events_of(catalogue, RenewLeases(sent)) == [LeasesRenewed(sent)]
    assert catalogue.version == version


def test_a_node_that_goes_or_comes_empties_route_caches(catalogue: Catalogue) -> None:
    version = catalogue.version
    catalogue.apply(NodeDown(A, 1))
    assert catalogue.version > version
    version = catalogue.version
    catalogue.apply(up(A))
    assert catalogue.version > version


def test_a_whole_snapshot_has_what_is_transient_and_the_nodes(catalogue: Catalogue) -> None:
    catalogue.apply(DeclareExchange("/", "passing", "topic"))
    catalogue.apply(DeclareQueue("/", "mine", "1", home=A, exclusive_owner=f"{A}.1"))
    catalogue.apply(Bind("/", "passing", "queue", "mine", "k"))
    catalogue.apply(NodeDown(B, 2))
    rebuilt = Catalogue()
    for command in snapshot(catalogue, whole=True):
        assert not isinstance(rebuilt.apply(command), Refused), command
    assert list(snapshot(rebuilt, whole=True)) == list(snapshot(catalogue, whole=True))
    assert rebuilt.members == catalogue.members
    assert rebuilt.apply(up(B)) == catalogue.apply(up(B)) == 3
    assert rebuilt.queue("/", "mine") == catalogue.queue("/", "mine")


def test_everything_is_what_happened(catalogue: Catalogue) -> None:
    """The events that bring a new broker to where one is that has followed all along."""
    history: list[Command[object]] = [
        DeclareExchange("/", "x", "topic"),
        DeclareQueue("/", "q", "1", home=A),
        Bind("/", "x", "queue", "q", "k"),
        Bind("/", "amq.topic", "exchange", "x", "#"),
    ]
    fresh = Catalogue()
    seen: list[Event] = []
    for command in (PutVhost("/"), *history):
        fresh.apply(command)
        seen += fresh.take_events()
    assert sorted(map(repr, everything(fresh))) == sorted(map(repr, seen))
