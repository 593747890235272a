"""The upstreams of an exchange or queue, as parameters and its policy have them, with RabbitMQ's defaults.

A key of an element of a set wins over the same key of its upstream. An element whose upstream does not exist is left
out, as is a set that does not exist.
Source: RabbitMQ 3.10.8, `rabbit_federation_upstream`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from node.catalogue.federation_parameters import (
    ALL_UPSTREAMS,
    UPSTREAM,
    UPSTREAM_PATTERN,
    UPSTREAM_SET,
)
from node.catalogue.patterns import matches
from node.catalogue.records import Json, JsonObject, ResourceKind

AckMode: TypeAlias = Literal["on-confirm", "on-publish", "no-ack"]
Parameters: TypeAlias = Mapping[tuple[str, str], Json]
"""The parameters of a vhost, by component and name."""

PREFETCH_COUNT: Final = 1000
PREFETCH_MAX: Final = 65535
"""The most that `basic.qos` can say. A larger count in a parameter is this one."""
RECONNECT_DELAY_S: Final = 5.0
RECONNECT_DELAY_MAX_S: Final = 86400.0
MAX_HOPS: Final = 1
MAX_HOPS_MAX: Final = 32767
"""The most that the number of hops of a binding can say, which is a `short`."""
NUMBER_MAX: Final = (1 << 32) - 1
"""The most milliseconds of `expires` and `message-ttl`."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """One broker, and the name there of what is federated.

    uris: of its nodes; a link tries one at random.   exchange, queue: their names there.
    reconnect_delay_s: the wait after a failure.   max_hops: the most links that a message passes.
    expires, message_ttl: of the queue there, in milliseconds.   trust_user_id: the property `user_id` is kept.
    ha_policy: the argument `x-ha-policy` of that queue, which brokers no longer heed.
    keeps_resources: the link deletes nothing when it is removed.   has_one_channel: bindings go over it, too.
    """

    name: str
    uris: tuple[str, ...] = field(repr=False)
    exchange: str
    queue: str
    consumer_tag: str
    prefetch_count: int = PREFETCH_COUNT
    reconnect_delay_s: float = RECONNECT_DELAY_S
    max_hops: int = MAX_HOPS
    expires: int | None = None
    message_ttl: int | None = None
    trust_user_id: bool = False
    ack_mode: AckMode = "on-confirm"
    ha_policy: str | None = None
    bind_nowait: bool = False
    keeps_resources: bool = False
    has_one_channel: bool = False

    def name_of(self, kind: ResourceKind) -> str:
        """Return the name of the exchange or queue there."""
        return self.exchange if kind == "exchange" else self.queue

    def has_same_resources(self, other: "Upstream") -> bool:
        """True if a link to the other one can go on with the queue that a link to this one declared."""
        return all(getattr(self, key) == getattr(other, key) for key in _DECLARED)


_DECLARED: Final = ("name", "uris", "exchange", "queue", "expires", "message_ttl", "ha_policy")


def is_federated(definition: JsonObject) -> bool:
    """True if the effective policy of an exchange or queue names upstreams."""
    return UPSTREAM in definition or UPSTREAM_SET in definition or UPSTREAM_PATTERN in definition


def upstreams_of(name: str, definition: JsonObject, parameters: Parameters) -> list[Upstream]:
    """Return the upstreams of an exchange or queue by its effective policy, in the order of the set, or by name.

    name: of the exchange or queue, which those upstream have unless a parameter says otherwise.
    """
    found = []
    for element in _elements(definition, parameters):
        of = element.get("upstream")
        value = parameters.get((UPSTREAM, of)) if isinstance(of, str) else None
        if isinstance(of, str) and isinstance(value, dict):
            upstream = _upstream(of, {**value, **element}, name)
            if upstream.uris:
                found.append(upstream)
    return found


def _elements(definition: JsonObject, parameters: Parameters) -> Iterator[JsonObject]:
    name, set_name, pattern = (definition.get(key) for key in (UPSTREAM, UPSTREAM_SET, UPSTREAM_PATTERN))
    if isinstance(name, str):
        yield {"upstream": name}
    elif isinstance(pattern, str):
        yield from ({"upstream": each} for each in _names(parameters) if matches(pattern, each))
    elif set_name == ALL_UPSTREAMS:
        yield from ({"upstream": each} for each in _names(parameters))
    elif isinstance(set_name, str):
        elements = parameters.get((UPSTREAM_SET, set_name))
        for each in elements if isinstance(elements, list) else ():
            if isinstance(each, dict):
                yield each


def _names(parameters: Parameters) -> list[str]:
    return sorted(name for component, name in parameters if component == UPSTREAM)


def _upstream(name: str, value: JsonObject, local_name: str) -> Upstream:
    """Return an upstream from its parameter, which was checked when it was set."""
    uris = value.get("uri")
    prefetch = _number(value, "prefetch-count")
    delay, hops = _number(value, "reconnect-delay"), _number(value, "max-hops")
    return Upstream(
        name=name,
        uris=tuple(each for each in (uris if isinstance(uris, list) else [uris]) if isinstance(each, str)),
        exchange=_text(value, "exchange") or local_name,
        queue=_text(value, "queue") or local_name,
        consumer_tag=_text(value, "consumer-tag") or f"federation-link-{name}",
        prefetch_count=PREFETCH_COUNT if prefetch is None else int(min(max(prefetch, 0), PREFETCH_MAX)),
        reconnect_delay_s=RECONNECT_DELAY_S if delay is None else min(max(delay, 0.0), RECONNECT_DELAY_MAX_S),
        max_hops=MAX_HOPS if hops is None else int(min(max(hops, 0), MAX_HOPS_MAX)),
        expires=_whole(value, "expires"),
        message_ttl=_whole(value, "message-ttl"),
        trust_user_id=value.get("trust-user-id") is True,
        ack_mode=_ack_mode(value.get("ack-mode")),
        ha_policy=_text(value, "ha-policy"),
        bind_nowait=value.get("bind-nowait") is True,
        keeps_resources=value.get("resource-cleanup-mode") == "never",
        has_one_channel=value.get("channel-use-mode") == "single",
    )


def _text(value: JsonObject, key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) else None


def _number(value: JsonObject, key: str) -> int | float | None:
    found = value.get(key)
    is_number = isinstance(found, int | float) and not isinstance(found, bool) and found == found  # no NaN
    return found if is_number and isinstance(found, int | float) else None


def _whole(value: JsonObject, key: str) -> int | None:
    found = _number(value, key)
    return None if found is None else int(min(max(found, 0), NUMBER_MAX))


def _ack_mode(value: Json) -> AckMode:
    return "no-ack" if value == "no-ack" else "on-publish" if value == "on-publish" else "on-confirm"
