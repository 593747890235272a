"""RabbitMQ's pages beside the UI: a list of the API's paths, the command line, and paths of older versions.

Source: management §1.10 "Static".
"""

import html
from typing import Final

from node.management.call import Call
from node.management.reply import ApiError, Reply
from node.management.routes import Access, Handler, Route

API: Final = "/api/index.html"
COMMAND_LINE: Final = "/cli/index.html"
_HTML: Final = "text/html; charset=utf-8"
_NO_RABBITMQADMIN: Final = (
    "rabbitmqadmin does not come with this broker. The one of RabbitMQ 3.10 works with it: Debian's package "
    "rabbitmq-server has it, and RabbitMQ's sources v3.10.8 as deps/rabbitmq_management/bin/rabbitmqadmin. "
    "'fluffle ctl' needs no HTTP"
)
_TOOLS: Final = (
    "'fluffle ctl', 'fluffle diagnostics', 'fluffle queues', 'fluffle plugins' and 'fluffle upgrade' take RabbitMQ's "
    "commands. 'fluffle compat-links DIR' makes rabbitmqctl, rabbitmq-diagnostics and the others in a directory. "
    "RabbitMQ's rabbitmqadmin works with this API."
)


def _page(title: str, body: str) -> Reply:
    text = f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n<h1>{title}</h1>\n'
    return Reply(200, body=(text + body + "\n</html>\n").encode(), content_type=_HTML)


async def list_of_paths(call: Call) -> Reply:
    """GET /api/index.html."""
    from node.management.resources import all_routes  # which lists this file, too

    methods: dict[str, list[str]] = {}
    for route in all_routes():
        methods.setdefault(route.path if route.is_outside else f"/api{route.path}", []).append(route.method)
    rows = (
        f"<tr><td>{', '.join(sorted(found))}</td><td>{html.escape(path)}</td></tr>"
        for path, found in sorted(methods.items())
    )
    head = "<table>\n<tr><th>Methods</th><th>Path</th></tr>\n"
    return _page("HTTP API", head + "\n".join(rows) + "\n</table>")


async def command_line(call: Call) -> Reply:
    """GET /cli/index.html."""
    return _page("Command line tools", f"<p>{html.escape(_TOOLS)}</p>")


async def rabbitmqadmin(call: Call) -> Reply:
    """GET /cli/rabbitmqadmin: scripts download it. Raises: ApiError (404)."""
    raise ApiError(404, "not_found", _NO_RABBITMQADMIN)


def _moved(target: str) -> Handler:
    async def moved(call: Call) -> Reply:
        return Reply(301, headers={"location": call.site.config.management.path_prefix + target})

    return moved


def _public(path: str, handler: Handler) -> Route:
    return Route("GET", path, handler, Access.PUBLIC, is_outside=True)


ROUTES: Final = (
    *(_public(path, _moved(API)) for path in ("/api", "/stats", "/doc/stats.html")),
    _public("/cli", _moved(COMMAND_LINE)),
    _public("/mgmt", _moved("/")),
    _public(API, list_of_paths),
    _public(COMMAND_LINE, command_line),
    _public("/cli/rabbitmqadmin", rabbitmqadmin),
)
