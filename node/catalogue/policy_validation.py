"""Checks of policies before they are set, with RabbitMQ's texts for those that are refused.

Source: amqp-behaviour §6.2 (keys), §6.3 (texts), §9.3 (the ha-* keys); rabbit_policies.erl,
rabbit_mirror_queue_misc.erl and rabbit_queue_location_validator.erl v3.10.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeAlias

from node.catalogue.arguments import HEADER_NAME_MAX
from node.catalogue.components import PLUGIN_POLICY_KEYS, policy_keys, policy_problem
from node.catalogue.delayed import DELAY_MAX_MS
from node.catalogue.holding import is_header_name
from node.catalogue.parameter_validation import (
    check_number,
    check_object,
    check_pattern,
    is_integer,
    pairs,
    term,
)
from node.catalogue.policy import RETRY_TYPES, SMALLEST_WINS
from node.catalogue.records import Json

_STREAM_SEGMENT_BYTES_MAX: Final = 3_000_000_000

_Rule: TypeAlias = tuple[Callable[[Json], bool], str]
"""A predicate for a value, and the text that follows the value when it is false."""


def validate_policy(
    name: str, value: Json, *, operator: bool, plugins: Collection[str] | None = None
) -> str | None:
    """Return the problems with a policy, a line for each, or None.

    value: an object with `pattern`, `definition`, `priority` and perhaps `apply-to`.
    plugins: the enabled ones, whose keys may be there; None: those of all.
    The reason for a bad pattern is Python's, not PCRE's; the words around it are RabbitMQ's.
    """
    checks = {
        "priority": check_number,
        "pattern": check_pattern,
        "apply-to": _check_apply_to,
        "definition": _check_operator_definition if operator else partial(_check_definition, plugins),
    }
    problems = check_object(name, value, checks, mandatory=("priority", "pattern", "definition"))
    return "\n".join(problems) or None


def _check_apply_to(_name: str, value: Json) -> list[str]:
    if value in ("all", "exchanges", "queues"):
        return []
    shown = value if isinstance(value, str) else term(value)
    return [f"apply-to '{shown}' unrecognised; should be 'queues', 'exchanges' or 'all'"]


def _check_operator_definition(name: str, value: Json) -> list[str]:
    return _check_keys(value, {key: _RULES[key] for key in SMALLEST_WINS})


def _check_definition(plugins: Collection[str] | None, name: str, value: Json) -> list[str]:
    if not isinstance(value, dict):
        return _check_keys(value, {})
    mirroring = {key: found for key, found in value.items() if key in _MIRRORING_KEYS}
    problem = _mirroring_problem(mirroring) if mirroring else None
    of_plugins = dict.fromkeys(policy_keys(plugins), _ANYTHING)
    if problem is None and not of_plugins.keys().isdisjoint(value):
        problem = policy_problem(value)
    if problem is not None:
        return [problem]
    return _check_keys(value, {**_RULES, **dict.fromkeys(_MIRRORING_KEYS, _ANYTHING), **of_plugins})


def _check_keys(value: Json, rules: Mapping[str, _Rule]) -> list[str]:
    """Return the first problem with the values, else one text about the keys without a rule."""
    if value in ({}, []):
        return ["no policy provided"]
    if not isinstance(value, dict):
        return [f"definition must be a dictionary: {term(value)}"]
    for key, found in value.items():
        if key in rules:
            is_good, text = rules[key]
            if not is_good(found):
                return [f"{term(found)} {text}"]
    unknown = {key: value[key] for key in value if key not in rules}
    return [f"{pairs(unknown)} are not recognised policy settings"] if unknown else []


# --- rules of single keys ---------------------------------------------------------------------------------


def _is_string(value: Json) -> bool:
    return isinstance(value, str)


def _is_boolean(value: Json) -> bool:
    return isinstance(value, bool)


def _is_header_name(value: Json) -> bool:
    return isinstance(value, str) and 0 < len(value.encode("utf-8", "surrogateescape")) <= HEADER_NAME_MAX


def _is_hold_header(value: Json) -> bool:
    return isinstance(value, str) and is_header_name(value)


def _at_least(smallest: int) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, int) and is_integer(value) and value >= smallest


def _one_of(*choices: Json) -> Callable[[Json], bool]:
    return lambda value: not isinstance(value, bool | float) and value in choices


def _is_max_age(value: Json) -> bool:
    match = re.fullmatch(r"([0-9]+)[YMDhms]", value, re.ASCII) if isinstance(value, str) else None
    return match is not None and match[1].strip("0") != ""


def _is_segment_size(value: Json) -> bool:
    return isinstance(value, int) and is_integer(value) and 0 <= value <= _STREAM_SEGMENT_BYTES_MAX


def _is_delay(value: Json) -> bool:
    return isinstance(value, int) and is_integer(value) and 1 <= value <= DELAY_MAX_MS


_ANYTHING: Final[_Rule] = (lambda _value: True, "")

_RULES: Final[dict[str, _Rule]] = {
    "alternate-exchange": (_is_string, "is not a valid alternate exchange name"),
    "dead-letter-exchange": (_is_string, "is not a valid dead letter exchange name"),
    "dead-letter-routing-key": (_is_string, "is not a valid dead letter routing key"),
    "dead-letter-strategy": (
        _one_of("at-most-once", "at-least-once"),
        "is not a valid dead letter strategy",
    ),
    "message-ttl": (_at_least(0), "is not a valid message TTL"),
    "expires": (_at_least(1), "is not a valid queue expiry"),
    "max-length": (_at_least(0), "is not a valid maximum length"),
    "max-length-bytes": (_at_least(0), "is not a valid maximum length in bytes"),
    # RabbitMQ has the same words for both.
    "max-in-memory-length": (_at_least(0), "is not a valid maximum memory in bytes"),
    "max-in-memory-bytes": (_at_least(0), "is not a valid maximum memory in bytes"),
    "queue-mode": (_one_of("default", "lazy"), "is not a valid queue-mode value"),
    "queue-version": (_one_of(1, 2), "is not a valid queue-version value"),
    "overflow": (
        _one_of("drop-head", "reject-publish", "reject-publish-dlx"),
        "is not a valid overflow value",
    ),
    "group-header": (_is_header_name, "is not a valid group header"),
    "message-deduplication": (_is_boolean, "is not a valid message deduplication"),
    "delivery-limit": (_at_least(0), "is not a valid delivery limit"),
    "delayed-retry-type": (_one_of(*RETRY_TYPES), "is not a valid delayed retry type"),
    "delayed-retry-min": (_is_delay, "is not a valid delayed retry minimum"),
    "delayed-retry-max": (_is_delay, "is not a valid delayed retry maximum"),
    "delayed-retry-multiplier": (_at_least(1), "is not a valid delayed retry multiplier"),
    "hold-until-header": (_is_hold_header, "is not a valid header name"),
    "max-age": (_is_max_age, "is not a valid max age"),
    "queue-leader-locator": (
        _one_of("client-local", "balanced", "random", "least-leaders"),
        "is not a valid queue leader locator value",
    ),
    "initial-cluster-size": (_at_least(0), "is not a valid cluster size"),
    "stream-max-segment-size-bytes": (_is_segment_size, "is not a valid segment size"),
    "queue-master-locator": (
        _one_of("client-local", "min-masters", "random"),
        "invalid queue-master-locator value",
    ),
}


# --- mirroring --------------------------------------------------------------------------------------------

_MIRRORING_KEYS: Final = (
    "ha-mode",
    "ha-params",
    "ha-sync-mode",
    "ha-sync-batch-size",
    "ha-promote-on-shutdown",
    "ha-promote-on-failure",
    "ha-confirm",
    "ha-slow-mirror",
)
POLICY_KEYS: Final = frozenset({*_RULES, *_MIRRORING_KEYS, *PLUGIN_POLICY_KEYS})
"""The keys that a policy's definition may have, those of plug-ins among them. `hold-until-header`, `ha-confirm`,
`ha-slow-mirror`, `group-header` and `message-deduplication` are Fluffle's own.
"""


def _mirroring_problem(definition: Mapping[str, Json]) -> str | None:
    """Return the problem with the ha-* keys, which are checked together, or None (§9.3)."""
    mode = definition.get("ha-mode")
    if "ha-mode" not in definition:
        return "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
    if mode not in ("all", "exactly", "nodes"):
        return f"{term(mode)} is not a valid ha-mode value"
    problem = _params_problem(mode, definition)
    if problem is not None:
        return problem
    for key, first, second in (
        ("ha-sync-mode", "manual", "automatic"),
        ("ha-promote-on-shutdown", "always", "when-synced"),
        ("ha-promote-on-failure", "always", "when-synced"),
        ("ha-confirm", "all", "master"),
        ("ha-slow-mirror", "evict", "block"),
    ):
        if key == "ha-promote-on-shutdown" and not _at_least(1)(definition.get("ha-sync-batch-size", 1)):
            size = term(definition["ha-sync-batch-size"])
            return f"ha-sync-batch-size takes an integer greater than 0, {size} given"
        if key in definition and definition[key] not in (first, second):
            return f'{key} must be "{first}" or "{second}", got {term(definition[key])}'
    return None


def _params_problem(mode: Json, definition: Mapping[str, Json]) -> str | None:
    params = definition.get("ha-params")
    given = term(params) if "ha-params" in definition else "none"
    if mode == "all":
        return 'ha-mode="all" does not take parameters' if "ha-params" in definition else None
    if mode == "exactly":
        return None if _at_least(1)(params) else f'ha-mode="exactly" takes an integer, {given} given'
    if not isinstance(params, list):
        return f'ha-mode="nodes" takes a list, {given} given'
    if not params:
        return 'ha-mode="nodes" list must be non-empty'
    invalid: list[Json] = [name for name in params if not isinstance(name, str)]
    if invalid:
        return f'ha-mode="nodes" takes a list of strings, {term(invalid)} was not a string'
    return None
