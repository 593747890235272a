"""Policies: which one applies to a queue or an exchange, and the settings that result from it and the arguments.

At most one user policy and one operator policy apply to an object, the matching ones with the highest
priority; the two are merged. `PolicySet` finds them, `queue_settings` and `alternate_exchange` resolve what
the live broker uses. `policy_validation` says which definitions are allowed.

Source: amqp-behaviour §6.1, §6.2.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, TypeVar

from node.amqp.field_table import Table
from node.catalogue.delayed import DELAY_MAX_MS
from node.catalogue.linear_pattern import Matcher
from node.catalogue.patterns import PatternInvalid, compile_pattern, encode_name
from node.catalogue.records import Json, JsonObject, Policy, QueueType, ResourceKind

DefaultT = TypeVar("DefaultT", str, None)

SMALLEST_WINS: Final = frozenset(
    {
        "message-ttl",
        "expires",
        "max-length",
        "max-length-bytes",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "delivery-limit",
    }
)
"""Keys of which the smallest value of argument, policy and operator policy counts; operator policies have no others."""

DEDUPLICATION_ARGUMENT: Final = "x-message-deduplication"
"""The argument of a queue that drops messages with the id of one that is in it."""

RETRY_TYPES: Final = ("disabled", "all", "failed", "returned")
"""Which messages that come back wait before they are ready again, as RabbitMQ 4.3 names it.

failed: those that a client returned (nack, reject, recover).   returned: those of a client that is gone.
"""

WHEN_SYNCED: Final = "when-synced"
SYNC_BATCH_SIZE: Final = 4096
"""The default of `ha-sync-batch-size`, in messages."""

_UNSUPPORTED: Final[dict[QueueType, frozenset[str]]] = {
    "classic": frozenset(
        {
            "max-age",
            "stream-max-segment-size-bytes",
            "queue-leader-locator",
            "initial-cluster-size",
            "dead-letter-strategy",
        }
    ),
    "quorum": frozenset(
        {
            "max-priority",
            "queue-mode",
            "single-active-consumer",
            "ha-mode",
            "ha-params",
            "ha-sync-mode",
            "ha-promote-on-shutdown",
            "ha-promote-on-failure",
            "queue-master-locator",
            "max-age",
            "stream-max-segment-size-bytes",
            "initial-cluster-size",
        }
    ),
}
"""Keys that keep a policy from applying to a queue of the type."""


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The policies that apply to one object: the names of the two policies and their merged definition."""

    policy: str | None = None
    operator_policy: str | None = None
    definition: JsonObject = field(default_factory=dict)


NO_POLICY: Final = EffectivePolicy()


class PolicySet:
    """The user policies and operator policies of one vhost."""

    def __init__(self) -> None:
        self._policies: dict[bool, dict[str, Policy]] = {False: {}, True: {}}
        self._by_priority: dict[bool, list[tuple[Policy, Matcher]]] = {False: [], True: []}
        self._merged: dict[tuple[str | None, str | None], EffectivePolicy] = {}

    def policies(self, *, operator: bool) -> Collection[Policy]:
        """All policies of one of the two sorts."""
        return self._policies[operator].values()

    def policy(self, name: str, *, operator: bool) -> Policy | None:
        """The policy of that name."""
        return self._policies[operator].get(name)

    def put(self, policy: Policy, *, operator: bool) -> None:
        """Add or replace a policy that has been validated."""
        self._policies[operator][policy.name] = policy
        self._sort(operator)

    def remove(self, name: str, *, operator: bool) -> None:
        """Remove a policy that is there."""
        del self._policies[operator][name]
        self._sort(operator)

    def match(self, kind: ResourceKind, name: str, queue_type: QueueType | None = None) -> EffectivePolicy:
        """Return the policies that apply to the queue or exchange `name`.

        The cost is one search per policy until the first match.
        """
        user = self._best(kind, name, queue_type, operator=False)
        operator = self._best(kind, name, queue_type, operator=True)
        key = (user.name if user else None, operator.name if operator else None)
        merged = self._merged.get(key)
        if merged is None:
            merged = self._merged[key] = EffectivePolicy(
                *key,
                _merge(user.definition if user else {}, operator.definition if operator else {}),
            )
        return merged

    def _best(
        self, kind: ResourceKind, name: str, queue_type: QueueType | None, *, operator: bool
    ) -> Policy | None:
        encoded = encode_name(name)
        for policy, pattern in self._by_priority[operator]:
            if policy.apply_to not in ("all", f"{kind}s"):
                continue
            if queue_type is not None and not _UNSUPPORTED[queue_type].isdisjoint(policy.definition):
                continue
            if pattern(encoded):
                return policy
        return None

    def _sort(self, operator: bool) -> None:
        """Order by priority. RabbitMQ leaves ties undefined; the name decides here, alike on every node."""
        ordered = sorted(
            self._policies[operator].values(), key=lambda policy: (-policy.priority, policy.name)
        )
        self._by_priority[operator] = []
        for policy in ordered:
            try:
                self._by_priority[operator].append((policy, compile_pattern(policy.pattern)))
            except PatternInvalid:
                continue
        self._merged = {(None, None): NO_POLICY}


def _merge(definition: JsonObject, operator: JsonObject) -> JsonObject:
    """Return the union of both; where both have a key, the smaller number, else the operator's value (§6.2)."""
    merged: dict[str, Json] = {**definition, **operator}
    for key in SMALLEST_WINS & definition.keys() & operator.keys():
        ours, theirs = _number(definition[key]), _number(operator[key])
        if ours is not None and theirs is not None:
            merged[key] = min(ours, theirs)
    return merged


# --- what the live broker uses ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of one queue, resolved from its arguments and policies. None: unset.

    message_ttl, expires: milliseconds.   max_priority, single_active_consumer: by argument only.
    dead_letter_strategy: of quorum queues only.   hold_until_header: see `node.catalogue.holding`.
    delayed_retry_...: min and max in milliseconds; multiplier: None: the delay grows by min each time.
    ha_...: of mirrored queues (§9.3), by policy only. ha_params: how many copies, or the names of nodes.
    ha_confirm: the copies that a confirm waits for.   ha_slow_mirror: the treatment of a mirror that doesn't keep up
        (reliability §4.9).
    group_header: names the header with the group of a message (docs/groups.md).
    is_deduplicating: messages with the id of one that is in the queue are dropped (docs/deduplication.md).
    """

    message_ttl: int | None = None
    expires: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    dead_letter_strategy: str = "at-most-once"
    max_priority: int | None = None
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    delayed_retry_type: str = "disabled"
    delayed_retry_min: int | None = None
    delayed_retry_max: int = DELAY_MAX_MS
    delayed_retry_multiplier: int | None = None
    hold_until_header: str | None = None
    queue_mode: str = "default"
    queue_version: int = 1
    queue_master_locator: str | None = None
    ha_mode: str | None = None
    ha_params: int | tuple[str, ...] | None = None
    ha_sync_mode: str = "manual"
    ha_sync_batch_size: int = SYNC_BATCH_SIZE
    ha_promote_on_shutdown: str = WHEN_SYNCED
    ha_promote_on_failure: str = WHEN_SYNCED
    ha_confirm: str = "all"
    ha_slow_mirror: str = "evict"
    group_header: str | None = None
    is_deduplicating: bool = False

    @property
    def is_plain(self) -> bool:
        """True if no rule looks at messages as they come in."""
        return self.message_ttl is None and self.max_length is None and self.max_length_bytes is None

    @property
    def of_copies(self) -> "QueueSettings":
        """The settings of a queue that belongs to an exchange: which copies it has, and nothing else.

        No policy may drop, move or hold the messages in it.
        """
        return QueueSettings(
            queue_version=self.queue_version,
            queue_master_locator=self.queue_master_locator,
            ha_mode=self.ha_mode,
            ha_params=self.ha_params,
            ha_sync_mode=self.ha_sync_mode,
            ha_sync_batch_size=self.ha_sync_batch_size,
            ha_promote_on_shutdown=self.ha_promote_on_shutdown,
            ha_promote_on_failure=self.ha_promote_on_failure,
            ha_confirm=self.ha_confirm,
            ha_slow_mirror=self.ha_slow_mirror,
        )

    def delays_retries(self, *, is_asked: bool) -> bool:
        """Return True if messages that came back wait before they are ready again.

        is_asked: a client returned them; False: it is gone.
        """
        kind = self.delayed_retry_type
        if kind == "disabled" or self.delayed_retry_min is None:
            return False
        return kind == "all" or kind == ("failed" if is_asked else "returned")

    @property
    def keeps_dead_letters(self) -> bool:
        """True if a dead letter stays in the queue until its targets have it.

        As in RabbitMQ, `at-least-once` needs a dead-letter exchange, and the overflow `reject-publish`: a queue that
        drops messages for its length would lose the letters that it keeps.
        """
        return (
            self.dead_letter_strategy == "at-least-once"
            and self.dead_letter_exchange is not None
            and self.overflow == "reject-publish"
        )

    @property
    def falls_back(self) -> bool:
        """True if dead letters go at most once although the strategy asks for more."""
        return self.dead_letter_strategy == "at-least-once" and not self.keeps_dead_letters


def queue_settings(arguments: Table, effective: EffectivePolicy) -> QueueSettings:
    """Resolve the settings of a queue: the smaller number, else the argument before the policy (§6.2).

    Values of a wrong type count as unset: declare and set-policy have refused them.
    """
    definition = effective.definition
    version = _argument_number(arguments, "queue-version")
    return QueueSettings(
        message_ttl=_smaller(arguments, definition, "message-ttl"),
        expires=_smaller(arguments, definition, "expires"),
        max_length=_smaller(arguments, definition, "max-length"),
        max_length_bytes=_smaller(arguments, definition, "max-length-bytes"),
        overflow=_text(arguments, definition, "overflow") or "drop-head",
        dead_letter_exchange=_text(arguments, definition, "dead-letter-exchange"),
        dead_letter_routing_key=_text(arguments, definition, "dead-letter-routing-key"),
        dead_letter_strategy=_text(arguments, definition, "dead-letter-strategy") or "at-most-once",
        max_priority=_argument_number(arguments, "max-priority"),
        single_active_consumer="x-single-active-consumer" in arguments
        and arguments["x-single-active-consumer"].value is True,
        delivery_limit=_smaller(arguments, definition, "delivery-limit"),
        delayed_retry_type=_text(arguments, definition, "delayed-retry-type") or "disabled",
        delayed_retry_min=_first_number(arguments, definition, "delayed-retry-min"),
        delayed_retry_max=_first_number(arguments, definition, "delayed-retry-max") or DELAY_MAX_MS,
        delayed_retry_multiplier=_first_number(arguments, definition, "delayed-retry-multiplier"),
        hold_until_header=_text(arguments, definition, "hold-until-header"),
        queue_mode=_text(arguments, definition, "queue-mode") or "default",
        queue_version=version if version is not None else _number(definition.get("queue-version")) or 1,
        queue_master_locator=_text(arguments, definition, "queue-master-locator"),
        ha_mode=_policy_text(definition, "ha-mode", None),
        ha_params=_ha_params(definition.get("ha-params")),
        ha_sync_mode=_policy_text(definition, "ha-sync-mode", "manual"),
        ha_sync_batch_size=_sync_batch_size(definition.get("ha-sync-batch-size")),
        ha_promote_on_shutdown=_policy_text(definition, "ha-promote-on-shutdown", WHEN_SYNCED),
        ha_promote_on_failure=_policy_text(definition, "ha-promote-on-failure", WHEN_SYNCED),
        ha_confirm=_policy_text(definition, "ha-confirm", "all"),
        ha_slow_mirror=_policy_text(definition, "ha-slow-mirror", "evict"),
        group_header=_text(arguments, definition, "group-header"),
        is_deduplicating=_is_deduplicating(arguments, definition),
    )


def alternate_exchange(arguments: Table, effective: EffectivePolicy) -> str | None:
    """The alternate exchange of an exchange: its argument before its policy (§3.18). It need not exist."""
    argument = arguments.get("alternate-exchange")
    if argument is not None and isinstance(argument.value, bytes):
        return argument.value.decode("utf-8", "surrogateescape")
    value = effective.definition.get("alternate-exchange")
    return value if isinstance(value, str) else None


def _smaller(arguments: Table, definition: JsonObject, key: str) -> int | None:
    candidates = (_argument_number(arguments, key), _number(definition.get(key)))
    return min((number for number in candidates if number is not None), default=None)


def _first_number(arguments: Table, definition: JsonObject, key: str) -> int | None:
    number = _argument_number(arguments, key)
    return _number(definition.get(key)) if number is None else number


def _argument_number(arguments: Table, key: str) -> int | None:
    argument = arguments.get(f"x-{key}")
    return None if argument is None else _number(argument.value)


def _is_deduplicating(arguments: Table, definition: JsonObject) -> bool:
    argument = arguments.get(DEDUPLICATION_ARGUMENT)
    value = definition.get("message-deduplication") if argument is None else argument.value
    return value is True


def _text(arguments: Table, definition: JsonObject, key: str) -> str | None:
    argument = arguments.get(f"x-{key}")
    if argument is not None and isinstance(argument.value, bytes):
        return argument.value.decode("utf-8", "surrogateescape")
    value = definition.get(key)
    return value if isinstance(value, str) else None


def _policy_text(definition: JsonObject, key: str, default: DefaultT) -> str | DefaultT:
    value = definition.get(key)
    return value if isinstance(value, str) else default


def _ha_params(value: Json) -> int | tuple[str, ...] | None:
    if isinstance(value, list):
        return tuple(node for node in value if isinstance(node, str))
    return _number(value)


def _sync_batch_size(value: Json) -> int:
    """Return the batch size in messages; for 1 the default, as RabbitMQ does: it takes 1 for a mistake (§9.3)."""
    size = _number(value)
    return SYNC_BATCH_SIZE if size is None or size <= 1 else size


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
