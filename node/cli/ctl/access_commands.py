"""This table has the commands about vhosts and permissions. Source: management §3.2, §3.3; RabbitMQ 3.10.8's output."""

from typing import Any, Final

from node.cli.ctl.command import Call, NotHealthy, commands
from node.cli.ctl.formats import Message, Outcome, Report, Table
from node.cli.ctl.lists import VHOSTS, chosen
from node.cli.ctl.user_commands import limits_listed
from node.operations import permissions, vhosts

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
