"""This table has the commands of `fluffle ctl` about queues and their mirrors. Source: RabbitMQ 3.10.8's output."""

from collections.abc import Mapping
from typing import Any, Final

from node.cli.ctl.command import Call, NotHealthy, Refused, commands, words
from node.cli.ctl.formats import Arguments, Done, Message, Names, Outcome, Readable, Table
from node.operations import queues

# --- list_queues ---

QUEUE_COLUMNS: Final = words(
    """
    arguments auto_delete consumer_capacity consumer_utilisation consumers disk_reads disk_writes durable
    effective_policy_definition exclusive exclusive_consumer_pid exclusive_consumer_tag head_message_timestamp
    home leader members memory message_bytes message_bytes_dlx message_bytes_persistent message_bytes_ram
    message_bytes_ready message_bytes_unacknowledged messages messages_delayed messages_dlx messages_persistent
    messages_ram messages_ready messages_ready_ram messages_unacknowledged messages_unacknowledged_ram
    mirror_pids name online operator_policy owner_pid pid policy
    recoverable_mirrors recoverable_slaves slave_pids state synchronised_mirror_pids synchronised_slave_pids type
    """
)
"""RabbitMQ's columns, and more: `mirror_pids`, `synchronised_mirror_pids` and `recoverable_...`, which its HTTP API
has; dead letters and retries that wait (`messages_dlx`, `messages_delayed`); and `home`, the node where the queue
lives. A column that a node doesn't report is empty.
"""

_LISTS: Final = frozenset(
    {
        "leader",
        "members",
        "online",
        "slave_pids",
        "mirror_pids",
        "synchronised_slave_pids",
        "synchronised_mirror_pids",
        "recoverable_slaves",
        "recoverable_mirrors",
    }
)
"""Columns that hold lists of names, or nothing."""

_EMPTY: Final = frozenset(
    {
        "policy",
        "operator_policy",
        "owner_pid",
        "exclusive_consumer_pid",
        "exclusive_consumer_tag",
        "head_message_timestamp",
    }
)
"""Columns that are empty texts where there is no value, also in JSON."""


def _queue_columns(call: Call) -> tuple[str, ...]:
    names = [name for word in call.words for name in word.split(",") if name]
    unknown = [name for name in names if name not in QUEUE_COLUMNS]
    if unknown:
        raise Refused(f"Info key(s) {','.join(unknown)} are not supported")
    return tuple(dict.fromkeys(names)) or ("name", "messages")


def _queues(call: Call) -> dict[str, Any]:
    columns = _queue_columns(call)
    given = [name for name in ("online", "offline", "local") if call.line.is_set(name)]
    if given == ["online", "offline"]:
        given = []
    if len(given) > 1:
        raise Refused("only one of --online, --offline and --local may be given")
    return {"vhost": call.vhost, "which": given[0] if given else "all", "columns": list(columns)}


def _queues_listed(call: Call, result: Any) -> Outcome:
    return Table(_queue_columns(call), [_queue_row(queue) for queue in result["queues"]])


def _queue_row(queue: Mapping[str, Any]) -> dict[str, Any]:
    found = {**dict.fromkeys(_LISTS | _EMPTY, ""), **_listed(queue)}
    found.update({name: "" for name in _EMPTY if found[name] is None})
    if isinstance(found.get("arguments"), Mapping):
        found["arguments"] = Arguments(found["arguments"])
    return found


def _listed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with its lists as `Names`, but for arguments."""
    return {
        name: Names(value) if isinstance(value, list) and name != "arguments" else value
        for name, value in row.items()
    }


# --- rings ---


def _rings_listed(call: Call, result: Any) -> Outcome:
    columns = ("name", "master", "mirrors", "synchronised", "ring", "version", "state", "lag", "sync")
    return Table(columns, [_ring_row(ring) for ring in result["rings"]])


def _ring_row(ring: Mapping[str, Any]) -> dict[str, Any]:
    sync = ring.get("sync", {})
    return {
        **_listed(ring),
        "sync": Readable(sync, ", ".join(f"{node}: {_progress(each)}" for node, each in sync.items())),
    }


def _progress(sync: Mapping[str, Any]) -> str:
    shown = f"{sync['installed']} of {sync['total']}"
    return shown if sync["is_running"] else f"{shown}, stopped"


def _cancelled(call: Call, result: Any) -> Outcome:
    return Done() if result["is_syncing"] else Message("not_syncing")


_TYPES: Final = ("all", "classic", "quorum")


def _rebalance(call: Call) -> dict[str, Any]:
    if call.words[0] not in _TYPES:
        raise NotHealthy(f"type {call.words[0]} is not supported. Try one of {', '.join(_TYPES)}.")
    texts = call.line.texts
    return {
        "type": call.words[0],
        "vhost_pattern": texts.get("vhost-pattern", ".*"),
        "queue_pattern": texts.get("queue-pattern", ".*"),
    }


def _rebalanced(call: Call, result: Any) -> Outcome:
    columns = ("Node name", "Number of quorum queues", "Number of replicated classic queues")
    rows = [
        dict(zip(columns, (each["node"], each["quorum"], each["classic"]), strict=True))
        for each in result["nodes"]
    ]
    return Table(columns, rows)


def _banner_of_delete(call: Call) -> str:
    conditions = [
        f"is {name.removeprefix('if-')}" for name in ("if-empty", "if-unused") if call.line.is_set(name)
    ]
    only = f" if queue {' and '.join(conditions)}" if conditions else ""
    return f"Deleting queue '{call.words[0]}' on vhost '{call.vhost}'{only} ..."


def _deleted(call: Call, result: Any) -> Outcome:
    return Message(f"Queue was successfully deleted with {result['messages']} ready messages")


_BROWSED: Final = ("number", "exchange", "routing_key", "redelivered", "payload_bytes", "payload")


def _browsed(call: Call, result: Any) -> Outcome:
    return Table(_BROWSED, [{name: each[name] for name in _BROWSED} for each in result["messages"]])


def _replayed(call: Call, result: Any) -> Outcome:
    would = "would be " if call.line.is_set("count-only") else ""
    rows = [
        {"queue": queue, "replayed": result["to"].get(queue, 0), "failed": result["failed"].get(queue, 0)}
        for queue in sorted({*result["to"], *result["failed"]})
    ]
    if not rows:
        return Message(f"No messages {would or 'were '}replayed; {result['looked_at']} were looked at")
    return Table(("queue", "replayed", "failed"), rows)


QUEUES: Final = commands(
    queues.QUEUES,
    browse_queue={"present": _browsed},
    cancel_sync_queue={"present": _cancelled},
    delete_queue={
        "banner": _banner_of_delete,
        "present": _deleted,
        "shorts": {"e": "if-empty", "u": "if-unused"},
    },
    list_queues={
        "options": frozenset({"online", "offline", "local"}),
        "request": _queues,
        "present": _queues_listed,
        "columns": QUEUE_COLUMNS,
    },
    list_rings={"present": _rings_listed},
    replay_dead_letters={"present": _replayed},
    rebalance={"request": _rebalance, "present": _rebalanced, "formatter": "pretty_table"},
)
