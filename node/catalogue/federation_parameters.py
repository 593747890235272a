"""Checks of federation's parameters and policy keys, with the texts of RabbitMQ's plug-in.

    federation-upstream      {"uri": "amqp://…" or a list, …}            one broker to federate with
    federation-upstream-set  [{"upstream": NAME, …}, …]                  several, whose keys win over the upstream's
    federation               nothing may be set

They are the same on all nodes, whether or not the plug-in is enabled, as a parameter outlives the plug-in's use.
Source: RabbitMQ 3.10.8, `rabbit_federation_parameters` and `rabbit_parameter_validation`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from node.amqp_client.uri import InvalidUri, parse, without_password
from node.catalogue.parameter_validation import Check, check_number, check_object, term
from node.catalogue.patterns import PatternInvalid, compile_pattern
from node.catalogue.records import Json

PLUGIN: Final = "rabbitmq_federation"
UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"
UPSTREAM_PATTERN: Final = "federation-upstream-pattern"
FEDERATION: Final = "federation"

ALL_UPSTREAMS: Final = "all"
"""The set that always exists: all upstreams of the vhost."""

URIS_MAX: Final = 100
"""The most URIs of an upstream."""

SET_MAX: Final = 1000
"""The most upstreams of a set."""

POLICY_KEYS: Final = (UPSTREAM, UPSTREAM_SET, UPSTREAM_PATTERN)
"""The keys of a policy's definition of which at most one may be there."""


def validate_upstream(name: str, value: Json) -> list[str]:
    """Return the problems with a parameter `federation-upstream`."""
    return check_object(name, value, {"uri": _check_uri, **_SHARED}, mandatory=("uri",))


def validate_upstream_set(name: str, value: Json) -> list[str]:
    """Return the problems with a parameter `federation-upstream-set`."""
    if not isinstance(value, list):
        return [f"{name} not a list {term(value)}"]
    if len(value) > SET_MAX:
        return [f"{name} has more than {SET_MAX} upstreams"]
    checks = {"upstream": _check_text, "uri": _check_uri, **_SHARED}
    return [
        problem for each in value for problem in check_object(name, each, checks, mandatory=("upstream",))
    ]


def validate_federation(name: str, value: Json) -> list[str]:
    """Return the refusal of every parameter `federation`, which earlier versions of RabbitMQ had."""
    return [f"name not recognised: {term(name)}"]


VALIDATORS: Final[Mapping[str, Callable[[str, Json], list[str]]]] = {
    UPSTREAM: validate_upstream,
    UPSTREAM_SET: validate_upstream_set,
    FEDERATION: validate_federation,
}
"""The checks by component of the parameter."""


def policy_problem(definition: Mapping[str, Json]) -> str | None:
    """Return the problem with the keys of federation in a policy's definition, which are checked together."""
    given = {key: definition[key] for key in POLICY_KEYS if key in definition}
    if len(given) > 1:
        return (
            "cannot specify federation-upstream, federation-upstream-set or federation-upstream-pattern "
            "together"
        )
    for key, value in given.items():
        noun = key.removeprefix("federation-").replace("-", " ")
        if not isinstance(value, str):
            return f"{term(value)} is not a valid federation {noun} name"
        if key == UPSTREAM_PATTERN:
            try:
                compile_pattern(value)
            except PatternInvalid as invalid:
                reason = f'{{"{invalid.reason}",{invalid.position}}}'
                return f"could not compile pattern {value} to a regular expression. Error: {reason}"
    return None


# --- single keys ------------------------------------------------------------------------------------------


def _check_text(name: str, value: Json) -> list[str]:
    return [] if isinstance(value, str) else [f"{name} should be binary, actually was {term(value)}"]


def _check_boolean(name: str, value: Json) -> list[str]:
    return [] if isinstance(value, bool) else [f"{name} should be boolean, actually was {term(value)}"]


def _one_of(*choices: str) -> Check:
    allowed = f"[{','.join(term(each) for each in choices)}]"

    def check(name: str, value: Json) -> list[str]:
        if not isinstance(value, str):
            return [f"{name} should be binary, actually was {term(value)}"]
        if value in choices:
            return []
        return [f"{name} should be one of {allowed}, actually was {term(value)}"]

    return check


def _check_uri(name: str, value: Json) -> list[str]:
    """Check a URI, or a list of them; the first problem is told."""
    if isinstance(value, str):
        try:
            parse(value)
        except InvalidUri as invalid:
            shown = without_password(value)
            return [f'"{shown}" not a valid URI: {{{invalid},"{shown}"}}']
        return []
    if not isinstance(value, list):
        return [f"{name} should be list, actually was {term(value)}"]
    if not 0 < len(value) <= URIS_MAX:
        return [f"{name} should have 1 to {URIS_MAX} URIs"]
    for each in value:
        problems = _check_uri(name, each) if isinstance(each, str) else _check_text(name, each)
        if problems:
            return problems
    return []


_SHARED: Final[Mapping[str, Check]] = {
    "exchange": _check_text,
    "queue": _check_text,
    "consumer-tag": _check_text,
    "prefetch-count": check_number,
    "reconnect-delay": check_number,
    "max-hops": check_number,
    "expires": check_number,
    "message-ttl": check_number,
    "trust-user-id": _check_boolean,
    "ack-mode": _one_of("no-ack", "on-publish", "on-confirm"),
    "resource-cleanup-mode": _one_of("default", "never"),
    "ha-policy": _check_text,
    "bind-nowait": _check_boolean,
    "channel-use-mode": _one_of("multiple", "single"),
}
"""The checks of the keys that an upstream and an element of a set have in common."""
