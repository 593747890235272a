"""Headers to properties and back."""

import pytest

from node.amqp.field_table import Field, boolean, longstr
from node.amqp.properties import Properties
from node.stomp.errors import StompError
from node.stomp.properties import sent_properties, shown_headers

HEADERS = {
    "content-type": "text/plain",
    "content-encoding": "utf-8",
    "persistent": "true",
    "priority": " 7 ",
    "correlation-id": "c",
    "reply-to": "r",
    "expiration": "1000",
    "amqp-message-id": "m",
    "timestamp": "1700000000",
    "type": "t",
    "user-id": "u",
    "app-id": "a",
}
ALL = Properties(
    content_type="text/plain",
    content_encoding="utf-8",
    headers={"receipt": longstr("1"), "x": longstr("y")},
    delivery_mode=2,
    priority=7,
    correlation_id="c",
    reply_to="r",
    expiration="1000",
    message_id="m",
    timestamp=1700000000,
    type="t",
    user_id="u",
    app_id="a",
)


def test_headers_become_properties() -> None:
    assert sent_properties({**HEADERS, "destination": "/queue/a", "receipt": "1", "x": "y"}) == ALL


def test_properties_become_headers() -> None:
    shown = shown_headers(ALL)
    assert [name for name, _ in shown[:2]] == ["receipt", "x"]
    assert dict(shown) == {**HEADERS, "priority": "7", "reply-to": "/reply-queue/r", "receipt": "1", "x": "y"}


@pytest.mark.parametrize("value", ["false", "maybe", ""])
def test_messages_are_transient_unless_asked(value: str) -> None:
    assert sent_properties({"persistent": value}).delivery_mode is None


def test_only_texts_and_whole_numbers_are_shown() -> None:
    headers = {
        "text": longstr("t"),
        "int": Field("I", -1),
        "long": Field("l", 1 << 40),
        "short": Field("s", 1),
        "flag": boolean(True),
        "": longstr("no name"),
        "nul": longstr("a\0b"),
        "content-length": longstr("99"),
    }
    shown = shown_headers(Properties(headers=headers, delivery_mode=1))
    assert shown == [("text", "t"), ("int", "-1"), ("long", str(1 << 40))]


@pytest.mark.parametrize("value", ["/queue/a", "/topic/b", "/exchange/c", "/amq/queue/d", "/reply-queue/e"])
def test_destinations_in_reply_to_stay(value: str) -> None:
    assert shown_headers(Properties(reply_to=value)) == [("reply-to", value)]


@pytest.mark.parametrize(
    "headers",
    [
        {"priority": "256"},
        {"priority": "-1"},
        {"timestamp": "now"},
        {"timestamp": "9" * 400},
        {"correlation-id": "c" * 256},
        {"n" * 256: "v"},
    ],
)
def test_values_that_amqp_cannot_carry_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(StompError):
        sent_properties(headers)
