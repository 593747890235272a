"""Checks of federation's parameters and policy keys, with the texts of RabbitMQ's plug-in.

    federation-upstream      {"uri": "amqp://…" or a list, …}            one broker to federate with
    federation-upstream-set  [{"upstream": NAME, …}, …]                  several, whose keys win over the upstream's
    federation               nothing may be set

They are the same on all nodes, whether or not the plug-in is enabled, as a parameter outlives the plug-in's use.
Source: RabbitMQ 3.10.8, `rabbit_federation_parameters` and `rabbit_parameter_validation`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from node.catalogue.parameter_validation import (
    Check,
    check_boolean,
    check_number,
    check_object,
    check_text,
    one_of,
    term,
)
from node.catalogue.patterns import PatternInvalid, compile_pattern
from node.catalogue.records import Json
from node.catalogue.uri_parameters import check_uris, vhosts_here

PLUGIN: Final = "rabbitmq_federation"
UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"
UPSTREAM_PATTERN: Final = "federation-upstream-pattern"
FEDERATION: Final = "federation"

ALL_UPSTREAMS: Final = "all"
"""The set that always exists: all upstreams of the vhost."""

SET_MAX: Final = 1000
"""The most upstreams of a set."""

POLICY_KEYS: Final = (UPSTREAM, UPSTREAM_SET, UPSTREAM_PATTERN)
"""The keys of a policy's definition of which at most one may be there."""


def validate_upstream(name: str, value: Json) -> list[str]:
    """Return the problems with a parameter `federation-upstream`."""
    return check_object(name, value, {"uri": check_uris, **_SHARED}, mandatory=("uri",))


def validate_upstream_set(name: str, value: Json) -> list[str]:
    """Return the problems with a parameter `federation-upstream-set`."""
    if not isinstance(value, list):
        return [f"{name} not a list {term(value)}"]
    if len(value) > SET_MAX:
        return [f"{name} has more than {SET_MAX} upstreams"]
    checks = {"upstream": check_text, "uri": check_uris, **_SHARED}
    return [
        problem for each in value for problem in check_object(name, each, checks, mandatory=("upstream",))
    ]


def local_vhosts(vhost: str, value: Json) -> set[str]:
    """Return the vhosts of this broker that the URIs without a host name.

    vhost: of the parameter, which a URI without a vhost means.   value: passed `validate_upstream` or that of sets.
    """
    found: set[str] = set()
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict) and "uri" in each:
            found |= vhosts_here(each["uri"], vhost)
    return found


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


_SHARED: Final[Mapping[str, Check]] = {
    "exchange": check_text,
    "queue": check_text,
    "consumer-tag": check_text,
    "prefetch-count": check_number,
    "reconnect-delay": check_number,
    "max-hops": check_number,
    "expires": check_number,
    "message-ttl": check_number,
    "trust-user-id": check_boolean,
    "ack-mode": one_of("no-ack", "on-publish", "on-confirm"),
    "resource-cleanup-mode": one_of("default", "never"),
    "ha-policy": check_text,
    "bind-nowait": check_boolean,
    "channel-use-mode": one_of("multiple", "single"),
}
"""The checks of the keys that an upstream and an element of a set have in common."""
