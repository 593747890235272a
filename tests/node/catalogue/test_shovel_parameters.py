"""The checks of the parameter `shovel`, with RabbitMQ's texts."""

import pytest

from node.catalogue.records import Json
from node.catalogue.shovel_parameters import validate_shovel

MINIMAL: dict[str, Json] = {"src-uri": "amqp://", "src-queue": "q", "dest-uri": ["amqp://a", "amqp://b"]}
FULL: dict[str, Json] = {
    "src-uri": "amqp://",
    "dest-uri": "amqps://h?verify=verify_none",
    "src-exchange": "x",
    "src-exchange-key": "k",
    "src-prefetch-count": 5,
    "src-delete-after": 7,
    "src-predeclared": False,
    "src-consumer-args": {"x-priority": 1},
    "src-protocol": "amqp091",
    "dest-exchange": "y",
    "dest-exchange-key": "l",
    "dest-add-forward-headers": True,
    "dest-add-timestamp-header": True,
    "dest-publish-properties": {"delivery_mode": 2, "headers": {"a": 1}},
    "dest-predeclared": True,
    "dest-protocol": "amqp091",
    "ack-mode": "on-publish",
    "reconnect-delay": 1.5,
    "prefetch-count": 5,
    "delete-after": "never",
    "add-forward-headers": False,
    "publish-properties": {},
}


@pytest.mark.parametrize("value", [MINIMAL, FULL])
def test_what_is_right_has_no_problems(value: Json) -> None:
    assert validate_shovel("s", value) == []


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"src-queue": None}, ["Must specify 'src-exchange' or 'src-queue'"]),
        ({"src-exchange": "x"}, ["Cannot specify 'src-exchange' and 'src-queue'"]),
        (
            {"dest-queue": "q", "dest-exchange": "x"},
            ["Cannot specify 'dest-exchange' and 'dest-queue'"],
        ),
        (
            {"ack-mode": "no-ack", "delete-after": 5},
            ["Cannot specify 'no-ack' and numerical 'delete-after'"],
        ),
        ({"dest-uri": None}, ['Key "dest-uri" not found in s']),
        ({"src-uri": 5}, ["src-uri should be list, actually was 5"]),
        ({"x": 1}, ['Unrecognised terms [{<<"x">>,1}] in s']),
        (
            {"ack-mode": "maybe"},
            [
                'ack-mode should be one of [<<"no-ack">>,<<"on-publish">>,<<"on-confirm">>], '
                'actually was <<"maybe">>'
            ],
        ),
        ({"src-prefetch-count": "x"}, ['src-prefetch-count should be a number, actually was <<"x">>']),
        (
            {"src-delete-after": "soon"},
            [
                'src-delete-after should be a number greater than or equal to 0, "never" or "queue-length", '
                'actually was <<"soon">>'
            ],
        ),
        ({"src-predeclared": 1}, ["src-predeclared should be boolean, actually was 1"]),
        (
            {"dest-publish-properties": {"y": 1}},
            ['Unrecognised terms [{<<"y">>,1}] in dest-publish-properties'],
        ),
    ],
)
def test_what_is_wrong_is_told(changes: dict[str, Json], problems: list[str]) -> None:
    value = {key: found for key, found in (MINIMAL | changes).items() if found is not None}
    assert validate_shovel("s", value) == problems


def test_a_password_is_not_told() -> None:
    problems = validate_shovel("s", MINIMAL | {"src-uri": "amqp://user:secret@h:port"})
    assert len(problems) == 1
    assert "secret" not in problems[0]
