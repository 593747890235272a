"""This table has the commands about runtime parameters. Source: management §3.2, §3.3; RabbitMQ 3.10.8's output."""

import json
from typing import Any, Final

from node.cli.ctl.command import Call, commands
from node.cli.ctl.formats import Atom, Outcome, Table
from node.operations import parameters


def _parameters_listed(call: Call, result: Any) -> Outcome:
    rows = [{**each, "value": _typed(each["value"])} for each in result["rows"]]
    return Table(("component", "name", "value"), rows, has_blank=True)


def _globals_listed(call: Call, result: Any) -> Outcome:
    rows = [{"name": Atom(each["name"]), "value": _typed(each["value"])} for each in result["rows"]]
    return Table(("name", "value"), rows, has_blank=True)


def _typed(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


PARAMETERS: Final = commands(
    parameters.PARAMETERS,
    list_global_parameters={"present": _globals_listed},
    list_parameters={"present": _parameters_listed},
)
