"""Checks of the parameter `shovel`, with the texts of RabbitMQ's plug-in.

    shovel  {"src-uri": "amqp://…" or a list, "src-queue": "q", "dest-uri": …, "dest-queue": …, …}

They are the same on all nodes, whether or not the plug-in is enabled, as a parameter outlives the plug-in's use.
Source: RabbitMQ 3.10.8, `rabbit_shovel_parameters` and `rabbit_parameter_validation`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from node.catalogue.parameter_validation import (
    Check,
    check_boolean,
    check_integer,
    check_number,
    check_object,
    check_text,
    is_integer,
    one_of,
    term,
)
from node.catalogue.records import Json
from node.catalogue.uri_parameters import check_uris, vhosts_here

PLUGIN: Final = "rabbitmq_shovel"
SHOVEL: Final = "shovel"

NAME_BYTES_MAX: Final = 255
"""The longest name of a queue, an exchange or a routing key."""

AMQP_0_9_1: Final = "amqp091"
ACK_MODES: Final = ("no-ack", "on-publish", "on-confirm")


def validate_shovel(name: str, value: Json) -> list[str]:
    """Return the problems with a parameter `shovel`."""
    given = value if isinstance(value, dict) else {}
    problems = []
    ends = [key for key in ("src-exchange", "src-queue") if key in given]
    if not ends:
        problems.append("Must specify 'src-exchange' or 'src-queue'")
    elif len(ends) == 2:
        problems.append("Cannot specify 'src-exchange' and 'src-queue'")
    delete_after = given.get("src-delete-after", given.get("delete-after"))
    if is_integer(delete_after) and given.get("ack-mode") == "no-ack":
        problems.append("Cannot specify 'no-ack' and numerical 'delete-after'")
    if "dest-exchange" in given and "dest-queue" in given:
        problems.append("Cannot specify 'dest-exchange' and 'dest-queue'")
    return problems + check_object(name, value, _CHECKS, mandatory=("src-uri", "dest-uri"))


def local_vhosts(value: Json) -> set[str]:
    """Return the vhosts of this broker that the URIs without a host name. The value passed `validate_shovel`."""
    assert isinstance(value, dict)
    return vhosts_here(value["src-uri"]) | vhosts_here(value["dest-uri"])


def _check_name(name: str, value: Json) -> list[str]:
    if isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        return [f"{name} should be less than {NAME_BYTES_MAX + 1} bytes"]
    return check_text(name, value)


def _check_delete_after(name: str, value: Json) -> list[str]:
    if value in ("never", "queue-length") or (is_integer(value) and int(str(value)) >= 0):
        return []
    return [
        f'{name} should be a number greater than or equal to 0, "never" or "queue-length", '
        f"actually was {term(value)}"
    ]


def _check_count(name: str, value: Json) -> list[str]:
    """Check a number that AMQP has in 16 bits."""
    if is_integer(value) and int(str(value)) not in range(65536):
        return [f"{name} should be between 0 and 65535, actually was {term(value)}"]
    return check_integer(name, value)


def _check_octet(name: str, value: Json) -> list[str]:
    """Check a number that AMQP has in 8 bits."""
    if is_integer(value) and int(str(value)) not in range(256):
        return [f"{name} should be between 0 and 255, actually was {term(value)}"]
    return check_integer(name, value)


def _check_timestamp(name: str, value: Json) -> list[str]:
    """Check a number that AMQP has in 64 bits."""
    if is_integer(value) and int(str(value)) not in range(2**64):
        return [f"{name} should be a time in seconds, actually was {term(value)}"]
    return check_integer(name, value)


def _check_delay(name: str, value: Json) -> list[str]:
    problems = check_number(name, value)
    if not problems and not 0 <= float(str(value)) <= 86400 * 365:
        problems = [f"{name} should be a number of seconds, actually was {term(value)}"]
    return problems


def _check_table(name: str, value: Json) -> list[str]:
    is_table = isinstance(value, dict) or value == []
    return [] if is_table else [f"{name} not a list {term(value)}"]


def _check_properties(name: str, value: Json) -> list[str]:
    return check_object(name, value, _PROPERTIES)


def _check_owner(name: str, value: Json) -> list[str]:
    """Accept whatever internal clients of RabbitMQ write."""
    return []


_PROPERTIES: Final[Mapping[str, Check]] = {
    "content_type": _check_name,
    "content_encoding": _check_name,
    "headers": _check_table,
    "delivery_mode": _check_octet,
    "priority": _check_octet,
    "correlation_id": _check_name,
    "reply_to": _check_name,
    "expiration": _check_name,
    "message_id": _check_name,
    "timestamp": _check_timestamp,
    "type": _check_name,
    "user_id": _check_name,
    "app_id": _check_name,
    "cluster_id": _check_name,
}

_CHECKS: Final[Mapping[str, Check]] = {
    "internal": check_boolean,
    "internal_owner": _check_owner,
    "reconnect-delay": _check_delay,
    "ack-mode": one_of(*ACK_MODES),
    "src-protocol": one_of(AMQP_0_9_1),
    "dest-protocol": one_of(AMQP_0_9_1),
    "src-uri": check_uris,
    "src-exchange": _check_name,
    "src-exchange-key": _check_name,
    "src-queue": _check_name,
    "src-queue-args": _check_table,
    "src-consumer-args": _check_table,
    "prefetch-count": _check_count,
    "src-prefetch-count": _check_count,
    "delete-after": _check_delete_after,
    "src-delete-after": _check_delete_after,
    "src-predeclared": check_boolean,
    "dest-uri": check_uris,
    "dest-exchange": _check_name,
    "dest-exchange-key": _check_name,
    "dest-queue": _check_name,
    "dest-queue-args": _check_table,
    "add-forward-headers": check_boolean,
    "add-timestamp-header": check_boolean,
    "dest-add-forward-headers": check_boolean,
    "dest-add-timestamp-header": check_boolean,
    "publish-properties": _check_properties,
    "dest-publish-properties": _check_properties,
    "dest-predeclared": check_boolean,
}

VALIDATORS: Final[Mapping[str, Callable[[str, Json], list[str]]]] = {SHOVEL: validate_shovel}
"""The checks by component of the parameter."""
