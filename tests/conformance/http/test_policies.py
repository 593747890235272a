"""Policies of users and of operators (management §1.10)."""

import html
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.http.steps import eventually
from tests.kit.http_api import Answer, HttpApi

POLICY = {"pattern": "^a", "definition": {"max-length": 5}}
KINDS = ["policies", "operator-policies"]
NO_OBJECT = {"error": "Object Not Found", "reason": "Not Found"}


@pytest.fixture
def vhost(make_vhost: Callable[[], str]) -> str:
    return make_vhost()


@pytest.mark.parametrize("kind", KINDS)
def test_put_get_delete(api: HttpApi, vhost: str, kind: str) -> None:
    path = f"/{kind}/{vhost}/p"
    assert (api.get(path).status, api.get(path).json) == (404, NO_OBJECT)
    assert api.delete(path).status == 404
    assert api.put(path, POLICY).status == 201
    assert api.put(path, {**POLICY, "name": "other", "vhost": "/", "extra": 1}).status == 204
    expected = {"vhost": vhost, "name": "p", **POLICY, "apply-to": "all", "priority": 0}
    assert api.get(path).json == expected
    assert api.get(f"/{kind}/{vhost}").json == [expected]
    assert expected in api.get(f"/{kind}").json
    assert expected not in api.get(f"/{'policies' if kind != 'policies' else 'operator-policies'}").json
    assert api.put(path, {**POLICY, "priority": 1.5, "apply-to": "queues"}).status == 204
    assert api.get(path).json == {**expected, "priority": 1.5, "apply-to": "queues"}
    assert api.delete(path).status == 204
    assert api.get(path).status == 404


@pytest.mark.parametrize("kind", KINDS)
def test_where_there_is_no_vhost(api: HttpApi, name: Callable[[str], str], kind: str) -> None:
    nov = name("nov")
    answer = api.put(f"/{kind}/{nov}/p", POLICY)
    assert (answer.status, answer.json) == (404, {"error": "not_found", "reason": "vhost_not_found"})
    assert (api.get(f"/{kind}/{nov}").json, api.get(f"/{kind}/{nov}/p").json) == (NO_OBJECT, NO_OBJECT)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"definition": {}}, "no policy provided"),
    ({"definition": {"nope": "<b>x"}}, '[{<<"nope">>,<<"<b>x">>}] are not recognised policy settings'),
    (
        {"definition": {"federation-upstream": "x"}},
        '[{<<"federation-upstream">>,<<"x">>}] are not recognised',
    ),
    ({"definition": {"max-length": "x"}}, '<<"x">> is not a valid maximum length'),
    ({"definition": {"max-length": -1}}, "-1 is not a valid maximum length"),
    ({"definition": {"max-length-bytes": -1}}, "-1 is not a valid maximum length in bytes"),
    ({"definition": {"message-ttl": -1}}, "-1 is not a valid message TTL"),
    ({"definition": {"expires": 0}}, "0 is not a valid queue expiry"),
    ({"definition": {"overflow": "x"}}, '<<"x">> is not a valid overflow value'),
    ({"definition": {"queue-mode": "x"}}, '<<"x">> is not a valid queue-mode value'),
    ({"definition": {"dead-letter-exchange": 5}}, "5 is not a valid dead letter exchange name"),
    ({"definition": {"alternate-exchange": 5}}, "5 is not a valid alternate exchange name"),
    ({"definition": {"delivery-limit": "x"}}, '<<"x">> is not a valid delivery limit'),
    ({"definition": {"ha-mode": "exactly"}}, 'ha-mode="exactly" takes an integer, none given'),
    ({"definition": {"ha-mode": "all", "ha-params": 2}}, 'ha-mode="all" does not take parameters'),
    ({"definition": {"ha-mode": "nodes", "ha-params": []}}, 'ha-mode="nodes" list must be non-empty'),
    ({"definition": {"ha-sync-mode": "manual"}}, "ha-mode must be specified to specify ha-params"),
    ({"pattern": "("}, 'pattern should be regular expression but is invalid: {"'),
    ({"pattern": 5}, "pattern should be a binary but was 5"),
    ({"priority": "x"}, 'priority should be a number, actually was <<"x">>'),
    ({"apply-to": "bogus"}, "apply-to 'bogus' unrecognised; should be 'queues', 'exchanges' or 'all'"),
]


def assert_invalid(answer: Answer, problem: str) -> None:
    """In the policies of users RabbitMQ escapes the text for HTML."""
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    reason = html.unescape(answer.json["reason"])
    assert reason.startswith(f"Validation failed\n\n{problem}")
    assert reason.endswith("\n")


@pytest.mark.parametrize(("given", "problem"), REFUSED)
def test_refused(api: HttpApi, given: dict[str, Any], problem: str) -> None:
    assert_invalid(api.put("/policies/%2F/refused", {**POLICY, **given}), problem)
    assert api.get("/policies/%2F/refused").status == 404


def test_operators_may_set_less(api: HttpApi) -> None:
    path = "/operator-policies/%2F/refused"
    for key, value in (("ha-mode", "all"), ("queue-mode", "lazy"), ("overflow", "reject-publish")):
        answer = api.put(path, {**POLICY, "definition": {key: value}})
        assert_invalid(answer, f'[{{<<"{key}">>,<<"{value}">>}}] are not recognised policy settings')


@pytest.mark.parametrize("definition", [[], 5, None, [["max-length", 5]]])
def test_a_definition_is_an_object(api: HttpApi, definition: Any) -> None:
    """RabbitMQ crashes (500)."""
    answer = api.put("/policies/%2F/refused", {**POLICY, "definition": definition})
    assert answer.status in (400, 500)
    assert api.get("/policies/%2F/refused").status == 404


@pytest.mark.parametrize("kind", KINDS)
def test_what_must_be_there(api: HttpApi, kind: str) -> None:
    answer = api.put(f"/{kind}/%2F/refused", {})
    assert (answer.status, answer.json["reason"]) == (400, "[{key_missing,pattern},{key_missing,definition}]")
    answer = api.put(f"/{kind}/%2F/refused", {"pattern": ""})
    assert (answer.status, answer.json["reason"]) == (400, "[{key_missing,definition}]")


def test_operator_policies_want_json(api: HttpApi, vhost: str) -> None:
    path = f"/operator-policies/{vhost}/p"
    answer = api.put(path, POLICY, headers={"content-type": "text/plain"})
    assert (answer.status, answer.text) == (415, "")
    assert api.put(path, POLICY, headers={"content-type": "application/json; charset=utf-8"}).status == 201
    assert api.put(f"/policies/{vhost}/p", POLICY, headers={"content-type": "text/plain"}).status == 201


@pytest.fixture
def user(make_user: Callable[..., str], vhost: str) -> str:
    return make_user(vhost)


def test_who_may(api: HttpApi, vhost: str, user: str) -> None:
    """§2.1: a policymaker where there is a permission; others only look at lists."""
    api.put(f"/policies/{vhost}/there", POLICY)
    api.put("/policies/%2F/elsewhere", POLICY)
    try:
        for tag in ("management", "monitoring", "policymaker"):
            api.put(f"/users/{user}", {"password": user, "tags": tag})
            listed = [each["name"] for each in api.get("/policies", user=user).json]
            assert "there" in listed
            assert "elsewhere" not in listed
            expected = 200 if tag == "policymaker" else 401
            single = api.get(f"/policies/{vhost}/there", user=user)
            assert single.status == expected
            if expected == 401:
                assert single.json["reason"] == "User not authorised to access object"
            put = api.put(f"/policies/{vhost}/new", POLICY, user=user)
            assert put.status == (201 if tag == "policymaker" else 401)
            answer = api.put("/policies/%2F/elsewhere", POLICY, user=user)
            assert (answer.status, answer.json["reason"]) == (401, "User not authorised to access object")
            for answer in (
                api.get(f"/operator-policies/{vhost}/there", user=user),
                api.put(f"/operator-policies/{vhost}/there", POLICY, user=user),
            ):
                assert (answer.status, answer.json["reason"]) == (401, "Not administrator user")
            assert api.get("/operator-policies", user=user).status == 200
        answer = api.get("/policies/%2F", user=user)
        assert answer.json["reason"] == "User not authorised to access virtual host"
    finally:
        api.delete("/policies/%2F/elsewhere")


def test_it_applies(api: HttpApi, vhost: str) -> None:
    api.put(f"/queues/{vhost}/abc", {"durable": True})
    api.put(f"/policies/{vhost}/p", {**POLICY, "priority": 2})
    api.put(f"/policies/{vhost}/q", {**POLICY, "definition": {"max-length": 6}, "priority": 3})
    api.put(f"/operator-policies/{vhost}/o", {**POLICY, "definition": {"max-length": 4}})
    columns = "policy,operator_policy,effective_policy_definition"

    def applies() -> bool:
        found = api.get(f"/queues/{vhost}/abc?columns={columns}").json
        return bool(found) and found == {
            "policy": "q",
            "operator_policy": "o",
            "effective_policy_definition": {"max-length": 4},
        }

    eventually(applies)
