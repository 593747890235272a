"""Some lists have columns that can be chosen: this module has the columns, and the form of their values.

Source: management §3.3; RabbitMQ 3.10.8's output.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from node.cli.ctl.command import Call, Refused, words
from node.cli.ctl.formats import Address, Arguments, Atom, Names, Outcome, Pairs, Table, Tuple


class Listing(NamedTuple):
    """The columns of one kind of object.

    columns: all columns.   default: those that are shown when none is chosen.   shown: columns that are no texts or
    numbers, and how they are presented.
    """

    columns: frozenset[str]
    default: tuple[str, ...]
    shown: Mapping[str, Callable[[Any], Any]]


def columns_of(call: Call, listing: Listing) -> tuple[str, ...]:
    """Return the chosen columns, each once. Raises: Refused for an unknown one."""
    names = [name for word in call.words for name in word.split(",") if name]
    unknown = [name for name in names if name not in listing.columns]
    if unknown:
        raise Refused(f"Info key(s) {','.join(dict.fromkeys(unknown))} are not supported")
    return tuple(dict.fromkeys(names)) or listing.default


def chosen(listing: Listing) -> dict[str, Any]:
    """Return the fields of `Command` that such a list has beside its row of `node.operations`."""
    return {"request": list_request(listing), "present": listed(listing), "columns": listing.columns}


def list_request(listing: Listing) -> Callable[[Call], dict[str, Any]]:
    """Return the function that makes the request: virtual host and columns."""

    def request(call: Call) -> dict[str, Any]:
        return {"vhost": call.vhost, "columns": list(columns_of(call, listing))}

    return request


def listed(listing: Listing) -> Callable[[Call, Any], Outcome]:
    """Return the function that shows the node's answer."""

    def present(call: Call, result: Any) -> Outcome:
        columns = columns_of(call, listing)
        return Table(columns, [_row(row, columns, listing.shown) for row in result["rows"]])

    return present


def _row(row: Mapping[str, Any], columns: tuple[str, ...], shown: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name in columns:
        value = row.get(name)
        if value is None:
            value = ""
        found[name] = shown[name](value) if name in shown and value != "" else value
    return found


def _protocol(value: Any) -> Any:
    """Return AMQP's version as a tuple, and the name of another protocol as it is."""
    return Tuple(value) if isinstance(value, list) else value


def _states(value: Any) -> Pairs:
    return Pairs({node: Atom(state) for node, state in value.items()})


VHOSTS: Final = Listing(
    words("name description tags default_queue_type tracing cluster_state"),
    ("name",),
    {"tags": Names, "default_queue_type": Atom, "cluster_state": _states},
)

CONNECTIONS: Final = Listing(
    words(
        """
        pid name port host peer_port peer_host ssl ssl_protocol ssl_key_exchange ssl_cipher ssl_hash
        peer_cert_subject peer_cert_issuer peer_cert_validity state channels protocol auth_mechanism user vhost
        timeout frame_max channel_max client_properties recv_oct recv_cnt send_oct send_cnt send_pend connected_at
        """
    ),
    ("user", "peer_host", "peer_port", "state"),
    {
        "pid": Atom,
        "host": Address,
        "peer_host": Address,
        "state": Atom,
        "protocol": _protocol,
        "client_properties": Arguments,
    },
)

CHANNELS: Final = Listing(
    words(
        """
        pid connection name number user vhost transactional confirm consumer_count messages_unacknowledged
        messages_uncommitted acks_uncommitted messages_unconfirmed prefetch_count global_prefetch_count
        """
    ),
    ("pid", "user", "consumer_count", "messages_unacknowledged"),
    {"pid": Atom, "connection": Atom},
)

CONSUMERS: Final = Listing(
    words("queue_name channel_pid consumer_tag ack_required prefetch_count active activity_status arguments"),
    (
        "queue_name",
        "channel_pid",
        "consumer_tag",
        "ack_required",
        "prefetch_count",
        "active",
        "arguments",
    ),
    {"channel_pid": Atom, "activity_status": Atom, "arguments": Arguments},
)

EXCHANGES: Final = Listing(
    words("name type durable auto_delete internal arguments policy messages_delayed"),
    ("name", "type"),
    {"type": Atom, "arguments": Arguments},
)

BINDINGS: Final = Listing(
    words("source_name source_kind destination_name destination_kind routing_key arguments"),
    ("source_name", "source_kind", "destination_name", "destination_kind", "routing_key", "arguments"),
    {"source_kind": Atom, "destination_kind": Atom, "arguments": Arguments},
)

FEATURE_FLAGS: Final = Listing(
    words("name state stability provided_by desc doc_url"),
    ("name", "state"),
    {"name": Atom, "state": Atom, "stability": Atom, "provided_by": Atom},
)
