"""The authentication of a client of another protocol in several steps, by a method of an auth backend.

    bytes ─► Authority.begin, go_on ─► Challenge ─► the client's answer ─► … ─► Admitted, or LoginRefused
Nothing pauses meanwhile: a client that is logged in goes on with its work while it authenticates again.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from node.amqp.connection_state import ConnectionState
from node.catalogue.access import LoginRefused
from node.client.authority import Admitted, Conversation
from node.client.endpoint import host_of
from node.client.login import Claimant
from node.extension.auth_backend import AuthStart, Challenge


class AuthClaimant(Claimant, Protocol):
    """A connection whose client may authenticate in several steps."""

    @property
    def state(self) -> ConnectionState:
        """The state of the connection."""


Outcome: TypeAlias = Challenge | Admitted | LoginRefused


class SessionAuthentication:
    """The authentications of one client, one at a time."""

    def __init__(self) -> None:
        self._conversation: Conversation | None = None
        self._is_asking = False

    def take(
        self,
        claimant: AuthClaimant,
        method: str,
        data: bytes,
        user: str | None,
        then: Callable[[Outcome], None],
    ) -> None:
        """Begin, or go on with the client's answer.   user: the name of the one who is logged in already.

        then: called with what comes next.
        """
        assert not self._is_asking, "one step at a time"
        authority, peer = claimant.broker.authority, claimant.peer
        if self._conversation is None and authority is not None:
            self._conversation = authority.begin(AuthStart(method, host_of(peer.address), peer.is_tls))
        if authority is None or self._conversation is None:
            then(LoginRefused(f"no auth backend offers {method}"))
            return
        self._is_asking = True
        authority.go_on(self._conversation, data, partial(self._answered, claimant, user, then))

    def _answered(
        self, claimant: AuthClaimant, user: str | None, then: Callable[[Outcome], None], outcome: Outcome
    ) -> None:
        self._is_asking = False
        if not isinstance(outcome, Challenge):
            self._conversation = None
        if isinstance(outcome, Admitted):
            name, loopback_users = outcome.user.name, claimant.broker.settings.loopback_users
            if name in loopback_users and not claimant.peer.is_loopback:
                outcome = LoginRefused(f"user '{name}' can only connect via localhost")
            elif user is not None and name != user:
                outcome = LoginRefused(f"user '{name}' is not '{user}', who is logged in")
        if claimant.state is not ConnectionState.CLOSED:
            then(outcome)
