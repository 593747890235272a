"""URIs in parameters: one or a list, and what is told of those that are none."""

import pytest

from node.catalogue.records import Json
from node.catalogue.uri_parameters import URIS_MAX, check_uris


@pytest.mark.parametrize("value", ["amqp://", "amqps://u:p@h/v?heartbeat=5", ["amqp://a", "amqp://b"]])
def test_a_uri_or_a_list_of_them(value: Json) -> None:
    """Valid values have no problem."""
    assert check_uris("uri", value) == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (5, "uri should be list, actually was 5"),
        ({}, "uri should be list, actually was #{}"),
        (["amqp://a", 5, "http://b"], "uri should be list, actually was 5"),
        ([["amqp://a"]], 'uri should be list, actually was [<<"amqp://a">>]'),
        ([], "uri should be a non-empty list"),
        (["amqp://a"] * (URIS_MAX + 1), f"uri has more than {URIS_MAX} URIs"),
        ("http://b", '"http://b" not a valid URI: {{unexpected_uri_scheme,"http"},"http://b"}'),
        (
            ["amqp://a", "http://me:secret@b"],
            '"http://me:******@b" not a valid URI: {{unexpected_uri_scheme,"http"},"http://me:******@b"}',
        ),
    ],
)
def test_the_first_problem_is_told_without_a_password(value: Json, problem: str) -> None:
    """One text says what is wrong, in RabbitMQ's words."""
    assert check_uris("uri", value) == [problem]
