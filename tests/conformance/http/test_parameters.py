"""Runtime parameters of vhosts and of the cluster (management §1.10)."""

import html
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.http.steps import bad_request, is_missing
from tests.kit.http_api import HttpApi

OPERATOR_POLICY = {"pattern": "^a", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"}
NO_VHOST = {"error": "not_found", "reason": "vhost_not_found"}


@pytest.fixture
def vhost(make_vhost: Callable[[], str]) -> str:
    return make_vhost()


@pytest.fixture
def parameter(api: HttpApi, name: Callable[[str], str]) -> Iterator[str]:
    """A name for a global parameter, which goes with the test."""
    chosen = name("global")
    yield chosen
    api.delete(f"/global-parameters/{chosen}")


@pytest.mark.parametrize(
    ("component", "name_", "value"),
    [
        ("vhost-limits", "limits", {"max-queues": 5}),
        ("operator_policy", "o", OPERATOR_POLICY),
    ],
)
def test_put_get_delete(api: HttpApi, vhost: str, component: str, name_: str, value: Any) -> None:
    path = f"/parameters/{component}/{vhost}/{name_}"
    is_missing(api.get(path))
    is_missing(api.delete(path))
    assert api.put(path, {"value": value}).status == 201
    assert api.put(path, {"value": value}).status == 204
    expected = {"value": value, "vhost": vhost, "component": component, "name": name_}
    assert api.get(path).json == expected
    assert expected in api.get("/parameters").json
    assert expected in api.get(f"/parameters/{component}").json
    assert api.get(f"/parameters/{component}/{vhost}").json == [expected]
    assert api.delete(path).status == 204
    is_missing(api.get(path))


def test_policies_are_listed_by_their_component_only(api: HttpApi, vhost: str) -> None:
    policy = {key: OPERATOR_POLICY[key] for key in ("pattern", "definition", "priority", "apply-to")}
    api.put(f"/policies/{vhost}/p", policy)
    expected = {"value": policy, "vhost": vhost, "component": "policy", "name": "p"}
    assert expected not in api.get("/parameters").json
    assert expected in api.get("/parameters/policy").json
    assert api.get(f"/parameters/policy/{vhost}").json == [expected]
    assert api.get(f"/parameters/policy/{vhost}/p").json == expected
    bad_request(
        api.put(f"/parameters/policy/{vhost}/p", {"value": policy}),
        "policies may not be set using this method",
    )
    assert api.delete(f"/parameters/policy/{vhost}/p").status in (400, 500)
    assert api.get(f"/policies/{vhost}/p").status == 200


def test_an_operator_policy_is_one(api: HttpApi, vhost: str) -> None:
    api.put(f"/parameters/operator_policy/{vhost}/o", {"value": OPERATOR_POLICY})
    expected = {"vhost": vhost, "name": "o", **OPERATOR_POLICY}
    assert api.get(f"/operator-policies/{vhost}/o").json == expected


@pytest.mark.parametrize(
    ("component", "name_", "value", "problem"),
    [
        ("nope", "n", 5, "component nope not found"),
        ("shovel", "n", {}, "component shovel not found"),
        ("vhost-limits", "limits", 5, "limits not a list 5"),
        ("vhost-limits", "limits", {"nope": 5}, 'Unrecognised terms [{<<"nope">>,5}] in limits'),
        (
            "vhost-limits",
            "limits",
            {"max-queues": "x"},
            'max-queues should be a number, actually was <<"x">>',
        ),
        (
            "operator_policy",
            "o",
            {"pattern": "", "definition": {"expires": 5}},
            'Key "priority" not found in o',
        ),
    ],
)
def test_refused(api: HttpApi, vhost: str, component: str, name_: str, value: Any, problem: str) -> None:
    answer = api.put(f"/parameters/{component}/{vhost}/{name_}", {"value": value})
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert html.unescape(answer.json["reason"]) == f"Validation failed\n\n{problem}\n"
    assert api.get(f"/parameters/{component}/{vhost}").json == []


def test_what_is_missing(api: HttpApi, vhost: str, name: Callable[[str], str]) -> None:
    bad_request(api.put(f"/parameters/vhost-limits/{vhost}/limits", {}), "[{key_missing,value}]")
    nov = name("nov")
    answer = api.put(f"/parameters/vhost-limits/{nov}/limits", {"value": {}})
    assert (answer.status, answer.json) == (404, NO_VHOST)
    is_missing(api.get(f"/parameters/vhost-limits/{nov}"))
    assert api.get("/parameters/nope").json == []
    assert api.get(f"/parameters/nope/{vhost}").json == []


@pytest.mark.parametrize("value", [5, "x", True, None, [], ["a", 1], {"a": [1, {"b": None}]}])
def test_global_parameters_take_any_value(api: HttpApi, parameter: str, value: Any) -> None:
    path = f"/global-parameters/{parameter}"
    is_missing(api.get(path))
    is_missing(api.delete(path))
    assert api.put(path, {"value": value}).status == 201
    assert api.put(path, {"value": value}).status == 204
    expected = {"name": parameter, "value": value}
    assert api.get(path).json == expected
    assert expected in api.get("/global-parameters").json
    assert api.delete(path).status == 204
    bad_request(api.put(path, {}), "[{key_missing,value}]")


def test_the_cluster_has_an_id(api: HttpApi) -> None:
    """includes internal_cluster_id; on RabbitMQ cluster_name only once somebody has set it."""
    value = api.get("/global-parameters/internal_cluster_id").json["value"]
    assert value.startswith("rabbitmq-cluster-id-")


def test_the_cluster_has_a_name(api: HttpApi) -> None:
    before = api.get("/cluster-name").json["name"]
    try:
        api.put("/global-parameters/cluster_name", {"value": "another"})
        assert api.get("/cluster-name").json == {"name": "another"}
    finally:
        api.put("/cluster-name", {"name": before})


def test_who_may(api: HttpApi, vhost: str, make_user: Callable[..., str], parameter: str) -> None:
    """§2.1: policymakers, in the vhosts that they may use."""
    user = make_user(vhost)
    limits = f"/parameters/vhost-limits/{vhost}/limits"
    api.put(limits, {"value": {"max-queues": 5}})
    for tag in ("management", "monitoring", "policymaker"):
        api.put(f"/users/{user}", {"password": user, "tags": tag})
        answers = [
            api.get("/parameters", user=user),
            api.get(f"/parameters/vhost-limits/{vhost}", user=user),
            api.get(limits, user=user),
            api.get("/global-parameters", user=user),
            api.put(limits, {"value": {"max-queues": 6}}, user=user),
            api.put(f"/global-parameters/{parameter}", {"value": 1}, user=user),
        ]
        elsewhere = api.get("/parameters/vhost-limits/%2F", user=user)
        refused = [each for each in (*answers, elsewhere) if each.status == 401]
        assert len(refused) == (1 if tag == "policymaker" else len(answers) + 1)
        assert {each.json["reason"] for each in refused} == {"User not authorised to access object"}
