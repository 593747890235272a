"""The topology document (spark §2.6): of one moment, the same on all nodes, as planners read it."""

import json
from dataclasses import replace
from typing import Any

from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import DeleteQueue, NodeDown, RestoreMember, RestoreQueue, SetDraining, SetPolicy
from node.catalogue.mirrors.views import TransferMaster, changed, died
from node.catalogue.records import ClusterMember
from node.catalogue.snapshot import snapshot
from node.statistics.topology_document import topology_document, topology_head, topology_queues
from spark_ops.documents import content_hash
from tests.node.statistics.test_queue_facts import ALL, QUEUE, A, B, C, catalogue_of


def rows(catalogue: Catalogue) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = topology_document(catalogue, "test", A)["queues"]
    return found


def test_all_of_it() -> None:
    catalogue = catalogue_of(QUEUE)
    catalogue.apply(SetPolicy("/", "two", "q", {"ha-mode": "exactly", "ha-params": 2}))
    catalogue.apply(RestoreQueue(replace(QUEUE, placement=(A, B))))
    document = topology_document(catalogue, "test", A, {A: "z1"}, {B: {"rack": "5"}})
    assert document == {
        "format": "fluffle-topology/1",
        "cluster": "test",
        "view_id": 0,
        "nodes": [
            {"node": A, "is_up": True, "is_draining": False, "type": "disc", "zone": "z1", "labels": {}},
            {
                "node": B,
                "is_up": True,
                "is_draining": False,
                "type": "disc",
                "zone": None,
                "labels": {"rack": "5"},
            },
            {"node": C, "is_up": True, "is_draining": False, "type": "disc", "zone": None, "labels": {}},
        ],
        "queues": [
            {
                "vhost": "/",
                "queue": "q",
                "uid": "1" * 32,
                "type": "classic",
                "epoch": 3,
                "policy": "two",
                "want_mirrors": 1,
                "fixed_nodes": None,
                "exclusive": False,
                "placement": [A, B],
                "master": A,
                "ring": [A, B, C],
                "members": [A, B, C],
                "synced": [A, B, C],
            }
        ],
    }


def test_the_ring_begins_with_the_master() -> None:
    """`members` keep their order: it decides on the heir."""
    view = changed(ALL, TransferMaster(1, 2))
    assert view is not None
    [row] = rows(catalogue_of(replace(QUEUE, view=replace(view, synced=(2, 1)), home=B)))
    assert (row["master"], row["ring"], row["members"], row["synced"]) == (B, [B, C, A], [A, B, C], [B, A])
    assert row["epoch"] == view.since


def test_without_a_master() -> None:
    [row] = rows(catalogue_of(replace(QUEUE, view=died(ALL, [1], may_lose=False))))
    assert (row["master"], row["ring"], row["synced"]) == (None, [B, C], [B, C])


def test_what_is_not_mirrored() -> None:
    catalogue = catalogue_of(replace(QUEUE, view=None, home=B, exclusive_owner="c1", mastership=7))
    [row] = rows(catalogue)
    assert (row["master"], row["ring"], row["synced"], row["exclusive"]) == (B, [B], [B], True)
    assert (row["want_mirrors"], row["epoch"], row["policy"]) == (0, 7, None)
    catalogue.apply(RestoreMember(replace(catalogue.members[B], is_up=False)))
    assert (rows(catalogue)[0]["master"], rows(catalogue)[0]["ring"]) == (None, [])


def test_a_policy_that_names_nodes() -> None:
    catalogue = catalogue_of(QUEUE)
    catalogue.apply(SetPolicy("/", "some", "q", {"ha-mode": "nodes", "ha-params": [C, A]}))
    [row] = rows(catalogue)
    assert (row["fixed_nodes"], row["want_mirrors"]) == ([C, A], 1)


def test_witnesses_have_no_queues() -> None:
    catalogue = catalogue_of(QUEUE)
    catalogue.apply(RestoreMember(ClusterMember("w@h", "", "", "witness", 4, is_up=True)))
    assert [node["node"] for node in topology_head(catalogue, "test", A)["nodes"]] == [A, B, C]


def test_a_node_by_itself() -> None:
    head = topology_head(Catalogue(), "test", A)
    assert [(node["node"], node["is_up"]) for node in head["nodes"]] == [(A, True)]


def test_it_is_of_one_moment() -> None:
    """Changes that are made while the rows are made are not in the document."""
    catalogue = catalogue_of(QUEUE, replace(QUEUE, name="z", uid="2" * 32))
    making = topology_queues(catalogue, A)
    first = next(making)
    catalogue.apply(DeleteQueue("/", "z"))
    catalogue.apply(SetPolicy("/", "two", ".*", {"ha-mode": "exactly", "ha-params": 2}))
    [second] = making
    assert (first["queue"], second["queue"], second["policy"]) == ("q", "z", None)


def test_all_nodes_write_the_same() -> None:
    """All nodes write the same document, also one that has got the metadata as a snapshot."""
    catalogue = catalogue_of(replace(QUEUE, view=None))
    catalogue.apply(NodeDown(C, 11))
    catalogue.apply(SetDraining(B, True))
    copy = Catalogue()
    for command in snapshot(catalogue, whole=True):
        copy.apply(command)
    documents = [topology_document(each, "test", A) for each in (catalogue, copy)]
    assert documents[0]["view_id"] == 2
    assert content_hash(documents[0]) == content_hash(documents[1])


def test_the_view_id_rises_with_each_change_of_the_membership() -> None:
    catalogue = catalogue_of(replace(QUEUE, view=None))
    for command, rises in (
        (SetDraining(B, True), True),
        (SetDraining(B, True), False),
        (NodeDown(C, 11), True),
        (NodeDown(C, 11), False),
        (RestoreQueue(replace(QUEUE, view=None)), False),
    ):
        before = catalogue.member_changes
        catalogue.apply(command)
        assert catalogue.member_changes == before + rises


def test_any_name_is_plain_json() -> None:
    catalogue = catalogue_of(replace(QUEUE, name='"</script>\n\U0001f407'))
    assert json.loads(json.dumps(topology_document(catalogue, "test", A)))["queues"][0]["queue"].startswith(
        '"<'
    )
