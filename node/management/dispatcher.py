"""Dispatch a request to its handler: routes, access, and errors as answers. This module knows HTTP, but no sockets.

    path ─► route ─► method ─► origin ─► user ─► tag ─► content type ─► handler
             404      405       403      401     401        415

Source: management §1.0, §2.1, §2.6.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from node.admin.admin import AdminError
from node.admin.logins import visible_vhosts
from node.amqp.errors import ProtocolError
from node.broker.broker import Broker
from node.catalogue.access import LoginRefused
from node.catalogue.records import User
from node.client.authority import BackendUser
from node.config.config import ManagementConfig
from node.io.control import EX_UNAVAILABLE, ControlError
from node.management import auth
from node.management.call import NO_USER, Call
from node.management.direct import api_error
from node.management.listing import ListingError
from node.management.login_turns import LoginTurns
from node.management.long_answers import LongAnswers
from node.management.reply import (
    ApiError,
    Reply,
    bad_request,
    no_such_thing,
    not_authorised,
    not_found,
    unavailable,
)
from node.management.routes import Access, Found, Route, RouteTable
from node.management.site import Site
from node.management.static_files import StaticFiles

PRODUCT: Final = "Fluffle"
PARAMETERS_MAX: Final = 100
_READS: Final = ("GET", "HEAD")
_METHODS: Final = "HEAD, GET, PUT, POST, DELETE, OPTIONS"
_DEFENCES: Final = {"x-content-type-options": "nosniff", "x-frame-options": "DENY"}
"""Headers unless the configuration has others: no other page may show ours in a frame, no browser guesses types."""
_ALWAYS: Final = {
    "cache-control": "no-cache",
    "server": PRODUCT,
    "vary": "accept, accept-encoding, origin",
}
_STATUS_OF: Final = {
    "not_found": not_found,
    "invalid": bad_request,
    "exists": bad_request,
    "refused": not_authorised,
    "unavailable": unavailable,
}
"""The HTTP error for each kind of `AdminError`."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came.

    target: path and query, undecoded.   headers: by names in small letters.   read: see `Call`.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    peer: tuple[str, int]
    read: Callable[[], Awaitable[bytes]]


class Dispatcher:
    """Answers requests.   files: the UI; None without one."""

    def __init__(
        self, site: Site, config: ManagementConfig, routes: Iterable[Route], files: StaticFiles | None = None
    ) -> None:
        self._site = site
        self._config = config
        self._routes = RouteTable(routes)
        self._files = files
        self._guesses = auth.Guesses()
        self._turns = LoginTurns()
        self._long_answers = LongAnswers()

    async def answer(self, request: Incoming) -> Reply:
        """Return the answer to a request, with all its headers."""
        try:
            reply = await self._reply(request)
        except ApiError as error:
            reply = error.reply()
        except ListingError as error:
            reply = bad_request(error.reason, error.error).reply()
        except AdminError as error:
            reply = _STATUS_OF[error.kind](error.reason).reply()
        except ProtocolError as error:
            reply = api_error(error).reply()
        except ControlError as error:
            refusal = unavailable if error.exit_code == EX_UNAVAILABLE else bad_request
            reply = refusal(error.text).reply()
        headers = {**_ALWAYS, **self._fixed_headers(), **self._cors(request), **reply.headers}
        return reply._replace(headers=headers)

    async def _reply(self, request: Incoming) -> Reply:
        path, _, query = request.target.partition("?")
        path = self._below_prefix(path)
        if request.method == "OPTIONS":
            return Reply(200)
        found = self._routes.find(path)
        if found is None:
            return self._static(request, path)
        route = _route(found, request.method)
        self._check_origin(request)
        parameters = _parameters(query)
        user = (
            NO_USER if route.access is Access.PUBLIC else await self._user(request, route, dict(parameters))
        )
        auth.check_access(user, route.access)
        _check_type(request, route)
        call = Call(
            self._site,
            "GET" if request.method == "HEAD" else request.method,
            user=user,
            path=found.path,
            parameters=parameters,
            headers=request.headers,
            peer=request.peer,
            read=request.read,
            log_in=lambda given: self.log_in(given, request.peer[0]),
        )
        if isinstance(user, BackendUser):
            call.visible = await self._visible_vhosts(user, request.peer[0])
        if route.is_long and "page" not in dict(parameters):
            return await self._long_answers.make(lambda: route.handler(call))
        return await route.handler(call)

    def _below_prefix(self, path: str) -> str:
        prefix = self._config.path_prefix
        if prefix and path != prefix and not path.startswith(prefix + "/"):
            raise no_such_thing()
        return path[len(prefix) :] or "/"

    def _static(self, request: Incoming, path: str) -> Reply:
        if self._files is None or path == "/api" or path.startswith("/api/"):
            raise no_such_thing()
        if request.method not in _READS:
            raise ApiError(405, headers={"allow": "HEAD, GET, OPTIONS"})
        return self._files.reply(path, request.headers.get("if-none-match"))

    async def _user(self, request: Incoming, route: Route, parameters: Mapping[str, str]) -> User:
        """Return the calling user. Raises: ApiError (401, 503)."""
        if self._config.disable_basic_auth:
            raise auth.challenged()
        given = auth.credentials(request.headers.get("authorization"))
        if given is None and route.path.startswith("/definitions") and "auth" in parameters:
            given = auth.decoded(parameters["auth"])  # a link that downloads has no header
        if given is None:
            raise auth.challenged()
        return await self.log_in(given, request.peer[0])

    async def log_in(self, given: auth.Credentials, peer_host: str) -> User:
        """Return the user with this name and password. Raises: ApiError (401, 429, 503)."""
        node = self._site.node
        if node is None:
            raise unavailable("the broker does not run on this node")
        if node.broker.authority is None:
            return await self._look_at(node.broker, given, peer_host)
        async with self._turns.turn(peer_host, given.name):
            return await self._look_at(node.broker, given, peer_host)

    async def _look_at(self, broker: Broker, given: auth.Credentials, peer_host: str) -> User:
        now = time.monotonic()
        if not self._guesses.may_try(peer_host, given.name, now):
            raise ApiError(429, "too_many_requests", "Too many failed logins", {"retry-after": "1"})
        found = await auth.log_in(broker, given, peer_host, self._site.config.auth.loopback_users)
        broker.counters.count_login("http", is_good=isinstance(found, User))
        if not isinstance(found, LoginRefused):
            return found
        self._guesses.is_wrong(peer_host, given.name, now)
        if "via localhost" in found.reason:
            raise auth.failed("User can only log in via localhost")
        raise auth.failed()

    async def _visible_vhosts(self, user: BackendUser, host: str) -> frozenset[str]:
        """Return the vhosts that an auth backend lets its user see. Raises: ApiError (503)."""
        node = self._site.node
        if node is None:
            raise unavailable("the broker does not run on this node")
        vhosts = [vhost.name for vhost in node.broker.catalogue.vhosts()]
        try:
            return await visible_vhosts(node.broker, user, vhosts, host)
        except TimeoutError:
            raise unavailable("no auth backend answers in time") from None

    # --- other origins ---

    def _check_origin(self, request: Incoming) -> None:
        """Refuse changes by a page of another origin: browsers add credentials by themselves."""
        if request.method in _READS:
            return
        origin = request.headers.get("origin")
        if origin is None:
            if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
                raise ApiError(403, "forbidden", "Requests from other origins are not allowed")
            return
        if urlsplit(origin).netloc != request.headers.get("host") and not self._is_allowed(origin):
            raise ApiError(403, "forbidden", "Requests from other origins are not allowed")

    def _is_allowed(self, origin: str) -> bool:
        return origin in self._config.cors_allow_origins or "*" in self._config.cors_allow_origins

    def _cors(self, request: Incoming) -> dict[str, str]:
        origin = request.headers.get("origin")
        if origin is None or not self._is_allowed(origin):
            return {}
        headers = {"access-control-allow-origin": origin, "access-control-allow-credentials": "true"}
        if request.method == "OPTIONS":
            headers["access-control-allow-methods"] = _METHODS
            headers["access-control-max-age"] = str(self._config.cors_max_age_s)
            if (asked := request.headers.get("access-control-request-headers")) is not None:
                headers["access-control-allow-headers"] = asked
        return headers

    def _fixed_headers(self) -> dict[str, str]:
        headers = {"content-security-policy": self._config.csp_policy, **_DEFENCES, **self._config.headers}
        if self._config.hsts_policy is not None:
            headers["strict-transport-security"] = self._config.hsts_policy
        return headers


def _route(found: Found, method: str) -> Route:
    """Return the route for the method. Raises: ApiError (405)."""
    route = found.methods.get("GET" if method == "HEAD" else method)
    if route is None:
        allowed = ["HEAD", *found.methods] if "GET" in found.methods else list(found.methods)
        raise ApiError(405, headers={"allow": ", ".join([*allowed, "OPTIONS"])})
    return route


def _parameters(query: str) -> list[tuple[str, str]]:
    """Return the parameters of a query. Raises: ApiError (400)."""
    try:
        return parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX)
    except ValueError:
        raise bad_request("the query is not understood") from None


def _check_type(request: Incoming, route: Route) -> None:
    """Check the body's encoding and content type. Raises: ApiError (415)."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise ApiError(415)
    if route.consumes is None:
        return
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in route.consumes.split(","):
        raise ApiError(415)
