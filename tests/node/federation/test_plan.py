"""The catalogue alone says which links there are and which node runs each, alike on all nodes."""

from collections import Counter

from node.amqp.field_table import longstr
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    DeclareExchange,
    DeclareQueue,
    EnablePlugin,
    NodeDown,
    NodeUp,
    PutMember,
    PutVhost,
    SetDraining,
    SetParameter,
    SetPolicy,
)
from node.federation.plan import Federated, LinkKey, links_of, owner_of


def catalogue(*nodes: str) -> Catalogue:
    """Return a catalogue with one upstream, a policy for all, and these nodes, which are up."""
    found = Catalogue()
    found.apply(PutVhost("/"))
    found.apply(EnablePlugin("rabbitmq_federation", ("x-federation-upstream",)))
    found.apply(SetParameter("/", "federation-upstream", "u", {"uri": "amqp://up"}))
    found.apply(SetPolicy("/", "p", "", {"federation-upstream-set": "all"}, 0, "all"))
    for node in nodes:
        found.apply(PutMember(node, "host:1", f"id-{node}"))
        found.apply(NodeUp(node, f"id-{node}", "host:1"))
    return found


def key(name: str) -> LinkKey:
    """Return the key of an exchange's link."""
    return LinkKey(Federated("exchange", "/", name), "u", name)


def test_link_of_an_exchange_has_what_is_declared_upstream() -> None:
    """The exchange upstream is declared as it is here."""
    found = catalogue()
    found.apply(DeclareExchange("/", "x", "topic", durable=True, arguments={"a": longstr("b")}))
    (link,) = links_of(found, Federated("exchange", "/", "x"))
    assert (link.policy, link.type, link.durable, link.arguments) == ("p", "topic", True, {"a": longstr("b")})
    assert link.key.id == "94e1e050"  # what RabbitMQ 3.10.8 has for it


def test_some_exchanges_and_queues_have_no_links() -> None:
    """The default exchange, internal ones, and queues of links are left out, as is what does not exist."""
    found = catalogue()
    found.apply(DeclareExchange("/", "internal", "fanout", internal=True))
    found.apply(DeclareQueue("/", "link's", "1", arguments={"x-internal-purpose": longstr("federation")}))
    found.apply(DeclareQueue("/", "q", "2"))
    for of, count in (
        (Federated("exchange", "/", ""), 0),
        (Federated("exchange", "/", "internal"), 0),
        (Federated("exchange", "/", "none"), 0),
        (Federated("queue", "/", "link's"), 0),
        (Federated("queue", "/", "q"), 1),
        (Federated("exchange", "/", "amq.topic"), 1),
    ):
        assert len(list(links_of(found, of))) == count, of


def test_links_of_exchanges_are_spread_evenly() -> None:
    """Each of three nodes runs about a third of 600 links."""
    found = catalogue("n1", "n2", "n3")
    counts = Counter(owner_of(found, key(f"x{number}"), "n1") for number in range(600))
    assert set(counts) == {"n1", "n2", "n3"}
    assert min(counts.values()) > 150


def test_only_links_of_a_lost_node_move() -> None:
    """When a node is down its links go to the others, and theirs stay."""
    found = catalogue("n1", "n2", "n3")
    keys = [key(f"x{number}") for number in range(100)]
    before = {each: owner_of(found, each, "n1") for each in keys}
    member = found.member("n2")
    assert member is not None
    found.apply(NodeDown("n2", member.incarnation))
    after = {each: owner_of(found, each, "n1") for each in keys}
    assert "n2" not in after.values()
    assert all(after[each] == before[each] for each in keys if before[each] != "n2")


def test_node_in_maintenance_runs_none_while_there_are_others() -> None:
    """Links leave a node in maintenance mode, and the last node keeps them."""
    found = catalogue("n1", "n2")
    keys = [key(f"x{number}") for number in range(20)]
    found.apply(SetDraining("n1", True))
    assert {owner_of(found, each, "n1") for each in keys} == {"n2"}
    found.apply(SetDraining("n2", True))
    assert {owner_of(found, each, "n1") for each in keys} == {"n1", "n2"}


def test_node_without_a_cluster_runs_all() -> None:
    """A node that is in no cluster runs every link."""
    assert owner_of(catalogue(), key("x"), "n1") == "n1"


def test_link_of_a_queue_runs_where_the_queue_is() -> None:
    """A queue's link is on the node of its master."""
    found = catalogue("n1", "n2")
    found.apply(DeclareQueue("/", "q", "1", home="n2"))
    assert owner_of(found, LinkKey(Federated("queue", "/", "q"), "u", "q"), "n1") == "n2"
