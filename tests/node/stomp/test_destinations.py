"""Destinations, to and from addresses. tests/conformance/stomp/test_errors.py has the texts of refusals."""

import pytest

from node.stomp.destinations import Destination, parse_destination, show_destination
from node.stomp.errors import StompError


@pytest.mark.parametrize(
    ("text", "destination", "address"),
    [
        ("plain", Destination("queue", "plain"), ("", "plain")),
        ("/queue/a", Destination("queue", "a"), ("", "a")),
        ("/queue/a%2Fb%2fc%25", Destination("queue", "a/b%2fc%25"), ("", "a/b%2fc%25")),
        ("/topic/a.#", Destination("topic", "a.#"), ("topics", "a.#")),
        ("/exchange/e", Destination("exchange", "e"), ("e", "")),
        ("/exchange/e/k", Destination("exchange", "e", "k"), ("e", "k")),
        ("/exchange/e/", Destination("exchange", "e", ""), ("e", "")),
        ("/exchange/amq.topic/k", Destination("exchange", "amq.topic", "k"), ("topics", "k")),
        ("/amq/queue/a", Destination("amqqueue", "a"), ("", "a")),
        ("/reply-queue/a/b", Destination("reply_queue", "a/b"), ("", "a/b")),
        ("/temp-queue/a", Destination("temp_queue", "a"), ("", "a")),
    ],
)
def test_destinations_lead_to_addresses(
    text: str, destination: Destination, address: tuple[str, str]
) -> None:
    assert parse_destination(text) == destination
    assert destination.address("topics") == address


@pytest.mark.parametrize(
    "text", ["/", "/queue", "/queue/", "/queue/a/b", "//a", "/amq/a", "/reply-queue", "a/b"]
)
def test_others_are_refused(text: str) -> None:
    with pytest.raises(StompError):
        parse_destination(text)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (("", "a/b%"), "/queue/a%2Fb%25"),
        (("amq.topic", "a.b"), "/topic/a.b"),
        (("e", ""), "/exchange/e"),
        (("e/é", "k\n\x7f"), "/exchange/e%2F%C3%A9/k%0A\x7f"),
    ],
)
def test_addresses_are_shown(address: tuple[str, str], text: str) -> None:
    assert show_destination(*address) == text
