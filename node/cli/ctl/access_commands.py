"""The commands about vhosts, permissions and parameters. Source: management §3.2, §3.3; RabbitMQ 3.10.8's output."""

import json
from typing import Any, Final

from node.cli.ctl.command import Call, NotHealthy, commands
from node.cli.ctl.formats import Atom, Message, Outcome, Report, Table
from node.cli.ctl.lists import VHOSTS, chosen
from node.cli.ctl.user_commands import limits_listed
from node.operations import parameters, permissions, vhosts

# --- vhosts ---


def _vhost_limits(call: Call) -> dict[str, Any]:
    return {"vhost": None if call.line.is_set("global") else call.vhost}


def _banner_of_limits(call: Call) -> str:
    if call.line.is_set("global"):
        return "Listing limits for all vhosts ..."
    return f'Listing limits for vhost "{call.vhost}" ...'


def _restarted(call: Call, result: Any) -> Outcome:
    return Message(f"Vhost '{call.vhost}' is already running on node '{call.node}'")


def _vhosts_run(call: Call, result: Any) -> Outcome:
    down = result["down"]
    if not down:
        return Report({"result": "ok"}, f"Node {call.node} reported all vhosts as running")
    text = f"Some virtual hosts on node {call.node} are down:\n" + "\n".join(down)
    raise NotHealthy(text, {"result": "error", "down": down})


VIRTUAL_HOSTS: Final = commands(
    vhosts.VHOSTS,
    list_vhost_limits={
        "options": frozenset({"global"}),
        "banner": _banner_of_limits,
        "request": _vhost_limits,
        "present": lambda call, result: limits_listed(call, result, "vhost"),
    },
    list_vhosts=chosen(VHOSTS),
    check_virtual_hosts={"present": _vhosts_run},
    restart_vhost={"present": _restarted},
    trace_off={"present": lambda call, result: Message(f"Trace disabled for vhost {call.vhost}")},
    trace_on={"present": lambda call, result: Message(f"Trace enabled for vhost {call.vhost}")},
)

# --- permissions ---


def _topic_banner(call: Call) -> str:
    what = f'on "{call.words[1]}" ' if len(call.words) > 1 else ""
    return f'Clearing topic permissions {what}for user "{call.words[0]}" in vhost "{call.vhost}" ...'


def _topics_listed(call: Call, result: Any) -> Outcome:
    columns = ("vhost", "exchange", "write", "read")
    return Table(columns, result["rows"], has_blank=True, has_header=False)


ACCESS: Final = commands(
    permissions.PERMISSIONS,
    clear_topic_permissions={"banner": _topic_banner},
    list_user_topic_permissions={"present": _topics_listed},
)

# --- parameters ---


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
