"""The commands on shovels. Source: RabbitMQ 3.10.8, its plug-in's commands and their output."""

from typing import Any, Final

from node.cli.ctl.command import Call, commands
from node.cli.ctl.formats import Outcome, Table
from node.operations import shovels

_FACTS: Final = {
    "destination": "dest_uri",
    "destination_exchange": "dest_exchange",
    "destination_exchange_key": "dest_exchange_key",
    "destination_protocol": "dest_protocol",
    "destination_queue": "dest_queue",
    "last_changed": "timestamp",
    "name": "name",
    "source": "src_uri",
    "source_exchange": "src_exchange",
    "source_exchange_key": "src_exchange_key",
    "source_protocol": "src_protocol",
    "source_queue": "src_queue",
    "state": "state",
    "termination_reason": "reason",
    "error": "error",
    "type": "type",
    "vhost": "vhost",
}
"""The columns, and where each is in a row of the HTTP API."""


def _shovels(call: Call, result: Any) -> Outcome:
    rows = [{column: row.get(key, "") for column, key in _FACTS.items()} for row in result["rows"]]
    return Table(tuple(_FACTS), rows, has_blank=True)


SHOVELS: Final = commands(shovels.SHOVELS, shovel_status={"present": _shovels})
