"""Whom a node lets in."""

from dataclasses import dataclass

import pytest

from node.clustering.admission import Admission, KnownNode


@dataclass(frozen=True)
class Hello:
    name: str = "n2@h"
    node_id: str = "id2"
    cluster_id: str = "c1"
    incarnation: int = 5
    version: str = "0.1.9"
    is_call: bool = False


def admission(*, cluster_id: str = "c1", is_current: bool = True) -> Admission:
    members = {"n1@h": KnownNode("id1", 4), "n2@h": KnownNode("id2", 5)}
    return Admission("n1@h", "id1", cluster_id, members, is_current, version="0.1.0")


@pytest.mark.parametrize("incarnation", [0, 5, 6])
def test_a_member_is_let_in(incarnation: int) -> None:
    """A member is admitted also if it is about to start anew, or if its start is not yet known here."""
    assert admission().refusal(Hello(incarnation=incarnation)) is None


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        (Hello(cluster_id="c2"), "belongs to another cluster (id c2) than 'n1@h' (id c1)"),
        (Hello(cluster_id=""), "Node 'n1@h' thinks it's clustered with node 'n2@h', but 'n2@h' disagrees"),
        (Hello(name="n3@h"), "Node 'n3@h' thinks it's clustered with node 'n1@h', but 'n1@h' disagrees"),
        (Hello(name="n1@h"), "there are two nodes with the name 'n1@h', with the node ids id1 and id2"),
        (Hello(name="n1@h", node_id="id1"), "node 'n1@h' has called itself"),
        (Hello(node_id="other"), "it was started with another data directory"),
        (Hello(incarnation=4), "node 'n2@h' is at incarnation 4, but 5 has started since"),
        (
            Hello(version="0.2.0"),
            "node 'n2@h' has version 0.2.0, 'n1@h' has 0.1.0: these don't work together",
        ),
    ],
)
def test_others_are_refused_with_a_reason(hello: Hello, why: str) -> None:
    """reliability §2.5: a forgotten member, a foreign cluster, two nodes of one name, another version."""
    refusal = admission().refusal(hello)
    assert refusal is not None
    assert why in refusal


def test_who_was_forgotten_offline_is_told_so() -> None:
    """The former majority may come back beside the node that went on alone."""
    alone = admission(cluster_id="c2")._replace(former_cluster_id="c1")
    refusal = alone.refusal(Hello(cluster_id="c1"))
    assert refusal is not None
    assert "'n2@h' still belongs to the former cluster (id c1): reset 'n2@h'" in refusal


def test_a_node_without_a_cluster_refuses_links() -> None:
    assert "'n1@h' belongs to no cluster" in str(admission(cluster_id="").refusal(Hello()))


def test_who_just_started_may_not_know_all_members() -> None:
    assert admission(is_current=False).refusal(Hello(name="n3@h")) is None


@pytest.mark.parametrize("hello", [Hello(cluster_id=""), Hello(cluster_id="c2"), Hello(name="n9@h")])
def test_anybody_may_ask(hello: Hello) -> None:
    """A node that is about to join has no cluster yet."""
    asking = Hello(hello.name, hello.node_id, hello.cluster_id, is_call=True)
    assert admission().refusal(asking) is None
    assert admission(cluster_id="").refusal(asking) is None


def test_a_double_may_not_even_ask() -> None:
    assert admission().refusal(Hello(name="n1@h", is_call=True)) is not None
