"""The names that links give to what they make upstream, to their connections, and to themselves.

    federation: x -> CLUSTER            the queue upstream of an exchange x that has the same name and vhost here
    federation: x -> CLUSTER:y          … of another name here
    federation: x -> CLUSTER:v:y        … in another vhost here
    federation: x -> CLUSTER A          the internal exchange that fills it, with a suffix

Source: RabbitMQ 3.10.8, `rabbit_federation_exchange_link`, `rabbit_federation_link_util`, `rabbit_federation_status`.
"""

from typing import Final

from node.catalogue.names import resource
from node.catalogue.records import ResourceKind
from node.plugins.exchanges.erlang_hash import Atom, phash2_32

INTERNAL_TYPE: Final = "x-federation-upstream"
"""The type of the internal exchange upstream, which drops what has gone round or too far."""

INTERNAL_PURPOSE: Final = "x-internal-purpose"
"""The argument of exchanges and queues that links make; such a queue is not federated itself."""

PURPOSE: Final = "federation"

SUFFIXES: Final = ("A", "B", "C", "D")
"""The suffixes of internal exchanges. A link that begins makes one that does not exist, and deletes the others then.

RabbitMQ has the first two, and keeps the present one on disk. Here any node may go on with a link, and a node that was
lost between the two steps has left both: with a third no bindings are taken for complete that are not.
"""


def upstream_queue(exchange: str, vhost: str, local_exchange: str, local_vhost: str, cluster: str) -> str:
    """Return the name of the queue upstream of a federated exchange.

    exchange, vhost: upstream.   cluster: the name of the cluster here.
    """
    if vhost != local_vhost:
        end = f":{local_vhost}:{local_exchange}"
    else:
        end = "" if exchange == local_exchange else f":{local_exchange}"
    return f"federation: {exchange} -> {cluster}{end}"


def internal_exchange(queue: str, suffix: str) -> str:
    """Return the name of an internal exchange upstream, by the name of its queue."""
    return f"{queue} {suffix}"


def bound_from(local_exchange: str, local_vhost: str, suffix: str) -> str:
    """Return how a binding that a link makes upstream names the exchange here."""
    return f"{local_vhost}:{local_exchange} {suffix}"


def connection_name(upstream: str, policy: str | None) -> str:
    """Return the name of a link's connections."""
    return (
        "Federation link" if policy is None else f"Federation link (upstream: {upstream}, policy: {policy})"
    )


def link_id(kind: ResourceKind, vhost: str, name: str, upstream: str, upstream_name: str) -> str:
    """Return the id of a link, which is the same on all nodes and as RabbitMQ has it.

    upstream_name: of the exchange or queue upstream.
    """
    local = (Atom("resource"), _binary(vhost), Atom(kind), _binary(name))
    return f"{phash2_32((local, _binary(upstream), _binary(upstream_name))):08x}"


def shown(kind: ResourceKind, name: str, vhost: str) -> str:
    """Return an exchange or queue as logs name it."""
    return resource(kind, name, vhost)


def _binary(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
