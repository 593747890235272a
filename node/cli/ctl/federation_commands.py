"""The commands on federation links. Source: RabbitMQ 3.10.8, its plug-in's commands and their output."""

from typing import Any, Final

from node.cli.ctl.command import Call, commands
from node.cli.ctl.formats import Outcome, Table
from node.operations import federation

_COLUMNS: Final = (
    "id",
    "status",
    "type",
    "exchange",
    "queue",
    "upstream",
    "upstream_exchange",
    "upstream_queue",
    "vhost",
    "uri",
    "local_connection",
    "error",
    "last_changed",
)


def _links(call: Call, result: Any) -> Outcome:
    rows = [
        {**dict.fromkeys(_COLUMNS, ""), **row, "last_changed": row["timestamp"]} for row in result["rows"]
    ]
    return Table(_COLUMNS, rows, has_blank=True)


def _banner(call: Call) -> str:
    which = "which are down " if call.line.is_set("only-down") else ""
    return f"Listing federation links {which}on node {call.node}..."


FEDERATION: Final = commands(federation.FEDERATION, federation_status={"present": _links, "banner": _banner})
