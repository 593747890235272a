"""Users, their passwords, tags and limits have these commands. Source: management §3.2; RabbitMQ 3.10.8's output."""

import sys
from typing import Any, Final

from node.cli.ctl.command import Call, CtlSession, Failed, commands
from node.cli.ctl.formats import Done, Message, Names, Outcome, Report, Table, compact
from node.operations import users
from node.operations.operation import EX_DATAERR, EX_SOFTWARE

_ADDED: Final = (
    "Done. Don't forget to grant the user permissions to some virtual hosts! "
    "See 'rabbitmqctl help set_permissions' to learn more."
)


def password_of(call: Call, session: CtlSession, exit_code: int = EX_DATAERR) -> str:
    """Return the second word, or a line of standard input. Raises: Failed, with this exit code, if there is none."""
    if len(call.words) > 1:
        return call.words[1]
    session.say("Password: ")
    found = sys.stdin.readline().removesuffix("\n")
    if not found:
        raise Failed(exit_code, "Password is not provided via argument or stdin")
    return found


def _add_user(call: Call, session: CtlSession) -> Outcome:
    session.ask("add_user", {"user": call.words[0], "password": password_of(call, session)})
    return Report({"node": call.node, "status": "ok", "message": _ADDED}, _ADDED)


def _change_password(call: Call, session: CtlSession) -> Outcome:
    session.ask("change_password", {"user": call.words[0], "password": password_of(call, session)})
    return Done()


def _authenticate(call: Call, session: CtlSession) -> Outcome:
    password = password_of(call, session, EX_SOFTWARE)
    session.ask("authenticate_user", {"user": call.words[0], "password": password})
    return Message("Success")


def _users_listed(call: Call, result: Any) -> Outcome:
    rows = [{"user": each["user"], "tags": Names(each["tags"])} for each in result["rows"]]
    return Table(("user", "tags"), rows)


# --- limits ---


def limits_listed(call: Call, result: Any, noun: str) -> Outcome:
    """Return the limits of all users or vhosts as a table, or of one as one line.   noun: the column with its name."""
    if call.line.is_set("global"):
        rows = [{noun: each["name"], "limits": compact(each["limits"])} for each in result["rows"]]
        return Table((noun, "limits"), rows, has_blank=True)
    limits = result["rows"][0]["limits"] if result["rows"] else {}
    if not limits and noun == "vhost":
        return Report({}, "", json_text="[]")
    return Message(compact(limits))


def _asked_limits(call: Call) -> dict[str, Any]:
    return {"user": None if call.line.is_set("global") else call.line.texts.get("user", "guest")}


def _banner_of_limits(call: Call) -> str:
    if call.line.is_set("global"):
        return "Listing limits for all users ..."
    return f'Listing limits for user "{call.line.texts.get("user", "guest")}" ...'


def _banner_of_cleared(call: Call) -> str:
    name, limit = call.words
    return f'Clearing {"all limits" if limit == "all" else chr(34) + limit + chr(34) + " limit"} for user "{name}" ...'


USERS: Final = commands(
    users.USERS,
    add_user={"perform": _add_user, "arguments": (1, 2)},
    authenticate_user={"perform": _authenticate, "arguments": (1, 2)},
    change_password={"perform": _change_password, "arguments": (1, 2)},
    clear_user_limits={"banner": _banner_of_cleared},
    list_user_limits={
        "options": frozenset({"user", "global"}),
        "banner": _banner_of_limits,
        "request": _asked_limits,
        "present": lambda call, result: limits_listed(call, result, "user"),
    },
    list_users={"present": _users_listed},
)
