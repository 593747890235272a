"""One request to the HTTP API, as handlers see it. Source: management §1.0, §2.1."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from node.amqp.methods import Method
from node.broker.broker import Broker
from node.catalogue.catalogue import Catalogue
from node.catalogue.records import User
from node.definitions.reading import is_deeper
from node.management.auth import Credentials
from node.management.listing import Listing
from node.management.reply import bad_request, no_such_thing, not_authorised, unavailable
from node.management.site import Site
from node.statistics.query import NO_RANGES, Ranges

DEPTH_MAX: Final = 64
"""How deep a body may be nested; tables of AMQP are refused far earlier."""
DOCUMENT_BYTES_MAX: Final = 1024 * 1024
"""The largest body that describes one object: all nodes get it in one command."""

_DOUBLY_ENCODED: Final = (
    "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"
)

NO_USER: Final = User("", "", "")
"""The user of calls to public routes."""


class Call:
    """One request.

    path: the variable segments, decoded.   parameters: those of the query, in order.
    query: of each name the last parameter.
    headers: by their names in small letters.   peer: address and port of the client.
    read: the body's octets; raises ApiError when there are too many.   log_in: see `Dispatcher.log_in`.
    """

    def __init__(
        self,
        site: Site,
        method: str,
        *,
        user: User = NO_USER,
        path: Mapping[str, str] | None = None,
        parameters: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        peer: tuple[str, int] = ("127.0.0.1", 0),
        read: Callable[[], Awaitable[bytes]] | None = None,
        log_in: Callable[[Credentials], Awaitable[User]] | None = None,
    ) -> None:
        self.site = site
        self.method = method
        self.user = user
        self.path = dict(path or {})
        self.parameters = parameters
        self.query = dict(parameters)
        self.headers = dict(headers or {})
        self.peer = peer
        self._read = read
        self._log_in = log_in
        self.visible: frozenset[str] | None = None
        """The vhosts that an auth backend of a plug-in lets the user see; None: the catalogue says it."""

    # --- the broker ---

    @property
    def broker(self) -> Broker:
        """The running broker. Raises: ApiError (503) unless it runs."""
        node = self.site.node
        if node is None:
            raise unavailable("the broker does not run on this node")
        return node.broker

    @property
    def catalogue(self) -> Catalogue:
        """The metadata that all nodes share. Raises: ApiError (503)."""
        return self.broker.catalogue

    # --- permissions ---

    def has_tag(self, *tags: str) -> bool:
        """True if the user has one of the tags."""
        return any(tag in self.user.tags for tag in tags)

    @property
    def is_administrator(self) -> bool:
        """True if the user may do everything."""
        return self.has_tag("administrator")

    @property
    def is_monitor(self) -> bool:
        """True if the user may look at everything."""
        return self.has_tag("monitoring", "administrator")

    def can_see(self, vhost: str) -> bool:
        """True if the contents of the vhost may be shown to the user (management §2.1)."""
        if self.is_administrator:
            return True
        if self.visible is not None:
            return vhost in self.visible
        return self.catalogue.permission(vhost, self.user.name) is not None

    def vhost(self, name: str) -> str:
        """Return the name of a vhost that exists and that the user may see. Raises: ApiError (404, 401)."""
        if self.catalogue.vhost(name) is None:
            raise no_such_thing()
        if not self.can_see(name):
            raise not_authorised("User not authorised to access virtual host")
        return name

    def vhosts(self) -> Iterator[str]:
        """Yield the vhosts whose contents are to be listed: that of the path or of the header, else all visible
        ones.

        Raises: ApiError (404, 401).
        """
        chosen = self.path.get("vhost") or self.headers.get("x-vhost")
        if chosen:
            yield self.vhost(chosen)
            return
        for vhost in sorted(self.catalogue.vhosts(), key=lambda each: each.name):
            if self.can_see(vhost.name):
                yield vhost.name

    async def log_in(self, given: Credentials) -> User:
        """Return the user with a name and password that are not the call's own. Raises: ApiError (401, 429)."""
        assert self._log_in is not None
        return await self._log_in(given)

    # --- parameters and body ---

    def listing(self, *, can_page: bool = True) -> Listing:
        """Return how a list is to be sorted and cut. Raises: ListingError (400)."""
        return Listing.of(self.query, can_page=can_page)

    def ranges(self) -> Ranges:
        """Return the samples that are asked for. Raises: ApiError (400)."""
        if not any(name.endswith(("_age", "_incr")) for name in self.query):
            return NO_RANGES
        try:
            return Ranges.of(self.query)
        except ValueError as error:
            raise bad_request(str(error)) from None

    async def octets(self) -> bytes:
        """Return the body as it came. Raises: ApiError (400)."""
        return b"" if self._read is None else await self._read()

    async def body(self, *, has_payload: bool = False) -> dict[str, Any]:
        """Return the body, a JSON object; {} for none. Raises: ApiError (400, not_json).

        has_payload: it may be as long as messages are.
        """
        octets = await self.octets()
        if len(octets) > DOCUMENT_BYTES_MAX and not has_payload:
            raise bad_request(f"a document of more than {DOCUMENT_BYTES_MAX} bytes")
        return json_object(octets)


def json_object(data: bytes) -> dict[str, Any]:
    """Decode a JSON object; {} for nothing, null and JavaScript's undefined. Raises: ApiError (400, not_json)."""
    if data.strip() in (b"", b"null", b"undefined"):
        return {}
    try:
        value = orjson.loads(data)
    except ValueError:
        raise bad_request("not_json") from None
    if isinstance(value, str):
        raise bad_request(_DOUBLY_ENCODED)
    if not isinstance(value, dict) or is_deeper(value, DEPTH_MAX):
        raise bad_request("not_json")
    return value


async def send(call: Call, vhost: str, method: Method) -> Any:
    """Send an AMQP method in the user's name, by all its rules, and return the answer. Raises: ApiError."""
    from node.management.direct import direct

    async with direct(call, vhost) as client:
        return await client.call(method)
