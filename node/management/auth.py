"""Who calls the HTTP API: names and passwords, tags, and how often a guess may be wrong.

Source: management §1.0 "Responses", §2.1.
"""

import base64
import binascii
import ipaddress
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from node.broker.access import LoginRefused, check_login
from node.broker.catalogue import Catalogue
from node.broker.records import User
from node.management.reply import ApiError
from node.management.routes import Access

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
    """From an `authorization` header, or base64 alone; None unless it has a name and a password."""
    if header is None:
        return None
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    return decoded(encoded.strip())


def decoded(encoded: str) -> Credentials | None:
    """From base64 of `name:password`."""
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeError, ValueError):
        return None
    return Credentials(name, password) if colon else None


def challenged() -> ApiError:
    """401 without a body, which makes a browser ask."""
    return ApiError(401, headers=CHALLENGE)


def failed(reason: str = "Login failed") -> ApiError:
    """401 for a name or password that is wrong."""
    return ApiError(401, "not_authorized", reason, CHALLENGE)


def log_in(
    catalogue: Catalogue, given: Credentials, peer_host: str, loopback_users: frozenset[str]
) -> User | LoginRefused:
    """The user, or why not."""
    return check_login(
        catalogue,
        given.name,
        given.password,
        is_loopback=is_loopback(peer_host),
        loopback_users=loopback_users,
    )


def check_access(user: User, access: Access) -> None:
    """Refuse a user without the tag. Raises: ApiError (401)."""
    if access is Access.PUBLIC:
        return
    # Who may not come here at all is told so, wherever that is.
    for each in (Access.MANAGEMENT, access):
        tags, reason = _TAGS[each]
        if access is not Access.AUTHENTICATED and not any(tag in user.tags for tag in tags):
            raise ApiError(401, "not_authorised", reason)


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine only."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


class Guesses:
    """How often logins from an address went wrong of late, so that a guesser has to wait; who is right never does.

    FREE of them in WINDOW_S are answered at once, as scripts with an old password want; the others after DELAY_S, and
    when WAITING_MAX answers wait, with 429.
    """

    FREE: Final = 10
    WINDOW_S: Final = 60.0
    DELAY_S: Final = 1.0
    WAITING_MAX: Final = 64
    ADDRESSES_MAX: Final = 4096

    def __init__(self) -> None:
        self.waiting = 0
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def delay_s(self, host: str, now: float) -> float | None:
        """Note a wrong guess: how long its answer has to wait; None for not at all, being refused."""
        began, count = self._wrong.pop(host, (now, 0))
        if now - began > self.WINDOW_S:
            began, count = now, 0
        self._wrong[host] = (began, count + 1)
        if len(self._wrong) > self.ADDRESSES_MAX:
            self._wrong.popitem(last=False)
        if count < self.FREE:
            return 0.0
        return None if self.waiting >= self.WAITING_MAX else self.DELAY_S
