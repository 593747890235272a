"""The way that a message or a binding has come, and whether it goes on: what keeps cycles from going round for ever.

    x-received-from  of messages: an entry for each link passed, the last one first, with cluster and vhost of upstream
    x-bound-from     of bindings upstream: an entry for each link passed, with the hops that are left

A message that has passed `max-hops` links, or was in the downstream's cluster and vhost before, is not taken.
A binding is passed on with one hop less, and not to a cluster and vhost that it came from.
Source: RabbitMQ 3.10.8, `rabbit_federation_util`, `rabbit_federation_exchange_link`, `rabbit_federation_queue_link`.
"""

from typing import Final

from node.amqp.field_table import Field, Table, array, boolean, long, longstr, table
from node.catalogue.records import ResourceKind

RECEIVED_FROM: Final = "x-received-from"
BOUND_FROM: Final = "x-bound-from"

_ORIGINAL_EXCHANGE: Final = "x-original-exchange"
_ORIGINAL_KEY: Final = "x-original-routing-key"
_ORIGINAL_CC: Final = "x-original-cc"
_CC: Final = "CC"
_VISITED: Final = ("uri", "virtual_host", "queue")
"""The fields by which a queue link knows an entry of its own; RabbitMQ writes no `virtual_host`."""


def entry(kind: ResourceKind, uri: str, name: str, *, redelivered: bool) -> Table:
    """Return the common part of an entry of `x-received-from`.   uri: without user and password.   name: upstream."""
    return {"uri": longstr(uri), kind: longstr(name), "redelivered": boolean(redelivered)}


def exchange_entry(uri: str, name: str, cluster: str | None, vhost: str, *, redelivered: bool) -> Table:
    """Return the entry of an exchange's link.   cluster: of the upstream; None: it did not tell its name."""
    found = entry("exchange", uri, name, redelivered=redelivered)
    if cluster is not None:
        found["cluster-name"] = longstr(cluster)
    found["vhost"] = longstr(vhost)
    return found


def may_go_on(headers: Table | None, max_hops: int, cluster: str | None, vhost: str | None) -> bool:
    """True if a message may pass one more link.   cluster, vhost: of the downstream; None: not known."""
    been = _array(headers or {}, RECEIVED_FROM)
    return been is None or (len(been) < max_hops and not _was_in(cluster, vhost, been))


def prepended(headers: Table | None, name: str, first: Table) -> Table:
    """Return headers or arguments with an entry at the front of a list of tables."""
    found = headers or {}
    return {**found, name: array([table(first), *(_array(found, name) or ())])}


def queue_headers(headers: Table | None, own: Table, exchange: str, routing_key: str) -> Table:
    """Return the headers of a message that a queue's link passes on.

    own: the link's entry.   exchange, routing_key: where the message was published.
    `CC` is set aside, as the message goes to one queue and nowhere else.
    """
    found = dict(headers or {})
    been = _array(found, RECEIVED_FROM)
    visits = 0
    if been is None:
        found[_ORIGINAL_EXCHANGE], found[_ORIGINAL_KEY] = longstr(exchange), longstr(routing_key)
    else:
        before = [each for each in been if _is_visit(each, own)]
        found[RECEIVED_FROM] = array([each for each in been if not _is_visit(each, own)])
        visits = _visits(before[0]) if before else 0
    aside = {_ORIGINAL_CC if key == _CC else key: value for key, value in found.items()}
    return prepended(aside, RECEIVED_FROM, {**own, "visit-count": long(visits + 1)})


def _is_visit(field: Field, own: Table) -> bool:
    return isinstance(field.value, dict) and all(field.value.get(key) == own.get(key) for key in _VISITED)


def _visits(field: Field) -> int:
    count = field.value.get("visit-count") if isinstance(field.value, dict) else None
    return count.value if count is not None and isinstance(count.value, int) else 0


# --- bindings ---------------------------------------------------------------------------------------------


def binding_arguments(
    arguments: Table,
    *,
    max_hops: int,
    upstream: tuple[str | None, str],
    downstream: tuple[str, str],
    exchange: str,
) -> Table | None:
    """Return the arguments of a binding as a link makes it upstream; None: it goes no further.

    arguments: of the binding here.   upstream, downstream: cluster and vhost.   exchange: `names.bound_from`.
    """
    been = _array(arguments, BOUND_FROM)
    hops = max_hops
    if been is not None:
        hops = min(_hops_left(been) - 1, max_hops)
        if _was_in(*upstream, been):
            hops = 0
    if hops <= 0:
        return None
    own = {
        "cluster-name": longstr(downstream[0]),
        "vhost": longstr(downstream[1]),
        "exchange": longstr(exchange),
        "hops": Field("s", hops),
    }
    return prepended(arguments, BOUND_FROM, own)


def is_passed_on(arguments: Table) -> bool:
    """True if a binding here was made by another broker's link."""
    return _array(arguments, BOUND_FROM) is not None


def _hops_left(been: list[Field]) -> int:
    first = been[0].value if been else None
    hops = first.get("hops") if isinstance(first, dict) else None
    is_number = hops is not None and isinstance(hops.value, int) and not isinstance(hops.value, bool)
    return hops.value if is_number and hops is not None and isinstance(hops.value, int) else 0


def _was_in(cluster: str | None, vhost: str | None, been: list[Field]) -> bool:
    if cluster is None or vhost is None:
        return False
    place = longstr(cluster), longstr(vhost)
    return any(
        isinstance(each.value, dict) and (each.value.get("cluster-name"), each.value.get("vhost")) == place
        for each in been
    )


def _array(found: Table, name: str) -> list[Field] | None:
    field = found.get(name)
    return field.value if field is not None and isinstance(field.value, list) else None
