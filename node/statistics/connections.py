"""Connections of this node's clients. Source: management §1.6; a live RabbitMQ 3.10.8."""

from collections.abc import Iterator
from typing import Any, Final

from node.amqp.connection_state import ConnectionState
from node.amqp.plain import plain_table
from node.broker.broker import Broker
from node.client.connection import Connection
from node.statistics.query import Query
from node.statistics.rows import Part, Row, Selection
from node.statistics.watches import OCTETS, Watches

GARBAGE_COLLECTION: Final = "garbage_collection"
PROTOCOL_FACTS: Final = "protocol_facts"
REDUCTIONS: Final = ("reductions", "reductions_details")

_NO_GARBAGE: Final = {
    "max_heap_size": -1,
    "min_bin_vheap_size": -1,
    "min_heap_size": -1,
    "fullsweep_after": -1,
    "minor_gcs": -1,
}
"""RabbitMQ's values while it doesn't know. Shared: never written to."""


def put_machine(row: dict[str, Any], watches: Watches, query: Query) -> None:
    """Add the facts of RabbitMQ's virtual machine, which we do not have."""
    row[GARBAGE_COLLECTION] = _NO_GARBAGE
    row["reductions"] = 0
    if watches.is_on:
        row["reductions_details"] = watches.node.details(None, (), query.ranges.data_rates)


def is_shown(connection: Connection) -> bool:
    """True if the connection is open and comes from a network; the node's own ones have no address."""
    return is_in_use(connection) and bool(connection.peer.local)


def is_in_use(connection: Connection) -> bool:
    """True if the connection is open, be it a client's or one of the node's own."""
    return connection.state in _SHOWN and bool(connection.vhost)


_SHOWN: Final = frozenset({ConnectionState.OPEN, ConnectionState.CLOSING})


def connection_id(connection: Connection) -> str:
    """Return an id that is unique in the cluster: the connection's name, and its id on its node."""
    return f"{connection.name}\0{connection.id}"


def chosen_connections(broker: Broker, query: Query) -> Iterator[Connection]:
    """Yield the connections that are shown, of a vhost and a user."""
    for connection in list(broker.connections.values()):
        if is_shown(connection) and query.is_in_scope(connection.vhost, connection.user_name):
            yield connection


def connection_rows(watches: Watches, query: Query) -> Iterator[Row]:
    """Yield one row for each connection.   ids: also the names of connections alone."""
    selection = Selection(_PARTS, watches, query)
    ids = None if query.ids is None else frozenset(query.ids)
    for connection in chosen_connections(watches.broker, query):
        if ids is None or connection.name in ids or connection_id(connection) in ids:
            yield selection.row(connection_id(connection), connection)


def host_and_port(address: str) -> tuple[str, int]:
    """Split `IP:PORT`; the IP address comes without brackets."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port) if port.isdigit() else 0


def _facts(connection: Connection, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    host, port = host_and_port(connection.peer.local)
    peer_host, peer_port = host_and_port(connection.peer.address)
    row.update(
        name=connection.name,
        node=connection.broker.settings.node_name,
        vhost=connection.vhost,
        user=connection.user_name,
        user_who_performed_action=connection.user_name,
        protocol=connection.protocol,
        type="network",
        connected_at=connection.connected_at_ms,
        timeout=connection.heartbeat.interval_s,
        frame_max=connection.frame_max_bytes,
        channel_max=connection.channel_max,
        auth_mechanism=connection.auth_mechanism,
        host=host,
        port=port,
        peer_host=peer_host,
        peer_port=peer_port,
        send_pend=0,
    )
    put_machine(row, watches, query)
    if connection.client_name is not None:
        row["user_provided_name"] = connection.client_name


def _state(connection: Connection, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    is_open = connection.state is ConnectionState.OPEN
    row["state"] = connection.throttle.state if is_open else "closing"
    row["channels"] = len(connection.channels)
    row["recv_cnt"] = connection.recv_cnt
    row["send_cnt"] = connection.send_cnt


def _tls(connection: Connection, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    facts = connection.peer.tls
    row["ssl"] = connection.peer.is_tls
    for name, attribute in _TLS.items():
        row[name] = (getattr(facts, attribute) or None) if facts is not None else None


_TLS: Final = {
    "ssl_protocol": "protocol",
    "ssl_key_exchange": "key_exchange",
    "ssl_cipher": "cipher",
    "ssl_hash": "hash",
    "peer_cert_subject": "subject",
    "peer_cert_issuer": "issuer",
    "peer_cert_validity": "validity",
}


def _properties(connection: Connection, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    row["client_properties"] = plain_table(connection.client_properties)


def _protocol(connection: Connection, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    """Add what a plug-in tells of its protocol's client; the HTTP API does not show it."""
    if query.fields is not None and PROTOCOL_FACTS in query.fields:
        row[PROTOCOL_FACTS] = dict(connection.protocol_facts)


def _traffic(connection: Connection, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    watch = watches.connections
    tracked = watch.get(connection_id(connection)) if watches.is_on else None
    for name, value in zip(OCTETS, (connection.recv_oct, connection.send_oct), strict=True):
        row[name] = value
        if watches.is_on:
            row[f"{name}_details"] = watch.details(tracked, watch.columns[name], query.ranges.data_rates)


_PARTS: Final[tuple[Part[Connection], ...]] = (
    (
        frozenset(
            {
                "name",
                "node",
                "vhost",
                "user",
                "user_who_performed_action",
                "protocol",
                "type",
                "connected_at",
                "timeout",
                "frame_max",
                "channel_max",
                "auth_mechanism",
                "host",
                "port",
                "peer_host",
                "peer_port",
                GARBAGE_COLLECTION,
                *REDUCTIONS,
                "send_pend",
                "user_provided_name",
            }
        ),
        _facts,
    ),
    (frozenset({"state", "channels", "recv_cnt", "send_cnt"}), _state),
    (frozenset({"ssl", *_TLS}), _tls),
    (frozenset({"client_properties"}), _properties),
    (frozenset({PROTOCOL_FACTS}), _protocol),
    (frozenset({*OCTETS, *(f"{name}_details" for name in OCTETS)}), _traffic),
)
