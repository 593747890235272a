"""Links as rows for the HTTP API and the command line, with RabbitMQ's fields in its order; `counters` is our own.

Source: RabbitMQ 3.10.8, `rabbit_federation_status` and `rabbit_federation_mgmt`.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from node.federation.life import LinkLife
from node.federation.link import COUNTED

Row = dict[str, Any]


def link_row(life: LinkLife, node: str, local_time: Callable[[float], datetime]) -> Row:
    """Return a link as a row.   node: that runs it.   local_time: converts seconds since 1970 to the time of day."""
    key, status = life.link.key, life.status
    of = key.of
    row: Row = {"node": node, of.kind: of.name, f"upstream_{of.kind}": key.upstream_name}
    if of.kind == "queue":
        row["consumer_tag"] = life.link.upstream.consumer_tag
    row.update(type=of.kind, vhost=of.vhost, upstream=key.upstream, id=key.id, status=status.status)
    if status.status == "running":
        row["local_connection"] = status.local_connection
    elif status.error:
        row["error"] = status.error
    at = local_time(status.since_s)
    counters = life.counters
    row.update(
        uri=status.uri,
        timestamp=f"{at:%Y-%m-%d} {at.hour}:{at:%M:%S}",
        counters={name: getattr(counters, name) for name in COUNTED},
    )
    return row
