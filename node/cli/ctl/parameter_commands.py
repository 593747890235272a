"""The commands about runtime parameters. Source: management §3.2, §3.3; RabbitMQ 3.10.8's output."""

import json
from typing import Any, Final

from node.cli.ctl.command import BOTH, Call, Command, named
from node.cli.ctl.formats import Atom, Outcome, Table

_S: Final = "Parameters"


def _vhost(call: Call) -> dict[str, Any]:
    return {"vhost": call.vhost}


def _listed(*columns: str) -> Any:
    def present(call: Call, result: Any) -> Outcome:
        rows = [
            {
                **each,
                "name": Atom(each["name"]) if len(columns) == 2 else each["name"],
                "value": json.dumps(each["value"], ensure_ascii=False, separators=(",", ":")),
            }
            for each in result["rows"]
        ]
        return Table(columns, rows, has_blank=True)

    return present


PARAMETERS: Final[dict[str, Command]] = {
    "clear_global_parameter": Command(
        _S,
        "Clears a global parameter",
        "<name>",
        (1, 1),
        banner=lambda call: f'Clearing global runtime parameter "{call.words[0]}" ...',
        request=named("name"),
    ),
    "clear_parameter": Command(
        _S,
        "Clears a parameter of a component",
        "[--vhost <vhost>] <component_name> <name>",
        (2, 2),
        banner=lambda call: (
            f'Clearing runtime parameter "{call.words[1]}" for component "{call.words[0]}" '
            f'on vhost "{call.vhost}" ...'
        ),
        request=named("component", "name", vhost=True),
    ),
    "list_global_parameters": Command(
        _S,
        "Lists global parameters",
        "[--timeout <timeout>]",
        banner=lambda call: "Listing global runtime parameters ...",
        present=_listed("name", "value"),
        tools=BOTH,
    ),
    "list_parameters": Command(
        _S,
        "Lists parameters in a virtual host",
        "[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
        banner=lambda call: f'Listing runtime parameters for vhost "{call.vhost}" ...',
        request=_vhost,
        present=_listed("component", "name", "value"),
        tools=BOTH,
    ),
    "set_global_parameter": Command(
        _S,
        "Sets a global parameter",
        "<name> <value>",
        (2, 2),
        banner=lambda call: f'Setting global runtime parameter "{call.words[0]}" to "{call.words[1]}" ...',
        request=named("name", "value"),
    ),
    "set_parameter": Command(
        _S,
        "Sets a parameter of a component",
        "[--vhost <vhost>] <component_name> <name> <value>",
        (3, 3),
        banner=lambda call: (
            f'Setting runtime parameter "{call.words[1]}" for component "{call.words[0]}" '
            f'to "{call.words[2]}" in vhost "{call.vhost}" ...'
        ),
        request=named("component", "name", "value", vhost=True),
    ),
}
