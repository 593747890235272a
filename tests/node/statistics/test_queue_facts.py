"""Facts of queues are made from the metadata (management §1.3)."""

from dataclasses import replace
from typing import Any

import pytest

from node.amqp.field_table import long
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import PutVhost, RestoreMember, RestoreQueue, SetPolicy
from node.catalogue.mirrors.views import View, created
from node.catalogue.records import ClusterMember, QueueRecord
from node.statistics.queue_facts import queue_facts, records

A, B, C = "a@h", "b@h", "c@h"
ALL = created(0, ((A, 11), (B, 12), (C, 13)))
QUEUE = QueueRecord("/", "q", "1" * 32, durable=True, home=A, view=ALL)


def catalogue_of(*found: QueueRecord) -> Catalogue:
    catalogue = Catalogue()
    members = [ClusterMember(name, f"{name}:1", name, "disc", 11, True, False) for name in (A, B, C)]
    for command in (PutVhost("/"), *map(RestoreMember, members), *map(RestoreQueue, found)):
        catalogue.apply(command)
    return catalogue


def facts(record: QueueRecord) -> dict[str, Any]:
    return queue_facts(catalogue_of(record), record, A)


def test_a_plain_queue() -> None:
    """§1.3: without mirrors there are no fields of mirrors."""
    record = replace(QUEUE, view=None, home="", arguments={"x-expires": long(5)})
    assert facts(record) == {
        "id": "1" * 32,
        "name": "q",
        "vhost": "/",
        "type": "classic",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": {"x-expires": 5},
        "node": A,
        "policy": None,
        "operator_policy": None,
        "effective_policy_definition": {},
        "recoverable_slaves": None,
    }


def test_mirrors() -> None:
    """§1.3: slave_nodes and synchronised_slave_nodes."""
    view = replace(ALL, master=ALL.members[1].id, synced=ALL.synced[:2])
    row = facts(replace(QUEUE, view=view, home=B))
    assert (row["node"], row["slave_nodes"], row["synchronised_slave_nodes"]) == (B, [C, A], [A])
    assert row["recoverable_slaves"] == []


def test_a_copy_that_joins_is_no_mirror_yet() -> None:
    """A joining copy is no slave node: messages published before it joined do not reach it, as with RabbitMQ."""
    joining = replace(ALL.members[2], status="joining")
    view = replace(ALL, members=(*ALL.members[:2], joining), synced=ALL.synced[:2])
    assert facts(replace(QUEUE, view=view))["slave_nodes"] == [B]


def test_a_policy_applies_and_there_are_no_mirrors() -> None:
    row = facts(replace(QUEUE, view=created(0, ((A, 11),))))
    assert (row["slave_nodes"], row["synchronised_slave_nodes"]) == ([], [])


@pytest.mark.parametrize(("kind", "state"), [("classic", "down"), ("quorum", "minority")])
def test_no_master(kind: Any, state: str) -> None:
    view = View(9, (), 0, (), state="down", recoverable=(B, C))
    row = facts(replace(QUEUE, view=view, type=kind))
    assert row["state"] == state
    if kind == "classic":
        assert row["recoverable_slaves"] == [B, C]


def test_a_quorum_queue() -> None:
    row = facts(replace(QUEUE, type="quorum"))
    assert (row["leader"], row["members"], row["online"]) == (A, [A, B, C], [A, B, C])
    assert not {"slave_nodes", "synchronised_slave_nodes", "recoverable_slaves"} & set(row)


def test_policies() -> None:
    catalogue = catalogue_of(QUEUE)
    catalogue.apply(SetPolicy("/", "p", "^q", {"ha-mode": "all", "max-length": 7}))
    catalogue.apply(SetPolicy("/", "o", "^q", {"max-length": 5}, operator=True))
    row = queue_facts(catalogue, QUEUE, A)
    assert (row["policy"], row["operator_policy"]) == ("p", "o")
    assert row["effective_policy_definition"] == {"ha-mode": "all", "max-length": 5}


def test_all_queues_by_vhost_and_name() -> None:
    catalogue = catalogue_of(*(replace(QUEUE, name=name, uid=name * 32, view=None) for name in "fe"))
    catalogue.apply(PutVhost("Z"))
    catalogue.apply(RestoreQueue(replace(QUEUE, vhost="Z", uid="9" * 32, view=None)))
    assert [record.name for record in records(catalogue, None)] == ["e", "f", "q"]
    assert [record.name for record in records(catalogue, "Z")] == ["q"]
