"""Create, change and delete users; their passwords, tags and limits.

Source: management §1.9, §2.3; what RabbitMQ 3.10.8 answers.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from node.admin.admin import Admin, AdminError, check_name
from node.admin.logins import log_in
from node.catalogue.access import LoginRefused
from node.catalogue.commands import ChangePassword, DeleteUser, PutUser, SetUserLimits, SetUserTags
from node.catalogue.limits import user_limits_from
from node.catalogue.parameters import validate_user_limits
from node.catalogue.passwords import ALGORITHMS, SALT_BYTES, hash_password
from node.catalogue.records import Json, User, UserLimits
from node.definitions.reading import DefinitionsInvalid
from node.definitions.users import UserItem, check_hash, limits_row
from node.extension.auth_backend import Login
from node.log import admin as log_admin

NO_PASSWORD: Final = ""
"""The hash of a user that cannot log in with a password."""

NOT_VALID: Final = "credential_validation_failed"

ALL_LIMITS: Final = "all"


async def put_user(
    admin: Admin,
    name: str,
    *,
    tags: Sequence[str],
    password: str | None = None,
    password_hash: str | None = None,
    hashing_algorithm: str | None = None,
    limits: Json = None,
) -> bool:
    """Create a user, or replace password and tags; True: it is new. Raises: AdminError.

    password_hash: as RabbitMQ writes it, with the algorithm's name; empty: no password will do. With neither hash nor
        password it is the same.
    hashing_algorithm: of the hash; the node's own one unless given.
    limits: an object like `{"max-connections": 5}`: these change, others stay.
    """
    check_name(name, "user")
    given = (password, password_hash, hashing_algorithm)
    digest, algorithm = _hash_to_store(admin, *given)
    before = admin.catalogue.user(name)
    wanted = None if limits is None else _merged(before, limits)
    is_new = await admin.submit(PutUser(name, digest, algorithm, tuple(tags), wanted))
    if is_new:
        admin.logger.info(log_admin.user_created(name))
    elif digest == NO_PASSWORD:
        admin.logger.info(log_admin.password_cleared(name))
    else:
        admin.logger.info(log_admin.password_changed(name))
    admin.logger.info(log_admin.user_tags_set(name, tags))
    return is_new


async def put_item(admin: Admin, item: UserItem) -> bool:
    """Make or replace a user of a definitions document or of a request; True: it is new. Raises: AdminError."""
    return await put_user(
        admin,
        item.name,
        tags=item.tags,
        password=item.password,
        password_hash=item.password_hash,
        hashing_algorithm=item.hashing_algorithm,
        limits=item.limits,
    )


def list_users(admin: Admin) -> list[dict[str, Json]]:
    """Return all users and their tags, by name."""
    return [{"user": each.name, "tags": list(each.tags)} for each in _sorted_users(admin)]


async def add_user(admin: Admin, user: str, password: str) -> None:
    """Create a user without tags. Raises: AdminError, `exists` when there is one of that name."""
    if admin.catalogue.user(user) is not None:
        admin.logger.warning(log_admin.failed("add user", user, log_admin.USER_EXISTS))
        raise AdminError("exists", ["user_already_exists", user])
    await put_user(admin, user, password=password, tags=())


async def delete_user(admin: Admin, user: str) -> None:
    """Delete a user; its connections are closed. Raises: AdminError."""
    if not await admin.submit(DeleteUser(user)):
        raise _no_such_user(admin, "delete user", user)
    admin.logger.info(log_admin.user_deleted(user))


async def delete_users(admin: Admin, names: Sequence[str]) -> None:
    """Delete users until there is one that does not exist. Raises: AdminError, of kind `invalid` for that one."""
    for name in names:
        if admin.catalogue.user(name) is None:
            raise AdminError("invalid", ["no_such_user", name])
        await delete_user(admin, name)


async def change_password(admin: Admin, user: str, password: str) -> None:
    """Give a user another password. Raises: AdminError."""
    _existing(admin, "change password for user", user)
    digest, algorithm = _hash_to_store(admin, password, None, None)
    await admin.submit(ChangePassword(user, digest, algorithm))
    admin.logger.info(log_admin.password_changed(user))


async def clear_password(admin: Admin, user: str) -> None:
    """Remove a user's password: no password is accepted any more. Raises: AdminError."""
    known = _existing(admin, "clear password for user", user)
    await admin.submit(ChangePassword(user, NO_PASSWORD, known.hashing_algorithm))
    admin.logger.info(log_admin.password_cleared(user))


async def set_user_tags(admin: Admin, user: str, tags: Sequence[str]) -> None:
    """Replace a user's tags. Raises: AdminError."""
    _existing(admin, "set tags for user", user)
    await admin.submit(SetUserTags(user, tuple(tags)))
    admin.logger.info(log_admin.user_tags_set(user, tags))


async def authenticate_user(admin: Admin, user: str, password: str) -> User:
    """Return the user with that name and password, from any address. Raises: AdminError, `refused`."""
    found = await log_in(admin.broker, Login(user, password.encode()), is_loopback=True)
    if isinstance(found, LoginRefused):
        raise AdminError("refused", found.reason)
    return found


def list_user_limits(admin: Admin, user: str | None) -> list[dict[str, Json]]:
    """Return a user's limits, or those of all users that have any. Raises: AdminError."""
    if user is not None:
        return [{"name": user, "limits": limits_row(existing_user(admin, user).limits)}]
    rows = [(each.name, limits_row(each.limits)) for each in _sorted_users(admin)]
    return [{"name": name, "limits": limits} for name, limits in rows if limits]


async def set_user_limits(admin: Admin, user: str, limits: Json) -> None:
    """Change those of a user's limits that are named, e.g. `{"max-channels": 5}`. Raises: AdminError."""
    wanted = _merged(_existing(admin, "set limits of user", user), limits)
    await admin.submit(SetUserLimits(user, wanted))
    admin.logger.info(log_admin.user_limits_set(user, limits_row(wanted)))


async def clear_user_limits(admin: Admin, user: str, limit: str) -> None:
    """Remove one of a user's limits, or `all`; one that is not there is no error. Raises: AdminError."""
    known = _existing(admin, "clear limits of user", user).limits
    if limit == ALL_LIMITS:
        left = UserLimits()
    elif limit == "max-connections":
        left = replace(known, max_connections=None)
    elif limit == "max-channels":
        left = replace(known, max_channels=None)
    else:
        left = known
    if left != known:
        await admin.submit(SetUserLimits(user, left))
    admin.logger.info(log_admin.user_limits_cleared(user, limit))


def check_credentials(admin: Admin, password: str) -> None:
    """Check a new password with the credential validator. Raises: AdminError."""
    shortest, pattern = admin.config.auth.password_length_min, admin.config.auth.password_regexp
    if shortest is not None and len(password) < shortest:
        raise AdminError("invalid", NOT_VALID)
    if pattern is not None and re.search(pattern, password) is None:
        raise AdminError("invalid", NOT_VALID)


def _hash_to_store(
    admin: Admin, password: str | None, password_hash: str | None, algorithm: str | None
) -> tuple[str, str]:
    """Return the hash and the name of its algorithm. Raises: AdminError."""
    own = admin.config.auth.password_hashing
    if password is not None and password_hash is not None:
        raise AdminError("invalid", "both_password_and_password_hash_are_provided")
    if password is not None:
        check_credentials(admin, password)
        return hash_password(password, admin.broker.entropy(SALT_BYTES), own), own
    algorithm = own if algorithm is None else algorithm
    if algorithm not in ALGORITHMS:
        raise AdminError("invalid", ["unknown_hashing_algorithm", algorithm])
    if password_hash is None:
        return NO_PASSWORD, algorithm
    try:
        check_hash(password_hash)
    except DefinitionsInvalid as invalid:
        raise AdminError("invalid", invalid.reason) from None
    return password_hash, algorithm


def _merged(user: User | None, limits: Json) -> UserLimits:
    """Return a user's limits with the named ones changed. Raises: AdminError."""
    problem = validate_user_limits(limits)
    if problem is not None:
        raise AdminError("invalid", problem)
    named = user_limits_from(limits)
    known = UserLimits() if user is None else user.limits
    return UserLimits(
        known.max_connections if named.max_connections is None else named.max_connections,
        known.max_channels if named.max_channels is None else named.max_channels,
    )


def _sorted_users(admin: Admin) -> list[User]:
    return sorted(admin.catalogue.users(), key=lambda each: each.name)


def existing_user(admin: Admin, name: str) -> User:
    """Return the user of that name. Raises: AdminError."""
    user = admin.catalogue.user(name)
    if user is None:
        raise AdminError("not_found", ["no_such_user", name])
    return user


def _existing(admin: Admin, action: str, name: str) -> User:
    """Return the user of that name. Raises: AdminError, and logs it.   action: for the log."""
    if admin.catalogue.user(name) is None:
        raise _no_such_user(admin, action, name)
    return existing_user(admin, name)


def _no_such_user(admin: Admin, action: str, name: str) -> AdminError:
    admin.logger.warning(log_admin.failed(action, name, log_admin.NO_USER))
    return AdminError("not_found", ["no_such_user", name])
