"""Limits on connections, channels and queues of vhosts and users, with the texts of their refusals.

One rule for those that are set: a negative limit or none allows everything, 0 allows nothing, and objects that exist
when a limit is lowered stay. Counts are of the objects before the new one, in the whole cluster.

Source: amqp-behaviour §1.5, §2.1, §3.7 step 7, §6.5.
"""

from dataclasses import dataclass
from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue.records import Json, UserLimits

VHOST_BINDINGS_MAX: Final = 1_000_000
"""The most explicit bindings of a vhost, at some 1 KiB of every node's memory each."""

BINDINGS_TO_MAX: Final = 100_000
"""The most bindings that lead to one queue or exchange: they are all removed when it is deleted."""

PLUGGED_BINDINGS_MAX: Final = 20_000
"""The most bindings from one exchange of a plug-in's type, which may look at all of them for a message: some 5 ms."""

ANY_WORDS_MAX: Final = 16
"""The most wildcards `#` in one pattern of a topic exchange."""


@dataclass(frozen=True, slots=True)
class VhostLimits:
    """The limits of one vhost; None is no limit."""

    max_connections: int | None = None
    max_queues: int | None = None


def vhost_limits_from(value: Json) -> VhostLimits:
    """The limits in a `vhost-limits` parameter; a value that is not an integer is no limit."""
    return VhostLimits(_integer(value, "max-connections"), _integer(value, "max-queues"))


def user_limits_from(value: Json) -> UserLimits:
    """The limits in the `limits` object of a user; a value that is not an integer is no limit."""
    return UserLimits(_integer(value, "max-connections"), _integer(value, "max-channels"))


def check_vhost_connections(limits: VhostLimits, vhost: str, user: str, connection_count: int) -> None:
    """Refuse (530) one more connection to the vhost when it is full (§1.5 check 2)."""
    if _is_reached(limits.max_connections, connection_count):
        raise ProtocolError(
            ReplyCode.NOT_ALLOWED,
            f"access to vhost '{vhost}' refused for user '{user}': "
            f"connection limit ({limits.max_connections}) is reached",
        )


def check_user_connections(limits: UserLimits, user: str, connection_count: int) -> None:
    """Refuse (530) one more connection of the user (§1.5 check 3)."""
    if _is_reached(limits.max_connections, connection_count):
        raise ProtocolError(
            ReplyCode.NOT_ALLOWED,
            f"connection refused for user '{user}': "
            f"user connection limit ({limits.max_connections}) is reached",
        )


def check_user_channels(limits: UserLimits, user: str, channel_count: int) -> None:
    """Refuse (530) one more channel of the user (§2.1)."""
    if _is_reached(limits.max_channels, channel_count):
        raise ProtocolError(
            ReplyCode.NOT_ALLOWED,
            f"number of channels opened for user '{user}' "
            f"has reached the maximum allowed user limit of ({limits.max_channels})",
        )


def check_vhost_queues(limits: VhostLimits, vhost: str, queue: str, queue_count: int) -> None:
    """Refuse (406) one more queue in the vhost (§3.7 step 7)."""
    if _is_reached(limits.max_queues, queue_count):
        raise ProtocolError(
            ReplyCode.PRECONDITION_FAILED,
            f"cannot declare queue '{queue}': "
            f"queue limit in vhost '{vhost}' ({limits.max_queues}) is reached",
        )


def check_bindings(vhost: str, what: str, in_vhost: int, to_destination: int) -> None:
    """Refuse (406) one more binding where there are too many.   what: the destination, as errors call it."""
    if _is_reached(BINDINGS_TO_MAX, to_destination):
        raise ProtocolError(
            ReplyCode.PRECONDITION_FAILED, f"cannot bind {what}: binding limit ({BINDINGS_TO_MAX}) is reached"
        )
    if _is_reached(VHOST_BINDINGS_MAX, in_vhost):
        raise ProtocolError(
            ReplyCode.PRECONDITION_FAILED,
            f"cannot bind {what}: binding limit in vhost '{vhost}' ({VHOST_BINDINGS_MAX}) is reached",
        )


def check_plugged_bindings(where: str, from_source: int) -> None:
    """Refuse (406) one more binding from an exchange of a plug-in's type.   where: the exchange, as errors call it."""
    if _is_reached(PLUGGED_BINDINGS_MAX, from_source):
        raise ProtocolError(
            ReplyCode.PRECONDITION_FAILED,
            f"cannot bind to {where}: binding limit ({PLUGGED_BINDINGS_MAX}) is reached",
        )


def check_pattern(pattern: str) -> None:
    """Refuse (406) a topic exchange's pattern that may match a key in too many ways."""
    if pattern.count("#") > ANY_WORDS_MAX and pattern.split(".").count("#") > ANY_WORDS_MAX:
        raise ProtocolError(
            ReplyCode.PRECONDITION_FAILED,
            f"more than {ANY_WORDS_MAX} wildcards '#' in routing key '{pattern}' of a binding",
        )


def _is_reached(limit: int | None, count: int) -> bool:
    return limit is not None and 0 <= limit <= count


def _integer(value: Json, key: str) -> int | None:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None
