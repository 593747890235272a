"""Limits of vhosts as operators change them: what RabbitMQ 3.10.8 does (management §1.10)."""

from node.admin import limits
from tests.kit.office import Office


def test_one_after_the_other() -> None:
    office = Office()
    office.do(limits.set_vhost_limit(office.admin, "/", "max-queues", 5))
    office.do(limits.set_vhost_limit(office.admin, "/", "max-connections", -1))
    assert limits.vhost_limits(office.admin, "/") == {"max-queues": 5, "max-connections": -1}
    office.do(limits.clear_vhost_limit(office.admin, "/", "max-queues"))
    office.do(limits.clear_vhost_limit(office.admin, "/", "max-queues"))
    assert limits.vhost_limits(office.admin, "/") == {"max-connections": -1}


def test_all_at_once() -> None:
    """`rabbitmqctl set_vhost_limits` replaces."""
    office = Office()
    office.do(limits.set_vhost_limit(office.admin, "/", "max-queues", 5))
    office.do(limits.set_vhost_limits(office.admin, "/", {"max-connections": 2}))
    assert limits.vhost_limits(office.admin, "/") == {"max-connections": 2}
    office.do(limits.clear_vhost_limits(office.admin, "/"))
    assert office.fails(limits.clear_vhost_limits(office.admin, "/")) == (
        "not_found",
        "Parameter does not exist",
    )


def test_refused_limits() -> None:
    office = Office()
    unknown = limits.set_vhost_limit(office.admin, "/", "nope", 5)
    assert office.fails(unknown) == (
        "invalid",
        'Validation failed\n\nUnrecognised terms [{<<"nope">>,5}] in limits\n',
    )
    fraction = limits.set_vhost_limit(office.admin, "/", "max-queues", 1.5)
    assert office.fails(fraction) == (
        "invalid",
        "Validation failed\n\nmax-queues should be a number, actually was 1.5\n",
    )
    missing = ("not_found", ["no_such_vhost", "v"])
    assert office.fails(limits.set_vhost_limit(office.admin, "v", "max-queues", 5)) == missing
    assert office.fails(limits.set_vhost_limits(office.admin, "v", {})) == missing
    assert office.fails(limits.clear_vhost_limit(office.admin, "v", "max-queues")) == missing
