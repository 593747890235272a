"""The commands on federation links. Source: RabbitMQ 3.10.8, its plug-in's commands and their output."""

from typing import Any, Final

from node.cli.ctl.command import Call, commands
from node.cli.ctl.formats import Atom, Outcome, Table
from node.operations import federation

_COLUMNS: Final = (
    "consumer_tag",
    "error",
    "exchange",
    "id",
    "last_changed",
    "local_connection",
    "queue",
    "status",
    "type",
    "upstream",
    "upstream_exchange",
    "upstream_queue",
    "uri",
    "vhost",
)


def _links(call: Call, result: Any) -> Outcome:
    return Table(_COLUMNS, [_row(each) for each in result["rows"]], has_blank=True, are_maps=True)


def _row(link: dict[str, Any]) -> dict[str, Any]:
    day, _, time = link["timestamp"].partition(" ")
    return {
        **{column: link.get(column, "") for column in _COLUMNS},
        "status": Atom(link["status"]),
        "type": Atom(link["type"]),
        "last_changed": f"{day} {time:0>8}",
    }


def _banner(call: Call) -> str:
    which = "which are down " if call.line.is_set("only-down") else ""
    return f"Listing federation links {which}on node {call.node}..."


FEDERATION: Final = commands(
    federation.FEDERATION,
    federation_status={"present": _links, "banner": _banner, "formatter": "erlang"},
)
