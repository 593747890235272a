"""Shovels of the configuration file."""

import pytest

from node.shovels.definition import AckMode, ShovelKey
from node.shovels.static import static_shovels

ORDERS = {
    "shovel.orders.src-uri.1": "amqp://a",
    "shovel.orders.src-uri.2": "amqp://b",
    "shovel.orders.src-queue": "q",
    "shovel.orders.dest-uri": "amqp://",
    "shovel.orders.dest-queue": "r",
}


def test_a_shovel_has_the_keys_of_dynamic_ones() -> None:
    more = {
        "shovel.orders.ack-mode": "no-ack",
        "shovel.orders.src-prefetch-count": "7",
        "shovel.orders.src-delete-after": "queue-length",
        "shovel.orders.reconnect-delay": "1.5",
        "shovel.orders.dest-add-forward-headers": "true",
        "shovel.orders.dest-publish-properties": '{"priority": 2}',
        "stomp.default_user": "guest",
    }
    (shovel,), problems = static_shovels(ORDERS | more)
    assert problems == []
    assert (shovel.key, shovel.type) == (ShovelKey("", "orders"), "static")
    assert shovel.source.uris == ("amqp://a", "amqp://b")
    assert (shovel.ack_mode, shovel.prefetch, shovel.reconnect_delay_s) == (AckMode.NO_ACK, 7, 1.5)
    assert (shovel.delete_after, shovel.adds_forward_headers) == ("queue-length", True)
    assert shovel.properties == {"priority": 2}


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("src-prefetch-count", "many", "shovel.orders.src-prefetch-count: 'many' is not allowed"),
        ("src-predeclared", "yes", "shovel.orders.src-predeclared: 'yes' is not allowed"),
        ("dest-publish-properties", "{", "shovel.orders.dest-publish-properties: '{' is not allowed"),
        ("src-queue.1", "q", "shovel.orders.src-queue.1: 'q' is not allowed"),
        ("nothing", "x", 'shovel.orders: Unrecognised terms [{<<"nothing">>,<<"x">>}] in orders'),
        ("src-exchange", "x", "shovel.orders: Cannot specify 'src-exchange' and 'src-queue'"),
        ("src-consumer-args", '{"x": null}', "shovel.orders: null_not_allowed"),
    ],
)
def test_what_is_wrong_is_told(key: str, text: str, problem: str) -> None:
    _, problems = static_shovels(ORDERS | {f"shovel.orders.{key}": text})
    assert problems == [problem]


@pytest.mark.parametrize("key", ["scr-uri", "src-uris.1", "dest-uri", "src-queue.1"])
def test_a_mistake_does_not_show_a_password(key: str) -> None:
    """The texts are logged."""
    _, problems = static_shovels(ORDERS | {f"shovel.orders.{key}": "amqp://user:se/cr@et@h"})
    assert len(problems) == 1
    assert "cr@" not in problems[0]
    assert "se/" not in problems[0]


def test_without_settings_there_are_none() -> None:
    assert static_shovels({}) == ([], [])
