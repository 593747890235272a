"""Resources that fit nowhere else: the caller, the cluster's name, rebalancing, logins, and RabbitMQ's plug-ins that
are not here.

Source: management §1.10, §2.1, §2.5.
"""

import asyncio
import base64
from typing import Any, Final
from urllib.parse import parse_qsl

from node.io.control import ControlError
from node.management import auth
from node.management.call import Call
from node.management.reply import Reply, bad_request, no_content, no_such_thing, ok, unavailable
from node.management.routes import Access, Route
from node.statistics.query import Query

FORM_BYTES_MAX: Final = 16384
REBALANCE_S: Final = 3600.0
"""How long a rebalancing may take."""

_rebalancing: set["asyncio.Task[None]"] = set()
"""Running tasks, so that none that is not awaited is collected."""


# --- the caller ---


async def whoami(call: Call) -> Reply:
    """GET /whoami."""
    found: dict[str, Any] = {"name": call.user.name, "tags": list(call.user.tags)}
    timeout_min = call.site.config.management.login_session_timeout_min
    if timeout_min is not None:
        found["login_session_timeout"] = timeout_min
    return ok(found)


async def auth_settings(call: Call) -> Reply:
    """GET /auth: how the UI is to log in; the keys of 3.10.8 and those of later versions."""
    return ok({"enable_uaa": False, "uaa_client_id": "", "uaa_location": "", "oauth_enabled": False})


async def login(call: Call) -> Reply:
    """POST /login, a form with username and password: a cookie that the UI of RabbitMQ reads."""
    octets = await call.octets()
    if len(octets) > FORM_BYTES_MAX:
        raise bad_request("the form is too long")
    try:
        form = dict(parse_qsl(octets.decode(), keep_blank_values=True, errors="strict", max_num_fields=20))
    except ValueError:
        raise bad_request("the form is not understood") from None
    if "username" not in form or "password" not in form:
        raise auth.failed()
    given = auth.Credentials(form["username"], form["password"])
    await call.log_in(given)
    encoded = base64.b64encode(f"{given.name}:{given.password}".encode()).decode()
    cookie = f"auth={encoded}; Version=1; SameSite=Strict"
    return ok("ok", {"set-cookie": cookie})


# --- logins that were tried ---


async def auth_attempts(call: Call) -> Reply:
    """GET /auth/attempts/{node}."""
    row = await _ask_node(call, "auth_attempts")
    return ok(row.get("auth_attempts", []))


async def auth_attempts_by_source(call: Call) -> Reply:
    """GET /auth/attempts/{node}/source: always empty, as in RabbitMQ unless it is told to keep them."""
    _check_member(call)
    return ok([])


async def forget_auth_attempts(call: Call) -> Reply:
    """DELETE /auth/attempts/{node} and /auth/attempts/{node}/source."""
    _check_member(call)
    try:
        await call.site.ask(call.path["node"], "forget_auth_attempts", {})
    except ControlError as error:
        raise unavailable(error.text) from None
    return no_content()


async def _ask_node(call: Call, field: str) -> dict[str, Any]:
    _check_member(call)
    query = Query(fields=frozenset({field}))
    try:
        row: dict[str, Any] = await call.site.ask(call.path["node"], "node", {"query": query.as_json()})
    except ControlError as error:
        raise unavailable(error.text) from None
    return row


def _check_member(call: Call) -> None:
    """Raise ApiError (404) unless the path's node is a member."""
    if all(member.name != call.path["node"] for member in call.site.members()):
        raise no_such_thing()


# --- the cluster ---


async def cluster_name(call: Call) -> Reply:
    """GET /cluster-name."""
    return ok({"name": call.catalogue.global_parameter("cluster_name") or call.site.config.cluster_name})


async def put_cluster_name(call: Call) -> Reply:
    """PUT /cluster-name."""
    body = await call.body()
    if "name" not in body:
        raise bad_request("[{key_missing,name}]")
    if not isinstance(body["name"], str) or not body["name"]:
        raise bad_request("the name of a cluster is a text")
    await call.site.operate("set_cluster_name", {"name": body["name"]})
    return no_content()


async def rebalance(call: Call) -> Reply:
    """POST /rebalance/queues: begins to rebalance; the log has the outcome."""
    assert call.broker, "raises while it does not run"
    task = asyncio.get_running_loop().create_task(_rebalance(call))
    _rebalancing.add(task)
    task.add_done_callback(_rebalancing.discard)
    return no_content()


async def _rebalance(call: Call) -> None:
    everything = {"type": "all", "vhost_pattern": ".*", "queue_pattern": ".*"}
    admin = call.site.admin(call.user.name)
    try:
        await call.site.operate("rebalance", everything, REBALANCE_S)
    except (ControlError, TimeoutError) as error:
        admin.logger.warning("Queue rebalance operation failed: %s", error)


async def reset(call: Call) -> Reply:
    """DELETE /reset and /reset/{node}: all nodes, or one, forget the statistics over time, but not the counters."""
    if "node" in call.path:
        _check_member(call)
        await call.site.ask(call.path["node"], "reset_statistics", {})
    else:
        await call.site.ask_all("reset_statistics", {})
    return no_content()


# --- plug-ins ---


async def nothing(call: Call) -> Reply:
    """Answer with an empty list for a plug-in that isn't here: monitors ask for it nevertheless."""
    if "vhost" in call.path:
        call.vhost(call.path["vhost"])
    return ok([])


_ADMIN, _MONITORING = Access.ADMINISTRATOR, Access.MONITORING

ROUTES: Final = (
    Route("GET", "/whoami", whoami),
    Route("GET", "/auth", auth_settings, Access.PUBLIC),
    Route("POST", "/login", login, Access.PUBLIC, "application/x-www-form-urlencoded"),
    Route("GET", "/auth/attempts/{node}", auth_attempts, _MONITORING),
    Route("DELETE", "/auth/attempts/{node}", forget_auth_attempts, _MONITORING),
    Route("GET", "/auth/attempts/{node}/source", auth_attempts_by_source, _MONITORING),
    Route("DELETE", "/auth/attempts/{node}/source", forget_auth_attempts, _MONITORING),
    Route("GET", "/cluster-name", cluster_name),
    Route("PUT", "/cluster-name", put_cluster_name, _ADMIN),
    Route("POST", "/rebalance/queues", rebalance, _ADMIN),
    Route("DELETE", "/reset", reset, _ADMIN),
    Route("DELETE", "/reset/{node}", reset, _ADMIN),
    Route("GET", "/traces", nothing, _ADMIN),
    Route("GET", "/traces/{vhost}", nothing, _ADMIN),
    Route("GET", "/trace-files", nothing, _ADMIN),
)
