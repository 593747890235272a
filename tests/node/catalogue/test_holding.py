"""Headers that hold messages until a time: their names, and what their values mean."""

import pytest

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, boolean, longstr
from node.catalogue.arguments import validate_queue_arguments
from node.catalogue.delayed import check_arguments
from node.catalogue.holding import (
    HEADER_MAX_BYTES,
    hold_header,
    hold_time_ms,
    holding_exchange,
    is_holding_exchange,
)
from node.catalogue.policy import NO_POLICY, EffectivePolicy, queue_settings
from node.catalogue.policy_validation import validate_policy

NOON_MS = 1_795_867_200_000
"""2026-11-28T12:00:00Z."""


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2026-11-28T12:00:00", NOON_MS),
        ("2026-11-28T12:00:00Z", NOON_MS),
        ("2026-11-28 12:00:00+00:00", NOON_MS),
        ("2026-11-28T13:00:00+01:00", NOON_MS),
        ("2026-11-28T12:00:00.250000+00:00", NOON_MS + 250),
        ("2026-11-28T12:00:00.250001+00:00", NOON_MS + 251),
        ("2026-11-28T12:00", NOON_MS),
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59Z", -1000),
    ],
)
def test_texts_by_iso_8601(text: str, milliseconds: int) -> None:
    """Rounded up to the millisecond; without an offset they are UTC. Celery writes them with one."""
    assert hold_time_ms(longstr(text)) == milliseconds


@pytest.mark.parametrize(
    ("field", "milliseconds"),
    [
        (Field("T", 1_795_867_200), NOON_MS),
        (Field("l", 1_795_867_200), NOON_MS),
        (Field("I", 1), 1000),
        (Field("d", 0.5001), 501),
        (Field("i", 0), 0),
    ],
)
def test_numbers_are_seconds(field: Field, milliseconds: int) -> None:
    assert hold_time_ms(field) == milliseconds


@pytest.mark.parametrize(
    "field",
    [
        None,
        longstr(""),
        longstr("soon"),
        longstr("2026-11-28"),
        longstr("2026-13-28T12:00:00"),
        longstr("2026-11-28T12:00:00" + " " * 64),
        longstr(b"2026-11-28T12:00:00\xff"),
        Field("x", b"2026-11-28T12:00:00"),
        boolean(True),
        Field("I", -1),
        Field("l", 1 << 62),
        Field("d", float("nan")),
        Field("d", float("inf")),
        Field("V", None),
    ],
)
def test_other_values_mean_no_time(field: Field | None) -> None:
    assert hold_time_ms(field) is None


def test_the_name_of_the_exchange() -> None:
    assert holding_exchange("eta") == "amq.hold.eta"
    assert is_holding_exchange("amq.hold.eta")
    assert not is_holding_exchange("amq.direct")


def test_an_argument_comes_before_the_policy() -> None:
    policy = EffectivePolicy("p", None, {"hold-until-header": "when"})
    assert queue_settings({}, NO_POLICY).hold_until_header is None
    assert queue_settings({}, policy).hold_until_header == "when"
    arguments = {"x-hold-until-header": longstr("eta")}
    assert queue_settings(arguments, policy).hold_until_header == "eta"
    assert hold_header(arguments) == "eta"
    assert hold_header({}) is None


@pytest.mark.parametrize("bad", [longstr(""), longstr("h" * (HEADER_MAX_BYTES + 1)), Field("I", 1)])
def test_bad_names_are_refused(bad: Field) -> None:
    """Queues, delayed exchanges and policies need one that is short and not empty."""
    arguments = {"x-hold-until-header": bad}
    for kind in ("classic", "quorum"):
        with pytest.raises(ProtocolError, match="x-hold-until-header"):
            validate_queue_arguments(
                {**arguments, "x-queue-type": longstr(kind)}, "q", "/", True, False, False, "n@h"
            )
    with pytest.raises(ProtocolError, match="must be the name of a header"):
        check_arguments({"x-delayed-type": longstr("direct"), **arguments})
    value = bad.value.decode() if isinstance(bad.value, bytes) else bad.value
    assert isinstance(value, str | int)
    problem = validate_policy(
        "p", {"pattern": "", "priority": 0, "definition": {"hold-until-header": value}}, operator=False
    )
    assert problem is not None
    assert "is not a valid header name" in problem


def test_good_names_are_taken() -> None:
    good = {"x-hold-until-header": longstr("eta")}
    assert validate_queue_arguments(good, "q", "/", True, False, False, "n@h") == "classic"
    check_arguments({"x-delayed-type": longstr("direct"), **good})
