"""Terraform's provider puts, looks, puts again, deletes and looks, for each kind of object (management §1.13)."""

import urllib.parse
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from tests.conformance.http.steps import is_missing, path, put_queue
from tests.kit.http_api import HttpApi, quote


class Resource(NamedTuple):
    """One kind.

    segments: of its path; names of the test's own are put for VHOST, USER, NAME.
    body: what is put.   shown: what a look then finds of it, where that is something else.
    changed: what is put then, of which the next look finds the same; nothing where it cannot be changed.
    """

    segments: tuple[str, ...]
    body: dict[str, Any]
    shown: dict[str, Any] | None = None
    changed: dict[str, Any] | None = None


NUMBERS: Final = {"x-message-ttl": 60000, "x-max-length": 5, "x-dead-letter-exchange": "dlx", "x-other": True}
"""Numbers stay numbers, else the next plan would want to change them."""

RULE: Final = {"pattern": "^a", "priority": 1, "apply-to": "queues"}

RESOURCES: Final = {
    "vhost": Resource(
        ("vhosts", "NAME"),
        {"description": "d", "tags": "a,b", "tracing": False},
        {"description": "d", "tags": ["a", "b"], "tracing": False},
    ),
    "user": Resource(
        ("users", "NAME"),
        {"password": "p", "tags": "management,policymaker"},
        {"tags": ["management", "policymaker"]},
    ),
    "permissions": Resource(
        ("permissions", "VHOST", "USER"),
        {"configure": ".*", "write": "", "read": "^a"},
        changed={"configure": "", "write": "^b", "read": ".*"},
    ),
    "exchange": Resource(
        ("exchanges", "VHOST", "NAME"),
        {
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "other", "x-number": 5},
        },
    ),
    "queue": Resource(
        ("queues", "VHOST", "NAME"), {"durable": True, "auto_delete": False, "arguments": NUMBERS}
    ),
    "policy": Resource(
        ("policies", "VHOST", "NAME"),
        {**RULE, "definition": {"ha-mode": "exactly", "ha-params": 2, "max-length": 5}},
        changed={**RULE, "priority": 0, "definition": {"message-ttl": 1000}},
    ),
    "operator policy": Resource(
        ("operator-policies", "VHOST", "NAME"),
        {**RULE, "definition": {"max-length": 5, "message-ttl": 1000}},
        changed={**RULE, "definition": {"expires": 1000}},
    ),
    "global parameter": Resource(
        ("global-parameters", "NAME"), {"value": {"a": [1, {"b": True}]}}, changed={"value": 5}
    ),
}


@pytest.mark.parametrize("kind", RESOURCES)
def test_life_of_a_resource(
    api: HttpApi, vhost: str, name: Callable[[str], str], make_user: Callable[..., str], kind: str
) -> None:
    """201, then 204 for the same again; what was put is what is shown; 404 after its end."""
    resource = RESOURCES[kind]
    names = {"NAME": name("tf/é ~"), "VHOST": vhost, "USER": make_user(None)}
    at = path(*(names.get(segment, segment) for segment in resource.segments))
    is_missing(api.get(at))
    assert api.put(at, resource.body).status == 201
    shown = api.get(at)
    assert shown.status == 200
    assert shown.json.items() >= (resource.shown or resource.body).items()
    for _ in range(2):
        assert api.put(at, resource.body).status == 204
        assert api.get(at).json.items() >= (resource.shown or resource.body).items()
    if resource.changed is not None:
        assert api.put(at, resource.changed).status == 204
        assert api.get(at).json.items() >= resource.changed.items()
    assert api.delete(at).status == 204
    is_missing(api.get(at))
    is_missing(api.delete(at))


def test_life_of_topic_permissions(api: HttpApi, vhost: str, make_user: Callable[..., str]) -> None:
    """A look gives a list, one row for each exchange."""
    user = make_user(vhost)
    at = path("topic-permissions", vhost, user)
    row = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
    is_missing(api.get(at))
    assert api.put(at, row).status == 201
    for body in (row, {**row, "read": "^b"}):
        assert api.put(at, body).status == 204
        assert api.get(at).json == [{"user": user, "vhost": vhost, **body}]
    assert api.delete(at + "/amq.topic").status == 204
    is_missing(api.get(at))


@pytest.mark.parametrize(("kind", "destination"), [("q", "to queue/é"), ("e", "to exchange")])
@pytest.mark.parametrize("arguments", [{}, {"x-match": "all", "n": 5}])
@pytest.mark.parametrize("key", ["", "a.#", "a b/%&+?", "é"])
def test_life_of_a_binding(
    api: HttpApi, vhost: str, kind: str, destination: str, arguments: dict[str, Any], key: str
) -> None:
    """The last segment of Location, decoded once, is the properties_key by which it is found again."""
    assert api.put(path("exchanges", vhost, "from"), {"type": "headers"}).status == 201
    if kind == "q":
        put_queue(api, vhost, destination)
    else:
        assert api.put(path("exchanges", vhost, destination), {"type": "topic"}).status == 201
    at = path("bindings", vhost, "e", "from", kind, destination)
    for _ in range(2):
        answer = api.post(at, {"routing_key": key, "arguments": arguments})
        assert answer.status == 201
        properties_key = urllib.parse.unquote(answer.headers["location"].rsplit("/", 1)[1])
        expected = {
            "source": "from",
            "vhost": vhost,
            "destination": destination,
            "destination_type": "queue" if kind == "q" else "exchange",
            "routing_key": key,
            "arguments": arguments,
            "properties_key": properties_key,
        }
        assert api.get(at).json == [expected]
        assert api.get(f"{at}/{quote(properties_key)}").json == expected
    assert api.delete(f"{at}/{quote(properties_key)}").status == 204
    is_missing(api.get(f"{at}/{quote(properties_key)}"))
    assert api.get(at).json == []


@pytest.mark.parametrize(
    ("component", "value"),
    [
        (
            "shovel",
            {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"},
        ),
        ("federation-upstream", {"uri": "amqp://localhost"}),
        ("federation-upstream-set", [{"upstream": "all"}]),
    ],
)
def test_what_needs_a_plugin(api: HttpApi, vhost: str, component: str, value: Any) -> None:
    """Shovels and upstreams are refused, and the reason says why."""
    at = path("parameters", component, vhost, "p")
    answer = api.put(at, {"value": value})
    expected = {"error": "bad_request", "reason": f"Validation failed\n\ncomponent {component} not found\n"}
    assert (answer.status, answer.json) == (400, expected)
    assert api.get(at).status == 404
    assert api.delete(at).status == 404
