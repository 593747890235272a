"""`fluffle ctl` lists queues from the metadata and from the statistics of each queue's home.

Only the master's node knows counts, how far mirrors are, and whether they are being synchronised, so it is asked. A
queue's view (the nodes with a copy, in which order, since when) is known to every node.
Source: management §1.3, §3.4; RabbitMQ 3.10.8's columns.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from node.catalogue.catalogue import Catalogue
from node.catalogue.mirrors.views import RingMember, View
from node.catalogue.records import QueueRecord
from node.statistics.queue_facts import copies_of, mirrors_of, queue_facts
from node.statistics.queue_facts import records as records

if TYPE_CHECKING:
    from node.app import Node

Measured: TypeAlias = Mapping[str, Any]
"""Some keys of a queue's row of the statistics (`node.statistics.queues`)."""

_LENGTHS: Final = ("messages", "messages_ready", "messages_unacknowledged", "consumers")

COUNTED: Final = frozenset({*_LENGTHS, "state"})
"""The keys of each queue's statistics that `queue_rows` needs."""

RING: Final = frozenset({"mirrors"})
"""The keys of each queue's statistics that `ring_rows` needs."""

_NOTHING: Final[Measured] = {}


# --- list_queues ---


def queue_rows(
    node: "Node", measured: Mapping[str, Measured], vhost: str | None, which: str
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `list_queues`, without queues that are deleted meanwhile.

    measured: `COUNTED` by uid, of the queues whose home has answered; the others are down.
    which: all; online or offline: the home has answered or not; local: the queue lives on this node.
    """
    catalogue, own = node.broker.catalogue, node.config.node_name
    for record in list(records(catalogue, vhost)):
        if catalogue.vhost(record.vhost) is None:
            continue
        found = measured.get(record.uid)
        is_online = found is not None
        is_local = record.home in ("", own)
        if which == "all" or (
            is_local and is_online if which == "local" else is_online is (which == "online")
        ):
            yield _queue_row(catalogue, record, found, own)


def _queue_row(
    catalogue: Catalogue, record: QueueRecord, measured: Measured | None, own: str
) -> dict[str, Any]:
    home = record.home or own
    row: dict[str, Any] = {
        **queue_facts(catalogue, record, own),
        **{name: (measured or _NOTHING).get(name) for name in _LENGTHS},
        "state": _state(record, measured),
        "home": home,
        "pid": f"<{home}.{record.uid}>",
    }
    if record.view is not None:
        row.update(_mirrored(record.view))
    return row


def _state(record: QueueRecord, measured: Measured | None) -> str:
    """Return the state under RabbitMQ's name."""
    if record.view is not None and record.view.state != "live":
        return "minority" if record.type == "quorum" else "down"
    return "down" if measured is None else str(measured["state"])


def _mirrored(view: View) -> dict[str, Any]:
    """Return the columns that only mirrored queues have, under both of their names."""
    mirrors = mirrors_of(view)
    pids = [_pid(member) for member in mirrors]
    synced = [_pid(member) for member in mirrors if member.id in view.synced]
    master = view.member(view.master)
    found: dict[str, Any] = {
        "slave_pids": pids,
        "mirror_pids": pids,
        "synchronised_slave_pids": synced,
        "synchronised_mirror_pids": synced,
        "recoverable_slaves": list(view.recoverable),
        "recoverable_mirrors": list(view.recoverable),
    }
    return found if master is None else {**found, "pid": _pid(master)}


def _pid(member: RingMember) -> str:
    """Return a pid in RabbitMQ's form, from which its tools read the node."""
    return f"<{member.node}.{member.incarnation}.{member.id}.0>"


# --- list_rings ---


def ring_rows(
    catalogue: Catalogue, measured: Mapping[str, Measured], vhost: str | None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `list_rings`: the mirrored queues.

    measured: `RING` by uid, of the queues whose master's node has answered.
    """
    for record in list(records(catalogue, vhost)):
        if record.view is not None:
            yield _ring_row(record, record.view, measured.get(record.uid, _NOTHING))


def _ring_row(record: QueueRecord, view: View, measured: Measured) -> dict[str, Any]:
    mirrors, master = copies_of(view), view.master_node
    told = measured.get("mirrors", [])
    return {
        "vhost": record.vhost,
        "name": record.name,
        "master": master,
        "mirrors": [member.node for member in mirrors],
        "synchronised": [member.node for member in mirrors if member.id in view.synced],
        "joining": [member.node for member in mirrors if member.status == "joining"],
        "ring": [*([master] if master is not None else ()), *(member.node for member in mirrors)],
        "recoverable": list(view.recoverable),
        "version": view.version,
        "state": view.state,
        "lag": max((each["behind"] for each in told), default=0),
        "sync": {each["node"]: each["sync"] for each in told if each["sync"] is not None},
    }
