"""Find the handler of a path. Paths are compared as they came, a segment at a time.

Source: management §1.0 "Path encoding": each segment is percent-decoded once, `+` is no space, a slash at the end is
accepted, and the default exchange goes by `amq.default`.
"""

import enum
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from node.management.call import Call
    from node.management.reply import Reply

Handler = Callable[["Call"], Awaitable["Reply"]]

SEGMENTS_MAX: Final = 16
"""The most segments that are looked at: more than any path of ours has."""


class Access(enum.Enum):
    """The tag that a user needs to call a route. Source: management §2.1."""

    PUBLIC = "public"
    AUTHENTICATED = "authenticated"
    MANAGEMENT = "management"
    POLICYMAKER = "policymaker"
    MONITORING = "monitoring"
    ADMINISTRATOR = "administrator"


class Route(NamedTuple):
    """One method of one path.

    path: below `/api`, `{name}` stands for one segment.   consumes: the content type without which it is refused
    (415); a second one may follow a comma.   is_outside: the path is not below `/api`.
    is_long: the answer may be; see `node.management.long_answers`.
    """

    method: str
    path: str
    handler: Handler
    access: Access = Access.MANAGEMENT
    consumes: str | None = None
    is_outside: bool = False
    is_long: bool = False


class Found(NamedTuple):
    """The routes of a path by their methods, and the values of its variable segments."""

    methods: Mapping[str, Route]
    path: dict[str, str]


class _Branch:
    """A node of the tree of paths."""

    def __init__(self) -> None:
        self.fixed: dict[str, _Branch] = {}
        self.variable: _Branch | None = None
        self.names: tuple[str, ...] = ()
        self.methods: dict[str, Route] = {}


class RouteTable:
    """All routes. A fixed segment goes before a variable one."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Branch()
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        branch, names = self._root, []
        path = route.path if route.is_outside else "/api" + route.path
        for segment in path.strip("/").split("/"):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                branch.variable = branch.variable or _Branch()
                branch = branch.variable
            else:
                branch = branch.fixed.setdefault(segment, _Branch())
        assert route.method not in branch.methods, route
        assert not branch.methods or branch.names == tuple(names), route
        branch.names = tuple(names)
        branch.methods[route.method] = route

    def find(self, path: str) -> Found | None:
        """Return the routes of a path as it stands in the request, without its query. None: there are none."""
        segments = path.strip("/").split("/") if path.strip("/") else []
        if len(segments) > SEGMENTS_MAX:
            return None
        decoded = []
        for segment in segments:
            try:
                decoded.append(unquote_to_bytes(segment).decode())
            except UnicodeDecodeError:
                return None
        found = _walk(self._root, decoded, 0, ())
        if found is None:
            return None
        branch, values = found
        return Found(branch.methods, dict(zip(branch.names, values, strict=True)))


def _walk(
    branch: _Branch, segments: list[str], at: int, values: tuple[str, ...]
) -> tuple[_Branch, tuple[str, ...]] | None:
    if at == len(segments):
        return (branch, values) if branch.methods else None
    fixed = branch.fixed.get(segments[at])
    if fixed is not None and (found := _walk(fixed, segments, at + 1, values)) is not None:
        return found
    if branch.variable is None:
        return None
    return _walk(branch.variable, segments, at + 1, (*values, segments[at]))


def exchange_name(segment: str) -> str:
    """Return an exchange's name from a path, where the default one has a name."""
    return "" if segment == "amq.default" else segment
