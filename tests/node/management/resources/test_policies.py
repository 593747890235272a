"""Policies over HTTP: what is other, and better, than in RabbitMQ 3.10.8; the rest: tests/conformance/http."""

from dataclasses import replace
from typing import Any

import pytest

from node.config.config import ManagementConfig
from tests.kit.fake_site import Caller, FakeSite

POLICY = {"pattern": "^a", "definition": {"max-length": 5}}
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"definition": []}, "no policy provided"),
        ({"definition": 5}, "definition must be a dictionary: 5"),
        ({"definition": None}, "definition must be a dictionary: null"),
        ({"definition": {"<b>": 1}}, '[{<<"<b>">>,1}] are not recognised policy settings'),
        ({"apply-to": 5}, "apply-to '5' unrecognised; should be 'queues', 'exchanges' or 'all'"),
    ],
)
def test_refused(given: dict[str, Any], problem: str) -> None:
    """No 500, and no text that is escaped for HTML: it's JSON."""
    caller = Caller()
    answer = caller.ask("PUT", "/api/policies/%2F/p", {**POLICY, **given})
    assert (answer.status, answer.value["reason"]) == (400, f"Validation failed\n\n{problem}\n")
    assert caller.ask("GET", "/api/policies/%2F/p").status == 404


def test_changes_of_operator_policies_can_be_forbidden() -> None:
    """`management.restrictions.operator_policy_changes.disabled`: 405."""
    caller = Caller()
    path = "/api/operator-policies/%2F/o"
    assert caller.ask("PUT", path, POLICY, headers=JSON).status == 201
    site = caller.site
    restricted = ManagementConfig(disable_operator_policy_changes=True)
    site.config = replace(site.config, management=restricted)
    forbidden = Caller(site)
    assert forbidden.ask("PUT", path, POLICY, headers=JSON).status == 405
    assert forbidden.ask("DELETE", path).status == 405
    assert forbidden.ask("GET", path).status == 200
    assert forbidden.ask("PUT", "/api/policies/%2F/p", POLICY).status == 201


def test_the_broker_is_away() -> None:
    site = FakeSite()
    site.node = None
    assert Caller(site).ask("GET", "/api/policies").status == 503
