"""Read and check values of bodies and paths: names, flags, arguments, properties of messages.

Source: management §1.0 "reason", §2.4; RabbitMQ 3.10.8's answers to wrong values.
"""

from collections.abc import Mapping
from typing import Any, Final

from node.amqp.field_table import Table
from node.amqp.properties import Properties
from node.definitions.tables import TableInvalid, table_from_json
from node.management.call import Call
from node.management.reply import bad_request, not_authorised, not_found
from node.management.shown import PROPERTIES

NAME_BYTES_MAX: Final = 255
_TIMESTAMP_MAX: Final = (1 << 63) - 1
_INTEGERS: Final = {"delivery_mode": 255, "priority": 255, "timestamp": _TIMESTAMP_MAX}
"""The properties that are numbers, and the largest of each."""


def vhost_to_change(call: Call) -> str:
    """Return the vhost of the path, in which something is to be changed. Raises: ApiError (404, 401)."""
    vhost = call.path["vhost"]
    if call.catalogue.vhost(vhost) is None:
        raise not_found("vhost_not_found")
    if not call.can_see(vhost):
        raise not_authorised("User not authorised to access virtual host")
    return vhost


def is_without_statistics(call: Call) -> bool:
    """True if only metadata are wanted."""
    return call.query.get("disable_stats") == "true" or call.site.config.management.disable_stats


def name(text: str, noun: str) -> str:
    """Return a name if it fits AMQP's short strings. Raises: ApiError (400)."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > NAME_BYTES_MAX:
        raise bad_request(f"{noun} should be less than {NAME_BYTES_MAX} bytes, actually was {size}\n")
    return text


def required(body: Mapping[str, Any], *keys: str) -> None:
    """Check that the keys are there. Raises: ApiError (400) with those that are missing."""
    missing = [key for key in keys if key not in body]
    if missing:
        raise bad_request("[" + ",".join(f"{{key_missing,{key}}}" for key in missing) + "]")


def boolean(body: Mapping[str, Any], key: str) -> bool:
    """Return a flag, false when it is missing; the words are understood, too. Raises: ApiError (400)."""
    value = body.get(key)
    if value is None or value is False or value == "false":
        return False
    if value is True or value == "true":
        return True
    raise bad_request(["not_boolean", value if isinstance(value, str) else key])


def text(body: Mapping[str, Any], key: str, default: str = "") -> str:
    """Return a short text. Raises: ApiError (400)."""
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise bad_request(["not_string", key])
    return name(value, key)


def integer(value: object) -> int:
    """Return a number, given as such or as a text. Raises: ApiError (400)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    shown = value if isinstance(value, str) else str(value)
    try:
        if isinstance(value, str) and len(value) <= 18:
            return int(value)
    except ValueError:
        pass
    raise bad_request(["not_integer", shown])


def arguments(body: Mapping[str, Any]) -> Table:
    """Return the arguments of a declaration. Raises: ApiError (400)."""
    return _table(body.get("arguments"))


def _table(value: Any) -> Table:
    try:
        return {} if value is None else table_from_json(value)
    except TableInvalid as error:
        raise bad_request(str(error)) from None


# --- properties of messages ---


def properties(value: object) -> Properties:
    """Return the properties of a message to be published; unknown keys don't matter. Raises: ApiError (400)."""
    if value == []:
        value = {}
    if not isinstance(value, dict):
        raise bad_request(["not_object", "properties"])
    found: dict[str, Any] = {}
    for key in PROPERTIES:
        given = value.get(key)
        if given is None:
            continue
        if key == "headers":
            found[key] = _table(given)
        elif key in _INTEGERS:
            found[key] = _number(key, given)
        elif isinstance(given, str):
            found[key] = name(given, key)
        else:
            raise bad_request(["not_string", key])
    return Properties(**found)


def _number(key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request(["not_int", key])
    if not 0 <= value <= _INTEGERS[key]:
        raise bad_request(f"{key} has to be between 0 and {_INTEGERS[key]}")
    return value
