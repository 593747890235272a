"""Users as definitions and the HTTP API have them. Source: management §2.2, §2.3; what RabbitMQ 3.10.8 takes."""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from node.catalogue.parameters import validate_user_limits
from node.catalogue.passwords import ALGORITHMS, MD5
from node.catalogue.records import Json, User, UserLimits
from node.definitions.reading import DefinitionsInvalid, Item, check_patterns, plain_object

_OF_MD5: Final = re.compile(r"3\.[0-5]\.", re.ASCII)
"""Matches versions from before there was a choice of algorithms."""


_PATTERNS: Final = ("configure", "write", "read")


@dataclass(frozen=True, slots=True)
class UserItem:
    """A user of a definitions document or a request.

    password, password_hash: at most one of them; with none no login by password works.
    hashing_algorithm: of the hash; None: the node's own.
    limits: those that are to change, None for none.
    permissions: by vhost configure, write, read.
    """

    name: str
    tags: tuple[str, ...]
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str | None = None
    limits: Json = None
    permissions: Mapping[str, tuple[str, str, str]] | None = None


def read_user(item: Item, name: str, version: str = "") -> UserItem:
    """Return the user that an object describes. Raises: DefinitionsInvalid.

    version: of the RabbitMQ whose document it is, empty if not known.
    """
    password, password_hash = _optional(item, "password"), item.get("password_hash")
    if password is not None and password_hash is not None:
        raise DefinitionsInvalid("both_password_and_password_hash_are_provided")
    if password_hash is not None:
        check_hash(password_hash)
    algorithm = _optional(item, "hashing_algorithm")
    if algorithm is None and _OF_MD5.match(version):
        algorithm = MD5
    if password_hash is not None and algorithm not in (None, *ALGORITHMS):
        raise DefinitionsInvalid(["unknown_hashing_algorithm", algorithm])
    limits = item.get("limits")
    if limits is not None:
        limits = plain_object(limits)
        problem = validate_user_limits(limits)
        if problem is not None:
            raise DefinitionsInvalid(problem)
    return UserItem(
        name,
        read_tags(item),
        password,
        password_hash,
        algorithm,
        limits,
        _permissions(item.get("permissions")),
    )


def check_hash(password_hash: Any) -> None:
    """Check that a hash is base64. Raises: DefinitionsInvalid."""
    try:
        base64.b64decode(password_hash.encode(), validate=True)
    except (AttributeError, binascii.Error, ValueError):
        raise DefinitionsInvalid(["not_base64", password_hash]) from None


def read_tags(item: Item) -> tuple[str, ...]:
    """Return the tags: a list, or a text with commas; before there were tags, `administrator`. Raises:
    DefinitionsInvalid.
    """
    if "tags" not in item:
        if not isinstance(item.get("administrator"), bool):
            raise DefinitionsInvalid("tags_not_present")
        return ("administrator",) if item["administrator"] else ()
    return tags_of(item["tags"])


def tags_of(value: Any) -> tuple[str, ...]:
    """Return tags from a list, or from a text with commas. Raises: DefinitionsInvalid."""
    if isinstance(value, str):
        return tuple(tag.strip() for tag in value.split(",") if tag.strip())
    if not isinstance(value, list) or not all(isinstance(tag, str | int) for tag in value):
        raise DefinitionsInvalid("tags must be a list of strings, or a string with commas")
    return tuple(map(str, value))


def user_row(user: User) -> dict[str, Json]:
    """Return a user as an object."""
    return {
        "name": user.name,
        "password_hash": user.password_hash,
        "hashing_algorithm": user.hashing_algorithm,
        "tags": list(user.tags),
        "limits": limits_row(user.limits),
    }


def limits_row(limits: UserLimits) -> dict[str, Json]:
    """Return limits as an object: only those that are set."""
    found = {"max-connections": limits.max_connections, "max-channels": limits.max_channels}
    return {name: limit for name, limit in found.items() if limit is not None}


def _optional(item: Item, key: str) -> str | None:
    value = item.get(key)
    if value is not None and not isinstance(value, str):
        raise DefinitionsInvalid(f"{key} must be a string")
    return value


def _permissions(value: Any) -> dict[str, tuple[str, str, str]] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise DefinitionsInvalid("permissions must be an object of virtual hosts")
    found = {}
    for vhost, row in value.items():
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in _PATTERNS):
            raise DefinitionsInvalid(f"permissions for '{vhost}' need the strings configure, write and read")
        configure, write, read = (row[key] for key in _PATTERNS)
        check_patterns((configure, write, read))
        found[vhost] = (configure, write, read)
    return found
