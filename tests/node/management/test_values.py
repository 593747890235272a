"""Values in bodies are read, or refused with a reason (management §1.0, §2.4)."""

from typing import Any

import pytest

from node.amqp.field_table import long, longstr
from node.amqp.properties import Properties
from node.management import values
from node.management.reply import ApiError
from node.management.shown import shown_properties


def reason(error: pytest.ExceptionInfo[ApiError]) -> Any:
    assert error.value.status == 400
    return error.value.reason


def test_missing_keys_are_named() -> None:
    """Missing mandatory keys: a string such as `[{key_missing,pattern}]`."""
    with pytest.raises(ApiError) as caught:
        values.required({"b": 1}, "a", "b", "c")
    assert reason(caught) == "[{key_missing,a},{key_missing,c}]"
    values.required({"b": None}, "b")


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), (False, False), ("true", True), ("false", False), (None, False)]
)
def test_flags(value: Any, expected: bool) -> None:
    assert values.boolean({"flag": value}, "flag") is expected
    assert values.boolean({}, "flag") is False


@pytest.mark.parametrize("value", ["yes", 1, [], {}])
def test_no_flags(value: Any) -> None:
    with pytest.raises(ApiError) as caught:
        values.boolean({"flag": value}, "flag")
    assert reason(caught)[0] == "not_boolean"


@pytest.mark.parametrize(("value", "expected"), [(5, 5), ("5", 5), (-1, -1), (0, 0)])
def test_numbers(value: Any, expected: int) -> None:
    assert values.integer(value) == expected


@pytest.mark.parametrize("value", ["x", "", "9" * 19, True, 1.5, None, [], {}])
def test_no_numbers(value: Any) -> None:
    with pytest.raises(ApiError) as caught:
        values.integer(value)
    assert reason(caught)[0] == "not_integer"


def test_texts() -> None:
    assert values.text({"a": "x"}, "a") == "x"
    assert values.text({"a": None}, "a", "default") == "default"
    for value in (5, [], {}):
        with pytest.raises(ApiError) as caught:
            values.text({"a": value}, "a")
        assert reason(caught) == ["not_string", "a"]


def test_names_are_counted_in_bytes() -> None:
    assert values.name("é" * 127, "queue")
    with pytest.raises(ApiError) as caught:
        values.name("é" * 128, "queue")
    assert reason(caught) == "queue should be less than 255 bytes, actually was 256\n"


def test_arguments() -> None:
    assert values.arguments({}) == values.arguments({"arguments": []}) == {}
    assert values.arguments({"arguments": {"x": 1, "y": "z"}}) == {"x": long(1), "y": longstr("z")}
    with pytest.raises(ApiError) as caught:
        values.arguments({"arguments": {"x": None}})
    assert reason(caught) == "null_not_allowed"


def test_properties() -> None:
    given = {"delivery_mode": 2, "headers": {"a": 1}, "type": "t", "unknown": 5, "app_id": None}
    expected = Properties(delivery_mode=2, headers={"a": long(1)}, type="t")
    assert values.properties(given) == expected
    assert values.properties([]) == Properties()
    assert shown_properties(expected) == {"delivery_mode": 2, "headers": {"a": 1}, "type": "t"}


@pytest.mark.parametrize(
    "given",
    [
        5,
        "x",
        None,
        [1],
        {"delivery_mode": "2"},
        {"delivery_mode": 256},
        {"priority": True},
        {"timestamp": 2**63},
        {"timestamp": -1},
        {"headers": 5},
        {"headers": {"a": None}},
        {"expiration": 5},
        {"type": "x" * 256},
    ],
)
def test_no_properties(given: Any) -> None:
    """All that would not fit its field is refused before it is encoded."""
    with pytest.raises(ApiError) as caught:
        values.properties(given)
    assert reason(caught)
