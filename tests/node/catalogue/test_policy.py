"""Policies: which applies, how they merge, what a queue makes of them (amqp-behaviour §6.1-§6.3, §9.3)."""

import pytest

from node.amqp.field_table import Field, boolean, long, longstr
from node.catalogue.policy import (
    NO_POLICY,
    EffectivePolicy,
    PolicySet,
    QueueSettings,
    alternate_exchange,
    queue_settings,
)
from node.catalogue.policy_validation import validate_policy
from node.catalogue.records import ApplyTo, Json, Policy


def policy(
    name: str, pattern: str, definition: dict[str, Json], priority: int = 0, apply_to: ApplyTo = "all"
) -> Policy:
    return Policy("/", name, pattern, definition, priority, apply_to)


def policy_set(*policies: Policy, operator: tuple[Policy, ...] = ()) -> PolicySet:
    result = PolicySet()
    for item in policies:
        result.put(item, operator=False)
    for item in operator:
        result.put(item, operator=True)
    return result


# --- which applies -----------------------------------------------------------------------------------------


def test_highest_priority_alone_applies() -> None:
    """§6.1: exactly one user policy; no merging between user policies."""
    policies = policy_set(
        policy("low", "q", {"max-length": 1, "expires": 5}, 1), policy("high", "q", {"max-length": 2}, 7)
    )
    assert policies.match("queue", "q1", "classic") == EffectivePolicy("high", None, {"max-length": 2})


def test_pattern_is_searched_unanchored() -> None:
    """§6.1: PCRE, unanchored search."""
    policies = policy_set(policy("p", "bx", {"max-length": 1}))
    assert policies.match("queue", "zzbxzz", "classic").policy == "p"
    assert policies.match("queue", "zzbzxz", "classic") is NO_POLICY


def test_equal_priorities_are_decided_by_name_whatever_the_order_of_setting() -> None:
    """§6.1: ties are undefined in RabbitMQ; ours must be alike on every node."""
    first, second = policy("a", "q", {"max-length": 1}), policy("b", "q", {"max-length": 2})
    assert policy_set(first, second).match("queue", "q", "classic").policy == "a"
    assert policy_set(second, first).match("queue", "q", "classic").policy == "a"


@pytest.mark.parametrize(
    ("apply_to", "queue", "exchange"),
    [("all", True, True), ("queues", True, False), ("exchanges", False, True)],
)
def test_apply_to(apply_to: ApplyTo, queue: bool, exchange: bool) -> None:
    """§6.1: apply-to `all`, `queues`, `exchanges`."""
    policies = policy_set(policy("p", ".", {"message-ttl": 1}, apply_to=apply_to))
    assert (policies.match("queue", "n", "classic").policy == "p") is queue
    assert (policies.match("exchange", "n").policy == "p") is exchange


@pytest.mark.parametrize(
    "key",
    [
        "max-age",
        "stream-max-segment-size-bytes",
        "queue-leader-locator",
        "initial-cluster-size",
        "dead-letter-strategy",
    ],
)
def test_a_key_that_classic_queues_lack_keeps_the_whole_policy_away(key: str) -> None:
    """§6.1: match also requires the queue type to support all keys; the next policy then applies."""
    policies = policy_set(
        policy("special", ".", {key: 1, "max-length": 1}, 9), policy("plain", ".", {"max-length": 2})
    )
    assert policies.match("queue", "q", "classic").policy == "plain"
    assert policies.match("exchange", "x").policy == "special"


def test_quorum_queues_take_delivery_limit_but_no_mirroring() -> None:
    policies = policy_set(
        policy("ha", ".", {"ha-mode": "all"}, 9), policy("limit", ".", {"delivery-limit": 3})
    )
    assert policies.match("queue", "q", "quorum").policy == "limit"
    assert policies.match("queue", "q", "classic").policy == "ha"


def test_a_delivery_limit_applies_to_classic_queues_too() -> None:
    """RabbitMQ keeps the whole policy away from them (docs/differences.md)."""
    policies = policy_set(policy("limit", ".", {"delivery-limit": 3, "max-length": 1}))
    assert policies.match("queue", "q", "classic").policy == "limit"


def test_removed_and_replaced_policies_no_longer_apply() -> None:
    policies = policy_set(policy("p", ".", {"max-length": 1}))
    assert policies.match("queue", "q", "classic").definition == {"max-length": 1}
    policies.put(policy("p", ".", {"max-length": 2}), operator=False)
    assert policies.match("queue", "q", "classic").definition == {"max-length": 2}
    policies.remove("p", operator=False)
    assert policies.match("queue", "q", "classic") is NO_POLICY


def test_operator_policy_merges_by_union_and_smaller_number() -> None:
    """§6.2: effective definition of user and operator is the union of keys, numeric min."""
    policies = policy_set(
        policy("u", ".", {"max-length": 10, "expires": 5, "overflow": "reject-publish"}),
        operator=(policy("o", ".", {"max-length": 3, "expires": 9, "message-ttl": 7}),),
    )
    assert policies.match("queue", "q", "classic") == EffectivePolicy(
        "u", "o", {"max-length": 3, "expires": 5, "overflow": "reject-publish", "message-ttl": 7}
    )


def test_operator_policy_alone_applies() -> None:
    policies = policy_set(operator=(policy("o", ".", {"max-length": 3}),))
    assert policies.match("queue", "q", "classic") == EffectivePolicy(None, "o", {"max-length": 3})


# --- settings of a queue -----------------------------------------------------------------------------------


def effective(**definition: Json) -> EffectivePolicy:
    return EffectivePolicy("p", None, {key.replace("_", "-"): value for key, value in definition.items()})


def test_nothing_set() -> None:
    assert queue_settings({}, NO_POLICY) == QueueSettings()
    assert QueueSettings().overflow == "drop-head"


@pytest.mark.parametrize(
    ("key", "attribute"),
    [
        ("message-ttl", "message_ttl"),
        ("expires", "expires"),
        ("max-length", "max_length"),
        ("max-length-bytes", "max_length_bytes"),
        ("delivery-limit", "delivery_limit"),
    ],
)
def test_smaller_number_wins(key: str, attribute: str) -> None:
    """§6.2: arg 5, policy 3 → 3; arg 5, policy 10 → 5; either alone counts."""
    for argument, by_policy, expected in ((5, 3, 3), (5, 10, 5), (5, None, 5), (None, 10, 10), (0, 5, 0)):
        arguments = {} if argument is None else {f"x-{key}": long(argument)}
        applied = NO_POLICY if by_policy is None else EffectivePolicy("p", None, {key: by_policy})
        assert getattr(queue_settings(arguments, applied), attribute) == expected


def test_argument_policy_and_operator_policy_together() -> None:
    """§6.2: arg 5, policy 10, plus operator 2 → 2."""
    policies = policy_set(
        policy("u", ".", {"max-length": 10}), operator=(policy("o", ".", {"max-length": 2}),)
    )
    applied = policies.match("queue", "q", "classic")
    assert queue_settings({"x-max-length": long(5)}, applied).max_length == 2


@pytest.mark.parametrize(
    ("key", "attribute"),
    [
        ("overflow", "overflow"),
        ("dead-letter-exchange", "dead_letter_exchange"),
        ("dead-letter-routing-key", "dead_letter_routing_key"),
        ("queue-mode", "queue_mode"),
        ("queue-master-locator", "queue_master_locator"),
    ],
)
def test_argument_wins_for_strings(key: str, attribute: str) -> None:
    """§6.2: rows `argument wins`."""
    applied = EffectivePolicy("p", None, {key: "policy"})
    assert getattr(queue_settings({}, applied), attribute) == "policy"
    assert getattr(queue_settings({f"x-{key}": longstr("argument")}, applied), attribute) == "argument"


def test_empty_dead_letter_exchange_is_the_default_exchange_not_unset() -> None:
    """§3.10 row x-dead-letter-exchange: may be ''."""
    settings = queue_settings({"x-dead-letter-exchange": longstr("")}, effective(dead_letter_exchange="x"))
    assert settings.dead_letter_exchange == ""


def test_queue_version_argument_wins() -> None:
    """§6.2 row queue-version."""
    assert queue_settings({}, NO_POLICY).queue_version == 1
    assert queue_settings({}, effective(queue_version=2)).queue_version == 2
    assert queue_settings({"x-queue-version": long(1)}, effective(queue_version=2)).queue_version == 1


def test_priority_and_single_active_consumer_come_by_argument_only() -> None:
    """§5.6: argument only — no policy."""
    applied = effective(max_priority=5, single_active_consumer=True)
    assert queue_settings({}, applied).max_priority is None
    assert not queue_settings({}, applied).single_active_consumer
    settings = queue_settings(
        {"x-max-priority": Field("B", 9), "x-single-active-consumer": boolean(True)}, NO_POLICY
    )
    assert (settings.max_priority, settings.single_active_consumer) == (9, True)


def test_values_of_a_wrong_type_count_as_unset() -> None:
    arguments = {"x-max-length": longstr("5"), "x-overflow": long(1), "x-message-ttl": boolean(True)}
    assert queue_settings(arguments, effective(expires="5", dead_letter_exchange=5)) == QueueSettings()


def test_alternate_exchange_argument_before_policy() -> None:
    """§3.18: argument wins over policy."""
    applied = effective(alternate_exchange="by-policy")
    assert alternate_exchange({}, NO_POLICY) is None
    assert alternate_exchange({}, applied) == "by-policy"
    assert alternate_exchange({"alternate-exchange": longstr("arg")}, applied) == "arg"


def test_mirroring_is_by_policy_only() -> None:
    """§9.3; a batch of 1 counts as none given."""
    arguments = {"x-ha-mode": longstr("all"), "x-ha-params": long(3), "x-ha-sync-mode": longstr("automatic")}
    assert queue_settings(arguments, NO_POLICY) == QueueSettings()
    found = queue_settings({}, effective(ha_mode="exactly", ha_params=2, ha_sync_batch_size=1))
    assert found == QueueSettings(ha_mode="exactly", ha_params=2)
    assert found.ha_sync_batch_size == 4096
    found = queue_settings({}, effective(ha_mode="nodes", ha_params=["a", "b"], ha_sync_batch_size=7))
    assert found == QueueSettings(ha_mode="nodes", ha_params=("a", "b"), ha_sync_batch_size=7)
    others = {
        "ha_sync_mode": "automatic",
        "ha_promote_on_shutdown": "always",
        "ha_promote_on_failure": "always",
        "ha_confirm": "master",
        "ha_slow_mirror": "block",
    }
    found = queue_settings({}, effective(ha_mode="all", **others))
    assert found == QueueSettings(ha_mode="all", **others)  # type: ignore[arg-type]


def test_the_group_header_of_the_argument_comes_before_that_of_a_policy() -> None:
    by_policy = effective(group_header="p")
    assert queue_settings({}, by_policy).group_header == "p"
    assert queue_settings({"x-group-header": longstr("a")}, by_policy).group_header == "a"
    assert queue_settings({}, NO_POLICY).group_header is None


def test_deduplication_by_a_policy_unless_the_argument_says_otherwise() -> None:
    by_policy = effective(message_deduplication=True)
    assert queue_settings({}, by_policy).is_deduplicating
    assert not queue_settings({"x-message-deduplication": boolean(False)}, by_policy).is_deduplicating
    assert queue_settings({"x-message-deduplication": boolean(True)}, NO_POLICY).is_deduplicating
    assert not queue_settings({}, effective(message_deduplication=False)).is_deduplicating
    assert not queue_settings({}, NO_POLICY).is_deduplicating


# --- validation --------------------------------------------------------------------------------------------


def problem(definition: Json, *, operator: bool = False, **others: Json) -> str | None:
    value: dict[str, Json] = {"pattern": ".", "priority": 0, "definition": definition}
    value |= {key.replace("_", "-"): other for key, other in others.items()}
    return validate_policy("p", value, operator=operator)


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"bogus": 1}, '[{<<"bogus">>,1}] are not recognised policy settings'),
        ({"max-length": -1}, "-1 is not a valid maximum length"),
        ({"message-ttl": "x"}, '<<"x">> is not a valid message TTL'),
        ({"overflow": "foo"}, '<<"foo">> is not a valid overflow value'),
        ({}, "no policy provided"),
        ([], "no policy provided"),
        ({"ha-mode": "foo"}, '<<"foo">> is not a valid ha-mode value'),
        (
            {"ha-params": 2},
            "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown",
        ),
        ({"ha-mode": "exactly", "ha-params": "x"}, 'ha-mode="exactly" takes an integer, <<"x">> given'),
        ({"ha-mode": "exactly"}, 'ha-mode="exactly" takes an integer, none given'),
        ({"ha-mode": "exactly", "ha-params": 0}, 'ha-mode="exactly" takes an integer, 0 given'),
        ({"ha-mode": "nodes", "ha-params": []}, 'ha-mode="nodes" list must be non-empty'),
        ({"ha-mode": "nodes", "ha-params": 1}, 'ha-mode="nodes" takes a list, 1 given'),
        (
            {"ha-mode": "nodes", "ha-params": ["a", 1]},
            'ha-mode="nodes" takes a list of strings, [1] was not a string',
        ),
        ({"ha-mode": "all", "ha-params": 1}, 'ha-mode="all" does not take parameters'),
        (
            {"ha-mode": "all", "ha-sync-mode": "x"},
            'ha-sync-mode must be "manual" or "automatic", got <<"x">>',
        ),
        (
            {"ha-mode": "all", "ha-promote-on-shutdown": "x"},
            'ha-promote-on-shutdown must be "always" or "when-synced", got <<"x">>',
        ),
        (
            {"ha-mode": "all", "ha-promote-on-failure": "x"},
            'ha-promote-on-failure must be "always" or "when-synced", got <<"x">>',
        ),
        ({"ha-mode": "all", "ha-confirm": 1}, 'ha-confirm must be "all" or "master", got 1'),
        (
            {"ha-mode": "all", "ha-slow-mirror": "x"},
            'ha-slow-mirror must be "evict" or "block", got <<"x">>',
        ),
        (
            {"ha-confirm": "all"},
            "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown",
        ),
        (
            {"ha-mode": "all", "ha-sync-batch-size": 0},
            "ha-sync-batch-size takes an integer greater than 0, 0 given",
        ),
        ({"queue-master-locator": "foo"}, '<<"foo">> invalid queue-master-locator value'),
        ({"expires": 0}, "0 is not a valid queue expiry"),
        ({"max-length-bytes": 1.5}, "1.5 is not a valid maximum length in bytes"),
        ({"max-length": True}, "true is not a valid maximum length"),
        ({"dead-letter-exchange": 1}, "1 is not a valid dead letter exchange name"),
        ({"dead-letter-routing-key": None}, "null is not a valid dead letter routing key"),
        ({"alternate-exchange": 1}, "1 is not a valid alternate exchange name"),
        ({"queue-mode": "x"}, '<<"x">> is not a valid queue-mode value'),
        ({"queue-version": 3}, "3 is not a valid queue-version value"),
        ({"queue-version": True}, "true is not a valid queue-version value"),
        ({"dead-letter-strategy": "x"}, '<<"x">> is not a valid dead letter strategy'),
        ({"max-age": "0D"}, '<<"0D">> is not a valid max age'),
        ({"group-header": ""}, "<<>> is not a valid group header"),
        ({"message-deduplication": "true"}, '<<"true">> is not a valid message deduplication'),
        ("text", 'definition must be a dictionary: <<"text">>'),
    ],
)
def test_refused_definitions(definition: Json, text: str) -> None:
    """§6.3, row by row."""
    assert problem(definition) == text


@pytest.mark.parametrize(
    "definition",
    [
        {"message-ttl": 0, "expires": 1, "max-length": 0, "max-length-bytes": 0},
        {"overflow": "reject-publish-dlx", "queue-mode": "lazy", "queue-version": 2},
        {"dead-letter-exchange": "", "dead-letter-routing-key": "", "alternate-exchange": "x"},
        {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-sync-batch-size": 1},
        {"ha-mode": "exactly", "ha-params": 2, "ha-promote-on-failure": "when-synced"},
        {"ha-mode": "nodes", "ha-params": ["rabbit@a"], "ha-promote-on-shutdown": "always"},
        {"ha-mode": "all", "ha-confirm": "master", "ha-slow-mirror": "block"},
        {"delivery-limit": 5, "dead-letter-strategy": "at-least-once", "max-age": "1D"},
        {"queue-master-locator": "min-masters"},
        {"group-header": "customer", "message-deduplication": False},
    ],
)
def test_allowed_definitions(definition: Json) -> None:
    """§6.2: the keys and their ranges."""
    assert problem(definition) is None


@pytest.mark.parametrize("key", ["overflow", "dead-letter-exchange", "ha-mode", "alternate-exchange"])
def test_keys_that_an_operator_may_not_set(key: str) -> None:
    """§6.3 row key not allowed in operator policy: the text of an unknown key."""
    text = f'[{{<<"{key}">>,<<"all">>}}] are not recognised policy settings'
    assert problem({key: "all"}, operator=True) == text


def test_operator_keys() -> None:
    """§6.2 column operator allowed."""
    allowed: Json = {
        "message-ttl": 1,
        "expires": 1,
        "max-length": 1,
        "max-length-bytes": 1,
        "max-in-memory-length": 1,
        "max-in-memory-bytes": 1,
        "delivery-limit": 1,
    }
    assert problem(allowed, operator=True) is None
    assert problem({"max-length": -1}, operator=True) == "-1 is not a valid maximum length"


def test_bad_pattern_apply_to_and_priority() -> None:
    """§6.3 rows bad regexp (the reason within is Python's) and apply-to foo."""
    ok: Json = {"max-length": 1}
    assert problem(ok, pattern="(") == (
        'pattern should be regular expression but is invalid: {"missing ), unterminated subpattern",0}'
    )
    assert problem(ok, apply_to="foo") == (
        "apply-to 'foo' unrecognised; should be 'queues', 'exchanges' or 'all'"
    )
    assert problem(ok, priority="x") == 'priority should be a number, actually was <<"x">>'
    assert problem(ok, pattern=5) == "pattern should be a binary but was 5"
    assert problem(ok, bogus=1) == 'Unrecognised terms [{<<"bogus">>,1}] in p'


def test_missing_parts_are_named() -> None:
    assert validate_policy("p", {"priority": 0}, operator=False) == (
        'Key "definition" not found in p\nKey "pattern" not found in p'
    )
    assert validate_policy("p", 5, operator=False) == "p not a list 5"


def test_a_value_nested_without_end_is_refused_like_any_other() -> None:
    nested: Json = 1
    for _ in range(5000):
        nested = [nested]
    text = problem({"bogus": nested})
    assert text is not None
    assert text.endswith("are not recognised policy settings")
