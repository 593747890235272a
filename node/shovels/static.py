"""Static shovels: those of the configuration file, whose keys are `shovel.NAME.KEY`, with the keys of dynamic ones.

    shovel.orders.src-uri.1 = amqp://user:password@old-1     shovel.orders.dest-uri = amqp://
    shovel.orders.src-queue = orders                         shovel.orders.dest-publish-properties = {"priority": 2}

RabbitMQ has them as Erlang terms in `advanced.config`.
"""

import json
from collections.abc import Mapping
from typing import Final

from node.amqp_client.uri import HIDDEN, without_password
from node.catalogue.records import Json
from node.catalogue.shovel_parameters import validate_shovel
from node.definitions.tables import TableInvalid
from node.shovels.definition import ShovelDefinition, ShovelKey, read_definition

PREFIX: Final = "shovel."

_LISTS: Final = ("src-uri", "dest-uri")
_NUMBERS: Final = ("src-prefetch-count", "prefetch-count", "reconnect-delay")
_NUMBER_OR_TEXT: Final = ("src-delete-after", "delete-after")
_FLAGS: Final = (
    "src-predeclared",
    "dest-predeclared",
    "add-forward-headers",
    "add-timestamp-header",
    "dest-add-forward-headers",
    "dest-add-timestamp-header",
)
_OBJECTS: Final = (
    "src-consumer-args",
    "src-queue-args",
    "dest-queue-args",
    "publish-properties",
    "dest-publish-properties",
)


def static_shovels(settings: Mapping[str, str]) -> tuple[list[ShovelDefinition], list[str]]:
    """Return the shovels of the configuration file, and its faults, a line for each.

    settings: all plug-ins' texts by their whole keys.
    """
    values: dict[str, dict[str, Json]] = {}
    problems = []
    for key, text in sorted(settings.items()):
        if not key.startswith(PREFIX):
            continue
        name, _, rest = key.removeprefix(PREFIX).partition(".")
        try:
            _take(values.setdefault(name, {}), rest, text)
        except ValueError:
            problems.append(f"{key}: {_shown(repr(text))} is not allowed")
    found = []
    for name, value in values.items():
        faults = validate_shovel(name, value)
        problems += [f"{PREFIX}{name}: {_shown(fault)}" for fault in faults]
        if not faults:
            try:
                found.append(read_definition(ShovelKey("", name), value, "static"))
            except TableInvalid as invalid:
                problems.append(f"{PREFIX}{name}: {invalid}")
    return found, problems


def _shown(text: str) -> str:
    """Return a text that may have a URI under a wrong key, as the log may show it."""
    return text if HIDDEN in text else without_password(text)


def _take(value: dict[str, Json], rest: str, text: str) -> None:
    key, _, number = rest.partition(".")
    if number:
        if key not in _LISTS or not number.isdecimal():
            raise ValueError(rest)
        listed = value.setdefault(key, [])
        if not isinstance(listed, list):
            raise ValueError(rest)
        listed.append(text)
    elif key in _NUMBERS or (key in _NUMBER_OR_TEXT and text.isdecimal()):
        value[key] = float(text) if "." in text else int(text)
    elif key in _FLAGS:
        if text not in ("true", "false"):
            raise ValueError(text)
        value[key] = text == "true"
    elif key in _OBJECTS:
        value[key] = json.loads(text)
    else:
        value[key] = text
