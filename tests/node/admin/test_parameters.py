"""Runtime parameters as operators change them: what RabbitMQ 3.10.8 does (management §1.10)."""

from typing import Any

from node.admin import parameters
from node.catalogue.commands import EnablePlugin, PutVhost, SetPermission
from node.federation.plugin import PLUGIN
from tests.kit.office import Office

OPERATOR_POLICY = {"pattern": "^a", "definition": {"max-length": 5}, "priority": 1}


def test_parameters_of_a_vhost() -> None:
    office = Office()
    put, clear = parameters.set_parameter, parameters.clear_parameter
    assert office.do(put(office.admin, "/", "vhost-limits", "limits", {"max-queues": 5}))
    assert not office.do(put(office.admin, "/", "vhost-limits", "limits", []))
    assert office.catalogue.parameter("/", "vhost-limits", "limits") == []
    office.do(clear(office.admin, "/", "vhost-limits", "limits"))
    again = clear(office.admin, "/", "vhost-limits", "limits")
    assert office.fails(again) == ("not_found", "Parameter does not exist")
    assert office.fails(clear(office.admin, "v", "x", "y"))[0] == "not_found"


def test_an_operator_policy_is_a_parameter() -> None:
    office = Office()
    office.do(parameters.set_parameter(office.admin, "/", "operator_policy", "o", OPERATOR_POLICY))
    [policy] = office.catalogue.policies("/", operator=True)
    assert (policy.name, policy.priority, policy.apply_to) == ("o", 1, "all")
    office.do(parameters.clear_parameter(office.admin, "/", "operator_policy", "o"))
    assert not list(office.catalogue.policies("/", operator=True))


def test_refused_parameters() -> None:
    office = Office()
    put = parameters.set_parameter
    policy = put(office.admin, "/", "policy", "p", OPERATOR_POLICY)
    assert office.fails(policy) == ("invalid", "policies may not be set using this method")
    assert office.fails(parameters.clear_parameter(office.admin, "/", "policy", "p"))[0] == "invalid"
    unknown = put(office.admin, "/", "nope", "n", 5)
    assert office.fails(unknown) == ("invalid", "Validation failed\n\ncomponent nope not found\n")
    limits = put(office.admin, "/", "vhost-limits", "limits", {"max-queues": "x"})
    assert office.fails(limits) == (
        "invalid",
        'Validation failed\n\nmax-queues should be a number, actually was <<"x">>\n',
    )
    elsewhere = put(office.admin, "v", "nope", "n", 5)
    assert office.fails(elsewhere) == ("not_found", ["no_such_vhost", "v"])
    assert not dict(office.catalogue.parameters("/"))


def test_an_upstream_of_this_broker_needs_a_permission_in_its_vhost() -> None:
    """Links without a host have all rights in their vhost, as have those of RabbitMQ's direct connections."""
    office = Office()
    office.world.submit(EnablePlugin(PLUGIN.name, tuple(each.name for each in PLUGIN.exchange_types)))
    office.world.submit(PutVhost("v"))
    put = parameters.set_parameter
    refused = 'Validation failed\n\nuser "guest" may not connect to vhost "v"\n'
    upstream = {"uri": ["amqp://host/v", "amqp:///v"]}
    of_set = [{"upstream": "u"}, {"upstream": "u", "uri": "amqp:///v"}]
    for component, value in (("federation-upstream", upstream), ("federation-upstream-set", of_set)):
        assert office.fails(put(office.admin, "/", component, "n", value)) == ("invalid", refused)
        assert office.do(
            put(office.admin, "/", component, "own", {"uri": "amqp://"} if value is upstream else [])
        )
    office.world.submit(SetPermission("v", "guest", "", "", ""))
    for component, value in (("federation-upstream", upstream), ("federation-upstream-set", of_set)):
        assert office.do(put(office.admin, "/", component, "n", value))


def test_global_parameters() -> None:
    office = Office()
    put, clear = parameters.set_global_parameter, parameters.clear_global_parameter
    assert office.do(put(office.admin, "g", {"password": "hunter2"}))
    assert not office.do(put(office.admin, "g", None))
    office.do(clear(office.admin, "g"))
    assert office.fails(clear(office.admin, "g")) == ("not_found", "Parameter does not exist")
    assert "hunter2" not in "".join(office.logged())


def test_a_value_must_not_be_nested_without_end() -> None:
    office = Office()
    value: Any = 1
    for _ in range(100):
        value = [{"a": value}]
    change = parameters.set_global_parameter(office.admin, "g", value)
    assert office.fails(change) == ("invalid", "the value is nested too deep")
