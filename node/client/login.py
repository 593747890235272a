"""The login of a client and the opening of its vhost, whatever its protocol: by the catalogue, or by auth backends.

Source: amqp-behaviour §1.3, §1.5.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from node.catalogue.access import LoginRefused, check_login, check_open
from node.catalogue.records import User
from node.client.authority import BackendUser
from node.client.endpoint import ClientEndpoint, host_of
from node.client.host import ClientHost
from node.client.rights import Rights
from node.client.sasl import Credentials
from node.extension.auth_backend import Login
from node.queue.live_queue import Wait


class LoginHost(ClientHost, Protocol):
    """The broker, as logins use it."""

    def connection_count(self, vhost: str | None, user: str | None) -> int:
        """Return the number of open connections in the whole cluster, of a vhost or of a user."""


class Claimant(Protocol):
    """A connection whose client logs in."""

    @property
    def broker(self) -> LoginHost:
        """The broker."""

    @property
    def peer(self) -> ClientEndpoint:
        """The client's end."""

    @property
    def user(self) -> User:
        """The user, once it is logged in."""

    def ask(self, question: Wait, then: Callable[[Any], None]) -> None:
        """Read nothing more until an auth backend has answered.   then: called with the answer."""


def log_in(
    claimant: Claimant,
    credentials: Credentials,
    mechanism: str,
    then: Callable[[User | LoginRefused], None],
) -> None:
    """Find out who a client is, at once or later.   then: called with the user, or the refusal.

    mechanism: of SASL, or what the protocol has in its place.
    """
    broker, peer = claimant.broker, claimant.peer
    checked = partial(_checked, claimant, then)
    if broker.authority is not None:
        host = host_of(peer.address)
        login = Login(credentials.user, credentials.password, mechanism, host, is_tls=peer.is_tls)
        claimant.ask(partial(broker.authority.log_in, login), checked)
    elif credentials.password is None:
        refused = LoginRefused(f"user '{credentials.user}' - invalid credentials")
        checked(broker.catalogue.user(credentials.user) or refused)
    else:
        checked(check_login(broker.catalogue, credentials.user, credentials.password, is_loopback=True))


def _checked(
    claimant: Claimant, then: Callable[[User | LoginRefused], None], outcome: User | LoginRefused
) -> None:
    """Refuse users that may connect from this machine only."""
    loopback_users = claimant.broker.settings.loopback_users
    if isinstance(outcome, User) and outcome.name in loopback_users and not claimant.peer.is_loopback:
        outcome = LoginRefused(f"user '{outcome.name}' can only connect via localhost")
    then(outcome)


def open_vhost(claimant: Claimant, vhost: str, then: Callable[[Rights | None], None]) -> None:
    """Check that the user may open a vhost, at once or later. Raises: ProtocolError 530, here or out of `ask`.

    then: called with the user's rights; None: the catalogue knows them.
    """
    broker, user = claimant.broker, claimant.user
    check_open(
        broker.catalogue,
        user.name,
        vhost,
        vhost_connection_count=broker.connection_count(vhost, None),
        user_connection_count=broker.connection_count(None, user.name),
        is_authorised_elsewhere=isinstance(user, BackendUser),
    )
    if not isinstance(user, BackendUser):
        then(None)
        return
    assert broker.authority is not None, "only an authority makes such users"
    rights = Rights(broker.authority, user, vhost, host_of(claimant.peer.address))
    claimant.ask(rights.open_vhost, partial(_opened, rights, then))


def _opened(rights: Rights, then: Callable[[Rights | None], None], is_allowed: bool) -> None:
    if not is_allowed:
        raise rights.vhost_refusal()
    then(rights)
