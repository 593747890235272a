"""Policies as operators change them: what RabbitMQ 3.10.8 does (management §1.10)."""

from typing import Any

import pytest

from node.admin import policies
from node.admin.policies import clear_policy, set_policy
from node.catalogue.records import Policy
from tests.kit.office import Office


def test_set_and_clear() -> None:
    office = Office()
    given: dict[str, Any] = {"pattern": "^a", "definition": {"max-length": 5}}
    assert office.do(set_policy(office.admin, "/", "p", **given))
    assert not office.do(set_policy(office.admin, "/", "p", **given, priority=1.5, apply_to="queues"))
    assert list(office.catalogue.policies("/")) == [
        Policy("/", "p", "^a", {"max-length": 5}, priority=1.5, apply_to="queues")
    ]
    office.do(clear_policy(office.admin, "/", "p"))
    assert office.fails(clear_policy(office.admin, "/", "p")) == ("not_found", "Parameter does not exist")
    assert office.logged() == [
        "[info] Successfully set policy 'p' matching all names in virtual host '/' using pattern '^a'",
        "[info] Successfully set policy 'p' matching queues names in virtual host '/' using pattern '^a'",
        "[info] Cleared policy 'p' in virtual host '/'",
    ]


def test_operator_policies_are_apart() -> None:
    office = Office()
    given: dict[str, Any] = {"pattern": "^a", "definition": {"max-length": 5}}
    office.do(set_policy(office.admin, "/", "p", **given, is_operator=True))
    assert not list(office.catalogue.policies("/"))
    assert office.fails(clear_policy(office.admin, "/", "p"))[0] == "not_found"
    office.do(clear_policy(office.admin, "/", "p", is_operator=True))
    assert not list(office.catalogue.policies("/", operator=True))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"definition": {}}, "no policy provided"),
        ({"definition": {"nope": "x"}}, '[{<<"nope">>,<<"x">>}] are not recognised policy settings'),
        ({"definition": {"max-length": -1}}, "-1 is not a valid maximum length"),
        ({"definition": {"ha-mode": "exactly"}}, 'ha-mode="exactly" takes an integer, none given'),
        ({"definition": [["max-length", 5]]}, 'definition must be a dictionary: [[<<"max-length">>,5]]'),
        ({"pattern": 5}, "pattern should be a binary but was 5"),
        ({"priority": "x"}, 'priority should be a number, actually was <<"x">>'),
        ({"priority": None}, "priority should be a number, actually was null"),
        (
            {"apply_to": None},
            "apply-to 'null' unrecognised; should be 'queues', 'exchanges' or 'all'",
        ),
        (
            {"is_operator": True, "definition": {"ha-mode": "all"}},
            '[{<<"ha-mode">>,<<"all">>}] are not recognised policy settings',
        ),
    ],
)
def test_refused_policies(given: dict[str, Any], problem: str) -> None:
    office = Office()
    policy = {"pattern": "^a", "definition": {"max-length": 5}, **given}
    assert office.fails(set_policy(office.admin, "/", "p", **policy)) == (
        "invalid",
        f"Validation failed\n\n{problem}\n",
    )
    assert not office.logged()


def test_where_there_is_no_vhost() -> None:
    office = Office()
    change = set_policy(office.admin, "v", "p", pattern="", definition={"max-length": 5})
    assert office.fails(change) == ("not_found", ["no_such_vhost", "v"])
    assert office.fails(policies.clear_policy(office.admin, "v", "p"))[0] == "not_found"
