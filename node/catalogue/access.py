"""Access checks: whether a user may log in, open a vhost, use a resource or publish with a `user_id`.

Every check reads the catalogue as it is, so a revoked permission holds from the next check on. Callers that
cache the answer drop it when `Catalogue.version` changes.

Source: amqp-behaviour §1.3, §1.5, §6.6-§6.8.
"""

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue import limits
from node.catalogue.catalogue import Catalogue
from node.catalogue.names import missing_vhost, resource
from node.catalogue.passwords import verify_password
from node.catalogue.patterns import matches
from node.catalogue.records import DEFAULT_EXCHANGE, ResourceKind, User

Operation: TypeAlias = Literal["configure", "write", "read"]

IMPERSONATOR_TAG: Final = "impersonator"

_DEFAULT_EXCHANGE_SHOWN: Final = "amq.default"
_MATCHES_EMPTY_NAME_ONLY: Final = "^$"


@dataclass(frozen=True, slots=True)
class LoginRefused:
    """The reason why a login failed. It is for the log only: the client gets the same text in all cases (§1.3)."""

    reason: str


def check_login(
    catalogue: Catalogue,
    name: str,
    password: str | bytes,
    *,
    is_loopback: bool,
    loopback_users: Container[str] = (),
) -> User | LoginRefused:
    """Return the user with that name and password, or `LoginRefused` with the reason.

    is_loopback: whether the client connects from this machine.
    loopback_users: users who may connect from this machine only.
    A blank password is refused even when it is the right one.
    """
    if not password:
        return LoginRefused(f"user '{name}' attempted to log in with a blank password, which is prohibited")
    user = catalogue.user(name)
    if user is None or not verify_password(password, user.password_hash, user.hashing_algorithm):
        return LoginRefused(f"user '{name}' - invalid credentials")
    if name in loopback_users and not is_loopback:
        return LoginRefused(f"user '{name}' can only connect via localhost")
    return user


def check_open(
    catalogue: Catalogue,
    user: str,
    vhost: str,
    *,
    vhost_connection_count: int,
    user_connection_count: int,
    is_authorised_elsewhere: bool = False,
) -> None:
    """Refuse (530) to open the vhost for the user, by the checks 1 to 4 of §1.5 in their order.

    The counts are of open connections without this one.
    is_authorised_elsewhere: an auth backend of a plug-in makes check 4 and all further ones.
    """
    if catalogue.vhost(vhost) is None:
        raise ProtocolError(ReplyCode.NOT_ALLOWED, missing_vhost(vhost))
    limits.check_vhost_connections(catalogue.vhost_limits(vhost), vhost, user, vhost_connection_count)
    account = catalogue.user(user)
    if account is not None:
        limits.check_user_connections(account.limits, user, user_connection_count)
    if not is_authorised_elsewhere:
        check_vhost_access(catalogue, user, vhost)


def check_vhost_access(catalogue: Catalogue, user: str, vhost: str) -> None:
    """Refuse (530) a user who has no permission row for the vhost (§1.5 check 4)."""
    if catalogue.permission(vhost, user) is None:
        raise vhost_refused(user, vhost)


def check_resource(
    catalogue: Catalogue, user: str, vhost: str, kind: ResourceKind, name: str, operation: Operation
) -> None:
    """Refuse (403) the operation unless the user's expression for it is found in the name (§6.7).

    The default exchange goes by the name `amq.default`.
    """
    permission = catalogue.permission(vhost, user)
    if permission is None or not _allows(getattr(permission, operation), shown_name(kind, name)):
        raise resource_refused(user, vhost, kind, name)


def check_topic(
    catalogue: Catalogue,
    user: str,
    vhost: str,
    exchange: str,
    routing_key: str,
    operation: Literal["write", "read"],
) -> None:
    """Refuse (403) a key on a topic exchange that the user's row for the exchange, if any, does not allow
    (§6.8).

    The caller has seen that the exchange is of type topic.
    `{username}` and `{vhost}` in the expression stand for the names themselves: unlike RabbitMQ we quote what
    would be a metacharacter in them, so that a user's name cannot widen the user's rights.
    """
    permission = catalogue.topic_permission(vhost, user, exchange)
    if permission is None:
        return
    pattern = permission.write if operation == "write" else permission.read
    pattern = pattern.replace("{username}", re.escape(user)).replace("{vhost}", re.escape(vhost))
    if not _allows(pattern, routing_key):
        raise topic_refused(user, vhost, exchange, routing_key)


def check_user_id(user: User, user_id: str | None) -> None:
    """Refuse (406) a `user_id` property that names another, unless the user is an impersonator (§4.1)."""
    if user_id is not None and user_id != user.name and IMPERSONATOR_TAG not in user.tags:
        raise ProtocolError(
            ReplyCode.PRECONDITION_FAILED,
            f"user_id property set to '{user_id}' but authenticated user was '{user.name}'",
        )


def shown_name(kind: ResourceKind, name: str) -> str:
    """Return the name that permissions know: that of the default exchange is `amq.default`."""
    return _DEFAULT_EXCHANGE_SHOWN if kind == "exchange" and name == DEFAULT_EXCHANGE else name


def vhost_refused(user: str, vhost: str) -> ProtocolError:
    """Return the error for a user who may not open a vhost."""
    return ProtocolError(ReplyCode.NOT_ALLOWED, f"access to vhost '{vhost}' refused for user '{user}'")


def resource_refused(user: str, vhost: str, kind: ResourceKind, name: str) -> ProtocolError:
    """Return the error for a user who may not use a queue or an exchange so."""
    where = resource(kind, shown_name(kind, name), vhost)
    return ProtocolError(ReplyCode.ACCESS_REFUSED, f"access to {where} refused for user '{user}'")


def topic_refused(user: str, vhost: str, exchange: str, routing_key: str) -> ProtocolError:
    """Return the error for a user who may not use a routing key on a topic exchange."""
    where = resource("exchange", exchange, vhost)
    text = f"access to topic '{routing_key}' in {where} refused for user '{user}'"
    return ProtocolError(ReplyCode.ACCESS_REFUSED, text)


def _allows(pattern: str, name: str) -> bool:
    return matches(pattern or _MATCHES_EMPTY_NAME_ONLY, name)
