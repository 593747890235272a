"""The commands about vhosts and permissions. Source: management §3.2, §3.3; RabbitMQ 3.10.8's output."""

from typing import Any, Final

from node.cli.ctl.command import BOTH, Call, Command, named
from node.cli.ctl.formats import Message, Outcome, Table
from node.cli.ctl.lists import VHOSTS, list_request, listed
from node.cli.ctl.user_commands import limits_listed


def _table(*columns: str, has_header: bool = True) -> Any:
    return lambda call, result: Table(columns, result["rows"], has_blank=True, has_header=has_header)


# --- vhosts ---


def _add_vhost(call: Call) -> dict[str, Any]:
    texts = call.line.texts
    return {
        "vhost": call.words[0],
        "description": texts.get("description", ""),
        "tags": [tag.strip() for tag in texts.get("tags", "").split(",") if tag.strip()],
        "default_queue_type": texts.get("default-queue-type", ""),
    }


def _vhost_tags(call: Call) -> dict[str, Any]:
    return {"vhost": call.words[0], "tags": call.words[1:]}


def _restarted(call: Call, result: Any) -> Outcome:
    return Message(f"Vhost '{call.vhost}' is already running on node '{call.node}'")


def _traced(what: str) -> Any:
    return lambda call, result: Message(f"Trace {what} for vhost {call.vhost}")


def _vhost(call: Call) -> dict[str, Any]:
    return {"vhost": call.vhost}


def _vhost_limits(call: Call) -> dict[str, Any]:
    return {"vhost": None if call.line.is_set("global") else call.vhost}


_V: Final = "Virtual hosts"

VIRTUAL_HOSTS: Final[dict[str, Command]] = {
    "add_vhost": Command(
        _V,
        "Creates a virtual host",
        "<vhost> [--description <description>] [--tags <tag1>,<tag2>,<...>]"
        " [--default-queue-type <quorum|classic>]",
        (1, 1),
        frozenset({"description", "tags", "default-queue-type"}),
        banner=lambda call: f'Adding vhost "{call.words[0]}" ...',
        request=_add_vhost,
    ),
    "clear_vhost_limits": Command(
        _V,
        "Clears limits of a virtual host",
        "[--vhost <vhost>]",
        banner=lambda call: f'Clearing vhost "{call.vhost}" limits ...',
        request=_vhost,
    ),
    "delete_vhost": Command(
        _V,
        "Deletes a virtual host, and all that is in it",
        "<vhost>",
        (1, 1),
        banner=lambda call: f'Deleting vhost "{call.words[0]}" ...',
        request=named("vhost"),
    ),
    "list_vhost_limits": Command(
        _V,
        "Lists limits of a virtual host, or of all",
        "[--vhost <vhost>] [--global] [--no-table-headers]",
        options=frozenset({"global"}),
        banner=lambda call: (
            "Listing limits for all vhosts ..."
            if call.line.is_set("global")
            else f'Listing limits for vhost "{call.vhost}" ...'
        ),
        request=_vhost_limits,
        present=lambda call, result: limits_listed(call, result, "vhost"),
        tools=BOTH,
    ),
    "restart_vhost": Command(
        _V,
        "Does nothing where a virtual host cannot fail alone",
        "[--vhost <vhost>]",
        banner=lambda call: f"Trying to restart vhost '{call.vhost}' on node '{call.node}' ...",
        request=_vhost,
        present=_restarted,
    ),
    "set_vhost_limits": Command(
        _V,
        "Sets limits of a virtual host",
        "[--vhost <vhost>] <definition>",
        (1, 1),
        banner=lambda call: f'Setting vhost limits to "{call.words[0]}" for vhost "{call.vhost}" ...',
        request=named("limits", vhost=True),
    ),
    "set_vhost_tags": Command(
        _V,
        "Sets tags of a virtual host",
        "<vhost> <tag> [...]",
        (1, None),
        banner=lambda call: (
            f'Setting tags for virtual host "{call.words[0]}" to [{", ".join(call.words[1:])}] ...'
        ),
        request=_vhost_tags,
    ),
    "trace_off": Command(
        _V,
        "Ends what trace_on has begun",
        "[--vhost <vhost>]",
        banner=lambda call: f'Stopping tracing for vhost "{call.vhost}" ...',
        request=_vhost,
        present=_traced("disabled"),
    ),
    "trace_on": Command(
        _V,
        "Copies each message of a virtual host to its exchange amq.rabbitmq.trace",
        "[--vhost <vhost>]",
        banner=lambda call: f'Starting tracing for vhost "{call.vhost}" ...',
        request=_vhost,
        present=_traced("enabled"),
    ),
}

# --- permissions ---


def _topic_banner(call: Call) -> str:
    what = f'on "{call.words[1]}" ' if len(call.words) > 1 else ""
    return f'Clearing topic permissions {what}for user "{call.words[0]}" in vhost "{call.vhost}" ...'


_A: Final = "Access Control"

ACCESS: Final[dict[str, Command]] = {
    "clear_permissions": Command(
        _A,
        "Revokes a user's permissions in a virtual host",
        "[--vhost <vhost>] <username>",
        (1, 1),
        banner=lambda call: f'Clearing permissions for user "{call.words[0]}" in vhost "{call.vhost}" ...',
        request=named("user", vhost=True),
    ),
    "clear_topic_permissions": Command(
        _A,
        "Clears a user's topic permissions on one exchange or on all",
        "[--vhost <vhost>] <username> [<exchange>]",
        (1, 2),
        banner=_topic_banner,
        request=named("user", "exchange", vhost=True),
    ),
    "list_permissions": Command(
        _A,
        "Lists permissions in a virtual host",
        "[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
        banner=lambda call: f'Listing permissions for vhost "{call.vhost}" ...',
        request=_vhost,
        present=_table("user", "configure", "write", "read"),
        tools=BOTH,
    ),
    "list_topic_permissions": Command(
        _A,
        "Lists topic permissions in a virtual host",
        "[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
        banner=lambda call: f'Listing topic permissions for vhost "{call.vhost}" ...',
        request=_vhost,
        present=_table("user", "exchange", "write", "read"),
        tools=BOTH,
    ),
    "list_user_permissions": Command(
        _A,
        "Lists a user's permissions in all virtual hosts",
        "[--no-table-headers] <username> [--timeout <timeout>]",
        (1, 1),
        banner=lambda call: f'Listing permissions for user "{call.words[0]}" ...',
        request=named("user"),
        present=_table("vhost", "configure", "write", "read"),
        tools=BOTH,
    ),
    "list_user_topic_permissions": Command(
        _A,
        "Lists a user's topic permissions in all virtual hosts",
        "[--no-table-headers] <username> [--timeout <timeout>]",
        (1, 1),
        banner=lambda call: f'Listing topic permissions for user "{call.words[0]}" ...',
        request=named("user"),
        present=_table("vhost", "exchange", "write", "read", has_header=False),
        tools=BOTH,
    ),
    "list_vhosts": Command(
        _A,
        "Lists virtual hosts",
        "[--no-table-headers] [<column> ...] [--timeout <timeout>]",
        (0, None),
        banner=lambda call: "Listing vhosts ...",
        request=list_request(VHOSTS),
        present=listed(VHOSTS),
        tools=BOTH,
        columns=VHOSTS.columns,
    ),
    "set_permissions": Command(
        _A,
        "Sets what a user may do in a virtual host: three regular expressions over names",
        "[--vhost <vhost>] <username> <conf> <write> <read>",
        (4, 4),
        banner=lambda call: f'Setting permissions for user "{call.words[0]}" in vhost "{call.vhost}" ...',
        request=named("user", "configure", "write", "read", vhost=True),
    ),
    "set_topic_permissions": Command(
        _A,
        "Sets which routing keys a user may use with a topic exchange",
        "[--vhost <vhost>] <username> <exchange> <write> <read>",
        (4, 4),
        banner=lambda call: (
            f'Setting topic permissions on "{call.words[1]}" for user "{call.words[0]}" '
            f'in vhost "{call.vhost}" ...'
        ),
        request=named("user", "exchange", "write", "read", vhost=True),
    ),
}
