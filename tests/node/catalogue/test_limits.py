"""Limits of vhosts and users: value rule and texts (amqp-behaviour §1.5, §2.1, §3.7, §6.5)."""

from collections.abc import Callable

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue import limits
from node.catalogue.limits import (
    VhostLimits,
    check_bindings,
    check_pattern,
    check_plugged_bindings,
    check_user_channels,
    check_user_connections,
    check_vhost_connections,
    check_vhost_queues,
    user_limits_from,
    vhost_limits_from,
)
from node.catalogue.records import Json, UserLimits

CHECKS: list[tuple[Callable[[int | None, int], None], ReplyCode, str]] = [
    (
        lambda limit, count: check_vhost_connections(VhostLimits(max_connections=limit), "v", "u", count),
        ReplyCode.NOT_ALLOWED,
        "access to vhost 'v' refused for user 'u': connection limit (2) is reached",
    ),
    (
        lambda limit, count: check_user_connections(UserLimits(max_connections=limit), "u", count),
        ReplyCode.NOT_ALLOWED,
        "connection refused for user 'u': user connection limit (2) is reached",
    ),
    (
        lambda limit, count: check_user_channels(UserLimits(max_channels=limit), "u", count),
        ReplyCode.NOT_ALLOWED,
        "number of channels opened for user 'u' has reached the maximum allowed user limit of (2)",
    ),
    (
        lambda limit, count: check_vhost_queues(VhostLimits(max_queues=limit), "v", "q", count),
        ReplyCode.PRECONDITION_FAILED,
        "cannot declare queue 'q': queue limit in vhost 'v' (2) is reached",
    ),
]


@pytest.mark.parametrize(("check", "code", "text"), CHECKS)
def test_a_limit_refuses_when_it_is_reached(
    check: Callable[[int | None, int], None], code: ReplyCode, text: str
) -> None:
    """The texts of §1.5 checks 2 and 3, §2.1 row user max-channels, §3.7 step 7."""
    check(2, 1)
    for count in (2, 3):
        with pytest.raises(ProtocolError) as raised:
            check(2, count)
        assert (raised.value.code, raised.value.explanation) == (code, text)


@pytest.mark.parametrize(("check", "code", "text"), CHECKS)
def test_negative_is_no_limit_and_zero_allows_none(
    check: Callable[[int | None, int], None], code: ReplyCode, text: str
) -> None:
    """§6.5: value rule."""
    check(None, 1000)
    check(-1, 1000)
    with pytest.raises(ProtocolError):
        check(0, 0)


def test_limits_are_read_from_json() -> None:
    assert vhost_limits_from({"max-connections": 5, "max-queues": -1}) == VhostLimits(5, -1)
    assert user_limits_from({"max-channels": 0}) == UserLimits(None, 0)


def test_what_is_no_integer_is_no_limit() -> None:
    values: list[Json] = [
        None,
        [],
        "x",
        {"max-connections": "5", "max-queues": True},
        {"max-connections": 1.5},
    ]
    for value in values:
        assert vhost_limits_from(value) == VhostLimits()


def test_wildcards_of_a_pattern() -> None:
    check_pattern(".".join("#" * 16) + ".#a" * 20)
    with pytest.raises(ProtocolError) as refused:
        check_pattern(".".join("#" * 17))
    assert refused.value.code == ReplyCode.PRECONDITION_FAILED
    assert refused.value.explanation.startswith("more than 16 wildcards '#'")


@pytest.mark.parametrize(
    ("in_vhost", "to_queue"), [(limits.VHOST_BINDINGS_MAX, 0), (0, limits.BINDINGS_TO_MAX)]
)
def test_bindings(in_vhost: int, to_queue: int) -> None:
    where = "queue 'q' in vhost '/'"
    check_bindings("/", where, max(in_vhost - 1, 0), max(to_queue - 1, 0))
    with pytest.raises(ProtocolError) as refused:
        check_bindings("/", where, in_vhost, to_queue)
    assert refused.value.code == ReplyCode.PRECONDITION_FAILED
    assert refused.value.explanation.startswith(f"cannot bind {where}: binding limit")


def test_bindings_from_an_exchange_of_a_plugin() -> None:
    where = "exchange 'e' in vhost '/'"
    check_plugged_bindings(where, limits.PLUGGED_BINDINGS_MAX - 1)
    with pytest.raises(ProtocolError) as refused:
        check_plugged_bindings(where, limits.PLUGGED_BINDINGS_MAX)
    assert refused.value.explanation == f"cannot bind to {where}: binding limit (20000) is reached"
