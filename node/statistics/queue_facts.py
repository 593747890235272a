"""The metadata of queues, which every node knows. Source: management §1.3, §3.3, §3.4."""

from collections.abc import Iterator

from node.amqp.plain import plain_table
from node.catalogue.catalogue import Catalogue
from node.catalogue.mirrors.views import RingMember, View, is_there
from node.catalogue.records import QueueRecord
from node.statistics.rows import Row


def queue_facts(catalogue: Catalogue, record: QueueRecord, own_node: str) -> Row:
    """Return a queue's row without the facts of its master's node; its "state" says if there is no master.

    own_node: where queues live that name no home.
    """
    effective = catalogue.effective_policy(record)
    node = record.home or own_node
    row: Row = {
        "id": record.uid,
        "name": record.name,
        "vhost": record.vhost,
        "type": record.type,
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "exclusive": record.exclusive_owner is not None,
        "arguments": plain_table(record.arguments),
        "node": node,
        "policy": effective.policy,
        "operator_policy": effective.operator_policy,
        "effective_policy_definition": dict(effective.definition),
        "recoverable_slaves": None,
    }
    view = record.view
    if view is not None and view.state != "live":
        row["state"] = "minority" if record.type == "quorum" else "down"
    if record.type == "quorum":
        del row["recoverable_slaves"]
        row["leader"] = node
        row["members"] = [node] if view is None else [member.node for member in view.members]
        row["online"] = [node] if view is None else [member.node for member in view.ring]
    elif view is not None:
        mirrors = mirrors_of(view)
        row["slave_nodes"] = [member.node for member in mirrors]
        row["synchronised_slave_nodes"] = [member.node for member in mirrors if member.id in view.synced]
        row["recoverable_slaves"] = list(view.recoverable)
    return row


def mirrors_of(view: View) -> list[RingMember]:
    """Return the mirrors in order of the ring from the master on. A copy that is joining is none yet: it may miss what
    is published.
    """
    return [member for member in copies_of(view) if member.status == "alive"]


def copies_of(view: View) -> list[RingMember]:
    """Return all copies but the master's, those that are joining too, in order of the ring from the master on."""
    members = list(view.members)
    at = next((index for index, member in enumerate(members) if member.id == view.master), -1)
    return [member for member in (*members[at + 1 :], *members[: max(at, 0)]) if is_there(member)]


def records(catalogue: Catalogue, vhost: str | None) -> Iterator[QueueRecord]:
    """Yield all queues, or those of a vhost, by name."""
    for each in sorted(catalogue.vhosts(), key=lambda found: found.name):
        if vhost in (None, each.name):
            yield from sorted(catalogue.queues(each.name), key=lambda found: found.name)
