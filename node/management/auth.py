"""Authenticate callers of the HTTP API: names and passwords, tags, and a limit of wrong guesses.

Source: management §1.0 "Responses", §2.1.
"""

import base64
import binascii
import ipaddress
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from node.admin import logins
from node.broker.broker import Broker
from node.catalogue.access import LoginRefused
from node.catalogue.records import User
from node.extension.auth_backend import Login
from node.management.reply import ApiError, unavailable
from node.management.routes import Access

NAME_MAX: Final = 255
"""The longest name of a user, in characters: no user has a longer one."""

CHALLENGE: Final = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}

_TAGS: Final[Mapping[Access, tuple[tuple[str, ...], str]]] = {
    Access.AUTHENTICATED: ((), ""),
    Access.MANAGEMENT: (
        ("management", "policymaker", "monitoring", "administrator"),
        "Not management user",
    ),
    Access.POLICYMAKER: (("policymaker", "administrator"), "Not policymaker user"),
    Access.MONITORING: (("monitoring", "administrator"), "Not monitor user"),
    Access.ADMINISTRATOR: (("administrator",), "Not administrator user"),
}


class Credentials(NamedTuple):
    """A name and a password as they were sent."""

    name: str
    password: str


def credentials(header: str | None) -> Credentials | None:
    """Decode an `authorization` header, or base64 alone; None unless it has a name and a password."""
    if header is None:
        return None
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    return decoded(encoded.strip())


def decoded(encoded: str) -> Credentials | None:
    """Decode base64 of `name:password`; None for anything else."""
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeError, ValueError):
        return None
    return Credentials(name, password) if colon else None


def challenged() -> ApiError:
    """Return a 401 without a body, which makes a browser ask for a password."""
    return ApiError(401, headers=CHALLENGE)


def failed(reason: str = "Login failed") -> ApiError:
    """Return a 401 for a name or password that is wrong."""
    return ApiError(401, "not_authorized", reason, CHALLENGE)


async def log_in(
    broker: Broker, given: Credentials, peer_host: str, loopback_users: frozenset[str]
) -> User | LoginRefused:
    """Return the user, or why the login is refused. Raises: ApiError (503) if an auth backend does not answer."""
    login = Login(given.name, given.password.encode(), host=peer_host)
    try:
        return await logins.log_in(
            broker, login, is_loopback=is_loopback(peer_host), loopback_users=loopback_users
        )
    except TimeoutError:
        raise unavailable("no auth backend answers in time") from None


def check_access(user: User, access: Access) -> None:
    """Refuse a user without the tag. Raises: ApiError (401)."""
    if access is Access.PUBLIC:
        return
    # A user that may not use the API at all gets that reason on each route.
    for each in (Access.MANAGEMENT, access):
        tags, reason = _TAGS[each]
        if access is not Access.AUTHENTICATED and not any(tag in user.tags for tag in tags):
            raise ApiError(401, "not_authorised", reason)


def is_loopback(host: str) -> bool:
    """True if an address is of this machine only."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


class Guesses:
    """Counts logins that went wrong lately. A host that guesses on is refused before a password is looked at.

    After FREE wrong ones in WINDOW_S one login in PAUSE_S is looked at, right or wrong: a refusal meanwhile says
    nothing about the password. Counted is by network (an IPv4 address, or 64 bits of IPv6) and user, and by network
    alone, where OF_NETWORK times as many may be wrong, as names can be tried in turn.
    """

    FREE: Final = 10
    WINDOW_S: Final = 60.0
    PAUSE_S: Final = 1.0
    OF_NETWORK: Final = 10
    KEPT_MAX: Final = 8192

    def __init__(self) -> None:
        self._wrong: OrderedDict[tuple[str, ...], _Wrong] = OrderedDict()

    def may_try(self, host: str, name: str, now: float) -> bool:
        """True if a login may be looked at now; `is_wrong` has to follow if it was wrong."""
        known = [(self._wrong.get(key), times) for key, times in self._keys(host, name)]
        held = [
            (wrong, times)
            for wrong, times in known
            if wrong is not None and now - wrong.began <= self.WINDOW_S and wrong.count >= self.FREE * times
        ]
        if any(now - wrong.tried < self.PAUSE_S / times for wrong, times in held):
            return False
        for wrong, _ in held:
            wrong.tried = now
        return True

    def is_wrong(self, host: str, name: str, now: float) -> None:
        """Note a wrong guess."""
        for key, _ in self._keys(host, name):
            wrong = self._wrong.pop(key, None)
            if wrong is None or now - wrong.began > self.WINDOW_S:
                wrong = _Wrong(now)
            wrong.count += 1
            wrong.tried = now
            self._wrong[key] = wrong
            if len(self._wrong) > self.KEPT_MAX:
                self._wrong.popitem(last=False)

    def _keys(self, host: str, name: str) -> tuple[tuple[tuple[str, ...], int], ...]:
        """Return the keys that are counted, and how many times FREE each may go wrong."""
        network = network_of(host)
        return ((network, name[:NAME_MAX]), 1), ((network,), self.OF_NETWORK)


class _Wrong:
    """Wrong logins of one kind.   began: when the first of them came.   tried: when one was looked at last."""

    __slots__ = ("began", "count", "tried")

    def __init__(self, now: float) -> None:
        self.began = self.tried = now
        self.count = 0


def network_of(host: str) -> str:
    """Return the part of an address that one guesser has: all of IPv4, the first 64 bits of IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))
