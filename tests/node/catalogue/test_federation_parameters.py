"""Federation's parameters and policy keys are checked with RabbitMQ's texts."""

import pytest

from node.catalogue.federation_parameters import (
    policy_problem,
    validate_federation,
    validate_upstream,
    validate_upstream_set,
)
from node.catalogue.records import Json

FULL: dict[str, Json] = {
    "uri": ["amqp://a", "amqps://b:5671/%2f?verify=verify_none"],
    "exchange": "x",
    "queue": "q",
    "consumer-tag": "tag",
    "prefetch-count": 10,
    "reconnect-delay": 1,
    "max-hops": 2,
    "expires": 3600000,
    "message-ttl": 60000,
    "trust-user-id": True,
    "ack-mode": "on-publish",
    "resource-cleanup-mode": "never",
    "ha-policy": "all",
    "bind-nowait": True,
    "channel-use-mode": "single",
}


def test_all_keys_of_rabbitmq_are_taken() -> None:
    """An upstream and an element of a set may have each key that RabbitMQ 3.10.8 knows."""
    assert validate_upstream("u", FULL) == []
    assert validate_upstream_set("s", [{"upstream": "u", **FULL}, {"upstream": "v"}]) == []
    assert validate_upstream_set("s", []) == []


def test_uri_is_needed() -> None:
    """An upstream without a URI is refused in RabbitMQ's words."""
    assert validate_upstream("u", {}) == ['Key "uri" not found in u']
    assert validate_upstream_set("s", [{}]) == ['Key "upstream" not found in s']


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("exchange", 5, "exchange should be binary, actually was 5"),
        ("prefetch-count", "5", 'prefetch-count should be a number, actually was <<"5">>'),
        ("trust-user-id", "yes", 'trust-user-id should be boolean, actually was <<"yes">>'),
        (
            "ack-mode",
            "never",
            'ack-mode should be one of [<<"no-ack">>,<<"on-publish">>,<<"on-confirm">>], actually was <<"never">>',
        ),
        ("resource-cleanup-mode", 1, "resource-cleanup-mode should be binary, actually was 1"),
        ("uri", 5, "uri should be list, actually was 5"),
        ("uri", [5], "uri should be list, actually was 5"),
        ("nonsense", 1, 'Unrecognised terms [{<<"nonsense">>,1}] in u'),
    ],
)
def test_each_key_has_its_type(key: str, value: Json, text: str) -> None:
    """A value of a wrong type is refused in RabbitMQ's words."""
    assert validate_upstream("u", {"uri": "amqp://", key: value}) == [text]


def test_bad_uri_is_told_without_its_password() -> None:
    """A URI that cannot be read is named, and its password is not."""
    (problem,) = validate_upstream("u", {"uri": ["amqp://a", "http://me:secret@b"]})
    assert problem == (
        '"http://me:******@b" not a valid URI: {{unexpected_uri_scheme,"http"},"http://me:******@b"}'
    )
    assert "secret" not in problem


def test_empty_list_of_uris_is_refused() -> None:
    """A link could choose none of no URIs."""
    assert validate_upstream("u", {"uri": []}) == ["uri should be a non-empty list"]


def test_set_is_a_list() -> None:
    """Anything but a list is no set."""
    assert validate_upstream_set("s", {"upstream": "u"}) == ['s not a list #{<<"upstream">> => <<"u">>}']


def test_component_federation_takes_nothing() -> None:
    """Earlier versions of RabbitMQ had parameters of this component."""
    assert validate_federation("local-nodename", "x") == ['name not recognised: <<"local-nodename">>']


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"federation-upstream": "u"}, None),
        ({"federation-upstream-set": "all"}, None),
        ({"federation-upstream-pattern": "^u"}, None),
        ({"max-length": 1}, None),
        ({"federation-upstream": 1}, "1 is not a valid federation upstream name"),
        ({"federation-upstream-set": 1}, "1 is not a valid federation upstream set name"),
        ({"federation-upstream-pattern": 1}, "1 is not a valid federation upstream pattern name"),
        (
            {"federation-upstream": "u", "federation-upstream-set": "all"},
            "cannot specify federation-upstream, federation-upstream-set or federation-upstream-pattern together",
        ),
    ],
)
def test_policy_keys(definition: dict[str, Json], text: str | None) -> None:
    """A policy has at most one of the keys, and it is a text."""
    assert policy_problem(definition) == text


def test_pattern_has_to_be_a_regular_expression() -> None:
    """A pattern that is none is refused when the policy is set."""
    problem = policy_problem({"federation-upstream-pattern": "("})
    assert problem is not None
    assert problem.startswith("could not compile pattern ( to a regular expression. Error: {")
